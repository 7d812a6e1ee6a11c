"""Decision records from files and from live agents: read in parallel, malformed lines kept apart, duplicates merged.

A decision is what `regency.history.records` takes for one, within ranges.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import attrgetter

import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from regency.clients.controllers import history_lines
from regency.history.records import Decision, decode_decision
from regency.pipeline.files.history_files import Found, file_name, text_of
from regency.pipeline.jobs.cluster_history.packed import batch_of, packed, uncollected, unpacked
from regency.runtime.grpc.channels import RpcFailed

RECORD = (
    "controller_epoch long not null, number long not null, event string, subject string, `from` string, `to` string, "
    "why string, time_ms long, source long not null, role string not null, leader long, isr array<long>, "
    "leader_epoch long, version long, phases array<array<string>>, topic string, partition int"
)
"""Fields of `Decision`; `topic` and `partition` are those whose state was written.

Spark would look for nulls in what it is not told to have none, each time elsewhere, and shuffle all for each.
"""
READ = (
    "origin string, lines long, decisions long, malformed long, a_malformed_line string, problem string, records binary"
)
"""What a batch of lines has of one origin, or, of all of them, `records`: packed rows as of RECORD."""
EXCERPT = 200
"""Characters of a malformed line that are kept."""
LATEST_MS = 4_102_444_800_000
"""Year 2100: a time from then on is no time in milliseconds, and a span so long none of a failover."""
_NAMES = [each.partition(" ")[0].replace("`from`", "from_").strip("`") for each in RECORD.split(", ")]
_decided = attrgetter(*_NAMES[: _NAMES.index("phases")])
_INT32, _INT64 = 1 << 31, 1 << 63
_DIGITS = 10
"""Of the largest number with 31 bits."""


def decision_of(line: bytes) -> Decision | None:
    """The decision on a line; None where it is none, or has a number that is none of its field.

    Ids, epochs and versions have 32 bits, numbers 64; times are from 1970 to 2099, and parts of a failover as long at
    most; the number of a partition whose state was written has 31 bits.
    """
    decision = decode_decision(line)
    return decision if decision is not None and _fits(decision) else None


@dataclass(slots=True)
class _Origin:
    lines: int = 0
    decisions: int = 0
    malformed: int = 0
    a_malformed_line: str | None = None
    problem: str | None = None


def parsed_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows as of READ, of (origin, line, problem), one of the two; lines with nothing on them are left out."""
    records: list[Sequence[object]] = []
    origins: dict[str, _Origin] = {}
    for name, line, problem in zip(*(column.to_pylist() for column in batch.columns), strict=True):
        if line is not None and not line.strip():
            continue
        origin = origins.get(name) or origins.setdefault(name, _Origin())
        if line is None:
            origin.problem = problem
            continue
        origin.lines += 1
        decision = decision_of(line)
        if decision is not None:
            origin.decisions += 1
            records.append(_fields(decision))
        else:
            origin.malformed += 1
            excerpt = line.decode(errors="replace")[:EXCERPT]
            origin.a_malformed_line = min(excerpt, origin.a_malformed_line or excerpt)
    rows: list[Sequence[object]] = [(name, *astuple(origin), None) for name, origin in origins.items()]
    if records:
        rows.append((None,) * 6 + (packed(RECORD, records),))
    return batch_of(READ, rows)


def _fields(decision: Decision) -> Sequence[object]:
    phases = None if decision.phases is None else [(name, str(ms)) for name, ms in decision.phases]
    return (*_decided(decision), phases, *_about(decision))


def _about(decision: Decision) -> tuple[str, int] | tuple[None, None]:
    """Topic and partition whose state a decision wrote."""
    topic, dash, number = decision.subject.rpartition("-")
    if decision.version is None or decision.leader is None or not (dash and number.isascii() and number.isdigit()):
        return None, None
    return topic, int(number) if len(number) <= _DIGITS else _INT32


def _fits(decision: Decision) -> bool:
    small = [0, decision.controller_epoch, decision.source, *(decision.isr or ()), _about(decision)[1] or 0]
    small += [each for each in (decision.leader, decision.leader_epoch, decision.version) if each is not None]
    spans = [decision.time_ms, *(ms for _, ms in decision.phases or ())]
    return (
        min(small) >= -_INT32
        and max(small) < _INT32
        and -_INT64 <= decision.number < _INT64
        and min(spans) >= 0
        and max(spans) < LATEST_MS
    )


_LINES = "origin string, line binary, problem string"
_BATCH = 1_000


def read_files(session: SparkSession, found: Found, damaged: Mapping[str, str]) -> DataFrame:
    """Lines of the files, and what is wrong with those that cannot be read: (origin, line, problem), one of the two.

    `damaged`: those that cannot be unpacked to their end, and why; of these what can be unpacked is read.
    """
    sound = [name for name in found.files if name not in damaged]
    parts = [_lines(text_of(session, sound))] if sound else []
    parts += (
        [_lines(text_of(session, list(damaged), ignoreCorruptFiles=True, ignoreMissingFiles=True))] if damaged else []
    )
    wrong = [*damaged.items(), *((name, f"not read: {why}") for name, why in found.unread.items())]
    parts += [session.createDataFrame([(name, None, why) for name, why in wrong], _LINES)] if wrong else []
    read = parts[0] if parts else session.createDataFrame([], _LINES)
    for more in parts[1:]:
        read = read.unionByName(more)
    return read


def _lines(text: DataFrame) -> DataFrame:
    return text.select(
        file_name().alias("origin"),
        f.col("value").cast("binary").alias("line"),
        f.lit(None).cast("string").alias("problem"),
    )


def read_agents(session: SparkSession, addresses: Mapping[int, str]) -> DataFrame:
    """Lines that the controller processes of live brokers tell, a task each: (origin, line, problem), one of the two.

    `addresses` are theirs by broker. Who cannot be asked, or stops answering, gives a problem after what it told.
    """
    asked = [(f"broker {broker}", address) for broker, address in sorted(addresses.items())]

    def ask(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from _told(*asked[index])

    return session.range(0, len(asked), 1, len(asked)).mapInArrow(ask, _LINES)


def parsed(lines: DataFrame) -> DataFrame:
    """What the lines say, batch by batch, and what is wrong with them: as of READ."""

    def parse(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with uncollected():
            yield from map(parsed_batch, batches)

    return lines.mapInArrow(parse, READ)


def origins(read: DataFrame) -> DataFrame:
    """Table `origins`: of each file or agent how many lines it gave, how many are no decisions, and what went wrong."""
    sums = [f.sum(name).alias(name) for name in ("lines", "decisions", "malformed")]
    told = [f.min("a_malformed_line").alias("a_malformed_line"), f.max("problem").alias("problem")]
    return read.where(f.col("origin").isNotNull()).groupBy("origin").agg(*sums, *told)


def decisions(read: DataFrame) -> DataFrame:
    """Table `decisions`: each decision once, with `at_ms`.

    `at_ms` is `time_ms`, made non-decreasing along a decider's numbers, as `merge_decisions` does. Decisions that
    differ are all there, though a decider gave them the same number; its numbers in that epoch say nothing of the order
    then, and `at_ms` is `time_ms`. `same_number`: how many there are of that number.

    A task orders the numbers of a block; what the blocks before it have to say of them is a row per block.
    """
    good = unpacked(read, "records", RECORD)
    placed = good.withColumn("block", f.shiftright("number", _BLOCK_BITS)).repartition(*_DECIDER, "block")
    place = "topic", "partition"
    numbered = Window.partitionBy(*_DECIDER, "block", "number")
    block = Window.partitionBy(*_DECIDER, "block").orderBy("number")
    so_far = f.max("time_ms").over(block.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    at = f.when(f.col("in_order"), f.greatest("so_far", "before_ms")).otherwise(f.col("time_ms"))
    return (
        placed.distinct()
        .withColumn("same_number", f.count("*").over(numbered))
        .withColumn("so_far", so_far)
        .join(f.broadcast(_blocks(placed)), [*_DECIDER, "block"])
        .withColumn("at_ms", at)
        .withColumn("time", f.timestamp_millis("time_ms"))
        .select(*good.drop(*place).columns, "same_number", "at_ms", *place, "time")
    )


def _blocks(placed: DataFrame) -> DataFrame:
    """Of each block of a decider's numbers the latest time before it, and whether all of that decider's are in order.

    They are where no two decisions that differ have the same number.
    """
    said = f.xxhash64(*placed.columns)
    decider = Window.partitionBy(*_DECIDER)
    before = decider.orderBy("block").rowsBetween(Window.unboundedPreceding, -1)
    return (
        placed.groupBy(*_DECIDER, "block", "number")
        .agg(f.max("time_ms").alias("latest"), (f.min(said) != f.max(said)).alias("twice"))
        .groupBy(*_DECIDER, "block")
        .agg(f.max("latest").alias("latest"), f.max("twice").alias("twice"))
        .withColumn("before_ms", f.max("latest").over(before))
        .withColumn("in_order", ~f.max("twice").over(decider))
        .drop("latest", "twice")
    )


def doubtful(decisions: DataFrame) -> list[Row]:
    """Processes that gave the same number to different decisions: `role`, `source`, `times`, and the first of these.

    `first` is (controller epoch, number). There are two processes to a broker at most.
    """
    several = decisions.where(f.col("same_number") > 1)
    return (
        several.groupBy("role", "source")
        .agg(
            f.count_distinct("controller_epoch", "number").alias("times"),
            f.min(f.struct("controller_epoch", "number")).alias("first"),
        )
        .orderBy("role", "source")
        .collect()
    )


_DECIDER = ("role", "source", "controller_epoch")
_BLOCK_BITS = 13
"""8192 numbers to a block."""


def _told(origin: str, address: str) -> Iterator[pa.RecordBatch]:
    lines: list[bytes] = []
    problem: list[str] = []
    try:
        for line in history_lines(address):
            lines.append(line)
            if len(lines) == _BATCH:
                yield _batch(origin, lines, None)
                lines = []
    except RpcFailed as error:
        problem.append(str(error))
    yield _batch(origin, lines, None)
    for each in problem:
        yield _batch(origin, [None], each)


def _batch(origin: str, lines: Sequence[bytes | None], problem: str | None) -> pa.RecordBatch:
    many = len(lines)
    return pa.RecordBatch.from_pydict(
        {
            "origin": pa.array([origin] * many, pa.string()),
            "line": pa.array(lines, pa.binary()),
            "problem": pa.array([problem] * many, pa.string()),
        }
    )
