"""The history judge on Spark: one piece per partition, judged by the same rules, and the verdicts added up.

Java looks at a line only far enough to know which partition it is about. A task reads its lines sorted by partition, so
that it has the records of one partition in memory at a time, whatever the size of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from regency.history.files import TORN_HINT, nothing_read
from regency.history.judge_findings import DEFAULT_MOST, Verdict, add_verdicts
from regency.history.judge_parts import Claims, Session
from regency.history.judge_pieces import Producers, judge_piece
from regency.history.judge_table import Anomaly
from regency.history.operations import Drained, HistoryMalformed, Operation, Recreated, decode_operations
from regency.pipeline.history_files import (
    HIDDEN,
    FilesUnreadable,
    Found,
    damaged,
    file_name,
    find_files,
    text_of,
    unread,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ROUTE = "op string, topic string, partition long, client string, session long, invoked_ms long"
_WHOLE = ("recreated", "drained")
"""Operations that are about no single partition."""
_BLANKS = " \t\r\v\f"
"""What `bytes.strip` takes off a line."""


class Row(NamedTuple):
    """A line of a partition, or (without a line) a consumer session that went on there after `Drained`."""

    topic: str | None
    partition: int | None
    line: bytes | None
    file: str | None
    """Of a line that is about no partition."""
    client: str | None
    session: int | None


class Whole(NamedTuple):
    """What every piece is told of the history as a whole. Pickled into each task."""

    complete: bool
    drained_ms: int | None
    recreated: Mapping[str, Sequence[Recreated]]
    """By topic."""


def judge_history(
    session: SparkSession,
    paths: Sequence[str],
    *,
    allow: frozenset[Anomaly] = frozenset(),
    producers: Producers | None = None,
    most: int = DEFAULT_MOST,
) -> Verdict:
    """The verdict on the operations in the files below `paths`, which may be globs and anywhere that Spark can read.

    Raises FilesUnreadable; HistoryMalformed for files that cannot be unpacked or hold no operations; and what Spark
    raises. A HistoryMalformed of a task arrives as Spark's PythonException.
    """
    return judge_files(
        session, paths, readable(find_files(session, paths)), allow=allow, producers=producers, most=most
    )


def readable(found: Found) -> list[str]:
    """The files, all of which Spark reads. Raises FilesUnreadable for one it would leave out: it may hold anything."""
    for name in found.hidden:
        raise FilesUnreadable(f"{name} would not be read. {HIDDEN}.")
    return found.files


def judge_files(
    session: SparkSession,
    paths: Sequence[str],
    files: Sequence[str],
    *,
    allow: frozenset[Anomaly] = frozenset(),
    producers: Producers | None = None,
    most: int = DEFAULT_MOST,
) -> Verdict:
    """As `judge_history`, of `files` that were found by `paths`."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    if not files:
        raise nothing_read(paths)
    try:
        return _verdict(session, paths, files, allow, producers, most)
    except (PySparkException, Py4JJavaError) as error:
        if unread(error):
            for name, why in damaged(session, files).items():
                raise HistoryMalformed(f"{name}: {why}.", hint=TORN_HINT) from error
        raise


def _verdict(
    session: SparkSession,
    paths: Sequence[str],
    files: Sequence[str],
    allow: frozenset[Anomaly],
    producers: Producers | None,
    most: int,
) -> Verdict:
    lines = _lines(session, files)
    whole = _whole(lines)
    if whole is None:
        raise nothing_read(paths)
    rows = _rows(lines, whole)
    verdicts = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "client", "session")
    judge_one = partial(_judged, whole=whole, allow=allow, producers=producers, most=most)
    found = verdicts.mapInArrow(_in_arrow(judge_one), "verdict binary").collect()
    return add_verdicts((_decoded(each.verdict) for each in found), most=most)


def judge_rows(
    rows: Iterable[Row],
    whole: Whole,
    *,
    allow: frozenset[Anomaly] = frozenset(),
    producers: Producers | None = None,
    most: int = DEFAULT_MOST,
) -> Verdict:
    """The verdict on rows sorted by partition, one partition in memory at a time. Pure.

    Raises HistoryMalformed, also for a line that is no operation.
    """
    pieces = (
        _judge_piece(topic, list(own), whole, allow, producers, most)
        for (topic, _), own in groupby(rows, key=lambda row: (row.topic, row.partition))
    )
    return add_verdicts(pieces, most=most)


def _judge_piece(
    topic: str | None,
    rows: list[Row],
    whole: Whole,
    allow: frozenset[Anomaly],
    producers: Producers | None,
    most: int,
) -> Verdict:
    went_on: set[Session] = set()
    operations: list[Operation] = []
    for row in rows:
        if row.line is not None:
            operations += _decode(row.line, row.file or f"{row.topic}-{row.partition}")
        elif row.client is not None and row.session is not None:
            went_on.add((row.client, row.session))
    if topic is None and operations:
        raise HistoryMalformed(f"{rows[0].file}: an operation without a topic or a partition: {operations[0]}.")
    claims = Claims(whole.complete, whole.drained_ms is not None, frozenset(went_on))
    recreated = whole.recreated.get(topic, ()) if topic is not None else ()
    return judge_piece([*operations, *recreated], claims, allow=allow, producers=producers, most=most)


def _decode(line: bytes, where: str) -> list[Operation]:
    try:
        return decode_operations([line])
    except HistoryMalformed as error:
        shown = line[:200].decode(errors="replace")
        raise HistoryMalformed(f"{where}: {error.__cause__ or error}. The line begins: {shown}") from error


def _lines(session: SparkSession, files: Sequence[str]) -> DataFrame:
    from pyspark.sql import functions as f  # noqa: PLC0415  (an extra)

    read = (
        text_of(session, files)
        .where(f.btrim("value", f.lit(_BLANKS)) != "")
        .select(
            f.col("value").cast("binary").alias("line"),
            file_name().alias("file"),
            f.from_json("value", _ROUTE).alias("route"),
        )
    )
    return read.select("line", "file", "route.*")


def _whole(lines: DataFrame) -> Whole | None:
    """One pass over everything for what concerns every partition; None where there are no lines at all."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (an extra)

    [row] = lines.agg(
        f.count("*").alias("many"),
        f.coalesce(f.max(f.col("op") == "final_read"), f.lit(False)).alias("final"),
        f.collect_list(f.when(f.col("op").isin(*_WHOLE), f.struct("file", "line"))).alias("whole"),
    ).collect()
    if not row.many:
        return None
    return whole_of(bool(row.final), ((each.file, bytes(each.line)) for each in row.whole))


def whole_of(final: bool, lines: Iterable[tuple[str, bytes]]) -> Whole:
    """What lines of _WHOLE say of the history, each with its file. `final`: it has a final read. Pure.

    Raises HistoryMalformed that names the file and the line.
    """
    operations = [each for file, line in lines for each in _decode(line, file)]
    drained = [each.at_ms for each in operations if isinstance(each, Drained)]
    recreated: dict[str, list[Recreated]] = {}
    for each in operations:
        if isinstance(each, Recreated):
            recreated.setdefault(each.topic, []).append(each)
    return Whole(final or bool(drained), min(drained, default=None), recreated)


def _rows(lines: DataFrame, whole: Whole) -> DataFrame:
    """Rows as of `Row`: the lines of partitions, those that are about none, and the sessions that went on."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (an extra)

    placed = f.col("topic").isNotNull() & f.col("partition").isNotNull() & f.col("op").isNotNull()
    own = lines.where(~f.coalesce(f.col("op").isin(*_WHOLE), f.lit(False))).select(
        f.when(placed, f.col("topic")).alias("topic"),
        f.when(placed, f.col("partition")).alias("partition"),
        "line",
        f.when(~placed, f.col("file")).alias("file"),
        f.lit(None).cast("string").alias("client"),
        f.lit(None).cast("long").alias("session"),
    )
    if whole.drained_ms is None:
        return own
    polls = lines.where(f.col("op") == "poll")
    went_on = polls.where(f.col("invoked_ms") >= whole.drained_ms).select("client", "session").distinct()
    at = lines.where(f.col("op").isin("poll", "seek")).select("topic", "partition", "client", "session").distinct()
    marks = at.join(went_on, ["client", "session"]).select(
        "topic",
        "partition",
        f.lit(None).cast("binary").alias("line"),
        f.lit(None).cast("string").alias("file"),
        "client",
        "session",
    )
    return own.unionByName(marks)


def _judged(
    rows: Iterator[Row],
    whole: Whole,
    allow: frozenset[Anomaly],
    producers: Producers | None,
    most: int,
) -> Iterator[bytes]:
    """The verdict of a task."""
    yield judge_rows(rows, whole, allow=allow, producers=producers, most=most).to_json()


def _in_arrow(
    judge_one: Callable[[Iterator[Row]], Iterator[bytes]],
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def batches(given: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa  # noqa: PLC0415  (an extra)

        rows = (
            Row(*values) for batch in given for values in zip(*(column.to_pylist() for column in batch), strict=True)
        )
        for verdict in judge_one(rows):
            yield pa.RecordBatch.from_pydict({"verdict": pa.array([verdict], pa.binary())})

    return batches


def _decoded(verdict: bytes) -> Verdict:
    return msgspec.json.decode(verdict, type=Verdict)
