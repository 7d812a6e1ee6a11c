"""Replicas of a partition on brokers that are nothing but memory, for readers that compare them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from aiokafka.record.default_records import DefaultRecordBatchBuilder

from regency.clients.replicas.reading import Partition, PartitionResult, read_and_compare
from regency.clients.replicas.wire import Place, Unanswered
from regency.kafka.fetching.values import FetchedPartition, FetchPartition, ListedOffset
from regency.kafka.record_batch import stamp
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

TOPIC_ID = TopicId(UUID(int=9))
T0 = TopicPartition("t", 0)
NONE = ErrorCode.NONE


def a_batch(offset: int, *, epoch: int = 0, value: bytes = b"v") -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2, compression_type=0, is_transactional=0, producer_id=-1, producer_epoch=-1, base_sequence=-1,
        batch_size=1 << 20,
    )  # fmt: skip
    assert builder.append(0, timestamp=1_000 + offset, key=None, value=value, headers=[])
    batch = bytearray(builder.build())
    stamp(batch, Offset(offset), LeaderEpoch(epoch))
    return bytes(batch)


class Log:
    """One replica on one broker: a batch per offset, told up to its high watermark, at most `most` at a time."""

    def __init__(self, count: int, *, mark: int | None = None, start: int = 0, most: int = 3) -> None:
        self.batches = {offset: a_batch(offset) for offset in range(start, count)}
        self.mark = count if mark is None else mark
        self.start, self.end, self.most = start, count, most
        self.error = NONE
        self.error_at = -1
        self.refused: set[int] = set()
        """Offsets of batches that its broker finds damaged: no read that reaches one is answered."""
        self.start_after: dict[int, int] = {}
        """Where the log begins once the offset was refused one batch at a time."""
        self.mark_rises_after = -1
        """Number of the fetch after which the high watermark is at the end."""

    def place(self) -> Place:
        return Place(Offset(self.start), Offset(self.end), Offset(self.mark))

    def fetch(self, offset: int, most_bytes: int = 1 << 20) -> FetchedPartition:
        most = 1 if most_bytes == 1 else self.most
        if offset >= self.start and self.refused & set(range(offset, min(self.mark, offset + most))):
            if most == 1:
                self.start = self.start_after.get(offset, self.start)
            return FetchedPartition(ErrorCode.CORRUPT_MESSAGE)
        if self.error is not NONE and offset >= self.error_at:
            return FetchedPartition(self.error)
        if not self.start <= offset <= self.end:
            return FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)
        self.mark_rises_after -= 1
        if self.mark_rises_after == 0:
            self.mark = self.end
        shown = [self.batches[each] for each in range(offset, min(self.mark, offset + most)) if each in self.batches]
        return FetchedPartition(NONE, Offset(self.mark), Offset(self.start), b"".join(shown))


class FakeWire:
    """Brokers' replicas; who is `silent` answers nothing. The first partition of a request alone is answered fully if
    `narrow`."""

    def __init__(self, logs: Mapping[tuple[int, TopicPartition], Log]) -> None:
        self.logs = logs
        self.silent: set[int] = set()
        self.narrow = False
        self.fetches: list[dict[int, list[tuple[TopicPartition, int]]]] = []

    def fetch(self, wanted: Mapping[BrokerId, Sequence[FetchPartition]], *, max_bytes: int) -> dict[Any, Any]:
        assert max_bytes > 0
        self.fetches.append(
            {b: [(one.topic_partition, one.fetch_offset) for one in some] for b, some in wanted.items()}
        )
        found: dict[Any, Any] = {}
        for broker, some in wanted.items():
            for number, one in enumerate(some):
                key = (broker, one.topic_partition)
                if broker in self.silent:
                    found[key] = Unanswered("it does not answer")
                    continue
                fetched = self.logs[key].fetch(one.fetch_offset, one.max_bytes)
                if self.narrow and number:
                    fetched = FetchedPartition(fetched.error, fetched.high_watermark, fetched.log_start_offset)
                found[key] = fetched
        return found

    def starts(self, wanted: Mapping[BrokerId, Sequence[TopicPartition]]) -> dict[Any, Any]:
        return {
            (broker, name): ListedOffset(NONE, -1, Offset(self.logs[broker, name].start))
            for broker, some in wanted.items()
            for name in some
        }


def verify(
    wire: FakeWire, *, leader: int | None = 1, patience_s: float = 0, progress: Any = None
) -> list[PartitionResult]:
    partitions = [
        Partition(name, TOPIC_ID, leader, {BrokerId(b): log.place() for (b, n), log in wire.logs.items() if n == name})
        for name in dict.fromkeys(name for _, name in wire.logs)
    ]
    return list(
        read_and_compare(wire, partitions, patience_s=patience_s, on_progress=progress or (lambda _: None))  # type: ignore[arg-type]
    )


def states(results: Iterable[PartitionResult]) -> list[dict[int, str]]:
    return [{verdict.broker: verdict.state for verdict in result.replicas} for result in results]


def three(**options: Any) -> FakeWire:
    return FakeWire({(number, T0): Log(20, **options) for number in (1, 2, 3)})
