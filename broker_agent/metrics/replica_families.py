"""Families of replicas, from the rows a scrape has taken: sums over the broker, and thousands of series as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from regency.broker_agent.metrics.replica_rows import PIECE, HostedRow, LogRow, Look
from regency.runtime.metrics import table_agent as names
from regency.runtime.metrics.families import Block, Family, MetricName, Wanted, block, escape, value, values

_FETCHERS = ("Replica",)
"""Kafka's client id of all fetchers together."""

R = TypeVar("R", bound=HostedRow | LogRow)
_Lines = Callable[[list[str], list[R]], list[tuple[str, int]]]
"""From the labels of some rows and these rows to series."""


def _each(read: Callable[[R], int]) -> _Lines[R]:
    """One series for each row."""
    return lambda labels, rows: [(label, read(row)) for label, row in zip(labels, rows, strict=True)]


def _lags(labels: list[str], rows: list[HostedRow]) -> list[tuple[str, int]]:
    """One for each partition that is fetched."""
    followed = [(label, row) for label, row in zip(labels, rows, strict=True) if row.fetcher]
    return [(f'clientId="{row.fetcher}",{label}', row.lag) for label, row in followed]


_OF_PARTITIONS: tuple[tuple[MetricName, _Lines[HostedRow]], ...] = (
    (names.P_UNDER_REPLICATED, _each(lambda row: int(row.under_replicated))),
    (names.P_UNDER_MIN_ISR, _each(lambda row: int(row.under_min_isr))),
    (names.P_AT_MIN_ISR, _each(lambda row: int(row.at_min_isr))),
    (names.P_REPLICAS_COUNT, _each(lambda row: row.replicas)),
    (names.P_IN_SYNC_COUNT, _each(lambda row: row.in_sync)),
    (names.CONSUMER_LAG, _lags),
)
_OF_LOGS: tuple[tuple[MetricName, _Lines[LogRow]], ...] = (
    (names.LOG_SIZE, _each(lambda row: row.size)),
    (names.LOG_START, _each(lambda row: row.start)),
    (names.LOG_END, _each(lambda row: row.end)),
    (names.LOG_SEGMENTS, _each(lambda row: row.segments)),
)
LOOKED_FOR: tuple[MetricName, ...] = (
    names.LEADER_COUNT,
    names.PARTITION_COUNT,
    names.OFFLINE_REPLICA_COUNT,
    names.UNDER_REPLICATED,
    names.UNDER_MIN_ISR,
    names.AT_MIN_ISR,
    names.REASSIGNING,
    names.ISR_PENDING,
    names.ISR_SHRINKS,
    names.ISR_EXPANDS,
    names.FAILED_ISR_UPDATES,
    names.OFFLINE_DIRECTORIES,
    names.PURGATORY_SIZE,
    names.MIN_FETCH_RATE,
    names.FAILED_PARTITIONS,
    names.DEAD_FETCHERS,
    names.REPLICATION_IN,
    names.REASSIGNMENT_IN,
    names.REASSIGNMENT_OUT,
    names.FOLLOWER_LAG,
    names.FOLLOWER_LAG_UNKNOWN,
    names.MAX_LAG,
    *(name for name, _ in _OF_PARTITIONS),
    *(name for name, _ in _OF_LOGS),
)
"""All that is read from a look at every partition: a scrape that wants none of it takes none."""


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
    waiting = [
        (("Produce",), look.waiting_produces),
        (("Fetch",), look.waiting_fetches),
        (("DeleteRecords",), look.waiting_deletes),
    ]
    yield values(names.PURGATORY_SIZE, waiting)
    yield values(names.MIN_FETCH_RATE, [(_FETCHERS, look.fetches_per_second)])
    yield values(names.FAILED_PARTITIONS, [(_FETCHERS, look.failed_partitions)])
    yield values(names.DEAD_FETCHERS, [(_FETCHERS, look.dead_fetchers)])
    yield value(names.REPLICATION_IN, look.received)
    yield value(names.REASSIGNMENT_IN, look.received_by_adding)
    yield value(names.REASSIGNMENT_OUT, look.sent_to_adding)
    lags = [((str(broker),), lag) for broker, lag in sorted(look.behind.items())]
    yield values(names.FOLLOWER_LAG, [(label, records) for label, (records, _) in lags])
    yield values(names.FOLLOWER_LAG_UNKNOWN, [(label, unknown) for label, (_, unknown) in lags])
    yield values(names.MAX_LAG, [(_FETCHERS, max((row.lag for row in hosted), default=0))])


class PartitionTexts:
    """One series for each partition, in every family, as text.

    Rows come in pieces, and what was written for a piece is written again as it stands while its rows are the same:
    most partitions of a broker do nothing between two scrapes. One thread at a time.
    """

    def __init__(self) -> None:
        self._hosted: list[_Piece[HostedRow]] = []
        self._logs: list[_Piece[LogRow]] = []

    def families(self, look: Look, wanted: Wanted) -> Iterable[Family]:
        """Those that are wanted."""
        self._hosted = _cut(look.hosted, self._hosted)
        self._logs = _cut(look.logs, self._logs)
        for name, lines in _OF_PARTITIONS:
            if wanted(name):
                yield Block(name, "".join([piece.text(name, lines) for piece in self._hosted]))
        for name, log_lines in _OF_LOGS:
            if wanted(name):
                yield Block(name, "".join([piece.text(name, log_lines) for piece in self._logs]))


class _Piece(Generic[R]):
    """Rows of some partitions, and what was written of them, by family."""

    def __init__(self, rows: list[R]) -> None:
        self.rows = rows
        self._labels: list[str] = []
        self._texts: dict[MetricName, str] = {}

    def text(self, name: MetricName, lines: _Lines[R]) -> str:
        """The lines of one family."""
        held = self._texts.get(name)
        if held is None:
            if not self._labels:
                self._labels = [f'topic="{escape(row.topic)}",partition="{row.partition}"' for row in self.rows]
            held = self._texts[name] = block(name, lines(self._labels, self.rows)).lines
        return held


def _cut(rows: list[R], kept: list[_Piece[R]]) -> list[_Piece[R]]:
    pieces: list[_Piece[R]] = []
    for number, start in enumerate(range(0, len(rows), PIECE)):
        piece = rows[start : start + PIECE]
        held = kept[number] if number < len(kept) else None
        pieces.append(held if held is not None and held.rows == piece else _Piece(piece))
    return pieces
