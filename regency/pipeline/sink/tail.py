"""Reads back the end of the topics: which records of a task are there, before any of its rows is written again."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from regency.clients.cluster_client import LATEST, ClusterClient, TopicGone
from regency.clients.errors import DataLoss
from regency.clients.settings import ClientSettings
from regency.model.ids import Offset, TopicPartition
from regency.pipeline.errors import TailGone
from regency.pipeline.records.partition_records import ReadTask, record_batches
from regency.pipeline.sink.floors import Floors, TopicFloors
from regency.pipeline.sink.identity import DIGEST_BYTES, HEADER, WriteId, digest, named_its_partition, task_of

SETTLE_S: Final = 1.0
"""How long what a dead producer has sent may still be on its way to a log: time in which its successor waits."""

ReadRange = Callable[[ReadTask], Iterator[pa.RecordBatch]]
AskEnds = Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, Offset | None]]


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
    return _topic_ends(client, topics, lambda names: client.offsets(dict.fromkeys(names, LATEST)))


def _topic_ends(client: ClusterClient, topics: tuple[str, ...], ask: AskEnds) -> dict[str, TopicFloors]:
    facts = client.topics(topics)
    missing = [topic for topic in topics if topic not in facts]
    if missing:
        raise TopicGone(
            f"Topic {missing[0]} does not exist.", missing[0], hint="Create it first: `regency topics create`."
        )
    names = [TopicPartition(topic, partition) for topic in topics for partition in facts[topic].partitions]
    ends = ask(names)
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
    """The records of `task` of `write` at or above the floors: all that are in a log by now, also those that are not
    committed yet, such as the last ones of a killed task while a replica is away.

    Raises TailGone where the log does not have all of what would have to be read, ClusterUnavailable, ReadTimedOut.
    """
    with ClusterClient(settings) as client:
        ends = _topic_ends(client, tuple(floors), client.committed_ends)
    finding = _Finding(write, task)
    for range_ in tail_ranges(settings, floors, ends):
        try:
            for batch in read(range_):
                finding.take(range_.topic, range_.partition, batch)
        except DataLoss as error:
            raise TailGone(error.message) from error
    return Tail(Written(finding.digests), finding.highest_task)


def tail_ranges(settings: ClientSettings, floors: Floors, ends: Mapping[str, TopicFloors]) -> list[ReadTask]:
    """What is to be read: every partition from its floor to its end, where there is anything.

    Raises TailGone for a log that ends below its floor.
    """
    found: list[ReadTask] = []
    for topic, now in ends.items():
        for partition, end in sorted(now.ends.items()):
            start = floors[topic].of(now.topic_id, partition)
            if start > end:
                raise TailGone(
                    f"{topic}-{partition}: its log ends at {end}, and had records up to {start} when the batch began:"
                    " it was cut off."
                )
            if start < end:
                found.append(_range(settings, topic, now.topic_id, partition, start, end))
    return found


def settle(settings: ClientSettings, topics: Iterable[str]) -> None:
    """Wait until what a dead predecessor has sent is in the logs, as far as waiting helps.

    First every leader answers: one that stood still goes on by then, or another leads. What had come to it before is
    read and appended in the time that follows. Raises as `read_tail`.
    """
    with ClusterClient(settings) as client:
        topic_ends(client, tuple(topics))
    time.sleep(SETTLE_S)


class Settled:
    """Spares the tasks of a plan to wait one by one: who died before the plan was made had died for all of them."""

    def __init__(self, wait: Callable[[ClientSettings, Iterable[str]], None] = settle) -> None:
        self._wait = wait
        self._for: tuple[ClientSettings, tuple[str, ...], int] | None = None

    def wait(self, settings: ClientSettings, topics: Iterable[str], planned_ms: int | None) -> None:
        """`settle`, once for the tasks of one plan that this process runs one after the other.

        `planned_ms` None: the predecessor was of the same plan, and died just now. Raises as `settle`.
        """
        names = tuple(topics)
        wanted = None if planned_ms is None else (settings, names, planned_ms)
        if wanted is None or self._for != wanted:
            self._wait(settings, names)
            self._for = wanted or self._for


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


class Written:
    """Digests of the records that are there: 16 bytes and a counter for each different one."""

    def __init__(self, digests: Iterable[bytes]) -> None:
        joined = b"".join(digests)
        self.records = len(joined) // DIGEST_BYTES
        found = np.frombuffer(joined, dtype=f"S{DIGEST_BYTES}")
        # S compares as if trailing zero bytes were not there, which is sound where all have one length
        self._digests, counts = np.unique(found, return_counts=True)
        self._left = counts.astype(np.int64)
        self._met = np.zeros(len(counts), dtype=bool)
        self.left = self.records
        """Records that no row has matched yet."""

    def missing(self, digests: list[bytes]) -> list[int]:
        """Which rows of these, in order, are not there yet; the others are counted off."""
        if not self.left and not len(self._digests):
            return list(range(len(digests)))
        return list(self._missing(digests))

    def changed(self) -> int:
        """Records that are there and are none of the task's rows, once all rows were asked for."""
        return int(self._left[~self._met].sum())

    def doubled(self) -> int:
        """Records that are there more often than the task has the row, once all rows were asked for."""
        return self.left - self.changed()

    def _missing(self, digests: list[bytes]) -> Iterator[int]:
        asked = np.frombuffer(b"".join(digests), dtype=f"S{DIGEST_BYTES}")
        places = np.searchsorted(self._digests, asked)
        places[places == len(self._digests)] = 0
        found = self._digests[places] == asked
        for row, (place, there) in enumerate(zip(places.tolist(), found.tolist(), strict=True)):
            if not there:
                yield row
                continue
            self._met[place] = True
            if self._left[place]:
                self._left[place] -= 1
                self.left -= 1
            else:
                yield row
