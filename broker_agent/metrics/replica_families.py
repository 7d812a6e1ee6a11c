"""Families of replicas, from the rows a scrape has taken: sums over the broker, and thousands of series as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from regency.broker_agent.metrics.replica_rows import HostedRow, LogRow, Look
from regency.runtime.metrics import table_agent as names
from regency.runtime.metrics.families import Family, Wanted, block, escape, value, values
from regency.runtime.metrics.names import MetricName

_OF_PARTITIONS: tuple[tuple[MetricName, Callable[[HostedRow], int]], ...] = (
    (names.P_UNDER_REPLICATED, lambda row: int(row.under_replicated)),
    (names.P_UNDER_MIN_ISR, lambda row: int(row.under_min_isr)),
    (names.P_AT_MIN_ISR, lambda row: int(row.at_min_isr)),
    (names.P_REPLICAS_COUNT, lambda row: row.replicas),
    (names.P_IN_SYNC_COUNT, lambda row: row.in_sync),
)
_OF_LOGS: tuple[tuple[MetricName, Callable[[LogRow], int]], ...] = (
    (names.LOG_SIZE, lambda row: row.size),
    (names.LOG_START, lambda row: row.start),
    (names.LOG_END, lambda row: row.end),
    (names.LOG_SEGMENTS, lambda row: row.segments),
)


def sums(look: Look) -> Iterable[Family]:
    """What is counted over all replicas."""
    hosted = look.hosted
    yield value(names.LEADER_COUNT, sum(row.leads for row in hosted))
    yield value(names.PARTITION_COUNT, len(hosted) + look.homeless)
    yield value(names.OFFLINE_REPLICA_COUNT, sum(row.offline for row in hosted) + look.homeless)
    yield value(names.UNDER_REPLICATED, sum(row.under_replicated for row in hosted))
    yield value(names.UNDER_MIN_ISR, sum(row.under_min_isr for row in hosted))
    yield value(names.AT_MIN_ISR, sum(row.at_min_isr for row in hosted))
    yield value(names.REASSIGNING, sum(row.reassigning for row in hosted))
    yield value(names.ISR_PENDING, sum(row.isr_pending for row in hosted))
    yield value(names.ISR_SHRINKS, look.isr_shrinks)
    yield value(names.ISR_EXPANDS, look.isr_expands)
    yield value(names.FAILED_ISR_UPDATES, look.isr_failures)
    yield value(names.OFFLINE_DIRECTORIES, look.offline_directories)
    waiting = [(("Produce",), look.waiting_produces), (("Fetch",), look.waiting_fetches)]
    yield values(names.PURGATORY_SIZE, waiting)
    yield values(names.MAX_LAG, [(("Replica",), max((row.lag for row in hosted), default=0))])


def by_partition(look: Look, wanted: Wanted) -> Iterable[Family]:
    """One series for each partition, in every family. Labels are made once for all of them."""
    hosted = [(_labels(row.topic, row.partition), row) for row in look.hosted]
    for name, read in _OF_PARTITIONS:
        if wanted(name):
            yield block(name, [(labels, read(row)) for labels, row in hosted])
    if wanted(names.CONSUMER_LAG):
        followed = [(f'clientId="{row.fetcher}",{labels}', row.lag) for labels, row in hosted if row.fetcher]
        yield block(names.CONSUMER_LAG, followed)
    logs = [(_labels(row.topic, row.partition), row) for row in look.logs]
    for log_name, read_log in _OF_LOGS:
        if wanted(log_name):
            yield block(log_name, [(labels, read_log(row)) for labels, row in logs])


def _labels(topic: str, partition: int) -> str:
    return f'topic="{escape(topic)}",partition="{partition}"'
