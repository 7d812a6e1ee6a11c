"""The history judge on Spark: one piece per partition, judged by the same rules, and the verdicts added up.

Java looks at a line only far enough to know which partition it is about. A task reads its lines sorted by partition, so
that it has the records of one partition in memory at a time, whatever the size of the history. Lines that Java does not
understand are few, or errors: the driver decodes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from regency.judge.files import TORN_HINT, nothing_read, refuse_unread
from regency.judge.findings import DEFAULT_MOST, Verdict, add_verdicts
from regency.judge.operations import (
    Drained,
    FinalRead,
    HistoryMalformed,
    Operation,
    Poll,
    Recreated,
    Seek,
    decode_operations,
    printable,
)
from regency.judge.parts import Claims
from regency.judge.table import Anomaly
from regency.judge.verdict import Producers, judge_piece
from regency.pipeline.files.history_files import Found, damaged, file_name, text_of, unread

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_ROUTE = "op string, topic string, partition long, client string, session long, invoked_ms long"
_NEEDED: dict[str, tuple[str, ...]] = {
    "op": (),
    "topic": (),
    "partition": (),
    "client": ("poll", "seek"),
    "session": ("poll", "seek"),
    "invoked_ms": ("poll",),
}
"""Which operations need which part of the route; all, where none is named."""
_WHOLE = ("recreated", "drained")
"""Operations that are about no single partition."""
_BLANKS = " \t\r\v\f"
"""What `bytes.strip` takes off a line."""
_MOST_ODD = 1000
_SHOWN = 200
"""Bytes of a line that an error tells."""


class Row(NamedTuple):
    """A line of a partition, or (without a line) a consumer session that went on there after `Drained`."""

    topic: str
    partition: int
    line: bytes | None
    client: str | None
    session: int | None


class Whole(NamedTuple):
    """What every piece hears of the history as a whole. Pickled into each task."""

    complete: bool
    drained_ms: int | None
    recreated: Mapping[str, Sequence[Recreated]]
    """By topic."""


class Odd(NamedTuple):
    """A line that Spark's parser of JSON does not take, decoded here instead."""

    file: str
    line: bytes
    operation: Operation


class PieceMalformed(HistoryMalformed):
    """The records of a partition contradict each other, or a line is none."""

    def __init__(self, topic: str, partition: int, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic
        self.partition = partition


class _Malformed(msgspec.Struct, frozen=True, tag_field="is", tag="malformed"):
    """What a task says in the place of a verdict."""

    topic: str
    partition: int
    message: str
    hint: str


class _Judged(msgspec.Struct, frozen=True, tag_field="is", tag="judged"):
    verdict: Verdict


_decoder: msgspec.json.Decoder[_Judged | _Malformed] = msgspec.json.Decoder(_Judged | _Malformed)


def readable(found: Found) -> list[str]:
    """The files, all of which Spark reads. Raises FilesUnreadable for one that it does not: it may hold anything."""
    refuse_unread(found.unread)
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
    """The verdict on the operations in `files`, which were found by `paths` anywhere that Spark can read.

    Raises HistoryMalformed, also for files that cannot be unpacked or hold no operations, and what Spark raises.
    """
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415  (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    if not files:
        raise nothing_read(paths)
    try:
        return _verdict(session, paths, files, allow, producers, most)
    except (PySparkException, Py4JJavaError) as error:
        if unread(error):
            for name, why in damaged(session, files):
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
    told = _told(lines)
    if told is None:
        raise nothing_read(paths)
    whole, odd = told
    rows = _rows(_placed(session, lines, odd), whole)
    sorted_rows = rows.repartition("topic", "partition").sortWithinPartitions("topic", "partition", "client", "session")
    judge_one = partial(_judged, whole=whole, allow=allow, producers=producers, most=most)
    found = sorted_rows.mapInArrow(_in_arrow(judge_one), "verdict binary").collect()
    said = [_decoder.decode(each.verdict) for each in found]
    malformed = (each for each in said if isinstance(each, _Malformed))
    first = min(malformed, key=lambda each: (each.topic, each.partition), default=None)
    if first is not None:
        raise HistoryMalformed(first.message, hint=first.hint)
    return add_verdicts((each.verdict for each in said if isinstance(each, _Judged)), most=most)


def judge_rows(
    rows: Iterable[Row],
    whole: Whole,
    *,
    allow: frozenset[Anomaly] = frozenset(),
    producers: Producers | None = None,
    most: int = DEFAULT_MOST,
) -> Verdict:
    """The verdict on rows sorted by partition, one partition in memory at a time. Pure.

    Raises PieceMalformed, also for a line that is no operation.
    """
    pieces = (
        _judge_piece(topic, list(own), whole, allow, producers, most)
        for (topic, _), own in groupby(rows, key=lambda row: (row.topic, row.partition))
    )
    return add_verdicts(pieces, most=most)


def _judge_piece(
    topic: str, rows: list[Row], whole: Whole, allow: frozenset[Anomaly], producers: Producers | None, most: int
) -> Verdict:
    place = topic, rows[0].partition
    went_on = frozenset((row.client, row.session) for row in rows if row.client is not None and row.session is not None)
    claims = Claims(whole.complete, whole.drained_ms is not None, went_on)
    try:
        operations = [each for row in rows if row.line is not None for each in _own(row.line, place)]
        operations += whole.recreated.get(topic, ())
        return judge_piece(operations, claims, allow=allow, producers=producers, most=most)
    except HistoryMalformed as error:
        raise PieceMalformed(*place, error.message, hint=error.hint) from error


def _own(line: bytes, place: tuple[str, int]) -> list[Operation]:
    """The operation on a line that Java has found to be about this partition."""
    where = f"{place[0]}-{place[1]}"
    operations = _decode(line, where)
    for each in operations:
        if isinstance(each, Drained | Recreated) or (each.topic, each.partition) != place:
            raise HistoryMalformed(f"{where}: a line can be read in two ways. It begins: {_shown(line)}")
    return operations


def _decode(line: bytes, where: str) -> list[Operation]:
    try:
        return decode_operations([line])
    except HistoryMalformed as error:
        why = printable(str(error.__cause__ or error))
        raise HistoryMalformed(f"{where}: {why}. The line begins: {_shown(line)}") from error


def _shown(line: bytes) -> str:
    return printable(line[:_SHOWN].decode(errors="surrogateescape"))


def _lines(session: SparkSession, files: Sequence[str]) -> DataFrame:
    """The lines of the files, what Java finds in them, and what that is enough for.

    A line is about the `whole`, or about a partition, or `odd`: Java does not know all that it has to.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  (an extra)

    read = (
        text_of(session, files)
        .where(f.btrim("value", f.lit(_BLANKS)) != "")
        .select(
            f.col("value").cast("binary").alias("line"),
            file_name().alias("file"),
            f.inline(f.array(f.from_json("value", _ROUTE))),  # no filter moves through it, with a parser of its own
        )
    )
    op, known = f.col("op"), f.lit(True)
    for name, needed in _NEEDED.items():
        known &= f.col(name).isNotNull() | ~op.isin(*needed) if needed else f.col(name).isNotNull()
    whole = f.coalesce(op.isin(*_WHOLE), f.lit(False))
    return read.withColumns({"whole": whole, "odd": ~whole & ~f.coalesce(known, f.lit(False))})


def _told(lines: DataFrame) -> tuple[Whole, list[Odd]] | None:
    """One pass over everything for what concerns every partition; None where there are no lines at all."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (an extra)

    [row] = lines.agg(
        f.count("*").alias("many"),
        f.coalesce(f.max(f.col("op") == "final_read"), f.lit(False)).alias("final"),
        f.collect_list(f.when(f.col("whole"), f.struct("file", "line"))).alias("whole"),
        f.count_if("odd").alias("odd"),
    ).collect()
    if not row.many:
        return None
    told = [(each.file, bytes(each.line)) for each in row.whole]
    odd = _odd(lines) if row.odd else []
    told += [(each.file, each.line) for each in odd if isinstance(each.operation, Drained | Recreated)]
    final = bool(row.final) or any(isinstance(each.operation, FinalRead) for each in odd)
    return whole_of(final, told), odd


def _odd(lines: DataFrame) -> list[Odd]:
    """Raises HistoryMalformed for one that is no operation, and where there are very many."""
    rows = lines.where("odd").select("file", "line").limit(_MOST_ODD + 1).collect()
    lines_of = [(str(row.file), bytes(row.line)) for row in rows]
    found = [Odd(file, line, operation) for file, line in lines_of for operation in _decode(line, file)]
    if len(found) > _MOST_ODD:
        raise HistoryMalformed(
            f"{found[0].file}: more than {_MOST_ODD} lines, here or elsewhere, that Spark's parser of JSON does not"
            f" take. One begins: {_shown(found[0].line)}",
            hint="It takes no number of more than 1000 digits, no name of more than 50,000 characters, and no nesting"
            " deeper than 1000. `regency judge` reads such lines.",
        )
    return found


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


def _placed(session: SparkSession, lines: DataFrame, odd: Sequence[Odd]) -> DataFrame:
    """All lines that are about a partition, and their routes."""
    own = lines.where("NOT whole AND NOT odd").select("line", *_NEEDED)
    rows = [
        (
            each.line,
            type(each.operation).__struct_config__.tag,
            each.operation.topic,
            each.operation.partition,
            each.operation.client if isinstance(each.operation, Poll | Seek) else None,
            each.operation.session if isinstance(each.operation, Poll | Seek) else None,
            each.operation.invoked_ms if isinstance(each.operation, Poll) else None,
        )
        for each in odd
        if not isinstance(each.operation, Drained | Recreated)
    ]
    return own.unionByName(session.createDataFrame(rows, f"line binary, {_ROUTE}")) if rows else own


def _rows(placed: DataFrame, whole: Whole) -> DataFrame:
    """Rows as of `Row`: the lines of partitions, and the sessions that went on."""
    from pyspark.sql import functions as f  # noqa: PLC0415  (an extra)

    nobody = f.lit(None).cast("string").alias("client"), f.lit(None).cast("long").alias("session")
    own = placed.select("topic", "partition", "line", *nobody)
    if whole.drained_ms is None:
        return own
    polls = placed.where(f.col("op") == "poll")
    went_on = polls.where(f.col("invoked_ms") >= whole.drained_ms).select("client", "session").distinct()
    at = placed.where(f.col("op").isin("poll", "seek")).select("topic", "partition", "client", "session").distinct()
    nothing = f.lit(None).cast("binary").alias("line")
    marks = at.join(went_on, ["client", "session"]).select("topic", "partition", nothing, "client", "session")
    return own.unionByName(marks)


def _judged(
    rows: Iterator[Row], whole: Whole, allow: frozenset[Anomaly], producers: Producers | None, most: int
) -> Iterator[bytes]:
    """The verdict of a task, or why there is none: an error is reported once, and not tried again."""
    try:
        said: _Judged | _Malformed = _Judged(judge_rows(rows, whole, allow=allow, producers=producers, most=most))
    except PieceMalformed as error:
        said = _Malformed(error.topic, error.partition, error.message, error.hint)
    yield msgspec.json.encode(said)


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
