"""The job flights: the demo's topic as a stream, delays by carrier and hour, to Parquet and back to a topic.

Two queries, so that each result is written once. The first reads the topic and writes Parquet through Spark's file
sink, whose own log says which files count. The second follows those files, and no others, into the topic: what stands
in the topic is what stands in the files. Each has its checkpoint, and goes on from it after any end.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from regency.model.errors import RegencyError
from regency.model.words import counted
from regency.pipeline.files.files import delete, make_directory, names, read_text, refuse_unwritable, write_text
from regency.pipeline.jobs.flights.delays import BAD, DELAYS, INPUT, OUTPUT, delays_of, flights_of, records_of

if TYPE_CHECKING:
    from pyspark.errors import PySparkException
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_LOOK_S = 0.5
_TELL_S = 5.0
"""How often a line about batches is worth reading."""
_SENT = "sent"
_SENT_TO = "sent-to"
"""File in the checkpoint: the topic that the second query writes to. Older checkpoints lack it."""
_REFUSED = re.compile(
    rf"\[USER_RAISED_EXCEPTION\] {re.escape(BAD)}(?P<words>[\w.-]+-\d+, offset \d+: .*?\.)(?: SQLSTATE|\s*$)",
    re.MULTILINE,
)
_ANY_AGE = "100000d"
"""Files are read however long they waited: by default Spark's file source passes over those of more than a week."""


class BadRecord(RegencyError):
    """A record of the topic is no flight."""

    code = "bad_record"


class OutputUnusable(RegencyError):
    """Directory and checkpoint do not belong together."""

    code = "output_unusable"


class FlightsOptions(msgspec.Struct, frozen=True):
    """`output`: directory of the Parquet files. `to`: topic of the results, None for none. `airlines`: code and name.

    `every_s`: how often a batch begins; None: read what is there, and end.
    """

    servers: str
    topic: str
    output: str
    checkpoint: str
    to: str | None
    airlines: Sequence[tuple[str, str]]
    watermark: str = "2 days"
    every_s: float | None = None
    skip_bad: bool = False
    fail_on_data_loss: bool = True
    max_offsets_per_trigger: int | None = None


class FlightsCounts(msgspec.Struct, frozen=True):
    """What one run did.

    `late`: rows dropped behind the watermark, as Spark counts them: all flights of a carrier's hour that one task of
    one batch had are one row. `open`: carriers' hours that the watermark has not closed yet. `sent`: to the topic.
    """

    rows: int
    bad: int
    windows: int
    late: int
    open: int
    sent: int
    batches: int
    watermark: str | None
    """Of the last batch; None while none was done, and in the first, which sets it for the next."""

    @property
    def progress(self) -> str:
        """What is printed on the way."""
        watermark = "no watermark yet" if self.watermark is None else f"watermark {self.watermark}"
        return f"{counted(self.rows, 'row')}, {counted(self.windows, 'window')}, {watermark}, {self.sent} sent"

    @property
    def line(self) -> str:
        """The last line of the job."""
        return (
            f"flights: rows={self.rows} windows={self.windows} late={self.late} bad={self.bad} open={self.open} "
            f"sent={self.sent}"
        )


class FlightsRun:
    """The job once it runs; `counts` may be asked at any time."""

    def __init__(self, session: SparkSession, options: FlightsOptions) -> None:
        self._session = session
        self._options = options
        self._read = BatchCounts()
        self._sent = BatchCounts()
        self._queries: list[tuple[StreamingQuery, BatchCounts]] = []
        self._before: frozenset[str] = frozenset()

    @property
    def counts(self) -> FlightsCounts:
        """What was done until now."""
        return FlightsCounts(
            self._read.observed(INPUT, "rows"),
            self._read.observed(INPUT, "bad"),
            self._read.observed(OUTPUT, "windows"),
            self._read.late,
            self._read.held,
            self._sent.observed(_SENT, "rows"),
            self._read.batches,
            self._read.watermark,
        )

    def check(self) -> None:
        """Raises OutputUnwritable and OutputUnusable where the job cannot work; writes nothing."""
        session, options = self._session, self._options
        refuse_unwritable(session, options.output)
        if not options.checkpoint.startswith(f"{options.output.rstrip('/')}/"):
            refuse_unwritable(session, options.checkpoint)
        self._before = _leftovers(session, options)
        _refuse_other_topic(session, options)

    def run(self, *, tell: Callable[[str], object]) -> None:
        """Until what is there is done, or for ever; leaves no query running. `tell` gets a line now and then.

        Raises BadRecord, what `check` raises, and what Spark raises.
        """
        self.check()
        try:
            if self._options.every_s is None:  # what the first has written, all of it, is there for the second
                for start in (self._start_reading, self._start_sending):
                    start()
                    self._follow(tell)
            else:
                self._start_reading()
                self._start_sending()
                self._follow(tell)
        finally:
            self._stop()

    def _follow(self, tell: Callable[[str], object]) -> None:
        told_s = time.monotonic()
        told = self.counts
        while True:
            going = [self._look(query, counts) for query, counts in self._queries]
            if not any(going):
                return
            if self.counts != told and time.monotonic() - told_s >= _TELL_S:
                told, told_s = self.counts, time.monotonic()
                tell(told.progress)
            time.sleep(_LOOK_S)

    def _look(self, query: StreamingQuery, counts: BatchCounts) -> bool:
        """Take in its progress, and say whether it goes on. Raises what ended it."""
        goes_on = query.isActive
        if counts.take(query.recentProgress) and counts is self._read:
            self._sweep()
        if not goes_on:
            with _told():
                query.awaitTermination()
        return goes_on

    def _start_reading(self) -> None:
        options = self._options
        source = self._session.readStream.format("regency")
        source = source.option("kafka.bootstrap.servers", options.servers).option("subscribe", options.topic)
        source = source.option("startingOffsets", "earliest").option("failOnDataLoss", options.fail_on_data_loss)
        if options.max_offsets_per_trigger is not None:
            source = source.option("maxOffsetsPerTrigger", options.max_offsets_per_trigger)
        airlines = self._session.createDataFrame(list(options.airlines), "carrier string, airline string")
        flights = flights_of(source.load(), skip_bad=options.skip_bad)
        delays = delays_of(flights, airlines, options.watermark)
        self._start(delays.writeStream.format("parquet").option("path", options.output), "parquet", self._read)

    def _start_sending(self) -> None:
        options = self._options
        if options.to is None:
            return
        if not names(self._session, f"{options.checkpoint}/topic/offsets"):
            _note_topic(self._session, options.checkpoint, options.to)
        make_directory(self._session, options.output)  # the source wants it before the first batch makes it
        written = self._session.readStream.schema(DELAYS).option("maxFileAge", _ANY_AGE).parquet(options.output)
        sink = records_of(_counted(written)).writeStream.format("regency")
        sink = sink.option("kafka.bootstrap.servers", options.servers).option("topic", options.to)
        self._start(sink.option("effectivelyOnce", True), "topic", self._sent)

    def _start(self, writer: DataStreamWriter, name: str, counts: BatchCounts) -> None:
        every_s = self._options.every_s
        if every_s is None:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(every_s * 1000)} milliseconds")
        with _told():
            query = (
                writer.outputMode("append")
                .queryName(f"flights-{name}")
                .option("checkpointLocation", f"{self._options.checkpoint}/{name}")
                .start()
            )
        self._queries.append((query, counts))

    def _stop(self) -> None:
        for query, counts in self._queries:
            with contextlib.suppress(Exception):  # it failed, or Java is gone: what is said of that is said elsewhere
                query.stop()
                counts.take(query.recentProgress)

    def _sweep(self) -> None:
        """Remove files that a killed run left behind, once this run's first batch has shut out any other run.

        Spark passes over them, since its log does not have them; others who read the directory would count them twice.
        """
        if self._before:
            for name in sorted(self._before - _committed(self._session, self._options.output)):
                delete(self._session, self._options.output, name)
            self._before = frozenset()


def _counted(delays: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F  # noqa: N812, PLC0415

    return delays.observe(_SENT, F.count(F.lit(1)).alias("rows"))


def _leftovers(session: SparkSession, options: FlightsOptions) -> frozenset[str]:
    """Files of earlier runs. Raises OutputUnusable where they are not those that the checkpoint tells of."""
    files = frozenset(name for name in names(session, options.output) if name.endswith(".parquet"))
    done = names(session, f"{options.checkpoint}/parquet/commits")
    known = names(session, f"{options.output}/_spark_metadata")
    if (files or known) and not names(session, f"{options.checkpoint}/parquet"):
        raise OutputUnusable(
            f"{options.output} has files, and there is no checkpoint of them in {options.checkpoint}.",
            hint="Name another directory, or the --checkpoint it was written with.",
        )
    if done and not known:
        raise OutputUnusable(
            f"{options.checkpoint} says that batches were written to {options.output}, and they are not there.",
            hint="Name the directory it belongs to, or another --checkpoint to begin again.",
        )
    return files


def _refuse_other_topic(session: SparkSession, options: FlightsOptions) -> None:
    """Raises OutputUnusable where files were sent to another topic before: this one would get only the new ones."""
    if options.to is None:
        return
    known = read_text(session, f"{options.checkpoint}/{_SENT_TO}")
    if known is not None and known.strip() != options.to:
        raise OutputUnusable(
            f"{options.checkpoint} says that the results in {options.output} go to the topic {known.strip()}: "
            f"{options.to} would lack those that were sent.",
            hint=f"Say --to-topic {known.strip()}, or name another --to, and another --checkpoint where you named one.",
        )


def _note_topic(session: SparkSession, checkpoint: str, topic: str) -> None:
    """Before the first batch is planned, so that no record is sent that the checkpoint does not tell the topic of."""
    path = f"{checkpoint}/{_SENT_TO}"
    if read_text(session, path) is None:
        make_directory(session, checkpoint)
        write_text(session, path, f"{topic}\n")


def _committed(session: SparkSession, directory: str) -> frozenset[str]:
    """Files that Spark's log of the directory has."""
    if not names(session, f"{directory}/_spark_metadata"):
        return frozenset()
    listed = session.read.schema(DELAYS).parquet(directory).inputFiles()
    return frozenset(path.rpartition("/")[2] for path in listed)


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Turns Spark's account of a bad record into ours."""
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        yield
    except PySparkException as error:
        _refuse_bad_record(error)
        raise


def _refuse_bad_record(error: PySparkException) -> None:
    words = bad_record_in(str(error))
    if words is not None:
        raise BadRecord(
            f"A record is no flight: {words}",
            hint="Nothing of its batch was written. --bad-records skip counts such records and goes on.",
        ) from error


def bad_record_in(told: str) -> str | None:
    """Place and reason of a bad record, if Spark tells of one.

    With whatever ended a query it tells the query's plan, in which BAD stands too, but before no place.
    """
    found = _REFUSED.search(told)
    return None if found is None else found["words"]


_NO_WATERMARK = "1970-01-01T00:00:00.000Z"
"""What Spark tells in the place of a watermark until a batch with times is done."""


class BatchCounts:
    """Takes progress reports, the same ones again and again if need be, and sums up each batch once."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._observed = Counter[tuple[str, str]]()
        self.batches = 0
        """Batches that were done."""
        self.late = 0
        """Rows that stateful operators dropped as they came behind the watermark."""
        self.held = 0
        """Rows in state after the last batch."""
        self.watermark: str | None = None
        """The last batch's; None while there is none."""

    def take(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Reports as `StreamingQuery.recentProgress` has them, in order; those of idle triggers are left out.

        Says whether any was new.
        """
        before = self.batches
        for report in reports:
            number = report["batchId"]
            if "addBatch" not in report["durationMs"] or (self._last is not None and number <= self._last):
                continue
            self._last = number
            self.batches += 1
            self._sum_up(report)
        return self.batches > before

    def observed(self, name: str, field: str) -> int:
        """The sum of a field of an observed metric."""
        return self._observed[name, field]

    def _sum_up(self, report: Mapping[str, Any]) -> None:
        for name, metric in (report.get("observedMetrics") or {}).items():
            for field, value in metric.asDict().items():
                self._observed[name, field] += value or 0
        operators = report.get("stateOperators") or ()
        self.late += sum(operator["numRowsDroppedByWatermark"] for operator in operators)
        self.held = sum(operator["numRowsTotal"] for operator in operators)
        watermark = (report.get("eventTime") or {}).get("watermark", self.watermark)
        self.watermark = None if watermark == _NO_WATERMARK else watermark
