"""Reads back the end of the topics: which records of a task are there, before any of its rows is written again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from regency.clients.cluster_client import LATEST, ClusterClient, TopicGone
from regency.clients.settings import ClientSettings
from regency.model.ids import Offset, TopicPartition
from regency.pipeline.partition_records import ReadTask, record_batches
from regency.pipeline.sink_floors import Floors, TopicFloors
from regency.pipeline.sink_identity import HEADER, WriteId, digest, named_its_partition, task_of
from regency.pipeline.sink_written import Written

SETTLE_S: Final = 1.0
"""How long what a dead producer has sent may still be on its way to a log: time in which its successor waits."""

ReadRange = Callable[[ReadTask], Iterator[pa.RecordBatch]]


class Tail(NamedTuple):
    """What was found."""

    written: Written
    """Records of the task."""
    highest_task: int
    """Highest Spark partition that wrote to the batch; -1 for none."""


def topic_ends(client: ClusterClient, topics: tuple[str, ...]) -> dict[str, TopicFloors]:
    """Where the topics end now: floors of a batch that begins after this.

    Raises TopicGone for a topic that does not exist, ClusterUnavailable.
    """
    facts = client.topics(topics)
    missing = [topic for topic in topics if topic not in facts]
    if missing:
        raise TopicGone(
            f"Topic {missing[0]} does not exist.", missing[0], hint="Create it first: `regency topics create`."
        )
    names = [TopicPartition(topic, partition) for topic in topics for partition in facts[topic].partitions]
    ends = client.offsets(dict.fromkeys(names, LATEST))
    return {
        topic: TopicFloors(
            facts[topic].topic_id,
            {partition: _known(ends[TopicPartition(topic, partition)]) for partition in facts[topic].partitions},
        )
        for topic in topics
    }


def read_tail(
    settings: ClientSettings, floors: Floors, write: WriteId, task: int, *, read: ReadRange = record_batches
) -> Tail:
    """The records of `task` of `write` at or above the floors.

    Raises DataLoss where retention has removed what would have to be read, ClusterUnavailable, ReadTimedOut.
    """
    with ClusterClient(settings) as client:
        ends = topic_ends(client, tuple(floors))
    finding = _Finding(write, task)
    for range_ in tail_ranges(settings, floors, ends):
        for batch in read(range_):
            finding.take(range_.topic, range_.partition, batch)
    return Tail(Written(finding.digests), finding.highest_task)


def tail_ranges(settings: ClientSettings, floors: Floors, ends: Mapping[str, TopicFloors]) -> list[ReadTask]:
    """What is to be read: every partition from its floor to its end, where there is anything."""
    found: list[ReadTask] = []
    for topic, now in ends.items():
        for partition, end in sorted(now.ends.items()):
            start = floors[topic].of(now.topic_id, partition)
            if start < end:
                found.append(_range(settings, topic, now.topic_id, partition, start, end))
    return found


def settle(
    since_ms: int, *, clock: Callable[[], float] = time.time, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait until SETTLE_S after wall time `since_ms` by this machine's clock, at most SETTLE_S in all."""
    left = since_ms / 1000 + SETTLE_S - clock()
    if left > 0:
        sleep(min(left, SETTLE_S))


class _Finding:
    """Collects digests while records come by."""

    def __init__(self, write: WriteId, task: int) -> None:
        self._write = write.prefix
        self._task = write.task_prefix(task)
        self.digests: list[bytes] = []
        self.highest_task = -1

    def take(self, topic: str, partition: int, batch: pa.RecordBatch) -> None:
        """Look at the records of a batch that has headers."""
        own: dict[int, bytes] = {}
        for row, value in _values(batch.column("headers")):
            if value is not None and value.startswith(self._write):
                self.highest_task = max(self.highest_task, task_of(value))
                if value.startswith(self._task):
                    own[row] = value
        if not own:
            return
        taken = batch.take(pa.array(list(own), pa.int64()))
        keys, values, headers = (taken.column(name).to_pylist() for name in ("key", "value", "headers"))
        for mark, key, value, told in zip(own.values(), keys, values, headers, strict=True):
            named = partition if named_its_partition(mark) else None
            brought = [(header["key"], header["value"]) for header in told]
            self.digests.append(digest(topic, named, key, value, brought))


def _values(headers: pa.Array) -> Iterator[tuple[int, bytes | None]]:
    """Row and value of every header `regency.sink`."""
    told = headers.flatten()
    ours = pc.equal(told.field("key"), HEADER)
    rows = headers.value_parent_indices().filter(ours)
    values = told.field("value").filter(ours)
    yield from zip(rows.to_pylist(), values.to_pylist(), strict=True)


def _range(settings: ClientSettings, topic: str, topic_id: UUID, partition: int, start: int, end: int) -> ReadTask:
    return ReadTask(
        client=settings,
        topic=topic,
        topic_id=topic_id,  # type: ignore[arg-type]
        partition=partition,
        start=Offset(start),
        end=Offset(end),
        include_headers=True,
        fail_on_data_loss=True,
    )


def _known(end: Offset | None) -> int:
    """An end that was asked for as LATEST is always told."""
    return 0 if end is None else end
