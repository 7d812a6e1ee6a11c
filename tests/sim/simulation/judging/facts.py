"""What is known of a run that excuses the loss of records, and what clients were promised."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import msgspec

from regency.judge import table as judge_table
from regency.judge.operations import LogStartMoved
from regency.judge.table import Allowance, Configuration, allowance_of
from regency.kafka.record_batch import read_header
from regency.model.ids import BrokerId, TopicPartition


class Digest(NamedTuple):
    """What identifies a batch. The checksum covers all of it but its place and its leader epoch."""

    next_offset: int
    crc: int
    leader_epoch: int = -1
    """-1 where that is not known."""

    def is_same(self, other: Digest | None) -> bool:
        """Whether both are of one batch, as far as their leader epochs are known."""
        if other is None or self[:2] != other[:2]:
            return False
        return self.leader_epoch == other.leader_epoch or -1 in (self.leader_epoch, other.leader_epoch)


class PartitionFacts:
    """What befell one partition."""

    __slots__ = (
        "askable",
        "awaits_leader",
        "elected_us",
        "fewest",
        "isr",
        "isr_lost_again",
        "leader",
        "leader_changes",
        "lossy_replicas",
        "lost_tail",
        "promised",
        "replicas",
        "unclean_elections",
        "whole_isr_lossy",
    )

    def __init__(self) -> None:
        self.replicas: tuple[BrokerId, ...] = ()
        self.fewest = 1 << 31
        """Replicas there were at the least."""
        self.isr: tuple[BrokerId, ...] = ()
        self.leader = BrokerId(-1)
        self.leader_changes = 0
        self.unclean_elections = 0
        self.lost_tail: set[BrokerId] = set()
        """Replicas that lost what they had not synced, and have not come back into the ISR since."""
        self.lossy_replicas = 0
        """Most of them at one time."""
        self.whole_isr_lossy = False
        """Whether the whole ISR was among them when a leader was elected, and nobody could be asked who had more."""
        self.askable: frozenset[BrokerId] | None = None
        """Who could be asked for its log when the last leader was elected, if the whole ISR was among them then."""
        self.awaits_leader = False
        """Whether the leader of such an election has not begun yet."""
        self.isr_lost_again = False
        """Whether a member of the ISR has lost something since that election."""
        self.elected_us = 0
        """When the last leader was elected, if not in place of one that had not begun."""
        self.promised: dict[int, Digest] = {}
        """What was acknowledged with acks=all, by first offset."""

    def count_lossy(self) -> None:
        """Something changed: see how bad it is now."""
        self.lossy_replicas = max(self.lossy_replicas, len(self.lost_tail))


class Facts:
    """Filled by the fault injector, the clients and the rules of ZooKeeper."""

    def __init__(self) -> None:
        self.min_insync: dict[str, int] = {}
        """min.insync.replicas by topic; 1 for others."""
        self.unclean_topics: set[str] = set()
        """Topics that allow unclean elections."""
        self.recreating: set[str] = set()
        """Topics of which some brokers may still have what was before they were deleted and made anew."""
        self.removed: set[str] = set()
        """Topics whose znodes somebody has taken away for good."""
        self.lost_states: set[TopicPartition] = set()
        """Partitions whose state somebody has taken away: the next one's version begins anew."""
        self.partitions: dict[TopicPartition, PartitionFacts] = {}
        self.compacted: set[TopicPartition] = set()
        """Partitions that have holes by right."""
        self.compacted_topics: set[str] = set()
        """Topics that brokers compact."""
        self.log_starts: list[LogStartMoved] = []
        """How far logs were seen to begin later, by those who lead them."""
        self.lossy_crashes = 0
        self._silent_at: dict[BrokerId, int] = {}
        self._crashed: set[BrokerId] = set()
        """Who lost something and has not registered since: whoever takes it for in sync judges what it had before."""
        self._former: list[tuple[TopicPartition, PartitionFacts]] = []
        """What befell partitions before their topics were made anew."""
        self.unlooked: list[tuple[TopicPartition, int]] = []
        """Promises that no rule has looked at yet: partition and first offset."""

    def of(self, partition: TopicPartition) -> PartitionFacts:
        """What befell a partition; to be added to."""
        known = self.partitions.get(partition)
        if known is None:
            known = self.partitions[partition] = PartitionFacts()
        return known

    # Faults

    def lossy_crash(self, broker: BrokerId | None = None) -> None:
        """The broker's machine lost what it had not synced. None: whichever it was, every partition is affected."""
        self.lossy_crashes += 1
        if broker is not None:
            self._crashed.add(broker)
        for facts in self.partitions.values():
            if broker is None:
                facts.whole_isr_lossy = True
            elif broker in facts.replicas:
                facts.lost_tail.add(broker)
                facts.isr_lost_again |= broker in facts.isr
                facts.count_lossy()

    # Questions

    def left_unanswered(self, broker: BrokerId, at_us: int) -> None:
        """A controller asked the broker how far its logs go, and heard nothing, or late."""
        self._silent_at[broker] = at_us

    def was_silent(self, broker: BrokerId, since_us: int) -> bool:
        """Whether a controller has asked the broker in vain since."""
        return broker in self._silent_at and self._silent_at[broker] >= since_us

    # ZooKeeper

    def elected(self, partition: TopicPartition, registered: Mapping[BrokerId, int], at_us: int) -> None:
        """A controller is about to write that somebody leads; who is `registered` now, by broker epoch.

        Whoever registered before those who were in sync is known to all who know them, and can be asked. Where the
        leader of an election after a loss never began, and nothing was lost since, a later controller has no reason to
        ask again: those who were asked then count.
        """
        facts = self.of(partition)
        if facts.awaits_leader and not facts.isr_lost_again:
            return
        facts.isr_lost_again = False
        facts.elected_us = at_us
        facts.askable = None
        facts.awaits_leader = bool(facts.isr) and facts.lost_tail.issuperset(facts.isr)
        if facts.awaits_leader:
            newest = max((registered.get(member, -1) for member in facts.isr), default=-1)
            facts.askable = frozenset(each for each in facts.replicas if 0 <= registered.get(each, -1) <= newest)

    def leaving(self, partition: TopicPartition, brokers: AbstractSet[BrokerId]) -> None:
        """These were leaving when that was decided: who is not elected is not asked."""
        facts = self.of(partition)
        if facts.askable is not None:
            facts.askable -= brokers

    def begun(self, partition: TopicPartition, leader: BrokerId) -> None:
        """A leader has begun: its log is what counts from now on, whatever was lost before."""
        facts = self.of(partition)
        facts.awaits_leader = False
        if facts.askable is not None:
            facts.lost_tail.discard(leader)

    def registered(self, broker: BrokerId) -> None:
        """The broker has begun again, and its registration says so."""
        self._crashed.discard(broker)

    def state_written(
        self, partition: TopicPartition, leader: BrokerId, isr: tuple[BrokerId, ...], replicas: tuple[BrokerId, ...]
    ) -> None:
        """A state znode was written. Who joins the ISR has all that is committed, unless it crashed a moment ago."""
        facts = self.of(partition)
        facts.lost_tail -= {member for member in isr if member not in facts.isr} - self._crashed
        if leader >= 0 and leader != facts.leader:
            facts.leader_changes += facts.leader >= 0
            facts.leader = leader
        facts.isr, facts.replicas = isr, replicas
        facts.fewest = min(facts.fewest, len(replicas))
        facts.count_lossy()

    # Clients

    def acknowledged(self, partition: TopicPartition, base_offset: int, batch: bytes) -> None:
        """A producer was told that its batch, as it sent it, is at `base_offset` on all that are in sync."""
        if partition.topic in self.recreating:
            return
        header = read_header(batch)
        digest = Digest(base_offset + header.last_offset_delta + 1, header.crc)
        self.of(partition).promised[base_offset] = digest
        self.unlooked.append((partition, base_offset))

    def forget(self, topic: str) -> None:
        """The topic was deleted: whatever was promised of it is void."""
        for partition in [each for each in self.partitions if each.topic == topic]:
            self._former.append((partition, self.partitions.pop(partition)))

    # What follows

    def excused(self, partition: TopicPartition) -> bool:
        """Whether committed records of the partition may be lost."""
        facts = self.partitions.get(partition)
        if partition.topic in self.recreating:
            return True
        if facts is None:
            return False
        enough = max(1, min(self.min_insync.get(partition.topic, 1), facts.fewest))
        return bool(facts.unclean_elections) or facts.whole_isr_lossy or facts.lossy_replicas >= enough

    def allowed(
        self, configurations: Iterable[Configuration] = (Configuration(),), *, epoch_bumps: int = 0
    ) -> dict[TopicPartition, Allowance]:
        """What the judge of histories shall allow to sends of producers that were configured in these ways."""
        wanted: Sequence[Configuration] = tuple(configurations)
        allowed: dict[TopicPartition, Allowance] = {}
        for partition, facts in (*self._former, *self.partitions.items()):
            told = judge_table.Facts(
                unclean_elections=facts.unclean_elections,
                leader_changes=facts.leader_changes,
                lossy_replicas=facts.lossy_replicas,
                whole_isr_lossy=facts.whole_isr_lossy,
                epoch_bumps=epoch_bumps,
                compacted=partition in self.compacted or partition.topic in self.compacted_topics,
            )
            minimum, factor = self.min_insync.get(partition.topic, 1), max(1, min(facts.fewest, len(facts.replicas)))
            of_topic = (
                msgspec.structs.replace(configuration, min_insync_replicas=minimum, replication_factor=factor)
                for configuration in wanted
            )
            allowed[partition] = allowed.get(partition, Allowance()) | allowance_of(of_topic, told)
        return allowed
