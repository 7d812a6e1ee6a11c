"""What is remembered of a hosted partition from one step to the next, and of all that one process hosts."""

from __future__ import annotations

from typing import Any

from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.delete_records import _DelayedDelete
from regency.broker_agent.replication.followers import Committed, IsrState
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.produce import _DelayedProduce
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.ids import BrokerId
from simulation.cluster.agent import SimAgent
from simulation.judging.invariants import broken
from simulation.judging.log_rules import LogCursor, Peek, Reader
from simulation.judging.retention_rules import Head, Key


class Unsettled:
    """Replicas of one process that have changed in an event that may not be over."""

    __slots__ = ("_changed", "_deposed", "_interrupted", "any")

    def __init__(self) -> None:
        self.any = False
        """Whether there is something to settle."""
        self._changed: list[Partition] = []
        self._deposed: list[Partition] = []
        self._interrupted = False

    def changed(self, partition: Partition) -> None:
        """The ISR that it goes by is another one."""
        self._changed.append(partition)
        self.any = True

    def deposed(self, partition: Partition) -> None:
        """It does not lead any more, or is not hosted any more."""
        self._deposed.append(partition)
        self.any = True

    def interrupted(self) -> None:
        """A step has ended in the middle of an event, which goes on by a time that has passed by then."""
        self._interrupted = self.any = True

    def settle(self, broker: BrokerId, replicas: ReplicaManager, now_ms: int) -> None:
        """The event is over, at this time of the process. Raises InvariantBroken."""
        changed, self._changed = self._changed, []
        deposed, self._deposed = self._deposed, []
        interrupted, self._interrupted = self._interrupted, False
        self.any = False
        for partition in deposed:
            check_told(f"broker {broker}, {partition.topic_partition}", replicas, partition)
        if not interrupted:
            for partition in changed:
                check_advanced(f"broker {broker}, {partition.topic_partition}", partition, now_ms)


def check_told(where: str, replicas: ReplicaManager, partition: Partition) -> None:
    """The replica does not lead, or is not hosted any more: nobody waits until it has what was appended."""
    name = partition.topic_partition
    for operation in replicas._hosting.produces._waiting.get(name, ()):
        if isinstance(operation, _DelayedProduce) and name in operation._open:
            raise broken("waiters-told", f"{where}: a produce waits at a {partition.role.value}")
    for deletion in replicas._hosting.deletes._waiting.get(name, ()):
        if isinstance(deletion, _DelayedDelete) and name in deletion._open:
            raise broken("waiters-told", f"{where}: a deletion waits at a {partition.role.value}")


def check_advanced(where: str, partition: Partition, now_ms: int) -> None:
    """The ISR is what stands in ZooKeeper: the high watermark has risen to what all of it are known to have.

    Who is no member and was caught up a moment ago may hold it back: it is about to join.
    """
    isr, log, rules = partition.isr, partition.log, partition._rules
    if partition.role is not Role.LEADER or not isinstance(isr, Committed) or log.home.failure is not None:
        return
    if len(isr.committed) < min(rules.min_insync(partition.topic_partition.topic), partition.replication_factor):
        return
    ends = [
        replica.log_end_offset
        for replica in partition.remotes.values()
        if replica.broker in isr.committed or replica.caught_up_within(rules.lag_ms, now_ms)
    ]
    allowed = min([log.log_end_offset, *ends])
    if log.high_watermark < allowed:
        raise broken(
            "watermark-advances",
            f"{where}: the high watermark stays {log.high_watermark} with {isr}, all of whose members have what is "
            f"below {allowed}",
        )


class Row:
    """A hosted partition as it was after the last step of its process."""

    __slots__ = (
        "cleaned_to",
        "cursor",
        "epoch",
        "head",
        "high_watermark",
        "isr",
        "key",
        "log",
        "log_end",
        "log_start",
        "partition",
        "reader",
        "role",
        "told_start",
        "truncations",
        "version",
    )

    def __init__(self, broker: BrokerId, partition: Partition, peek: Peek, head: Head) -> None:
        self.partition = partition
        self.log: Any = partition.log
        self.key = (partition.topic_id, partition.topic_partition.partition)
        self.head = head
        self.cursor = LogCursor(broker, partition.log, peek)
        self.reader = Reader(broker, partition.log, peek)
        self.high_watermark = -1
        self.log_end = -1
        self.cleaned_to = self.log.cleaned_to
        self.log_start = 0
        self.told_start = 0
        """Where clients may have seen the log begin."""
        self.epoch = -1
        self.truncations = self.log._flusher._truncations
        self.version = -1
        self.isr: IsrState | None = None
        self.role = Role.NONE

    def take_moved(self, broker: BrokerId, peek: Peek) -> None:
        """The replica has another log, in another directory: it is read from its start, as if nothing was known of it.

        Raises InvariantBroken where it is not what the one before was.
        """
        before, log = self.log, self.partition.log
        high = log.high_watermark
        if self.partition.role is Role.LEADER and high > before.high_watermark:
            high = (
                before.high_watermark
            )  # a fetch raised it in the step that ended the move: rules of leaders judge that
        for what, had, has in (
            ("begins at", before.log_start_offset, log.log_start_offset),
            ("ends at", before.log_end_offset, log.log_end_offset),
            ("has the high watermark", before.high_watermark, high),
            ("has the epochs", before.epoch_entries, log.epoch_entries),
            ("knows producers", sorted(before._producers._producers), sorted(log._producers._producers)),
        ):
            if had != has and before.home.failure is None:
                raise broken(
                    "moved-whole", f"broker {broker}, {log.topic_partition}: {what} {has} once moved, not {had}"
                )
        self.log = log
        self.head = Head(log)
        self.cursor = LogCursor(broker, log, peek)
        self.reader = Reader(broker, log, peek)
        self.truncations = log._flusher._truncations


class HostedRows:
    """The hosted partitions of one agent process."""

    __slots__ = ("agent", "left", "rows", "unsettled", "waiting")

    def __init__(self, agent: SimAgent) -> None:
        self.agent = agent
        self.rows: list[Row] = []
        self.left: list[Row] = []
        """Logs that it has and hosts no partition on: what retention does, it goes on doing to them."""
        self.waiting: dict[PartitionLog, tuple[Key, Head]] | None = None
        """Logs that it has found and hosts no partition on yet; None until it has them."""
        self.unsettled = Unsettled()

    def replace(self, rows: list[Row]) -> None:
        logs, kept = self.agent.logs, {row.partition for row in rows}
        names = {row.partition.topic_partition for row in rows}
        for row in self.rows:
            if row.partition not in kept:
                self.unsettled.deposed(row.partition)
                self.left.append(row)
        self.left = [
            row
            for row in self.left
            if row.partition.topic_partition not in names
            and logs is not None
            and logs.get(row.partition.topic_partition) is row.log
        ]
        self.rows = rows
