"""The rules of what may stand in ZooKeeper, and who may write it: looked at with every committed transaction.

Keeps a picture of its own, made of commits alone, which the rules of replicas compare memory with.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.ids import (
    LARGEST_LEAP,
    NO_BROKER_EPOCH,
    NO_LEADER,
    BrokerEpoch,
    BrokerId,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.znodes import NO_LOSS, paths
from regency.runtime.zookeeper.session import Stat
from simulation.judging.facts import Facts
from simulation.judging.invariants import broken

GONE_US: Final = 30_000_000
"""A write may be so long on its way: who joins an ISR by it, or was asked before it, may have gone no longer ago."""


class CommittedWrite(Protocol):
    """One change of a transaction. `kind`: create, set or delete; `stat`: after it, None for a delete."""

    @property
    def kind(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def data(self) -> bytes: ...
    @property
    def stat(self) -> Stat | None: ...


class Commit(Protocol):
    """A committed transaction, with what it checked: paths and versions (None: existence)."""

    @property
    def session_id(self) -> int: ...
    @property
    def zxid(self) -> int: ...
    @property
    def writes(self) -> Sequence[CommittedWrite]: ...
    @property
    def checks(self) -> Sequence[tuple[str, int | None]]: ...


class TopicRecord:
    """A topic znode. The leader epochs there have been outlive the states."""

    __slots__ = ("assignments", "czxid", "leaders", "states", "topic_id", "version")

    def __init__(self, czxid: int) -> None:
        self.czxid = czxid
        self.version = -1
        self.topic_id: TopicId | None = None
        self.assignments: dict[int, ReplicaAssignment] = {}
        self.states: dict[int, StateRecord] = {}
        self.leaders: dict[int, dict[int, BrokerId]] = {}
        """By partition and leader epoch; -1 where nobody led."""


class StateRecord:
    """A state znode."""

    __slots__ = ("controller_epoch", "isr", "leader", "leader_epoch", "version")

    def __init__(
        self, leader: BrokerId, leader_epoch: int, isr: tuple[BrokerId, ...], controller_epoch: int, version: int
    ) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.controller_epoch = controller_epoch
        self.version = version

    def __str__(self) -> str:
        return (
            f"leader {self.leader} in leader epoch {self.leader_epoch}, isr {list(self.isr)}, "
            f"controller epoch {self.controller_epoch}, version {self.version}"
        )


class ZookeeperRules:
    """Raises InvariantBroken from `on_commit`. `now_us` is virtual time."""

    def __init__(self, facts: Facts, now_us: Callable[[], int]) -> None:
        self.topics: dict[str, TopicRecord] = {}
        self.by_id: dict[TopicId, TopicRecord] = {}
        """Every topic there has been, also those that are gone."""
        self.brokers: dict[BrokerId, tuple[int, int]] = {}
        """Broker epoch and session of who is registered."""
        self.controller_epoch = 0
        self.is_ruled = False
        """Whether who won the last controller epoch is in office: /controller stands."""
        self.winners: dict[int, BrokerId] = {}
        """The broker that won each controller epoch."""
        self.winning_sessions: dict[int, int] = {}
        """The session that won each controller epoch."""
        self.at_win: dict[BrokerId, int] = {}
        """The lowest broker epochs that who won last may know: of who was registered then, or came later."""
        self.decided: list[tuple[TopicPartition, StateRecord, StateRecord]] = []
        """What controllers have written over what; the rules of controllers look at it and clear it."""
        self.changed: list[TopicPartition] = []
        """Partitions whose state was written; the rules of replicas look at them and clear it."""
        self._facts = facts
        self.now_us = now_us
        self._epoch_version = -1
        self._controllers: set[int] = set()
        self._last_epochs: dict[BrokerId, int] = {}
        self._lost_epochs: dict[BrokerId, int] = {}
        """Before which registration each broker says to have lost something last."""
        self._registrars: set[tuple[BrokerId, int]] = set()
        """Brokers, and sessions that have registered them."""
        self._gone_at: dict[BrokerId, int] = {}
        self._decided_at: dict[TopicPartition, int] = {}
        """zxid of the last write of each state."""

    def check_served(self, broker: BrokerId) -> None:
        """The data loop of a broker stands still for too long: it must lead nothing. Raises InvariantBroken."""
        for name, topic in self.topics.items():
            for number, state in topic.states.items():
                if state.leader == broker:
                    raise broken("leaders-serve", f"{name}-{number} is led by {broker}, whose data loop stands still")

    def state(self, partition: TopicPartition) -> StateRecord | None:
        topic = self.topics.get(partition.topic)
        return topic.states.get(partition.partition) if topic is not None else None

    def decided_at(self, partition: TopicPartition) -> int:
        """zxid of the last write of a partition's state; 0 before the first."""
        return self._decided_at.get(partition, 0)

    def last_epoch(self, broker: BrokerId) -> int:
        """The newest broker epoch of a broker; -1 before its first registration."""
        return self._last_epochs.get(broker, NO_BROKER_EPOCH)

    def on_commit(self, txn: Commit) -> None:
        """Take in one transaction, in the order of the log."""
        writes = txn.writes
        if not writes:
            return
        self._check_race(txn)
        if self._is_fenced(txn) and txn.session_id != self.winning_sessions.get(self.controller_epoch):
            raise broken(
                "controller-fenced",
                f"session {txn.session_id:x} wrote {', '.join(write.path for write in txn.writes)} under controller "
                f"epoch {self.controller_epoch}, which another session has won",
            )
        if txn.session_id in self._controllers:
            self._check_fence(txn)
        written: list[str] = []
        for write in writes:
            path = write.path
            if path.startswith(paths.TOPICS):
                partition = paths.parse_partition_state(path)
                if partition is not None:
                    self._state(txn, write, partition)
                    continue
                name = paths.parse_topic(path)
                if name is not None:
                    self._topic(write, name)
                    written.append(name)
            elif path.startswith(paths.BROKER_IDS):
                broker = paths.parse_broker(path)
                if broker is not None:
                    self._broker(write, broker)
            elif path.startswith(f"{paths.INCARNATIONS}/") and write.stat is not None:
                broker = BrokerId(int(path.rpartition("/")[2]))
                self._lost_epochs[broker] = znodes.decode_incarnation(write.data, epoch=BrokerEpoch(write.stat.mzxid))
        for name in written:
            self._check_topic(name)

    # Controllers

    def _check_race(self, txn: Commit) -> None:
        created = epoch = None
        for write in txn.writes:
            if write.path == paths.CONTROLLER:
                self.is_ruled = write.kind == "create"
                created = write if self.is_ruled else created
            elif write.path == paths.CONTROLLER_EPOCH:
                epoch = write
        if epoch is not None and epoch.kind == "create" and self._epoch_version < 0 and created is None:
            assert epoch.stat is not None
            self.controller_epoch = znodes.decode_controller_epoch(epoch.path, epoch.data)
            self._epoch_version = epoch.stat.version
            return
        if created is None and epoch is None:
            return
        if created is None or epoch is None or epoch.stat is None or created.stat is None:
            who = "/controller was created" if created is not None else "/controller_epoch was written"
            raise broken("controller-epoch-won", f"{who} by session {txn.session_id:x} without the other")
        won = znodes.decode_controller_epoch(epoch.path, epoch.data)
        if won != self.controller_epoch + 1 or epoch.stat.version != self._epoch_version + 1:
            raise broken(
                "controller-epoch-won",
                f"epoch {self.controller_epoch} at version {self._epoch_version} became {won} at {epoch.stat.version}",
            )
        if created.stat.ephemeral_owner != txn.session_id:
            raise broken("controller-epoch-won", f"/controller of epoch {won} is not its creator's ephemeral")
        self.controller_epoch = won
        self._epoch_version = epoch.stat.version
        self.winners[won] = znodes.decode_controller(created.path, created.data)
        self.winning_sessions[won] = txn.session_id
        gone = {broker: epoch + 1 for broker, epoch in self._last_epochs.items()}
        self.at_win = {**gone, **{broker: epoch for broker, (epoch, _) in self.brokers.items()}}
        self._controllers.add(txn.session_id)

    def _check_fence(self, txn: Commit) -> None:
        """A session that has won once writes nothing but the next race without checking the epoch."""
        if self._is_fenced(txn):
            return
        for write in txn.writes:
            stat = write.stat
            own_end = write.kind == "delete" and not _is_cluster_state(write.path)
            if not own_end and write.path not in _UNFENCED:
                version = "" if stat is None else f", version {stat.version}"
                raise broken(
                    "controller-fenced",
                    f"session {txn.session_id:x}, which once ruled, wrote {write.path} ({write.kind}{version}) "
                    f"without the check of /controller_epoch at version {self._epoch_version}",
                )

    def _is_fenced(self, txn: Commit) -> bool:
        return any(path == paths.CONTROLLER_EPOCH and version == self._epoch_version for path, version in txn.checks)

    # Brokers

    def _broker(self, write: CommittedWrite, broker: BrokerId) -> None:
        if write.kind == "delete":
            self.brokers.pop(broker, None)
            self._gone_at[broker] = self.now_us()
            return
        stat = write.stat
        assert stat is not None
        if write.kind == "create":
            last = self._last_epochs.get(broker, -1)
            if stat.czxid <= last:
                raise broken("broker-epochs-grow", f"broker {broker} registered as {stat.czxid} after {last}")
            self._last_epochs[broker] = stat.czxid
            self._facts.registered(broker)
        self.brokers[broker] = (stat.czxid, stat.ephemeral_owner)
        self._registrars.add((broker, stat.ephemeral_owner))

    # Topics

    def _topic(self, write: CommittedWrite, name: str) -> None:
        stat = write.stat
        if stat is None:
            del self.topics[name]
            self._facts.forget(name)
            return
        topic = self.topics.get(name)
        if topic is None or topic.czxid != stat.czxid:
            topic = self.topics[name] = TopicRecord(stat.czxid)
        if stat.version != topic.version + 1:
            raise broken("versions-count", f"{write.path} went from version {topic.version} to {stat.version}")
        topic.version = stat.version
        content = znodes.decode_topic(
            write.path, write.data, topic=name, zk_version=ZkVersion(stat.version), czxid=stat.czxid
        )
        if content.topic_id is not None:
            if topic.topic_id not in (None, content.topic_id):
                raise broken("topic-ids-stay", f"{name} had the id {topic.topic_id}, now {content.topic_id}")
            topic.topic_id = content.topic_id
            self.by_id[content.topic_id] = topic
        topic.assignments = dict(content.partitions)

    def _check_topic(self, name: str) -> None:
        """A transaction that wrote the topic is over: it may have changed replicas and ISRs together."""
        topic = self.topics.get(name)
        if topic is not None:
            for number, state in topic.states.items():
                self._check_assigned(TopicPartition(name, number), topic, state)

    # States

    def _state(self, txn: Commit, write: CommittedWrite, partition: TopicPartition) -> None:
        topic = self.topics.get(partition.topic)
        stat = write.stat
        if topic is None:
            return
        before = topic.states.get(partition.partition)
        self.changed.append(partition)
        if stat is None:
            topic.states.pop(partition.partition, None)
            return
        content = znodes.decode_state(write.path, write.data, zk_version=ZkVersion(stat.version))
        decided = content.leader_and_isr
        after = StateRecord(decided.leader, decided.leader_epoch, decided.isr, content.controller_epoch, stat.version)
        if stat.version != (0 if before is None else before.version + 1):
            raise broken("versions-count", f"{partition}: {before} was followed by {after}")
        if after.leader != NO_LEADER and after.leader not in after.isr:
            raise broken("leader-in-isr", f"{partition}: {after}")
        self._check_assigned(partition, topic, after)
        self._check_epochs(partition, topic, before, after)
        if self._is_fenced(txn):
            self._check_decision(partition, before, after)
        else:
            self._check_isr_change(txn, partition, before, after)
        topic.states[partition.partition] = after
        self._decided_at[partition] = stat.mzxid
        self._facts.state_written(partition, after.leader, after.isr, topic.assignments[partition.partition].replicas)

    def _check_assigned(self, partition: TopicPartition, topic: TopicRecord, state: StateRecord) -> None:
        assignment = topic.assignments.get(partition.partition)
        replicas = () if assignment is None else assignment.replicas
        strangers = [member for member in state.isr if member not in replicas]
        if strangers or not state.isr:
            raise broken("isr-assigned", f"{partition}: {state}; assigned are {list(replicas)}")

    def _check_epochs(
        self, partition: TopicPartition, topic: TopicRecord, before: StateRecord | None, after: StateRecord
    ) -> None:
        leaders = topic.leaders.setdefault(partition.partition, {})
        known = leaders.get(after.leader_epoch, NO_LEADER)
        if known not in (NO_LEADER, after.leader) and after.leader != NO_LEADER:
            raise broken("one-leader-per-epoch", f"{partition}: {known} led in the epoch of {after}")
        newest = max(leaders, default=-1)
        if after.leader_epoch < newest:
            raise broken("leader-epoch-grows", f"{partition}: there was leader epoch {newest}, now {after}")
        if known == NO_LEADER:
            leaders[after.leader_epoch] = after.leader
        if before is not None and after.controller_epoch < before.controller_epoch:
            raise broken("state-epoch-grows", f"{partition}: {before} was followed by {after}")

    def _check_decision(self, partition: TopicPartition, before: StateRecord | None, after: StateRecord) -> None:
        if after.controller_epoch != self.controller_epoch:
            raise broken("state-epoch-current", f"{partition}: {after}, but {self.controller_epoch} rules")
        if before is None:
            return
        if not before.leader_epoch < after.leader_epoch <= before.leader_epoch + LARGEST_LEAP + 1:
            raise broken("election-raises-epoch", f"{partition}: {before} was followed by {after}")
        self.decided.append((partition, before, after))
        # Who stays alone stays whatever it has lost: nobody else is in sync.
        for member in after.isr if len(after.isr) > 1 else ():
            if member in before.isr and self._has_registered_since(partition, member):
                raise broken("decision-hides-nobody", self._hidden(partition, before, after, member))
        if after.leader == NO_LEADER:
            return
        self._facts.elected(partition, {broker: epoch for broker, (epoch, _) in self.brokers.items()}, self.now_us())
        if after.leader in before.isr:
            return
        if partition.topic in self._facts.unclean_topics:
            self._facts.of(partition).unclean_elections += 1
        elif not self._restarted(before.isr):
            raise broken("clean-elections", f"{partition}: {before} was followed by {after}")

    def _restarted(self, isr: tuple[BrokerId, ...]) -> bool:
        """Whether all who were in sync say to have lost something, and one lives: who leads must have all it still has.

        That is looked at when the leader begins. The one that lives may have died a moment ago.
        """
        lost = all(self._lost_epochs.get(member, NO_LOSS) > NO_LOSS for member in isr)
        since = self.now_us() - GONE_US
        return lost and any(member in self.brokers or self._gone_at.get(member, -1) >= since for member in isr)

    def _check_isr_change(
        self, txn: Commit, partition: TopicPartition, before: StateRecord | None, after: StateRecord
    ) -> None:
        """A write without the controllers' fence: it must be the leader's."""
        if before is None:
            raise broken("state-writer", f"{partition}: session {txn.session_id:x} created {after} unfenced")
        # What a session sent before its client lost it may arrive when another has registered the broker again.
        if before.leader not in self.brokers or (before.leader, txn.session_id) not in self._registrars:
            raise broken(
                "state-writer",
                f"{partition}: session {txn.session_id:x}, not one that registered leader {before.leader}, "
                f"wrote {after} over {before}",
            )
        kept_before = before.leader, before.leader_epoch, before.controller_epoch
        if kept_before != (after.leader, after.leader_epoch, after.controller_epoch):
            raise broken("isr-change-keeps-leader", f"{partition}: {before} was followed by {after}")
        now = self.now_us()
        for member in after.isr:
            if member in before.isr and member != after.leader and self._has_registered_since(partition, member):
                raise broken("isr-change-hides-nobody", self._hidden(partition, before, after, member))
            if member not in before.isr and member not in self.brokers:
                gone_at = self._gone_at.get(member)
                if gone_at is None or now - gone_at > GONE_US:
                    raise broken("isr-joins-registered", f"{partition}: {member} is not registered; {after}")

    def _has_registered_since(self, partition: TopicPartition, member: BrokerId) -> bool:
        return self.last_epoch(member) > self._decided_at[partition]

    def _hidden(self, partition: TopicPartition, before: StateRecord, after: StateRecord, member: BrokerId) -> str:
        return (
            f"{partition}: {before} of zxid {self._decided_at[partition]} was followed by {after}, although {member} "
            f"registered in between, as {self.last_epoch(member)}"
        )


_UNFENCED: Final = frozenset({*paths.PERSISTENT_PARENTS, paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.CLUSTER_ID})
"""What a controller that does not rule may create before it races."""


def _is_cluster_state(path: str) -> bool:
    """Whether a controller may delete it only while it rules; /controller vanishes with its session."""
    return path.startswith(("/brokers/topics/", "/admin/", "/config/", "/isr_change", "/log_dir_event"))
