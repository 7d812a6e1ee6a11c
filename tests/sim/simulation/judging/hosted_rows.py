"""What is remembered of a hosted partition from one step to the next, and of all that one process hosts."""

from __future__ import annotations

from typing import Any

from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.followers import IsrState
from regency.broker_agent.replication.partition import Partition
from regency.model.ids import BrokerId
from simulation.cluster.agent import SimAgent
from simulation.judging.invariants import broken
from simulation.judging.log_digests import LogCursor, Peek
from simulation.judging.log_rules import Reader
from simulation.judging.retention_rules import Head, Key
from simulation.judging.settled_rules import Unsettled


class Row:
    """A hosted partition as it was after the last step of its process."""

    __slots__ = (
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
        for what, had, has in (
            ("begins at", before.log_start_offset, log.log_start_offset),
            ("ends at", before.log_end_offset, log.log_end_offset),
            ("has the high watermark", before.high_watermark, log.high_watermark),
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
