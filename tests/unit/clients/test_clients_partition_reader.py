"""A range of a partition read, ahead of who takes it, from brokers that die, lose the lead, lose data, or send none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import msgspec
import pytest

from regency.clients.connections import Connections
from regency.clients.errors import CorruptRecords, DataLoss, ReadRefused, ReadTimedOut
from regency.clients.partition_reader import PartitionReader, Range, Skipped
from regency.clients.settings import ClientSettings
from regency.kafka.codec import FetchRequest, MetadataRequest
from regency.model.clock import ManualClock
from regency.model.ids import TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.pipeline.records.partition_records import read_ahead

NAME = TopicPartition("t", 0)


class Outcome:
    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.skipped: list[Skipped] = []


@pytest.fixture
def read(settings: ClientSettings, links: Connections) -> Callable[..., Outcome]:
    """Reads a range; first offsets of the batches that came, and what was skipped where that is allowed."""

    def run(start: int, end: int, *, skipping: bool = False, timeout_ms: int = 20_000, **changes: Any) -> Outcome:
        outcome = Outcome()
        reader = PartitionReader(
            msgspec.structs.replace(settings, **changes),
            Range(NAME, TopicId(UUID(int=1)), start, end),
            poll_timeout_ms=timeout_ms,
            on_skip=outcome.skipped.append if skipping else None,
            connections=links,
        )
        for batches in reader:
            outcome.offsets += [header.base_offset for _, header in batches.headers]
        return outcome

    return run


def fetches(cluster: Any) -> list[tuple[int, int, int]]:
    """Broker, offset and bytes of each fetch."""
    return [
        (broker, row.fetch_offset, row.partition_max_bytes)
        for broker, message in cluster.questions(FetchRequest)
        for row in message.topics[0].partitions
    ]


def test_the_batches_of_a_range_come_in_order(cluster: Any, log: Any, read: Callable[..., Outcome]) -> None:
    cluster.add("t", log(1, 100))
    assert read(0, 100).offsets == list(range(0, 100, 10))
    assert read(15, 31).offsets == [10, 20, 30]
    assert read(30, 31).offsets == [30]


def test_an_empty_range_asks_nobody(cluster: Any, log: Any, read: Callable[..., Outcome]) -> None:
    cluster.add("t", log(1, 100))
    assert read(5, 5).offsets == []
    assert cluster.asked == []


def test_a_fetch_asks_for_about_what_is_left(cluster: Any, log: Any, read: Callable[..., Outcome]) -> None:
    cluster.add("t", log(1, 20_000, each=1_000))
    read(0, 20_000, partition_fetch_bytes=200_000)
    sizes = [size for _, _, size in fetches(cluster)]
    assert sizes[0] == 200_000
    assert sizes[-1] == pytest.approx((64 << 10) + (20_000 - fetches(cluster)[-1][1]) * 20, rel=0.2)
    cluster.asked.clear()
    read(0, 10)
    assert [size for _, _, size in fetches(cluster)] == [(64 << 10) + 2816]
    read(0, 10, partition_fetch_bytes=5000)
    assert fetches(cluster)[-1][2] == 5000


def test_the_read_goes_on_with_the_new_leader_where_the_old_one_ended(
    cluster: Any, log: Any, read: Callable[..., Outcome]
) -> None:
    cluster.add("t", log(1, 100))
    size = 3 * len(cluster.logs["t", 0].batches[5])

    def die(broker: int, message: Any) -> None:
        if isinstance(message, FetchRequest) and message.topics[0].partitions[0].fetch_offset == 60:
            cluster.dead[1] = "connection reset"
            cluster.logs["t", 0].leader = 2
            cluster.logs["t", 0].epoch = 4

    cluster.before = die
    assert read(0, 100, partition_fetch_bytes=size).offsets == list(range(0, 100, 10))
    assert [(broker, offset) for broker, offset, _ in fetches(cluster)] == [(1, 0), (1, 30), (1, 60), (2, 60), (2, 90)]


@pytest.mark.parametrize(
    "error",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ],
)
def test_who_leads_is_looked_up_again_after_a_wait(
    cluster: Any, log: Any, read: Callable[..., Outcome], error: ErrorCode, clock: ManualClock
) -> None:
    cluster.add("t", log(1, 20))
    cluster.errors = {1: [error] * 3}
    began = clock.monotonic_ms()
    assert read(0, 20).offsets == [0, 10]
    assert clock.monotonic_ms() - began == 100 + 200 + 400
    assert len(cluster.questions(MetadataRequest)) == 4


def test_metadata_older_than_what_was_known_is_not_gone_by(
    cluster: Any, log: Any, read: Callable[..., Outcome]
) -> None:
    cluster.add("t", log(1, 20))
    epochs = [3, 2, 3]

    def lag(broker: int, message: Any) -> None:
        if isinstance(message, MetadataRequest):
            cluster.logs["t", 0].epoch = epochs.pop(0)

    cluster.before = lag
    cluster.errors = {1: [ErrorCode.NOT_LEADER_OR_FOLLOWER]}
    assert read(0, 20).offsets == [0, 10]
    assert [message.topics[0].partitions[0].current_leader_epoch for _, message in cluster.questions(FetchRequest)] == [
        3,
        3,
    ]


def test_an_error_that_does_not_pass_is_told_at_once(cluster: Any, log: Any, read: Callable[..., Outcome]) -> None:
    cluster.add("t", log(1, 20))
    cluster.errors = {1: [ErrorCode.UNSUPPORTED_VERSION]}
    with pytest.raises(ReadRefused, match=r"t-0: it cannot be read from offset 5 on: broker 1 answers UNSUPPORTED"):
        read(5, 20)


def test_an_end_that_does_not_come_is_an_error_after_the_poll_timeout(
    cluster: Any, log: Any, read: Callable[..., Outcome], clock: ManualClock
) -> None:
    cluster.add("t", log(1, 20))
    cluster.poll_ms = 500
    began = clock.monotonic_ms()
    with pytest.raises(
        ReadTimedOut,
        match=r"t-0: offset 20 did not come in 3000 milliseconds: its high watermark is 20, the range ends at 25",
    ):
        read(0, 25, timeout_ms=3000)
    assert 3000 <= clock.monotonic_ms() - began < 3600


def test_brokers_that_do_not_wait_are_not_asked_in_a_busy_loop(
    cluster: Any, log: Any, read: Callable[..., Outcome]
) -> None:
    cluster.add("t", log(1, 20))
    with pytest.raises(ReadTimedOut):
        read(20, 25, timeout_ms=10_000)
    assert len(cluster.asked) < 20


def test_no_leader_and_no_broker_are_errors_after_the_poll_timeout(
    cluster: Any, log: Any, read: Callable[..., Outcome], clock: ManualClock
) -> None:
    cluster.add("t", log(-1, 20))
    with pytest.raises(ReadTimedOut, match="offset 3 did not come in 3000 milliseconds: it has no leader"):
        read(3, 20, timeout_ms=3000)
    cluster.dead = dict.fromkeys((1, 2, 3), "connection refused")
    began = clock.monotonic_ms()
    with pytest.raises(ReadTimedOut, match=r"broker-2:9092 failed: connection refused"):
        read(3, 20, timeout_ms=3000)
    assert clock.monotonic_ms() - began <= 3100


def test_what_retention_removed_is_lost(cluster: Any, log: Any, read: Callable[..., Outcome]) -> None:
    cluster.add("t", log(1, 100))
    cluster.logs["t", 0].start = 30
    with pytest.raises(DataLoss) as lost:
        read(5, 50)
    assert str(lost.value).startswith("t-0: offsets 5 to 29 cannot be read any more: the log begins at 30. With failOn")
    assert (lost.value.partition, lost.value.wanted, lost.value.until) == (NAME, 5, 30)

    outcome = read(5, 50, skipping=True)
    assert outcome.offsets == [30, 40]
    assert outcome.skipped == [Skipped(NAME, 5, 30, "the log begins at 30")]
    assert str(outcome.skipped[0]) == "t-0: skipped 25 offsets from 5 on: the log begins at 30"


def test_retention_that_overtakes_the_whole_range_leaves_nothing(
    cluster: Any, log: Any, read: Callable[..., Outcome]
) -> None:
    cluster.add("t", log(1, 100))
    cluster.logs["t", 0].start = 60
    outcome = read(5, 50, skipping=True)
    assert (outcome.offsets, [skipped[1:3] for skipped in outcome.skipped]) == ([], [(5, 50)])


def test_what_was_cut_off_is_lost_when_the_cluster_stands_by_it(
    cluster: Any, log: Any, read: Callable[..., Outcome], clock: ManualClock
) -> None:
    cluster.add("t", log(1, 40))
    began = clock.monotonic_ms()
    with pytest.raises(DataLoss, match="offsets 50 to 59 cannot be read any more: the log ends at 40"):
        read(50, 60)
    assert 3_000 <= clock.monotonic_ms() - began < 5_000
    outcome = read(50, 60, skipping=True)
    assert (outcome.offsets, [skipped[1:3] for skipped in outcome.skipped]) == ([], [(50, 60)])


def test_a_log_that_is_short_for_a_moment_is_waited_for(
    cluster: Any, log: Any, read: Callable[..., Outcome], clock: ManualClock
) -> None:
    cluster.add("t", log(1, 60))
    cluster.logs["t", 0].end = cluster.logs["t", 0].high_watermark = 40
    began = clock.monotonic_ms()

    def grow(broker: int, message: Any) -> None:
        if clock.monotonic_ms() - began > 700:
            cluster.logs["t", 0].end = cluster.logs["t", 0].high_watermark = 60

    cluster.before = grow
    assert read(50, 60).offsets == [50]


@pytest.mark.parametrize("again", [False, True], ids=["deleted", "made again"])
def test_a_topic_that_vanished_is_lost_when_the_cluster_stands_by_it(
    cluster: Any, log: Any, read: Callable[..., Outcome], clock: ManualClock, again: bool
) -> None:
    cluster.add("t", log(1, 40))
    del cluster.ids["t"]
    if again:
        cluster.ids["t"] = UUID(int=99)
    said = "another one made under its name" if again else "no such topic or partition"
    began = clock.monotonic_ms()
    with pytest.raises(DataLoss, match=f"offsets 5 to 39 cannot be read any more: .*{said}"):
        read(5, 40)
    assert 3_000 <= clock.monotonic_ms() - began < 5_000
    outcome = read(5, 40, skipping=True)
    assert (outcome.offsets, [skipped[1:3] for skipped in outcome.skipped]) == ([], [(5, 40)])


def test_a_topic_that_one_broker_does_not_know_is_read_all_the_same(
    cluster: Any, log: Any, read: Callable[..., Outcome]
) -> None:
    cluster.add("t", log(2, 40))
    cluster.ignorant = {1: {"t"}}
    assert read(0, 40).offsets == [0, 10, 20, 30]


def test_a_flipped_bit_is_an_error_that_names_the_batch(cluster: Any, log: Any, read: Callable[..., Outcome]) -> None:
    cluster.add("t", log(1, 40))
    damaged = bytearray(cluster.logs["t", 0].batches[1])
    damaged[-3] ^= 1
    cluster.logs["t", 0].batches[1] = bytes(damaged)
    with pytest.raises(
        CorruptRecords, match=r"t-0: the record batch at offset 10 cannot be read: its checksum is"
    ) as error:
        read(0, 40)
    assert (error.value.partition, error.value.offset) == (NAME, 10)
    assert read(0, 40, check_crcs=False).offsets == [0, 10, 20, 30]

    outcome = read(0, 40, skipping=True)
    assert outcome.offsets == [0, 20, 30]
    assert [skipped[1:3] for skipped in outcome.skipped] == [(10, 20)]


def test_what_the_leader_finds_damaged_is_an_error_or_skipped_up_to_the_next_sound_batch(
    cluster: Any, log: Any, read: Callable[..., Outcome]
) -> None:
    cluster.add("t", log(1, 1000, each=37))
    cluster.logs["t", 0].damaged = {37, 74}
    with pytest.raises(
        CorruptRecords, match=r"offset 37 cannot be read: broker 1 finds it damaged on its disk. See docs/operate/dam"
    ):
        read(0, 1000)
    cluster.asked.clear()

    outcome = read(0, 1000, skipping=True)
    assert outcome.offsets == [0, *range(111, 1000, 37)]
    assert [skipped[1:3] for skipped in outcome.skipped] == [(37, 111)]
    assert len(cluster.asked) < 30


def test_damage_up_to_the_end_is_skipped_to_the_end(cluster: Any, log: Any, read: Callable[..., Outcome]) -> None:
    cluster.add("t", log(1, 100))
    cluster.logs["t", 0].damaged = {70, 80, 90}
    outcome = read(0, 95, skipping=True)
    assert outcome.offsets == list(range(0, 70, 10))
    assert [skipped[1:3] for skipped in outcome.skipped] == [(70, 95)]


def test_records_of_a_transaction_are_refused_where_only_committed_ones_are_wanted(
    cluster: Any, log: Any, read: Callable[..., Outcome]
) -> None:
    cluster.add("t", log(1, 40))
    transactional = bytearray(cluster.logs["t", 0].batches[1])
    transactional[22] |= 0x10
    cluster.logs["t", 0].batches[1] = bytes(transactional)
    with pytest.raises(CorruptRecords, match="offset 10 cannot be read: it belongs to a transaction"):
        read(0, 40, read_committed=True, check_crcs=False)
    assert read(0, 40, check_crcs=False).offsets == [0, 10, 20, 30]
    assert read(20, 40, read_committed=True).offsets == [20, 30]


def test_closing_ends_a_read(cluster: Any, log: Any, settings: ClientSettings, links: Connections) -> None:
    cluster.add("t", log(-1, 40))
    reader = PartitionReader(settings, Range(NAME, None, 0, 40), poll_timeout_ms=60_000, connections=links)
    cluster.before = lambda broker, message: reader.close()
    with pytest.raises(ReadTimedOut):
        list(reader)
    assert len(cluster.asked) == 1


def test_items_come_in_order_and_one_is_made_ahead() -> None:
    made: list[int] = []
    ready = [threading.Event() for _ in range(5)]

    def items() -> Iterator[int]:
        for number in range(4):
            made.append(number)
            ready[number].set()
            yield number
        ready[4].set()

    stopped: list[bool] = []
    used = []
    for number in read_ahead(items(), stop=lambda: stopped.append(True)):
        assert ready[number + 1].wait(2)
        assert made == list(range(min(number + 2, 4)))
        used.append(number)
    assert used == [0, 1, 2, 3]
    assert stopped == [True]


def test_an_error_comes_after_what_was_made_before_it() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    ahead = read_ahead(items(), stop=lambda: None)
    assert next(ahead) == 1
    with pytest.raises(ValueError, match="broken"):
        next(ahead)


def test_who_stops_using_ends_what_is_under_way() -> None:
    stop = threading.Event()
    threads = []

    def items() -> Iterator[int]:
        threads.append(threading.current_thread())
        yield 1
        stop.wait(10)
        yield 2

    ahead = read_ahead(items(), stop=stop.set)
    assert next(ahead) == 1
    ahead.close()  # type: ignore[attr-defined]
    assert stop.is_set()
    threads[0].join(2)
    assert not threads[0].is_alive()
