"""What the report says: aggregates and the first few rows of each table, never all, as a page."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from datetime import date, timedelta

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history import page as html
from regency.pipeline.jobs.cluster_history.controllers import CREATED
from regency.pipeline.jobs.cluster_history.summary import Summary

MOST_DAYS = 60
"""Columns of a plot over days."""
MOST_KINDS = 8
"""Colours of a plot; the rest is one more."""
_OTHERS = "others"


def told(summary: Summary) -> str:
    """The summary in one line."""
    times = html.many(summary.leaderless_intervals, "time", "times")
    return (
        f"{html.many(summary.decisions, 'decision', 'decisions')} about "
        f"{html.many(summary.partitions, 'partition', 'partitions')}: {times} without a leader, "
        f"{summary.leaderless_ms / 1000:.1f} s in all, {summary.leaderless_now} still so; "
        f"{html.many(summary.failovers, 'failover', 'failovers')}, "
        f"{html.many(summary.elections, 'election', 'elections')}; "
        f"report: {summary.report}"
    )


def page(summary: Summary, tables: Mapping[str, DataFrame], top: int) -> str:
    """The report. `top`: rows of each list."""
    parts = [
        html.note(
            f"Decisions from {html.moment(summary.begin_ms)} to {html.moment(summary.end_ms)} (UTC), from "
            f"{html.many(summary.origins, 'file or agent', 'files and agents')}. Lists show the first {top}; the "
            "tables beside this file have all."
        ),
        *(html.problem(f"{each.origin}: {each.why}") for each in summary.problems[:top]),
        html.figures(_figures(summary)),
        *_leaderless(tables, top),
        *_failovers(tables, top),
        *_elections(tables),
        *_in_sync(tables, top),
        *_brokers(tables, top),
    ]
    if len(summary.problems) > top:
        parts.insert(
            1,
            html.problem(f"{len(summary.problems)} files and agents gave less than they have; of these, {top} below."),
        )
    return html.document("History of the cluster", parts)


def _figures(summary: Summary) -> list[tuple[str, str]]:
    numbers = {
        "decisions": summary.decisions,
        "found more than once": summary.duplicates,
        "malformed lines": summary.malformed,
        "partitions": summary.partitions,
        "times without a leader": summary.leaderless_intervals,
        "without a leader at the end": summary.leaderless_now,
        "controllers elected": summary.failovers,
        "elections of leaders": summary.elections,
        "unclean ones among them": summary.unclean_elections,
        "times a replica left the ISR": summary.isr_absences,
    }
    told = [(name, f"{number:,}") for name, number in numbers.items()]
    return [*told, ("without a leader, all partitions", html.span(summary.leaderless_ms))]


def _leaderless(tables: Mapping[str, DataFrame], top: int) -> list[str]:
    parts = [html.heading("Without a leader")]
    stacked = _stacked(
        (row.day, "never had one" if row.broker is None else f"broker {row.broker}", row.ms / 1000)
        for row in tables["leaderless_by_broker_day"].collect()
    )
    if stacked is None:
        return [*parts, html.note("No partition was without a leader.")]
    labels, series, left_out = stacked
    parts += [
        html.note(f"Partition-seconds per day (UTC), by the broker that led before{left_out}."),
        html.columns("leaderless", labels, series, "seconds"),
    ]
    worst = (
        tables["leaderless"]
        .groupBy("topic", "partition")
        .agg(
            f.sum("ms").alias("ms"),
            f.count("*").alias("times"),
            f.max("ms").alias("longest"),
            f.max("open").alias("open"),
        )
    )
    rows = worst.orderBy(f.desc("ms"), "topic", "partition").limit(top).collect()
    names = [f"{row.topic}-{row.partition}" for row in rows]
    parts += [
        html.note(f"{html.many(len(rows), 'partition', 'partitions')} without a leader, the longest first."),
        html.bars("worst-partitions", names, {"seconds": [row.ms / 1000 for row in rows]}, "seconds"),
    ]
    longest = tables["leaderless"].orderBy(f.desc("ms"), "topic", "partition", "began_ms").limit(top).collect()
    head = ["partition", "from", "to", "for", "led before", "cause", "why", "then led", "all states known"]
    cells = [
        [
            f"{row.topic}-{row.partition}",
            html.moment(row.began_ms),
            "still so" if row.open else html.moment(row.ended_ms),
            html.span(row.ms),
            row.broker,
            row.began_by,
            row.why,
            row.new_leader,
            _yes(row.complete),
        ]
        for row in longest
    ]
    return [
        *parts,
        html.note(f"{html.many(len(longest), 'time', 'times')} without a leader, the longest first."),
        html.table(head, cells),
    ]


def _failovers(tables: Mapping[str, DataFrame], top: int) -> list[str]:
    parts = [html.heading("Controllers")]
    rows = tables["failovers"].orderBy(f.desc("controller_epoch")).limit(top).collect()
    if not rows:
        return [*parts, html.note("The history has no election of a controller.")]
    epochs = [row.controller_epoch for row in rows]
    spent = tables["failover_phases"].where(f.col("controller_epoch").isin(epochs)).orderBy("place").collect()
    if spent:
        shown = [epoch for epoch in epochs if any(each.controller_epoch == epoch for each in spent)]
        of = {(each.controller_epoch, each.phase): float(each.ms) for each in spent}
        kinds = dict.fromkeys(each.phase for each in spent)
        series = {kind: [of.get((epoch, kind), 0.0) for epoch in shown] for kind in kinds}
        labels = [f"epoch {epoch}" for epoch in shown]
        parts += [
            html.note(f"Parts of {html.many(len(shown), 'failover', 'failovers')}, the last first."),
            html.bars("failovers", labels, series, "milliseconds"),
        ]
    head = ["epoch", "broker", "elected", "took", "decided for", "of them without a leader", "resigned", "why"]
    cells = [
        [
            row.controller_epoch,
            row.broker,
            html.moment(row.won_ms),
            html.span(row.took_ms) if row.finished else "did not end",
            row.decided,
            row.left_without_leader,
            html.moment(row.resigned_ms),
            row.resigned_why,
        ]
        for row in rows
    ]
    return [*parts, html.table(head, cells)]


def _elections(tables: Mapping[str, DataFrame]) -> list[str]:
    parts = [html.heading("Elections of leaders")]
    rows = tables["elections"].collect()
    stacked = _stacked((row.day, row.cause, row.elections) for row in rows if row.outcome != CREATED)
    if stacked is None:
        return [*parts, html.note("No leader was elected after the creation of its partition.")]
    labels, series, left_out = stacked
    sums: Counter[tuple[str, str, bool]] = Counter()
    for row in rows:
        sums[row.cause, row.outcome, row.unclean] += row.elections
    listed = sorted(sums.items(), key=lambda each: (-each[1], each[0]))
    return [
        *parts,
        html.note(f"Per day (UTC), by cause, without those at the creation of partitions{left_out}."),
        html.columns("elections", labels, series, "elections"),
        html.table(
            ["cause", "outcome", "unclean", "elections"],
            [[cause, outcome, _yes(unclean), many] for (cause, outcome, unclean), many in listed],
        ),
    ]


def _in_sync(tables: Mapping[str, DataFrame], top: int) -> list[str]:
    parts = [html.heading("Out of the ISR")]
    order = (f.desc("left"), f.desc("out_ms"), "topic", "partition", "broker")
    rows = tables["isr_flapping"].orderBy(*order).limit(top).collect()
    if not rows:
        return [*parts, html.note("No replica left the ISR.")]
    head = ["replica", "left", "of that fell behind", "came back", "most within an hour", "out for", "longest"]
    cells = [
        [
            f"{row.topic}-{row.partition} on {row.broker}",
            row.left,
            row.fell_behind,
            row.came_back,
            row.most_in_an_hour,
            html.span(row.out_ms),
            html.span(row.longest_ms),
        ]
        for row in rows
    ]
    return [
        *parts,
        html.note(f"{html.many(len(rows), 'replica', 'replicas')}, those that left most often first."),
        html.table(head, cells),
    ]


def _brokers(tables: Mapping[str, DataFrame], top: int) -> list[str]:
    parts = [html.heading("Brokers, the slowest first")]
    order = (f.desc("behind_ms"), f.desc_nulls_last("catch_up_median_ms"), f.asc("broker"))
    rows = tables["brokers"].orderBy(*order).limit(top).collect()
    slow = [row for row in rows if row.behind_ms]
    if slow:
        values = [row.behind_ms / 1000 for row in slow]
        parts += [
            html.note("Out of the ISR because they fell behind while alive, all replicas of a broker together."),
            html.bars("slow", [f"broker {row.broker}" for row in slow], {"seconds": values}, "seconds"),
        ]
    head = [
        "broker",
        "fell behind",
        "for",
        "half of the times under",
        "caught up after a start in",
        "deaths",
        "bounces",
    ]
    head += ["elected", "its partitions without a leader"]
    cells = [
        [
            row.broker,
            row.fell_behind,
            html.span(row.behind_ms),
            html.span(row.behind_median_ms),
            html.span(row.catch_up_median_ms),
            row.deaths,
            row.bounces,
            row.elected,
            html.span(row.leaderless_ms),
        ]
        for row in rows
    ]
    return [*parts, html.table(head, cells)]


def _stacked(values: Iterable[tuple[date, str, float]]) -> tuple[list[str], dict[str, list[float]], str] | None:
    """Of (day, kind, value): days, sums of each kind on them, and what is left out, in words; None where is nothing."""
    told = list(values)
    if not told:
        return None
    last = max(day for day, _, _ in told)
    recent = [each for each in told if each[0] > last - timedelta(MOST_DAYS)]
    sums: defaultdict[str, float] = defaultdict(float)
    for _, kind, value in recent:
        sums[kind] += value
    kinds = sorted(sums, key=lambda kind: (-sums[kind], kind))[:MOST_KINDS]
    first = min(day for day, _, _ in recent)
    many = (last - first).days + 1
    names = [*kinds, *([_OTHERS] if len(sums) > len(kinds) else [])]
    series = {name: [0.0] * many for name in names}
    for day, kind, value in recent:
        series[kind if kind in kinds else _OTHERS][(day - first).days] += value
    left_out = f", the last {MOST_DAYS} days only" if len(recent) < len(told) else ""
    return [(first + timedelta(number)).isoformat() for number in range(many)], series, left_out


def _yes(value: bool) -> str:
    return "yes" if value else "no"
