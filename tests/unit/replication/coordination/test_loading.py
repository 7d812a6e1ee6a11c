"""What becomes of the records of a partition when a broker takes it over, whatever is in its log."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from regency.broker_agent.groups import loading
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.kafka.groups.records import OffsetAndMetadata, offset_key, offset_value
from regency.kafka.record_batch import MAGIC
from regency.kafka.records import GZIP, NO_CODEC, encode_batch
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

HOME = TopicPartition(OFFSETS_TOPIC, 0)
READ = TopicPartition("read", 0)
NOW = 1_700_000_000_000
TRANSACTIONAL, CONTROL = 0x10, 0x20
ABORT, COMMIT = 0, 1


def committed(offset: int, number: int = 0, topic: str = "read", group: str = "g") -> tuple[bytes, bytes | None]:
    """The record of a commit; -1: its tombstone."""
    value = OffsetAndMetadata(Offset(offset), LeaderEpoch(-1), "", NOW)
    return offset_key(group, topic, number), None if offset < 0 else offset_value(value)


def patched(batch: bytearray, attributes: int, producer: int) -> bytes:
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">qhi", batch, 43, producer, 0, 0)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    assert batch[16] == MAGIC
    return bytes(batch)


def in_transaction(*records: tuple[bytes, bytes | None], producer: int = 7) -> bytes:
    return patched(encode_batch(records, NOW), TRANSACTIONAL, producer)


def marker(kind: int, producer: int = 7) -> bytes:
    record = struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0)
    return patched(encode_batch([record], NOW), TRANSACTIONAL | CONTROL, producer)


def plain(*records: tuple[bytes, bytes | None], codec: int = NO_CODEC) -> bytes:
    return bytes(encode_batch(records, NOW, codec))


@pytest.fixture
def load(cluster, coordinate):
    """load(batch, …): have broker 1 lead, write them, move the partition to broker 2, which loads it."""

    def run(*batches: bytes, settle: bool = True):
        cluster.lead(1, partition=HOME)
        for batch in batches:
            cluster[1].manager.append_own(HOME, LeaderEpoch(0), 1_000, batch, lambda _: None)
        cluster.run()
        taker = coordinate(2)
        cluster.lead(2, partition=HOME)
        if settle:
            taker.settle()
        return taker

    return run


def test_the_last_record_of_a_key_counts(load) -> None:
    taker = load(plain(committed(1), committed(2)), plain(committed(3), committed(9, number=1)), plain(committed(-1)))
    assert taker.committed() is None
    assert taker.committed(TopicPartition("read", 1)) == 9


def test_compressed_batches_are_loaded(load) -> None:
    assert load(plain(committed(5), codec=GZIP)).committed() == 5


def test_what_a_transaction_committed_counts_from_its_marker_on(load) -> None:
    taker = load(in_transaction(committed(5)), marker(COMMIT), in_transaction(committed(9)))
    assert taker.committed() == 5


def test_what_a_transaction_aborted_does_not_count(load) -> None:
    assert load(in_transaction(committed(5)), marker(ABORT), marker(COMMIT)).committed() is None


def test_a_plain_commit_after_that_of_a_transaction_wins_over_its_marker(load) -> None:
    assert load(in_transaction(committed(5)), plain(committed(6)), marker(COMMIT)).committed() == 6


def test_of_two_transactions_the_later_record_wins_whichever_marker_comes_first(load) -> None:
    batches = in_transaction(committed(5), producer=7), in_transaction(committed(6), producer=8)
    assert load(*batches, marker(COMMIT, 7), marker(COMMIT, 8)).committed() == 6


def test_of_two_transactions_the_later_record_wins_if_its_marker_comes_first(load) -> None:
    batches = in_transaction(committed(5), producer=7), in_transaction(committed(6), producer=8)
    assert load(*batches, marker(COMMIT, 8), marker(COMMIT, 7)).committed() == 6


def test_records_that_are_not_known_or_damaged_are_left_out_and_told(load, caplog) -> None:
    strange = plain((struct.pack(">h", 9), b"x"), (struct.pack(">hh", 1, 300), b"x"), committed(5))
    taker = load(strange)
    assert taker.committed() == 5
    assert taker.coordinator.loads.unusable_records == 1
    assert any("is left out" in message for message in caplog.messages)


def test_a_log_that_begins_above_0_is_loaded_from_there(cluster, load) -> None:
    taker = load(plain(committed(1)), plain(committed(2, number=1)), settle=False)
    cluster[2].log(HOME).maybe_increment_log_start(Offset(1))
    taker.settle()
    assert taker.committed(TopicPartition("read", 1)) == 2


def test_an_empty_log_above_0_is_loaded_without_end(cluster, load) -> None:
    taker = load(plain(committed(1)), settle=False)
    cluster[2].log(HOME).truncate_fully_and_start_at(Offset(500))
    taker.settle()
    assert taker.committed() is None


def test_a_load_goes_in_slices_and_others_have_their_turn(load, monkeypatch) -> None:
    monkeypatch.setattr(loading, "READ_BYTES", 1_000)
    monkeypatch.setattr(loading, "RECORDS_PER_STEP", 10)
    monkeypatch.setattr("regency.broker_agent.groups.coordinator.SLICE_STEPS", 3)
    taker = load(
        *(plain(*(committed(number, number=part) for part in range(50))) for number in range(10)), settle=False
    )
    slices = 0
    while taker.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        assert taker.run_one()
        slices += 1
    assert slices >= 10
    assert [taker.committed(TopicPartition("read", part)) for part in range(50)] == [9] * 50


def test_a_load_that_is_overtaken_leaves_nothing_behind(cluster, load, monkeypatch) -> None:
    monkeypatch.setattr(loading, "RECORDS_PER_STEP", 1)
    monkeypatch.setattr("regency.broker_agent.groups.coordinator.SLICE_STEPS", 1)
    taker = load(plain(committed(1), committed(2, number=1), committed(3, number=2)), settle=False)
    taker.run_one()
    cluster.lead(1, partition=HOME)
    cluster[1].manager.append_own(HOME, LeaderEpoch(2), 1_000, plain(committed(-1)), lambda _: None)
    cluster.run()
    cluster.lead(2, partition=HOME)
    taker.settle()
    assert taker.committed() is None
    assert taker.committed(TopicPartition("read", 2)) == 3


def test_a_partition_that_cannot_be_read_is_tried_again_and_nobody_is_told_that_nothing_is_committed(
    cluster, load, monkeypatch, caplog
) -> None:
    manager = cluster[2].manager
    read = type(manager).read_led
    monkeypatch.setattr(type(manager), "read_led", lambda *_: ErrorCode.CORRUPT_MESSAGE)
    taker = load(plain(committed(5)))
    assert taker.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    taker.advance(3_500)
    assert taker.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert taker.coordinator.loads.failures == 4
    assert len([message for message in caplog.messages if "could not be loaded" in message]) == 1
    monkeypatch.setattr(type(manager), "read_led", read)
    taker.advance(1_100)
    assert taker.committed() == 5


def test_what_was_not_foreseen_is_tried_again_and_holds_nobody_else_up(load, monkeypatch, caplog) -> None:
    run, failures = loading.Load.run, iter([ValueError("unforeseen")])

    def failing(self):
        for error in failures:
            raise error
        yield from run(self)

    monkeypatch.setattr(loading.Load, "run", failing)
    made = load(plain(committed(7)), settle=False)

    def broken():
        raise ValueError("unforeseen, too")
        yield

    made.coordinator._chores.append(broken())
    made.advance(2_500)
    assert made.committed() == 7
    assert "cannot be loaded for a reason that was not foreseen" in caplog.text
    assert "work on groups has ended early" in caplog.text
