"""`spark.readStream.format("regency")`: offsets of one batch after the other, and their tasks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from regency.model.ids import TopicId, TopicPartition
from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.reading.cluster_view import ClusterView, log
from regency.pipeline.reading.offsets import EARLIEST, Offsets, named, offsets_dict, offsets_of_checkpoint
from regency.pipeline.reading.options import ReadOptions, read_options
from regency.pipeline.reading.planning import OffsetRange, ReadPartition, batches_of, check_schema, planned, speak_up
from regency.pipeline.reading.topic_choice import chooses, option_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_GONE: Final = "gone, maybe before all was read: not in the cluster any more"
_NOT_CHOSEN: Final = "not chosen any more by option {}, maybe before all was read"


class StreamPlan:
    """The batches of one run of a query, which lives in one thread of the driver.

    All that has to survive the run is in the offsets; what is remembered here beside them is the identity of topics,
    so that a topic that was deleted and created again is noticed while the query runs.
    """

    def __init__(self, options: ReadOptions, *, view: ClusterView | None = None) -> None:
        self._options = options
        self._view = view or ClusterView(options)
        self._patience = (
            Patience(options.min_offsets, options.max_delay_ms) if options.min_offsets is not None else None
        )
        self._known_ids: dict[str, TopicId] = {}
        self._freezes = False
        self._frozen: Offsets | None = None
        self._ends: list[Offsets] = []
        """Ends of batches that were planned here, newest last: the log reached them."""
        self._told: set[TopicPartition] = set()
        """That they are not read any more; until they are again."""
        self.latest: Offsets = {}
        """As seen last."""

    def close(self) -> None:
        """Close all connections."""
        self._view.close()

    def initial(self) -> Offsets:
        """Where a new query begins."""
        partitions = self._view.partitions_of_a_new_query()
        self._check_ids()
        return self._view.resolved(self._options.starting, partitions, option="starting")

    def freeze(self) -> None:
        """Take what is there when the next batch is planned for all there will be.

        Not what is there now: a new query that begins at the latest offsets looks these up after this.
        """
        self._freezes = True

    def next_end(self, start: Offsets, now_ms: float, *, unlimited: bool) -> Offsets:
        """Where the batch from `start` ends; `unlimited` where the trigger wants all there is.

        `start` itself means that there is nothing, or not enough yet. Raises DataLost where what was read up to `start`
        is not there any more, before Spark has noted anything of the batch.
        """
        latest = self._look(start)
        self._told -= latest.keys()
        self._not_read(start.keys() - latest.keys())
        self._check_absent()
        self._view.lost(
            f"the log of {name} ends at {latest[name]}, but was read up to {offset} already"
            for name, offset in start.items()
            if latest.get(name, offset) < offset
        )
        end = self._limited(start, latest, now_ms, unlimited=unlimited)
        if end is not start:
            self._ends = [*self._ends[-1:], end]
        return end

    def tasks(self, start: Offsets, end: Offsets) -> list[ReadPartition]:
        """Tasks that read from `start` to `end`, again where the batch was planned before."""
        there = self._view.partitions()
        self._check_ids()
        self._not_read((start.keys() - end.keys()) | (end.keys() - there))
        ends = self._ends_there({name: offset for name, offset in end.items() if name in there})
        begins = self._begins(start, ends)
        ranges = [OffsetRange(name, begins[name], ends[name]) for name in ends if name in begins]
        self._view.lost(
            f"the log of {each.partition} went back from offset {each.start} to {each.end}"
            for each in ranges
            if each.size < 0
        )
        return planned(self._options, ranges, self._view.topic_ids)

    def _look(self, start: Offsets) -> Offsets:
        """The latest offsets, as of the first look where they are frozen."""
        if self._frozen is None:
            self.latest = self._view.latest(start)
            self._check_ids()
            self._frozen = self.latest if self._freezes else None
        return self.latest

    def _check_absent(self) -> None:
        """Whether all is there that the options name; what was there once counts as lost instead."""
        if self._view.absent and self._options.fail_on_data_loss:
            raise self._view.unknown()

    def _limited(self, start: Offsets, latest: Offsets, now_ms: float, *, unlimited: bool) -> Offsets:
        if unlimited:
            return latest
        reached = self._with_new(start, latest)
        if self._waits(available(reached, latest), now_ms):
            return start
        return latest if self._options.max_offsets is None else limited(self._options.max_offsets, reached, latest)

    def _waits(self, offsets: int, now_ms: float) -> bool:
        if self._patience is None or self._frozen is not None:
            return False  # nothing more would come where all there will be is known
        return self._patience.waits(offsets, now_ms)

    def _with_new(self, start: Offsets, latest: Offsets) -> Offsets:
        """`start`, with the earliest offsets of partitions that it does not know."""
        new = latest.keys() - start.keys()
        return start | self._view.at(EARLIEST, new) if new else start

    def _begins(self, start: Offsets, ends: Offsets) -> Offsets:
        new = ends.keys() - start.keys()
        begins = self._with_new(start, ends)
        self._not_read(new - begins.keys())
        self._view.lost(
            f"the new partition {name} begins at {begins[name]}, the records before it are gone"
            for name in sorted(new & begins.keys())
            if begins[name] != 0
        )
        return begins

    def _ends_there(self, end: Offsets) -> Offsets:
        """Ends that the logs reach. Only an end from before a restart has to be looked at."""
        if any(planned_here.items() >= end.items() for planned_here in self._ends):
            return end
        latest = self._view.latest(end)
        self._view.lost(
            f"the log of {name} ends at {latest[name]}, the records up to {offset} are gone"
            for name, offset in end.items()
            if latest.get(name, offset) < offset
        )
        return {name: min(offset, latest.get(name, offset)) for name, offset in end.items()}

    def _not_read(self, partitions: AbstractSet[TopicPartition]) -> None:
        """Partitions of the offsets are not read any more, since they are gone or not chosen: a loss, told once.

        Spark's Kafka source makes no difference between the two. Raises DataLost.
        """
        new = partitions if self._options.fail_on_data_loss else partitions - self._told
        self._told |= new
        chosen = {name for name in new if chooses(self._options.topics, name)}
        self._view.lost(
            f"{named(some)} {'is' if len(some) == 1 else 'are'} {why}"
            for some, why in ((chosen, _GONE), (new - chosen, _NOT_CHOSEN.format(option_of(self._options.topics))))
            if some
        )

    def _check_ids(self) -> None:
        """Whether topics are those they were when this run saw them first."""
        other = [
            topic
            for topic, topic_id in sorted(self._view.topic_ids.items())
            if self._known_ids.setdefault(topic, topic_id) != topic_id
        ]
        self._known_ids |= self._view.topic_ids
        self._view.lost(
            f"topic {topic} was deleted and created again: offsets of the old one mean nothing in the new one"
            for topic in other
        )


def limited(limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> Offsets:
    """Where a batch of about `limit` offsets ends: each partition gives its share of what there is.

    A share below one is one, so that small partitions do not starve; any other is rounded down. No partition goes
    beyond its latest offset; one whose `start` is not known, or has nothing new, goes to its latest.
    """
    sizes = {name: end - start[name] for name, end in latest.items() if name in start and end > start[name]}
    total = sum(sizes.values())
    ends = dict(latest)
    for name, size in sizes.items():
        share = max(limit * size // total, 1)
        ends[name] = min(start[name] + share, latest[name])
    return ends


def available(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """How many offsets there are beyond `start`."""
    return sum(max(end - start.get(name, end), 0) for name, end in latest.items())


class Patience:
    """Whether a batch waits for more records: while there are fewer than `enough`, but no longer than `max_delay_ms`.

    The first batch of a query waits for nothing, as in Spark's Kafka source. Times are monotonic milliseconds.
    """

    def __init__(self, enough: int, max_delay_ms: int) -> None:
        self._enough = enough
        self._max_delay_ms = max_delay_ms
        self._last: float | None = None

    def waits(self, offsets: int, now_ms: float) -> bool:
        """Whether a batch of `offsets` is put off at this time; if not, waiting begins again."""
        overdue = self._last is None or now_ms - self._last >= self._max_delay_ms
        if not overdue and offsets < self._enough:
            return True
        self._last = now_ms
        return False


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream as Spark drives it: one object on the driver plans all batches of a query, copies of it read."""

    def __init__(self, options: ReadOptions | PipelineOptionInvalid) -> None:
        """With an error in the place of options, that is raised by whatever plans."""
        self._given = options
        self._plan: StreamPlan | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """To tasks go the options alone, no connection."""
        return StreamReader, (self._given,)

    def initialOffset(self) -> dict[str, dict[str, int]]:  # noqa: N802
        """Where a new query begins. Raises PipelineOptionInvalid, TopicUnknown, DataLost and ClusterUnavailable."""
        return offsets_dict(self._planner().initial())

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit of the options. Where both are given Spark hears of the larger one, and the other holds too."""
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, dict[str, int]], limit: ReadLimit) -> dict[str, dict[str, int]]:  # noqa: N802
        """Where the batch from `start` ends. Raises DataLost, OffsetsMalformed and ClusterUnavailable."""
        unlimited = isinstance(limit, ReadAllAvailable)
        now_ms = time.monotonic() * 1000
        return offsets_dict(self._planner().next_end(offsets_of_checkpoint(start), now_ms, unlimited=unlimited))

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:  # noqa: N802
        """The latest offsets that were seen, for progress reports: without the limits of a batch."""
        latest = self._plan.latest if self._plan is not None else {}
        return offsets_dict(latest) if latest else None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read up to what is there now, and no further."""
        self._planner().freeze()

    def partitions(self, start: dict[str, dict[str, int]], end: dict[str, dict[str, int]]) -> list[ReadPartition]:
        """Tasks of a batch. Raises DataLost, OffsetsMalformed and ClusterUnavailable."""
        planner = self._planner()
        if start == end:
            return []
        return planner.tasks(offsets_of_checkpoint(start), offsets_of_checkpoint(end))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return batches_of(partition)

    def stop(self) -> None:
        """Close all connections."""
        if self._plan is not None:
            self._plan.close()
            self._plan = None

    @property
    def _options(self) -> ReadOptions:
        if isinstance(self._given, PipelineOptionInvalid):
            raise self._given
        return self._given

    def _planner(self) -> StreamPlan:
        if self._plan is None:
            speak_up()
            for warning in self._options.warnings:
                log.warning("%s", warning)
            self._plan = StreamPlan(self._options)
        return self._plan


def stream_reader(options: Mapping[str, str], schema: StructType) -> StreamReader:
    """The reader for options of Spark; where they are wrong, one whose every answer is PipelineOptionInvalid.

    Spark (up to 4.3, python_streaming_source_runner) cannot bear an error of `streamReader` itself: on its way out it
    stops the reader it did not get, and an UnboundLocalError of its own is the last that is reported.
    """
    try:
        chosen = read_options(options, stream=True)
        check_schema(schema, chosen)
    except PipelineOptionInvalid as error:
        return StreamReader(error)
    return StreamReader(chosen)
