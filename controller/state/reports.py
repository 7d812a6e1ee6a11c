"""What agents last reported of the replicas they host. Written by gRPC threads, read by any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

import msgspec

from regency.model.hosting import SERVED, HostedRole, replica_number, topic_number
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition, ZkVersion


class ReplicaReport(msgspec.Struct, frozen=True):
    """One replica as its broker reported it. `isr` is empty where the broker does not lead."""

    topic_id: TopicId
    role: HostedRole
    leader: BrokerId
    leader_epoch: LeaderEpoch
    zk_version: ZkVersion
    high_watermark: Offset
    log_end_offset: Offset
    log_start_offset: Offset
    isr: tuple[BrokerId, ...]
    directory: str
    damage: str = ""
    """Where its files are damaged, as far as reads found out."""

    def __str__(self) -> str:
        """What it is and under whom, for people."""
        match self.role:
            case HostedRole.LEADER:
                return f"leads in leader epoch {self.leader_epoch} at version {self.zk_version}, isr {list(self.isr)}"
            case HostedRole.FOLLOWER | HostedRole.UNFED:
                without = " without a fetcher" if self.role is HostedRole.UNFED else ""
                return f"follows {self.leader} in leader epoch {self.leader_epoch}{without}"
            case HostedRole.OFFLINE:
                return f"is out of reach in {self.directory}"
            case HostedRole.NONE:
                return "does not serve it"

    def number(self, partition: int) -> int:
        """What it adds to its broker's digest."""
        topic = topic_number(self.topic_id)
        return replica_number(topic, partition, self.leader, self.leader_epoch, self.zk_version, self.role)


class Taken(msgspec.Struct, frozen=True):
    """A report without its replicas."""

    broker: BrokerId
    epoch: BrokerEpoch
    number: int
    digest: int
    full: bool
    at_ms: int
    """When it came; monotonic."""


class BrokerReports(msgspec.Struct):
    """All that one incarnation of a broker has reported."""

    last: Taken
    replicas: dict[TopicPartition, ReplicaReport]
    wants_full: bool = False
    """Its next report shall name everything."""
    leads: int = 0
    follows: int = 0
    offline: int = 0
    """How many of the replicas are what, kept as they change."""
    appended: int = 0
    """Records by which logs grew while it led them, from one report to the next."""

    def put(self, partition: TopicPartition, replica: ReplicaReport) -> None:
        """Take in what it says of a replica."""
        before = self.replicas.get(partition)
        if before is not None:
            self._count(before.role, -1)
            grown = replica.log_end_offset - before.log_end_offset
            if grown > 0 and before.role is replica.role is HostedRole.LEADER and before.topic_id == replica.topic_id:
                self.appended += grown
        self._count(replica.role, 1)
        self.replicas[partition] = replica

    def drop(self, partition: TopicPartition) -> None:
        """Forget a replica that is not hosted any more."""
        before = self.replicas.pop(partition, None)
        if before is not None:
            self._count(before.role, -1)

    def _count(self, role: HostedRole, change: int) -> None:
        if role is HostedRole.LEADER:
            self.leads += change
        elif role in SERVED:
            self.follows += change
        elif role is HostedRole.OFFLINE:
            self.offline += change


class Tally(msgspec.Struct, frozen=True):
    """What one incarnation of a broker reported, in numbers; see BrokerReports."""

    at_ms: int
    leads: int
    follows: int
    offline: int
    appended: int


_NOTHING: Mapping[TopicPartition, ReplicaReport] = {}


class ReplicaReports:
    """Newest report per broker and partition, of the brokers' present incarnations, in one controller epoch."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brokers: dict[BrokerId, BrokerReports] = {}

    def take(self, report: Taken, changes: Iterable[tuple[TopicPartition, ReplicaReport]]) -> bool:
        """Take in a report, unless a newer one is known. Returns whether the next one shall be full."""
        gone, hosted = [], {}
        for name, replica in changes:  # before anybody has to wait for the lock
            if replica.role is HostedRole.NONE:
                gone.append(name)
            else:
                hosted[name] = replica
        with self._lock:
            known = self._brokers.get(report.broker)
            first = known is None or known.last.epoch != report.epoch
            if known is not None and not first and report.number < known.last.number:
                return known.wants_full
            if known is None or first or report.full:
                appended = 0 if known is None or first else known.appended
                known = BrokerReports(report, {}, first and not report.full, appended=appended)
                self._brokers[report.broker] = known
            known.last = report
            for name in gone:
                known.drop(name)
            for name, replica in hosted.items():
                known.put(name, replica)
            return known.wants_full

    def last(self, broker: BrokerId, epoch: BrokerEpoch) -> Taken | None:
        """The last report of an incarnation; None where it has none, or has not named everything yet."""
        with self._lock:
            known = self._brokers.get(broker)
            return None if known is None or known.last.epoch != epoch or known.wants_full else known.last

    def tally(self, broker: BrokerId, epoch: BrokerEpoch) -> Tally | None:
        """What an incarnation reported, in numbers; None where it has not reported."""
        with self._lock:
            known = self._brokers.get(broker)
            if known is None or known.last.epoch != epoch:
                return None
            return Tally(known.last.at_ms, known.leads, known.follows, known.offline, known.appended)

    def copy(self, broker: BrokerId, epoch: BrokerEpoch) -> BrokerReports | None:
        """All that an incarnation has reported, as it is now; None where that is nothing, or not everything yet."""
        with self._lock:
            known = self._brokers.get(broker)
            if known is None or known.last.epoch != epoch or known.wants_full:
                return None
            return BrokerReports(known.last, dict(known.replicas))

    def replica(self, broker: BrokerId, partition: TopicPartition) -> ReplicaReport | None:
        """What a broker last reported of a partition."""
        with self._lock:
            known = self._brokers.get(broker)
            return None if known is None else known.replicas.get(partition)

    def reader(self, broker: BrokerId) -> Callable[[TopicPartition], ReplicaReport | None]:
        """Looks up what a broker last reported of partitions; for many look-ups, which do not wait. Any thread.

        What is read may be of different reports, and of one that has been replaced meanwhile.
        """
        with self._lock:
            known = self._brokers.get(broker)
            return _NOTHING.get if known is None else known.replicas.get

    def ask_for_all(self, broker: BrokerId) -> None:
        """Have the broker name everything in its next report. Harmless where it never reported."""
        with self._lock:
            known = self._brokers.get(broker)
            if known is not None:
                known.wants_full = True

    def retain(self, live: Mapping[BrokerId, BrokerEpoch]) -> None:
        """Forget the brokers that are not live."""
        with self._lock:
            for broker in [each for each in self._brokers if each not in live]:
                del self._brokers[broker]

    def clear(self) -> None:
        """Forget everything: the term is over."""
        with self._lock:
            self._brokers.clear()


def served(reports: Mapping[TopicPartition, ReplicaReport]) -> int:
    """How many of the replicas are led or followed."""
    return sum(replica.role in SERVED for replica in reports.values())
