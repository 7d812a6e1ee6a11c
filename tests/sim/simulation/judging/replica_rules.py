"""The rules of replicas: looked at whenever a step has changed a log end, high watermark, epoch, role or ISR in memory.

What is committed is remembered: the first replica whose high watermark passes a batch says what stands there for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, Protocol

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.api import DeletedRecords, Role
from regency.broker_agent.replication.followers import PendingExpand
from regency.broker_agent.replication.partition import Partition
from regency.model.ids import ZERO_TOPIC_ID, BrokerId, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.cluster.agent import SimAgent
from simulation.judging import leading_rules
from simulation.judging.compaction_rules import CompactionRules
from simulation.judging.durability_rules import DurabilityRules
from simulation.judging.facts import Digest, Facts
from simulation.judging.hosted_rows import HostedRows, Row
from simulation.judging.invariants import broken
from simulation.judging.log_rules import LogCursor, LogRules, Peek, Reader, check_cut
from simulation.judging.retention_rules import Head, RetentionRules
from simulation.judging.zookeeper_rules import ZookeeperRules

ASKED_WITHIN_US: Final = 6_000_000
"""A leader begins not so long after others were asked how far their logs go, and did not answer."""

Key = tuple[TopicId, int]
"""A partition, by the topic's identity."""


class Cluster(Protocol):
    """Who there is."""

    @property
    def agents(self) -> Mapping[BrokerId, SimAgent]:
        """The newest agent process of every broker, alive or dead."""
        ...


class ReplicaRules:
    """Raises InvariantBroken."""

    def __init__(
        self,
        world: Cluster,
        facts: Facts,
        zookeeper: ZookeeperRules,
        peek: Peek,
        log_start_moved: Callable[[TopicPartition, TopicId, int], None] = lambda _partition, _topic_id, _start: None,
    ) -> None:
        self._log_start_moved = log_start_moved
        self._world = world
        self._facts = facts
        self._zookeeper = zookeeper
        self._peek = peek
        self._logs = LogRules(peek)
        self.compaction = CompactionRules(facts, peek)
        self.retention = RetentionRules(peek)
        self._durability = DurabilityRules()
        self._believers: dict[tuple[TopicId, int, int], BrokerId] = {}
        self._committed: dict[Key, dict[int, Digest]] = {}
        self._unseen: dict[TopicPartition, list[range]] = {}
        """Offsets that leaders took for committed in the very step in which they died."""

    # When something may have changed

    def look(self, hosted: HostedRows) -> None:
        """A step of the agent's process is over."""
        agent = hosted.agent
        replicas = agent.replicas
        self._durability.look(agent.broker_id, agent.logs)
        self._look_at_waiting(hosted, agent.logs)
        if replicas is None:
            return
        rows, hosting = hosted.rows, replicas._hosting
        if len(rows) != len(hosting.partitions):
            self.refresh(hosted)
            rows = hosted.rows
        for row in rows:
            partition, log = row.partition, row.log
            if partition.log is not log:
                self._moved(agent, row)
                log = row.log
            if (
                log._log_end != row.log_end
                or log._log_start != row.log_start
                or log._high_watermark != row.high_watermark
                or partition.isr is not row.isr
                or partition.leader_epoch != row.epoch
                or partition.role is not row.role
                or log.cleaned_to != row.cleaned_to
            ):
                was, isr = row.role, row.isr
                self._look_at_start(agent, row)
                self._changed(agent.broker_id, row)
                if was is Role.LEADER and partition.role is not was:
                    hosted.unsettled.deposed(partition)
                elif partition.isr is not isr:
                    hosted.unsettled.changed(partition)
        for row in hosted.left:
            if row.log._log_start != row.log_start:
                self._look_at_start(agent, row)
                row.log_start = row.log._log_start
        if hosting.completions._depth:
            hosted.unsettled.interrupted()
        elif hosted.unsettled.any:
            hosted.unsettled.settle(agent.broker_id, replicas, agent.process.clock.monotonic_ms())

    def deletion_asked(self, agent: SimAgent, offsets: Mapping[TopicPartition, Offset]) -> None:
        """A client asks a leader to delete records."""
        for name, offset in offsets.items():
            partition = self._hosted(agent.broker_id, name)
            if partition is not None and partition.is_leader:
                key = (partition.topic_id, name.partition)
                self.retention.asked(key, partition.log, offset)

    def deleted(self, agent: SimAgent, answer: Mapping[TopicPartition, DeletedRecords]) -> None:
        """A leader answers: nobody whom it takes for live offers what is below, and it does not again itself."""
        for name, outcome in answer.items():
            leading = self._hosted(agent.broker_id, name)
            if outcome.error is not ErrorCode.NONE or leading is None:
                continue
            self._durability.deleted(agent.broker_id, (leading.topic_id, name.partition), outcome.low_watermark)
            for broker in leading.remotes:
                epoch = leading._rules.peers.broker_epoch(broker)
                following = self._hosted(broker, name)
                if following is None or following.topic_id != leading.topic_id or epoch is None:
                    continue
                is_same = self._world.agents[broker].broker_epoch() == epoch and following.role is Role.FOLLOWER
                start = following.log.log_start_offset
                if is_same and following.leader_epoch == leading.leader_epoch and start < outcome.low_watermark:
                    raise broken(
                        "deleted-everywhere",
                        f"{name}: broker {agent.broker_id} tells a client that what is below {outcome.low_watermark} "
                        f"is deleted; broker {broker} begins at {start}",
                    )

    def died(self, hosted: HostedRows) -> None:
        """The process died in the step that is over: what it had just committed may have been acknowledged."""
        self._durability.look(hosted.agent.broker_id, hosted.agent.logs)
        for row in hosted.rows:
            self._note_unseen(row)
            self._note_unseen_start(hosted.agent.broker_id, row)

    def refresh(self, hosted: HostedRows) -> None:
        replicas = hosted.agent.replicas
        if replicas is None:
            return
        known = {row.partition: row for row in hosted.rows}
        rows = [
            known.get(partition) or Row(hosted.agent.broker_id, partition, self._peek, self._head(hosted, partition))
            for partition in replicas.partitions.values()
        ]
        hosted.replace(rows)
        for row in hosted.rows:
            if row.partition not in known:
                mark = _checkpointed(hosted.agent, row.log)
                self._durability.opened(hosted.agent.broker_id, row.key, row.log, mark)

    def _head(self, hosted: HostedRows, partition: Partition) -> Head:
        found = None if hosted.waiting is None else hosted.waiting.pop(partition.log, None)
        key = partition.topic_id, partition.topic_partition.partition
        return self.retention.opened(hosted.agent.broker_id, key, partition.log) if found is None else found[1]

    def _look_at_waiting(self, hosted: HostedRows, logs: LogManager | None) -> None:
        """Retention goes over logs, too, that the controller has not named yet."""
        agent = hosted.agent
        if logs is None:
            return
        if hosted.waiting is None:
            found = [
                (log, (log.topic_id, name.partition))
                for name, log in logs.all().items()
                if log.topic_id != ZERO_TOPIC_ID
            ]
            hosted.waiting = {log: (key, self.retention.opened(agent.broker_id, key, log)) for log, key in found}
        for log, (key, head) in hosted.waiting.items():
            if log._log_start != head.start and log.home.failure is None:
                self.retention.look(agent.broker_id, key, head, log, log.high_watermark, agent.process.clock.wall_ms())

    def look_at(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._check_everywhere(partition)
            self._check_complete(partition)

    def look_at_end(self, hosted: HostedRows) -> None:
        """All is well again, and nothing more is written."""
        for row in hosted.rows:
            is_compacted = self.compaction.covers(row.partition.topic_partition)
            if row.partition.role in (Role.LEADER, Role.FOLLOWER) and not is_compacted:
                self._logs.check_producers(hosted.agent.broker_id, row.log)

    def check_promises(self, promises: Iterable[tuple[TopicPartition, int]]) -> None:
        for partition, offset in promises:
            topic = self._zookeeper.topics.get(partition.topic)
            if topic is None or topic.topic_id is None or self._facts.excused(partition):
                continue
            promised = self._facts.of(partition).promised.get(offset)
            committed = self._committed.get((topic.topic_id, partition.partition), {}).get(offset)
            if committed is None and any(offset in unseen for unseen in self._unseen.get(partition, ())):
                continue
            if promised is not None and not promised.is_same(committed):
                raise broken(
                    "acknowledged-committed",
                    f"{partition}: {promised} was acknowledged at {offset}, there is {committed}",
                )

    # One replica

    def _moved(self, agent: SimAgent, row: Row) -> None:
        """The replica is in another directory: all of it is looked at."""
        row.take_moved(agent.broker_id, self._peek)
        # its mark is that of before, which may have gone back to a new leader's since the future log's was checkpointed
        self._durability.opened(agent.broker_id, row.key, row.log, None)
        row.log_end = -1

    def _look_at_start(self, agent: SimAgent, row: Row) -> None:
        """Where the log begins, before anything else is looked at: what is below is missed by nobody."""
        broker, log = agent.broker_id, row.log
        if log.home.failure is not None:
            self._note_unseen_start(broker, row)
            return
        self.retention.look(broker, row.key, row.head, log, row.high_watermark, agent.process.clock.wall_ms())
        if row.partition.role is Role.LEADER:
            self.retention.led(row.key, log)

    def _note_unseen_start(self, broker: BrokerId, row: Row) -> None:
        """Out of reach from now on, too: what a leader had just dropped it may have told its followers."""
        self.retention.died(broker, row.key, row.log)
        if row.role is Role.LEADER:
            self.retention.led(row.key, row.log)

    def _note_unseen(self, row: Row) -> None:
        """The replica is out of reach from now on: what a leader had just committed may have been acknowledged."""
        high = row.log._high_watermark
        if row.role is Role.LEADER and high > row.high_watermark:
            seen_to = max(row.high_watermark, 0)
            self._unseen.setdefault(row.partition.topic_partition, []).append(range(seen_to, high))

    def _changed(self, broker: BrokerId, row: Row) -> None:
        partition, log = row.partition, row.log
        role, epoch, high, end = partition.role, partition.leader_epoch, log._high_watermark, log._log_end
        if role is Role.OFFLINE or log.home.failure is not None:
            self._note_unseen(row)
            self._remember(row)
            return
        self._check_change(f"broker {broker}, {partition.topic_partition}", row)
        grew = role is Role.FOLLOWER and row.role is role and end >= row.log_end >= 0
        began = role is Role.LEADER and (epoch != row.epoch or row.role is not Role.LEADER)
        shrunk, is_new = end < row.log_end, row.log_end < 0
        if shrunk:
            _was_cut(broker, row)
        self._remember(row)
        if role is Role.LEADER and row.log_start != row.told_start:
            row.told_start = row.log_start
            self._log_start_moved(partition.topic_partition, partition.topic_id, row.log_start)
        self._read(broker, row)
        self._look_at_cleaned(broker, row, is_new=is_new)
        if began:
            self._check_believer(broker, row)
            self._logs.check_leader(broker, partition, is_compacted=self.compaction.covers(partition.topic_partition))
            self._check_takeover(broker, partition)
        if high > row.cursor.offset:
            self._check_committed(broker, row, high)
        if not grew:  # a follower that has more than before lacks no more than before
            self._check_everywhere(partition.topic_partition)

    def _check_change(self, where: str, row: Row) -> None:
        """What was remembered of the replica, against what it is now."""
        partition, log = row.partition, row.log
        role, epoch, high, end = partition.role, partition.leader_epoch, log._high_watermark, log._log_end
        if not log._log_start <= high <= end:
            raise broken("watermark-within-log", f"{where}: log start {log._log_start}, watermark {high}, end {end}")
        if epoch != row.epoch or role is not row.role:
            leading_rules.check_transition(where, partition, row.role, row.epoch)
        elif role is Role.LEADER and high < row.high_watermark:
            raise broken("watermark-holds", f"{where}: from {row.high_watermark} to {high} in leader epoch {epoch}")
        elif role is Role.LEADER and high > row.high_watermark:
            minimum = self._facts.min_insync.get(partition.topic_partition.topic, 1)
            leading_rules.check_enough(where, partition, minimum, row.isr, row.high_watermark)
        if epoch != row.epoch or partition.zk_version != row.version:
            if role is not Role.NONE and partition.topic_partition not in self._facts.lost_states:
                leading_rules.check_version(where, partition, row.version)
            self._check_not_ahead(where, partition)
        if role is Role.LEADER:
            leading_rules.check_remotes(where, partition)
            if partition.isr is not row.isr:
                leading_rules.check_joining(where, partition)

    def _read(self, broker: BrokerId, row: Row) -> None:
        """What has been appended; all that is there, once something was cut off."""
        cuts = row.log._flusher._truncations
        if cuts != row.truncations:
            row.truncations, row.reader = cuts, Reader(broker, row.log, self._peek)
        if self.compaction.covers(row.partition.topic_partition):
            self.compaction.appended(broker, row.key, row.log, row.reader.cursor)
        else:
            self._logs.check_appended(broker, row.key, row.log, row.reader)

    def _look_at_cleaned(self, broker: BrokerId, row: Row, *, is_new: bool) -> None:
        before, row.cleaned_to = row.cleaned_to, row.log.cleaned_to
        if not self.compaction.covers(row.partition.topic_partition):
            return
        self.compaction.changed(broker, row.log)
        if before != row.cleaned_to:
            self.compaction.cleaned(broker, row.key, row.log, before or 0)
        elif is_new:
            self.compaction.check(broker, row.key, row.log)

    def _remember(self, row: Row) -> None:
        partition, log = row.partition, row.log
        row.role = partition.role
        row.epoch = partition.leader_epoch
        row.isr = partition.isr
        row.version = partition.zk_version
        row.high_watermark = log._high_watermark
        row.log_end = log._log_end
        row.log_start = log._log_start

    def _check_not_ahead(self, where: str, partition: Partition) -> None:
        topic = self._zookeeper.by_id.get(partition.topic_id)
        if topic is None or partition.leader_epoch < 0:
            return
        number = partition.topic_partition.partition
        newest = max(topic.leaders.get(number, ()), default=-1)
        if partition.leader_epoch > newest:
            raise broken("epoch-not-ahead", f"{where}: leader epoch {partition.leader_epoch}, ZooKeeper's is {newest}")
        state = topic.states.get(number)
        if state is None or partition.leader_epoch != state.leader_epoch:
            return
        if partition.zk_version > state.version:
            raise broken("epoch-not-ahead", f"{where}: version {partition.zk_version}, ZooKeeper has {state}")

    def _check_believer(self, broker: BrokerId, row: Row) -> None:
        epoch = row.partition.leader_epoch
        first = self._believers.setdefault((*row.key, epoch), broker)
        if first != broker:
            raise broken(
                "one-believer-per-epoch",
                f"{row.partition.topic_partition}: {broker} leads in leader epoch {epoch}, as {first} did",
            )

    # What is committed

    def _check_committed(self, broker: BrokerId, row: Row, high_watermark: int) -> None:
        """The high watermark has passed batches: they are what others had there, and stay so."""
        committed = self._committed.setdefault(row.key, {})
        if self.compaction.covers(row.partition.topic_partition):
            for offset, digest in self.compaction.committed(broker, row.key, row.log, row.cursor, high_watermark):
                committed.setdefault(offset, digest)
            return
        for offset, digest in row.cursor.read_to(high_watermark):
            known = committed.setdefault(offset, digest)
            if known == digest:
                continue
            name = row.partition.topic_partition
            if not self._facts.excused(name):
                raise broken("logs-agree", f"broker {broker}, {name}: {digest} at {offset}, where others have {known}")
            committed[offset] = digest

    def _check_takeover(self, broker: BrokerId, partition: Partition) -> None:
        """A leader that ZooKeeper names has begun: everything committed and promised is in its log."""
        name = partition.topic_partition
        state = self._zookeeper.state(name)
        if state is None or (state.leader, state.leader_epoch) != (broker, partition.leader_epoch):
            return
        is_excused = self._facts.excused(name)
        if is_excused and name.topic not in self._facts.recreating:
            return
        log = partition.log
        if self.compaction.covers(name):
            self._check_compacted_takeover(broker, partition, is_excused=is_excused)
            return
        held = dict(LogCursor(broker, log, self._peek).read_to(log.log_end_offset))
        promised = self._facts.of(name).promised
        committed = self._committed.get((partition.topic_id, name.partition), {})
        for invariant, wanted in (("acknowledged-kept", promised), ("committed-kept", committed)):
            for offset, digest in wanted.items():
                if offset >= log.log_start_offset and not digest.is_same(held.get(offset)):
                    if self._is_nowhere(name, partition, partial(self._has, offset, digest)):
                        self._facts.of(name).whole_isr_lossy = True
                        return
                    if is_excused:  # the topic goes; but what clients saw until then is judged by what befell it
                        return
                    raise broken(
                        invariant,
                        f"{name}: leader {broker} of leader epoch {partition.leader_epoch}, whose log ends at "
                        f"{log.log_end_offset}, has {held.get(offset)} at {offset} instead of {digest}",
                    )
        self._facts.begun(name, broker)

    def _check_compacted_takeover(self, broker: BrokerId, partition: Partition, *, is_excused: bool) -> None:
        name, key = partition.topic_partition, (partition.topic_id, partition.topic_partition.partition)
        lost = self.compaction.lost(broker, key, partition.log)
        if lost is None:
            self._facts.begun(name, broker)
        elif self._is_nowhere(name, partition, lambda other, log: self.compaction.has(other, log, lost)):
            self._facts.of(name).whole_isr_lossy = True
        elif not is_excused:
            raise broken(
                "last-values-kept",
                f"{name}: leader {broker} of leader epoch {partition.leader_epoch}, whose log ends at "
                f"{partition.log.log_end_offset}, lacks {lost.what}",
            )

    def _has(self, offset: int, digest: Digest, broker: BrokerId, log: PartitionLog) -> bool:
        return digest.is_same(dict(LogCursor(broker, log, self._peek).read_to(log.log_end_offset)).get(offset))

    def _is_nowhere(
        self, name: TopicPartition, leading: Partition, has: Callable[[BrokerId, PartitionLog], bool]
    ) -> bool:
        """Whether all who were in sync had lost something, and nobody who could be asked has what is missing."""
        facts = self._facts.of(name)
        since_us = facts.elected_us - ASKED_WITHIN_US
        if facts.askable is None:
            return False
        told: list[tuple[BrokerId, PartitionLog]] = []
        for broker in sorted(facts.askable):
            agent = self._world.agents.get(broker)
            if agent is None or agent.logs is None or not agent.process.alive or agent.leaving:
                continue
            log = agent.logs.get(name)
            if log is None or log.topic_id != leading.topic_id or log.home.failure is not None:
                continue
            if not self._facts.was_silent(broker, since_us):
                told.append((broker, log))
            elif log is leading.log:
                return True  # who does not tell how far its log goes leads as the last that was in sync
        return not any(has(broker, log) for broker, log in told)

    # The leader and everybody in sync

    def _check_everywhere(self, name: TopicPartition) -> None:
        """The high watermark of the leader of now is in the log of everybody who may be elected."""
        state = self._zookeeper.state(name)
        leader = None if state is None else self._hosted(state.leader, name)
        if state is None or leader is None or not leader.is_leader or leader.leader_epoch != state.leader_epoch:
            return
        high = leader.log.high_watermark
        lost_tail = self._facts.of(name).lost_tail
        joining = leader.isr.joining if isinstance(leader.isr, PendingExpand) else ()
        for member in dict.fromkeys((*state.isr, *leader.isr.committed, *joining)):
            end = self._log_end(member, name, leader.topic_id)
            if end is not None and end < high and member not in lost_tail and not self._facts.excused(name):
                raise broken(
                    "watermark-everywhere",
                    f"{name}: leader {state.leader} has the high watermark {high}, the log of {member} ends at {end}; "
                    f"ZooKeeper has {state}, the leader {leader.isr}",
                )

    def _check_complete(self, name: TopicPartition) -> None:
        """Everybody who may be elected from now on has all that was ever committed."""
        state, topic = self._zookeeper.state(name), self._zookeeper.topics.get(name.topic)
        if state is None or topic is None or topic.topic_id is None or self._facts.excused(name):
            return
        if self._facts.of(name).awaits_leader:
            return  # what is missing is judged when the leader begins
        committed = self._committed.get((topic.topic_id, name.partition), {})
        for member in state.isr:
            agent = self._world.agents.get(member)
            log = None if agent is None or agent.logs is None else agent.logs.get(name)
            if (
                log is None
                or agent is None
                or not agent.process.alive
                or log.topic_id != topic.topic_id
                or log.home.failure is not None
                or member in self._facts.of(name).lost_tail
            ):
                continue
            if self.compaction.covers(name):
                lost = self.compaction.lost(member, (topic.topic_id, name.partition), log)
                if lost is not None:
                    raise broken("last-values-kept", f"{name}: {state}; the log of {member} lacks {lost.what}")
                continue
            held = dict(LogCursor(member, log, self._peek).read_to(log.log_end_offset))
            for offset, digest in committed.items():
                if offset >= log.log_start_offset and held.get(offset) != digest:
                    raise broken(
                        "isr-complete",
                        f"{name}: {state}; the log of {member}, which ends at {log.log_end_offset}, has "
                        f"{held.get(offset)} at {offset} instead of {digest}",
                    )

    def _hosted(self, broker: BrokerId, name: TopicPartition) -> Partition | None:
        agent = self._world.agents.get(broker)
        if agent is None or not agent.process.alive or agent.replicas is None:
            return None
        return agent.replicas.partitions.get(name)

    def _log_end(self, broker: BrokerId, name: TopicPartition, topic_id: TopicId) -> int | None:
        """Where the log of a live broker ends; None where that cannot be told."""
        agent = self._world.agents.get(broker)
        if agent is None or not agent.process.alive or agent.replicas is None or agent.logs is None:
            return None
        hosted = agent.replicas.partitions.get(name)
        if hosted is not None:
            offline = hosted.role is Role.OFFLINE or hosted.topic_id != topic_id
            return None if offline or hosted.log.home.failure is not None else hosted.log.log_end_offset
        log = agent.logs.get(name)
        if log is None:
            return None if agent.logs.offline_dirs or agent.leaving else 0
        return None if log.topic_id != topic_id or log.home.failure is not None else log.log_end_offset


def _checkpointed(agent: SimAgent, log: PartitionLog) -> Offset | None:
    """The high watermark of a log that its directory's checkpoint has; None where it has none."""
    directory = None if agent.logs is None else agent.logs._directories.get(log.home)
    return None if directory is None else directory.high_watermarks.get(log.topic_partition)


def _was_cut(broker: BrokerId, row: Row) -> None:
    row.cursor.go_back_to(row.log._log_end)
    if row.partition.role is not Role.LEADER:
        check_cut(broker, row.log)
