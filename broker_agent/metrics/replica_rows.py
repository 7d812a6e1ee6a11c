"""What a scrape wants to know of every replica on a broker, taken on the data loop in pieces.

A piece holds so few partitions that clients do not notice it; between two pieces things may change, so the rows are of
one moment each, but not of one moment all.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Event
from typing import NamedTuple

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.process.data_loop import DataLoop, LoopClosed
from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.followers import Committed
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.ids import UNKNOWN_OFFSET, BrokerId, TopicPartition

PIECE = 500
LOOP_TIMEOUT_MS = 10_000
"""A data loop that takes longer than this for all pieces is in trouble, and the scrape fails and says so."""


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
    """Who fetches it; empty where there is none or no answer has come yet."""
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
    """All replicas of a broker, and what is counted about them and their fetchers."""

    hosted: list[HostedRow]
    logs: list[LogRow]
    homeless: int
    """Partitions told to be here whose log could not be made or is in a directory that is offline."""
    offline_directories: int
    waiting_produces: int
    waiting_fetches: int
    waiting_deletes: int
    isr_shrinks: int
    isr_expands: int
    isr_failures: int
    fetches_per_second: float
    """Of the slowest fetcher; 0 where there is none."""
    failed_partitions: int
    """Partitions that no fetcher follows until the controller says so again."""
    dead_fetchers: int
    """Fetchers that will not fetch any more although they should."""
    received: int
    """Bytes of record batches that followers here have fetched and appended."""
    received_by_adding: int
    """Of them, by replicas that a reassignment adds here."""
    sent_to_adding: int
    """Bytes of record batches sent to replicas that a reassignment adds elsewhere."""
    behind: dict[BrokerId, list[int]]
    """By follower: records that it is behind the logs led here, and partitions of which that is not known."""


def look(
    loop: DataLoop, replicas: ReplicaManager, logs: LogManager, now_ms: int, *, timeout_ms: int = LOOP_TIMEOUT_MS
) -> Look:
    """Everything, a piece at a time; not for the data loop. Raises LoopClosed where the loop does not get to it.

    One piece posts the next, so that the loop turns in between, and only the last one wakes the caller.
    """
    outcome: Future[Look] = Future()
    given_up = Event()

    def begin() -> None:
        if not outcome.set_running_or_notify_cancel():  # from here on it cannot be cancelled
            return
        found = _begin(replicas, logs, now_ms)
        names = list(dict.fromkeys([*replicas.hosting.partitions, *logs.all()]))
        go_on(found, names, 0)

    def go_on(found: Look, names: Sequence[TopicPartition], start: int) -> None:
        _add(found, replicas, logs, names[start : start + PIECE])
        if start + PIECE >= len(names):
            outcome.set_result(found)
        elif not given_up.is_set():
            post(lambda: go_on(found, names, start + PIECE))

    def post(work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 (a scrape that fails must not end the agent)
                outcome.set_exception(error)

        loop.post(guarded)

    post(begin)
    try:
        return outcome.result(timeout_ms / 1000)
    except TimeoutError as error:
        given_up.set()
        outcome.cancel()
        raise LoopClosed(f"The data loop did not answer within {timeout_ms} ms.") from error


def _begin(replicas: ReplicaManager, logs: LogManager, now_ms: int) -> Look:
    hosting, isr, fetchers = replicas.hosting, replicas.isr, replicas.fetchers
    rates = [fetcher.requests.per_second(now_ms) for fetcher in fetchers.fetchers]
    return Look(
        hosted=[],
        logs=[],
        homeless=len(hosting.homeless.difference(hosting.partitions)),
        offline_directories=len(logs.offline_dirs),
        waiting_produces=len(hosting.produces),
        waiting_fetches=len(hosting.fetches),
        waiting_deletes=len(hosting.deletes),
        isr_shrinks=isr.shrinks,
        isr_expands=isr.expands,
        isr_failures=isr.failures,
        fetches_per_second=min(rates, default=0.0),
        failed_partitions=len(fetchers.failed),
        dead_fetchers=sum(fetcher.is_dead for fetcher in fetchers.fetchers),
        received=fetchers.received.total,
        received_by_adding=fetchers.received.adding,
        sent_to_adding=replicas.sent_to_adding,
        behind={},
    )


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
        end = partition.log.log_end_offset
        for follower, remote in partition.remotes.items():
            behind = found.behind.setdefault(follower, [0, 0])
            if remote.log_end_offset == UNKNOWN_OFFSET:
                behind[1] += 1
            else:
                behind[0] += max(0, end - remote.log_end_offset)
        if topic not in least:
            least[topic] = hosting.min_insync(topic)
        assignment = partition.assignment
        replicas_count = len(assignment.replicas)
        factor = partition.replication_factor if assignment.adding else max(1, replicas_count)  # the same, sooner
        in_sync = len(partition.isr.committed)
        wanted = min(least[topic], factor)
        found.hosted.append(
            HostedRow(
                topic,
                number,
                False,
                True,
                replicas_count,
                in_sync,
                in_sync < factor,
                in_sync < wanted,
                in_sync == wanted,
                assignment.is_reassigning,
                not isinstance(partition.isr, Committed),
                "",
                0,
            )
        )
