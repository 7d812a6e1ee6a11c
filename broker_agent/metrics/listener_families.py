"""Families of the listener: traffic by topic, requests by kind, connections. They are read while they are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from operator import attrgetter

from regency.broker_agent.listener.stats import FETCH_CONSUMER, FETCH_FOLLOWER, ListenerStats, RequestTimes
from regency.model.kafka_errors import FENCING, ErrorCode
from regency.runtime.metrics import table_agent as names
from regency.runtime.metrics.families import QUANTILE_VALUES, Family, Wanted, block, escape, times, value, values
from regency.runtime.metrics.recent import read_together

FETCH = "Fetch"
"""Kafka tells of fetches three times: of consumers, of followers, of both."""
_ONE_LOOP = "0"
"""Kafka numbers its network processors; one data loop serves all connections."""


def traffic(stats: ListenerStats, wanted: Wanted) -> Iterable[Family]:
    """Records and bytes: the sum, and by topic."""
    topics = sorted(stats.traffic.topics.copy().items())
    labelled = [(f'topic="{escape(topic)}"', counts) for topic, counts in topics]
    for field, name in names.TRAFFIC:
        if wanted(name):
            read = attrgetter(field)
            yield block(name, [("", read(stats.traffic.all)), *((labels, read(counts)) for labels, counts in labelled)])
    yield value(names.REPLICATION_OUT, stats.traffic.replication_bytes_out)


def requests(stats: ListenerStats, now_ms: int) -> Iterable[Family]:
    """How many, which errors, how long; `now_ms` by the clock the listener times with."""
    kinds = sorted(stats.timing.kinds.copy().items())
    merged = [(kind, [timed]) for kind, timed in kinds]
    fetches = [timed for kind, timed in kinds if kind in (FETCH_CONSUMER, FETCH_FOLLOWER)]
    if fetches:
        merged.append((FETCH, fetches))
    yield values(
        names.REQUESTS,
        [
            ((kind, str(version)), count)
            for kind, parts in merged
            for version, count in sorted(_sum(part.versions for part in parts).items())
        ],
    )
    yield values(
        names.ERRORS, [((kind, error), count) for kind, parts in merged for error, count in _errors(parts).items()]
    )
    for field, name in names.REQUEST_TIMES:
        read = attrgetter(field)
        rows = [
            ((kind,), read_together([read(part) for part in parts], now_ms, QUANTILE_VALUES)) for kind, parts in merged
        ]
        yield from times(name, rows)


def fenced(stats: ListenerStats, by_control: Mapping[ErrorCode, int]) -> Family:
    """Requests for what is over: of clients and followers, and of controllers."""
    counted = Counter({error.name: 0 for error in FENCING})
    for error, count in dict(by_control).items():
        counted[error.name] += count
    for timed in stats.timing.kinds.copy().values():
        for code, count in timed.errors.copy().items():
            name = _error_name(code)
            if name in counted:
                counted[name] += count
    return values(names.FENCED, [((name,), count) for name, count in sorted(counted.items())])


def connections(stats: ListenerStats) -> Family:
    """Open connections by listener."""
    rows = [((listener, _ONE_LOOP), count) for listener, count in sorted(stats.open_by_listener.copy().items())]
    return values(names.CONNECTIONS, rows)


def closed(stats: ListenerStats) -> Family:
    """Connections that were closed here, by why."""
    return values(names.CLOSED, [((reason.name.lower(),), count) for reason, count in stats.closed_for.items()])


def _errors(parts: Iterable[RequestTimes]) -> dict[str, int]:
    parts = list(parts)
    answered = sum(_sum(part.versions for part in parts).values())
    erred = _sum(part.errors for part in parts)
    fine = max(answered - sum(part.erred for part in parts), 0)
    return {"NONE": fine, **{_error_name(code): count for code, count in sorted(erred.items())}}


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _sum(counters: Iterable[Counter[int]]) -> Counter[int]:
    total: Counter[int] = Counter()
    for counter in counters:
        total.update(counter.copy())
    return total
