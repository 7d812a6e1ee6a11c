"""Decision records from files and from live agents: read in parallel, malformed lines kept apart, duplicates merged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from regency.clients.histories import history_lines
from regency.runtime.grpc_channels import RpcFailed

RECORD = (
    "controller_epoch long, number long, event string, subject string, `from` string, `to` string, why string, "
    "time_ms long, source long, role string, leader long, isr array<long>, leader_epoch long, version long, "
    "phases array<array<string>>, malformed string"
)
"""The fields of `regency.history.records.Decision`."""
_REQUIRED = ("controller_epoch", "number", "event", "subject", "from", "to", "why", "time_ms", "source")
_LINES = "origin string, line string, problem string"
_BATCH = 1_000
EXCERPT = 200
"""Characters of a malformed line that are kept."""


def read_files(session: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Lines of the files as (origin, line, problem)."""
    text = session.read.text(list(paths), lineSep="\n", recursiveFileLookup=True, pathGlobFilter="*.jsonl*")
    return text.select(
        f.col("_metadata.file_path").alias("origin"),
        f.col("value").alias("line"),
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
    """The fields of each line, and `origin`, `line`, `problem`; `malformed` is set where it is no decision."""
    read = lines.where(f.col("problem").isNotNull() | (f.trim("line") != ""))
    record = f.from_json("line", RECORD, {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "malformed"})
    fields = read.withColumn("record", record).select("origin", "line", "problem", "record.*")
    lacks = f.lit(False)
    for name in _REQUIRED:
        lacks = lacks | f.col(f"`{name}`").isNull()
    alone = f.json_array_length(f.concat(f.lit("["), f.col("line"), f.lit("]"))) == 1
    bad = f.col("line").isNotNull() & (f.col("malformed").isNotNull() | lacks | ~f.coalesce(alone, f.lit(False)))
    return fields.withColumn("malformed", bad).withColumn("role", f.coalesce("role", f.lit("controller")))


def origins(read: DataFrame) -> DataFrame:
    """Table `origins`: of each file or agent how many lines it gave, how many are no decisions, and what went wrong."""
    bad = f.col("malformed")
    return read.groupBy("origin").agg(
        f.count("line").alias("lines"),
        f.count_if(f.col("line").isNotNull() & ~bad).alias("decisions"),
        f.count_if(bad).alias("malformed"),
        f.min(f.when(bad, f.substring("line", 1, EXCERPT))).alias("a_malformed_line"),
        f.max("problem").alias("problem"),
    )


def decisions(read: DataFrame) -> DataFrame:
    """Table `decisions`: each decision once, with `topic` and `partition` where it is about one, and `at_ms`.

    `at_ms` is `time_ms`, made non-decreasing along a decider's numbers, as `merge_decisions` does.
    """
    good = read.where(f.col("line").isNotNull() & ~f.col("malformed")).drop("line", "problem", "malformed")
    told = f.struct(*(f.col(f"`{name}`") for name in good.columns if name not in _IDENTITY))
    once = good.groupBy(*_IDENTITY).agg(f.min(told).alias("told")).select(*_IDENTITY, "told.*")
    own = f.expr(
        "max(time_ms) over (partition by role, source, controller_epoch order by number "
        "rows between unbounded preceding and current row)"
    )
    about = r"^(.*)-(\d+)$"
    partition = f.regexp_extract("subject", about, 2)
    placed = f.col("version").isNotNull() & f.col("leader").isNotNull() & (partition != "")
    return (
        once.drop("origin")
        .withColumn("at_ms", own)
        .withColumn("topic", f.when(placed, f.regexp_extract("subject", about, 1)))
        .withColumn("partition", f.when(placed, partition.cast("int")))
    )


def day_of(ms: Column) -> Column:
    """The day of a time in milliseconds, in UTC whatever the session's time zone."""
    return f.date_add(f.lit("1970-01-01").cast("date"), f.floor(ms / 86_400_000).cast("int"))


_IDENTITY = ("role", "source", "controller_epoch", "number")


def _told(origin: str, address: str) -> Iterator[pa.RecordBatch]:
    lines: list[str] = []
    problem: list[str] = []
    try:
        for line in history_lines(address):
            lines.append(line.decode(errors="replace"))
            if len(lines) == _BATCH:
                yield _batch(origin, lines, None)
                lines = []
    except RpcFailed as error:
        problem.append(str(error))
    yield _batch(origin, lines, None)
    for each in problem:
        yield _batch(origin, [None], each)


def _batch(origin: str, lines: Sequence[str | None], problem: str | None) -> pa.RecordBatch:
    many = len(lines)
    columns = {"origin": [origin] * many, "line": list(lines), "problem": [problem] * many}
    return pa.RecordBatch.from_pydict({name: pa.array(values, pa.string()) for name, values in columns.items()})
