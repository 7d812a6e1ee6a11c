"""One pass over the decisions that wrote states, a partition at a time: its states, and what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import attrgetter, itemgetter

import pyarrow as pa
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history.absences import Absence, absences, flapping
from regency.pipeline.jobs.cluster_history.leaderless import Interval, Noticed, by_broker, by_partition, intervals
from regency.pipeline.jobs.cluster_history.lives import COLUMNS, MERGED, End, Noted, State, lives
from regency.pipeline.jobs.cluster_history.packed import Rows, batch_of, packed, uncollected, unpacked

_STATE = (
    "controller_epoch long, number long, event string, why string, time_ms long, source long, role string, "
    "leader long, isr array<long>, leader_epoch long, version long, topic string, partition int, life long, "
    "was_leader long, was_isr array<long>, was_epoch long, replicas array<long>, began_ms long, place int, "
    "next_version long, next_leader long, next_isr array<long>, next_leader_epoch long, next_event string, "
    "next_why string, next_role string, next_controller_epoch long, next_number long, ended_ms long, ended_by string, "
    "complete boolean"
)
_INTERVAL = (
    "topic string, partition int, life long, began_ms long, ended_ms long, broker long, began_by string, why string, "
    "ended_by string, new_leader long, complete boolean, open boolean, ms long"
)
_ABSENCE = (
    "topic string, partition int, broker long, life long, left_ms long, back_ms long, ended_ms long, out_ms long, "
    "open boolean, ended_by string, complete boolean, left_by string, left_why string, back_by string"
)
TABLES = {
    "states": _STATE,
    "leaderless": _INTERVAL,
    "isr_absences": _ABSENCE,
    "isr_flapping": (
        "topic string, partition int, broker long, left long, fell_behind long, came_back long, most_in_an_hour long, "
        "out_ms long, longest_ms long"
    ),
    "leaderless_by_partition_day": "topic string, partition int, day date, ms long, intervals long",
    "leaderless_by_broker_day": "broker long, day date, ms long, intervals long, partitions long",
}
"""Of the last, a row is what is known of one batch of partitions."""
_ROWS = 10_000
"""States make a batch, and those that their partition has besides."""
_FEW = 10_000
"""So many ends of topics are sent to all executors; more are joined as any table."""
_TOLD = ", ".join(f"{name} binary" for name in TABLES)
_place = itemgetter(0, 1)
_NAMES = [each.partition(" ")[0] for each in _STATE.split(", ")]
_LIFE, _NEXT, _ENDED = (_NAMES.index(first) for first in ("life", "next_version", "ended_ms"))
_own, _known = attrgetter(*_NAMES[:_LIFE]), attrgetter(*_NAMES[_LIFE:_NEXT])
_next = attrgetter(*(name.removeprefix("next_") for name in _NAMES[_NEXT:_ENDED]))


def told(decisions: DataFrame, noticed: Noticed, end_ms: int, topic_notes: int) -> DataFrame:
    """The rows of all tables that follow from the states of partitions: see `table`.

    `topic_notes`: how many decisions there are about topics.
    """
    ends = _ends(decisions)
    known = decisions.where(f.col("topic").isNotNull()).join(
        f.broadcast(ends) if topic_notes <= _FEW else ends, f.col("topic") == f.col("of"), "left"
    )
    # a batch with so many lists that are null takes Arrow the square of that in Java: `ListVector.setNull`
    known = known.withColumn("ends", f.coalesce("ends", f.array()))
    placed = known.select(*COLUMNS).repartition("topic", "partition").sortWithinPartitions("topic", "partition")

    def tell(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with uncollected():
            yield from _batches(batches, noticed, end_ms)

    return placed.mapInArrow(tell, _TOLD)


def table(told: DataFrame, name: str) -> DataFrame:
    """One of the tables whose rows `told` has."""
    rows = unpacked(told, name, TABLES[name])
    if name == "leaderless_by_broker_day":
        return rows.groupBy("broker", "day").agg(*(f.sum(each).alias(each) for each in rows.columns[2:]))
    if name != "states":
        return rows
    columns = list(rows.columns)
    columns.insert(columns.index("partition") + 1, "time")
    return rows.withColumn("time", f.timestamp_millis("time_ms")).select(*columns)


def _ends(decisions: DataFrame) -> DataFrame:
    """By topic (`of`) when it was to be deleted, where that was not taken back, or gone: `ends`."""
    notes = decisions.where(f.col("subject").startswith("topic ")).withColumn("of", f.expr("substring(subject, 7)"))
    after = f.lead("to").over(Window.partitionBy("of").orderBy(*MERGED))
    stands = (f.col("to") == "to be deleted") & (f.coalesce("after", f.lit("")) != "not to be deleted")
    return (
        notes.where(f.col("to").isin("to be deleted", "not to be deleted", "gone"))
        .withColumn("after", after)
        .where(stands | (f.col("to") == "gone"))
        .groupBy("of")
        .agg(f.sort_array(f.collect_list(f.struct(*End._fields))).alias("ends"))
    )


def _batches(given: Iterator[pa.RecordBatch], noticed: Noticed, end_ms: int) -> Iterator[pa.RecordBatch]:
    """Rows of `told`, of decisions of one partition after another."""
    states: list[State] = []
    without: list[Interval] = []
    out: list[Absence] = []
    for _, own in groupby(chain.from_iterable(map(_noted, given)), key=_place):
        for life in lives(list(own)):
            states += life
            without += intervals(life, noticed, end_ms)
            out += absences(life, end_ms)
        if len(states) >= _ROWS:
            yield _batch(states, without, out)
            states, without, out = [], [], []
    yield _batch(states, without, out)


def _noted(batch: pa.RecordBatch) -> Iterator[Noted]:
    *columns, ends = batch.columns
    topics = columns[0].to_pylist()
    ended = {topic: tuple(End(**each) for each in ends[topics.index(topic)].as_py()) for topic in dict.fromkeys(topics)}
    return map(Noted._make, zip(*(each.to_pylist() for each in columns), map(ended.get, topics), strict=True))


def _batch(states: Sequence[State], without: Sequence[Interval], out: Sequence[Absence]) -> pa.RecordBatch:
    rows: tuple[Rows, ...] = (
        [*map(_row, states)],
        without,
        out,
        flapping(out),
        by_partition(without),
        by_broker(without),
    )
    return batch_of(_TOLD, [[packed(*each) for each in zip(TABLES.values(), rows, strict=True)]])


def _row(state: State) -> Sequence[object]:
    """A row of table `states`, without `time`."""
    after = state.following
    following = (None,) * (_ENDED - _NEXT) if after is None else _next(after.noted)
    return (*_own(state.noted), *_known(state), *following, state.ended_ms, state.ended_by, state.complete)
