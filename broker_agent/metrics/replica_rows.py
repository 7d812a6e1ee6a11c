"""What a scrape wants to know of every replica on a broker, taken on the data loop in pieces.

A piece holds so few partitions that clients do not notice it; between two pieces things may change, so the rows are of
one moment each, but not of one moment all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from regency.broker_agent.log.log_manager import LogManager
from regency.broker_agent.replication.isr_state import Committed
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.broker_agent.replication.rules import Role
from regency.model.ids import TopicPartition

T = TypeVar("T")

PIECE = 500
LOOP_TIMEOUT_MS = 10_000
"""A data loop that takes longer than this for a piece is in trouble, and the scrape fails and says so."""


class Loop(Protocol):
    """The way to the data loop."""

    def call(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """Run on the data loop and wait."""
        ...


class HostedRow(NamedTuple):
    """A hosted partition. What only leaders know is 0 or False where this broker does not lead."""

    topic: str
    partition: int
    offline: bool
    leads: bool
    replicas: int
    in_sync: int
    under_replicated: bool
    under_min_isr: bool
    at_min_isr: bool
    reassigning: bool
    isr_pending: bool
    fetcher: str
    """Who fetches it; empty where nobody does or no answer has come yet."""
    lag: int


class LogRow(NamedTuple):
    """A log, hosted or not."""

    topic: str
    partition: int
    size: int
    start: int
    end: int
    segments: int


class Look(NamedTuple):
    """All replicas of a broker, and what is counted about them."""

    hosted: list[HostedRow]
    logs: list[LogRow]
    homeless: int
    """Partitions told to be here whose log could not be made or is in a directory that is offline."""
    offline_directories: int
    waiting_produces: int
    waiting_fetches: int
    isr_shrinks: int
    isr_expands: int
    isr_failures: int


def look(loop: Loop, replicas: ReplicaManager, logs: LogManager) -> Look:
    """Everything, a piece at a time. Raises LoopClosed where the loop does not answer."""
    names, counted = loop.call(lambda: _begin(replicas, logs), timeout_ms=LOOP_TIMEOUT_MS)
    for start in range(0, len(names), PIECE):
        piece = names[start : start + PIECE]
        loop.call(lambda: _add(counted, replicas, logs, piece), timeout_ms=LOOP_TIMEOUT_MS)  # noqa: B023 (called now)
    return counted


def _begin(replicas: ReplicaManager, logs: LogManager) -> tuple[list[TopicPartition], Look]:
    hosting, isr = replicas.hosting, replicas.isr
    names = list(dict.fromkeys([*hosting.partitions, *logs.all()]))
    offline = len(logs.offline_dirs)
    homeless = len(hosting.homeless.difference(hosting.partitions))
    waiting = len(hosting.produces), len(hosting.fetches)
    return names, Look([], [], homeless, offline, *waiting, isr.shrinks, isr.expands, isr.failures)


def _add(found: Look, replicas: ReplicaManager, logs: LogManager, names: Sequence[TopicPartition]) -> None:
    hosting, fetchers = replicas.hosting, replicas.fetchers
    least: dict[str, int] = {}
    for name in names:
        topic, number = name
        log = logs.get(name)
        if log is not None:
            found.logs.append(
                LogRow(topic, number, log.size_bytes, log.log_start_offset, log.log_end_offset, log.segment_count)
            )
        partition = hosting.partitions.get(name)
        if partition is None:
            continue
        if not partition.is_leader:
            fetcher, lag = fetchers.lag(name) or ("", 0)
            offline = partition.role is Role.OFFLINE
            found.hosted.append(
                HostedRow(topic, number, offline, False, 0, 0, False, False, False, False, False, fetcher, lag)
            )
            continue
        if topic not in least:
            least[topic] = hosting.min_insync(topic)
        factor = partition.replication_factor
        in_sync = len(partition.isr.committed)
        wanted = min(least[topic], factor)
        found.hosted.append(
            HostedRow(
                topic,
                number,
                False,
                True,
                len(partition.assignment.replicas),
                in_sync,
                in_sync < factor,
                in_sync < wanted,
                in_sync == wanted,
                partition.assignment.is_reassigning,
                not isinstance(partition.isr, Committed),
                "",
                0,
            )
        )
