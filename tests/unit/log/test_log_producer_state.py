"""Idempotent producers: duplicates, gaps, epochs, snapshots."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from regency.broker_agent.log.errors import RecordsRejected
from regency.broker_agent.log.producer_state import ProducerStates, decode_snapshot, write_snapshot
from regency.kafka.logfiles.checkpoints import CheckpointMalformed
from regency.kafka.record_batch import MAX_SEQUENCE, read_header
from regency.model.kafka_errors import ErrorCode
from regency.runtime.disk import OsDisk


@pytest.fixture
def produced(batch):
    def header(sequence, count=1, *, producer=7, epoch=0, base=0, timestamp=1000):
        return read_header(batch(*[timestamp] * count, producer=(producer, epoch, sequence), base=base))

    return header


@pytest.fixture
def states():
    return ProducerStates()


def refusal(states, header):
    with pytest.raises(RecordsRejected) as caught:
        states.check(header)
    return caught.value.error


def test_an_unknown_producer_may_begin_anywhere_where_some_may_be_forgotten(states, produced):
    assert states.check(produced(41)) is None
    assert states.check(produced(41), all_known=False) is None


def test_an_unknown_producer_begins_at_zero_where_nobody_is_forgotten(states, produced):
    with pytest.raises(RecordsRejected, match="sent sequence number 41; 0 is next"):
        states.check(produced(41), all_known=True)
    assert states.check(produced(0), all_known=True) is None


def test_sequences_follow_each_other(states, produced):
    states.update(produced(0, 3))
    assert states.check(produced(3, 2)) is None
    assert refusal(states, produced(4)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, produced(2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_each_of_the_last_five_batches_is_recognized_and_no_older_one(states, produced):
    for number in range(6):
        states.update(produced(number * 2, 2, base=100 + number * 2, timestamp=number))

    assert refusal(states, produced(0, 2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for number in range(1, 6):
        known = states.check(produced(number * 2, 2))
        assert (known.first_offset, known.last_offset, known.timestamp) == (100 + number * 2, 101 + number * 2, number)
    assert refusal(states, produced(10, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one(states, produced):
    states.update(produced(0, 3))
    assert refusal(states, produced(3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(produced(0, epoch=1)) is None
    states.update(produced(0, epoch=1, base=3))
    assert refusal(states, produced(3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert states.check(produced(1, epoch=1)) is None


def test_after_the_greatest_sequence_comes_zero(states, produced):
    states.update(produced(MAX_SEQUENCE))
    assert states.check(produced(0)) is None
    assert refusal(states, produced(1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_may_span_the_wrap(states, produced):
    states.update(produced(MAX_SEQUENCE - 1, 3, base=10))
    assert states.check(produced(1)) is None
    assert states.check(produced(MAX_SEQUENCE - 1, 3)).first_offset == 10


def test_followers_take_gaps_as_they_come(states, produced):
    states.update(produced(5, base=10))
    states.update(produced(90, base=11))
    assert states.check(produced(91)) is None
    assert states.end_offset == 12


def test_batches_without_producer_only_move_the_end(states, produced):
    states.update(produced(-1, producer=-1, epoch=-1, base=4))
    assert (len(states), states.end_offset) == (0, 5)


def test_a_snapshot_holds_each_remembered_batch_in_46_bytes(states, produced, tmp_path):
    states.update(produced(0, 3, base=10, timestamp=111))
    states.update(produced(3, 2, base=13, timestamp=222))
    entries = [
        struct.pack(">qhiqiqiq", 7, 0, 2, 12, 2, 111, -1, -1),
        struct.pack(">qhiqiqiq", 7, 0, 4, 14, 1, 222, -1, -1),
    ]
    body = struct.pack(">i", 2) + b"".join(entries)
    expected = struct.pack(">hI", 1, crc32c(body)) + body
    assert [len(entry) for entry in entries] == [46, 46]
    assert states.encode() == expected

    path = tmp_path / "00000000000000000015.snapshot"
    write_snapshot(OsDisk(), tmp_path, states)
    loaded = ProducerStates()
    loaded.load_snapshot(OsDisk(), path, 15)
    assert (loaded.encode(), loaded.end_offset) == (expected, 15)
    assert [loaded.check(header).first_offset for header in (produced(0, 3), produced(3, 2))] == [10, 13]
    assert refusal(loaded, produced(6, 1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_snapshot_of_kafka_holds_only_the_last_batch(produced, tmp_path):
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 0, 4, 14, 1, 222, -1, -1)
    path = tmp_path / "00000000000000000015.snapshot"
    path.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
    loaded = ProducerStates()
    loaded.load_snapshot(OsDisk(), path, 15)
    assert loaded.check(produced(3, 2)).first_offset == 13
    assert refusal(loaded, produced(0, 3)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_producer_of_which_a_snapshot_knows_no_batch_begins_at_zero(states, produced, tmp_path):
    body = struct.pack(">i", 1) + struct.pack(">qhiqiqiq", 7, 2, -1, -1, 0, 5, 3, -1)
    path = tmp_path / "x.snapshot"
    path.write_bytes(struct.pack(">hI", 1, crc32c(body)) + body)
    states.load_snapshot(OsDisk(), path, 9)
    assert states.check(produced(0, epoch=2)) is None
    assert refusal(states, produced(17, epoch=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, produced(0, epoch=1)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_damaged_snapshot_is_refused(states, produced, tmp_path):
    states.update(produced(0))
    good = states.encode()
    wrong_version = b"\0\2" + good[2:]
    too_few = struct.pack(">i", 2) + good[10:]
    wrong_count = good[:2] + struct.pack(">I", crc32c(too_few)) + too_few
    for content in (b"", good[:9], good[:-1], good[:20] + b"\xff" + good[21:], wrong_version, wrong_count):
        with pytest.raises(CheckpointMalformed):
            decode_snapshot(tmp_path / "x.snapshot", content)


def test_idle_producers_expire(states, produced):
    states.update(produced(0, producer=1, timestamp=100))
    states.update(produced(0, producer=2, timestamp=200))
    states.expire(99)
    assert (len(states), states.forgot) == (2, False)
    states.expire(150)
    assert (len(states), states.forgot) == (1, True)
    assert refusal(states, produced(7, producer=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_of_producers_below_an_offset_the_newest_batches_are_told(states, produced):
    for number in range(3):
        states.update(produced(number, base=2 * number, producer=1))
        states.update(produced(number, base=2 * number + 1, producer=2))
    below, left_out = states.below(4, most=3)
    assert (len(below), below.end_offset, left_out) == (2, 4, 1)
    assert below.check(produced(1, producer=1)).first_offset == 2
    assert below.check(produced(0, producer=2)).first_offset == 1
    assert refusal(below, produced(0, producer=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert below.check(produced(2, producer=2)) is None
    assert len(states.below(0, most=3)[0]) == 0


def test_cutting_back_forgets_batches_while_older_ones_are_known(states, produced):
    for number in range(4):
        states.update(produced(number, base=number))
    assert states.truncate_to(2)
    assert states.end_offset == 2
    assert states.check(produced(2)) is None
    assert states.check(produced(1)).first_offset == 1


def test_cutting_back_beyond_what_is_known_changes_nothing(states, produced):
    states.update(produced(4, base=4))
    before = states.encode()
    assert not states.truncate_to(4)
    assert states.encode() == before
