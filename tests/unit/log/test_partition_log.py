"""Appending to and reading from one log, as leader and as follower."""

from __future__ import annotations

import msgspec
import pytest
from aiokafka.record import MemoryRecords

from regency.broker_agent.log.errors import OffsetOutOfRange, RecordsRejected
from regency.kafka.record_batch import iter_batches
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import LogConfig

NOW = 1_700_000_000_000


def append(log, batch, *timestamps, epoch=0, **options):
    return log.append_as_leader(batch(*timestamps, **options), epoch, NOW)


def offsets_of(records):
    return [(header.base_offset, header.last_offset) for _, header in iter_batches(records)]


def read(log, offset, max_bytes=1 << 20, *, upto=None, one=True):
    max_offset = log.log_end_offset if upto is None else upto
    return log.read(offset, max_bytes, max_offset=max_offset, min_one_batch=one)


def client_records(records):
    """Offset, timestamp and value of every record, as a client library reads them."""
    found = []
    memory = MemoryRecords(bytes(records))
    while memory.has_next():
        next_batch = memory.next_batch()
        assert next_batch.validate_crc()
        found += [(record.offset, record.timestamp, record.value) for record in next_batch]
    return found


def test_a_leader_gives_offsets_and_its_epoch(disk, batch):
    log = disk.log()

    first = append(log, batch, 1, 2, 3, epoch=4)
    second = append(log, batch, 5, 6, epoch=4)

    assert (first.base_offset, first.last_offset, second.base_offset, second.last_offset) == (0, 2, 3, 4)
    assert (first.log_append_time_ms, first.log_start_offset, first.duplicate) == (-1, 0, False)
    assert (log.log_end_offset, log.high_watermark, log.latest_epoch, log.last_batch_epoch) == (5, 0, 4, 4)
    content = (log.directory / "00000000000000000000.log").read_bytes()
    assert content == batch(1, 2, 3, base=0, epoch=4) + batch(5, 6, base=3, epoch=4)
    assert client_records(content) == [(0, 1, b"v"), (1, 2, b"v"), (2, 3, b"v"), (3, 5, b"v"), (4, 6, b"v")]


def test_the_producers_bytes_are_not_changed_in_its_hands(disk, batch):
    mine = bytearray(batch(1, 2))
    before = bytes(mine)
    disk.log().append_as_leader(memoryview(mine), 3, NOW)
    assert mine == before


def test_log_append_time_is_the_brokers(disk, batch):
    disk.config = LogConfig(message_timestamp_type="LogAppendTime")
    log = disk.log()
    info = append(log, batch, 1, 2)
    assert info.log_append_time_ms == NOW
    assert client_records(read(log, 0).records) == [(0, NOW, b"v"), (1, NOW, b"v")]


def test_a_refused_append_leaves_no_trace(disk, batch):
    log = disk.log()
    append(log, batch, 1)
    with pytest.raises(RecordsRejected):
        log.append_as_leader(batch(1) + batch(2), 9, NOW)
    assert (log.log_end_offset, log.epoch_entries, log.size_bytes) == (1, ((0, 0),), len(batch(1)))


def test_a_later_batch_is_refused_by_a_leader_that_never_got_the_first(disk, batch):
    log = disk.log()
    for held in (0, 1):
        with pytest.raises(RecordsRejected) as caught:
            log.append_as_leader(batch(NOW, producer=(9, 0, 591)), 1, NOW)
        assert (caught.value.error, log.log_end_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, held)
        log.append_as_leader(batch(NOW, producer=(8, 0, held)), 1, NOW)
    assert log.append_as_leader(batch(NOW, producer=(9, 0, 0)), 1, NOW).base_offset == 2


def test_a_producer_may_go_on_where_its_batches_may_be_forgotten(disk, batch):
    disk.config = LogConfig(segment_bytes=len(batch(NOW, producer=(1, 0, 0))))
    old, deleted = (disk.log(TopicPartition(name, 0)) for name in ("old", "deleted"))
    for log in (old, deleted):
        log.append_as_leader(batch(NOW, producer=(1, 0, 0)), 0, NOW)
    a_day_later = NOW + 86_400_000
    assert old.append_as_leader(batch(NOW, producer=(2, 0, 5)), 0, a_day_later).base_offset == 1
    deleted.set_high_watermark(1)
    deleted.maybe_increment_log_start(1)
    assert deleted.append_as_leader(batch(NOW, producer=(2, 0, 5)), 0, NOW).base_offset == 1


def test_a_repeated_batch_is_answered_with_its_old_place(disk, batch):
    log = disk.log()
    append(log, batch, 0)
    first = append(log, batch, 1, 2, producer=(9, 0, 0))
    append(log, batch, 3, producer=(9, 0, 2))

    again = append(log, batch, 1, 2, producer=(9, 0, 0))

    assert (again.base_offset, again.last_offset, again.duplicate) == (first.base_offset, first.last_offset, True)
    assert log.log_end_offset == 4
    with pytest.raises(RecordsRejected) as caught:
        append(log, batch, 9, producer=(9, 0, 7))
    assert caught.value.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_batch_under_log_append_time_has_its_old_time(disk, batch):
    disk.config = LogConfig(message_timestamp_type="LogAppendTime")
    log = disk.log()
    log.append_as_leader(batch(1, producer=(9, 0, 0)), 0, NOW)
    again = log.append_as_leader(batch(1, producer=(9, 0, 0)), 0, NOW + 5)
    assert (again.log_append_time_ms, again.duplicate) == (NOW, True)


def test_a_follower_takes_several_batches_as_they_are(disk, batch):
    log = disk.log()
    records = batch(1, 2, base=0, epoch=1) + batch(3, base=2, epoch=1) + batch(4, base=3, epoch=5)

    info = log.append_as_follower(memoryview(records))

    assert (info.base_offset, info.last_offset, log.log_end_offset) == (0, 3, 4)
    assert log.epoch_entries == ((1, 0), (5, 3))
    assert read(log, 0).records == records


def test_a_follower_leaves_an_incomplete_last_batch_out(disk, batch):
    log = disk.log()
    whole, cut = batch(1, base=0), batch(2, base=1)[:-3]
    assert log.append_as_follower(whole + cut).last_offset == 0
    info = log.append_as_follower(cut)
    assert (info.base_offset, info.last_offset, log.log_end_offset) == (1, 0, 1)
    assert read(log, 0).records == whole


@pytest.mark.parametrize("base", [0, 2])
def test_a_follower_refuses_what_begins_below_its_end(disk, batch, base):
    log = disk.log()
    log.append_as_follower(batch(1, 2, 3, base=0))
    with pytest.raises(RecordsRejected) as caught:
        log.append_as_follower(batch(1, 2, base=base))
    assert (caught.value.error, log.log_end_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 3)


def test_a_follower_refuses_damage_and_keeps_nothing_of_it(disk, batch):
    log = disk.log()
    good, bad = batch(1, base=0), bytearray(batch(2, base=1))
    bad[-1] ^= 1
    for records in (good + bad, good + b"\xff" * 70):
        with pytest.raises(RecordsRejected) as caught:
            log.append_as_follower(records)
        assert (caught.value.error, log.log_end_offset) == (ErrorCode.CORRUPT_MESSAGE, 0)


def test_an_empty_follower_may_begin_inside_the_leaders_first_batch(disk, batch):
    log = disk.log()
    log.truncate_fully_and_start_at(5)
    with pytest.raises(RecordsRejected):
        log.append_as_follower(batch(1, 2, base=3))
    log.append_as_follower(batch(1, 2, 3, base=4, epoch=2))
    assert (log.log_start_offset, log.log_end_offset, log.epoch_entries) == (4, 7, ((2, 4),))
    with pytest.raises(RecordsRejected):
        log.append_as_follower(batch(1, 2, base=6))


def test_a_followers_sequences_are_not_questioned_but_kept(disk, batch):
    log = disk.log()
    log.append_as_follower(batch(1, base=0, producer=(9, 0, 5)))
    log.append_as_follower(batch(1, base=1, producer=(9, 0, 90)))
    assert append(log, batch, 1, producer=(9, 0, 91)).base_offset == 2
    assert append(log, batch, 1, producer=(9, 0, 5)).base_offset == 0


def test_a_follower_rolls_inside_one_fetch_where_segments_are_small(disk, batch):
    one = batch(1, base=0)
    disk.config = LogConfig(segment_bytes=2 * len(one))
    log = disk.log()
    log.append_as_follower(b"".join(batch(1, base=base) for base in range(5)))
    assert log.segment_base_offsets == (0, 2, 4)
    assert [offsets_of(read(log, offset).records) for offset in (0, 3, 4)] == [[(0, 0), (1, 1)], [(3, 3)], [(4, 4)]]


def test_a_followers_batch_may_be_larger_than_topic_or_segment_allow(disk, batch):
    disk.config = LogConfig(segment_bytes=100, max_message_bytes=100)
    log = disk.log()
    log.append_as_follower(batch(1, base=0, value=b"x" * 200) + batch(1, base=1))
    assert (log.log_end_offset, log.segment_base_offsets) == (2, (0, 1))


def test_reading_begins_with_the_whole_batch_that_holds_the_offset(disk, batch):
    log = disk.log()
    for _ in range(3):
        append(log, batch, 1, 2, 3)
    size = len(batch(1, 2, 3))
    for offset in range(9):
        info = read(log, offset)
        assert offsets_of(info.records)[0][0] == offset // 3 * 3
        assert info.position == (0, offset // 3 * size)
    assert read(log, 9) == (b"", (0, 3 * size))


def test_reading_stops_before_the_bound_and_outside_is_out_of_range(disk, batch):
    log = disk.log()
    log.truncate_fully_and_start_at(10)
    for _ in range(3):
        append(log, batch, 1, 2)
    assert offsets_of(read(log, 10, upto=14).records) == [(10, 11), (12, 13)]
    assert offsets_of(read(log, 10, upto=13).records) == [(10, 11)]
    assert read(log, 14, upto=14).records == b""
    assert read(log, 15, upto=12).records == b""
    for offset in (9, 17):
        with pytest.raises(OffsetOutOfRange):
            read(log, offset)
        with pytest.raises(OffsetOutOfRange):
            log.position_of(offset)


def test_only_whole_batches_within_the_bytes_asked_for_are_returned(disk, batch):
    log = disk.log()
    for _ in range(10):
        append(log, batch, 1)
    size = len(batch(1))
    for max_bytes in range(3 * size + 2):
        assert len(read(log, 2, max_bytes, one=False).records) == max_bytes // size * size
        assert len(read(log, 2, max_bytes).records) == max(max_bytes // size, 1) * size


def test_a_batch_larger_than_asked_for_comes_alone_or_not_at_all(disk, batch):
    log = disk.log()
    append(log, batch, 1, value=b"x" * 1000)
    append(log, batch, 1)
    assert offsets_of(read(log, 0, 80).records) == [(0, 0)]
    assert read(log, 0, 80, one=False).records == b""
    assert read(log, 0, 0, one=False).records == b""


def test_positions_remembered_from_reads_stay_right_as_the_log_grows(disk, batch):
    disk.config = LogConfig(index_interval_bytes=200)
    log = disk.log()
    for expected in range(0, 200, 2):
        append(log, batch, 1, 2)
        assert offsets_of(read(log, expected).records) == [(expected, expected + 1)]
        assert read(log, expected + 2).records == b""
    for offset in range(200):
        assert offsets_of(read(log, offset, 1).records) == [(offset // 2 * 2, offset // 2 * 2 + 1)]


def test_positions_measure_the_bytes_between_offsets(disk, batch):
    size = len(batch(1))
    disk.config = LogConfig(segment_bytes=2 * size)
    log = disk.log()
    for _ in range(5):
        append(log, batch, 1)
    assert [log.position_of(offset) for offset in (0, 1, 2, 5)] == [(0, 0), (0, size), (2, 0), (4, size)]
    for lower in range(6):
        for upper in range(6):
            assert log.bytes_between(lower, upper) == max(upper - lower, 0) * size
    assert (log.bytes_between(0, 6), log.bytes_between(-1, 2)) == (None, None)
    assert log.size_bytes == 5 * size


def test_the_high_watermark_stays_between_start_and_end(disk, batch):
    log = disk.log()
    for _ in range(3):
        append(log, batch, 1)
    assert log.high_watermark == 0
    assert (log.maybe_increment_high_watermark(1), log.maybe_increment_high_watermark(1)) == (True, False)
    assert (log.set_high_watermark(5), log.set_high_watermark(2), log.set_high_watermark(-7)) == (3, 2, 0)
    with pytest.raises(ValueError, match="above the log end"):
        log.maybe_increment_high_watermark(4)
    log.set_high_watermark(3)
    log.maybe_increment_log_start(2)
    assert log.set_high_watermark(0) == 2


def test_the_high_watermark_follows_the_log_wherever_it_goes(disk, batch):
    log = disk.log()
    seen = []

    def note(_=None):
        seen.append((log.log_start_offset, log.high_watermark, log.log_end_offset))

    note(append(log, batch, 1))
    note(log.maybe_increment_high_watermark(1))
    append(log, batch, 1)
    append(log, batch, 1)
    note(log.set_high_watermark(5))
    log.append_as_follower(batch(1, 2, 3, base=3))
    note(log.set_high_watermark(6))
    note(log.truncate_to(3))
    note(log.truncate_fully_and_start_at(4))
    assert seen == [(0, 0, 1), (0, 1, 1), (0, 3, 3), (0, 6, 6), (0, 3, 3), (4, 4, 4)]


def test_a_read_at_the_high_watermark_is_empty_also_where_a_segment_was_begun_there(disk, batch):
    """KAFKA-9196: nothing remembers where the high watermark was in the segment before."""
    log = disk.log()
    append(log, batch, 1, 2)
    log.set_high_watermark(2)
    assert read(log, 2, upto=log.high_watermark).records == b""
    log.roll()
    append(log, batch, 3)
    assert read(log, 2, upto=log.high_watermark).records == b""
    log.maybe_increment_high_watermark(3)
    assert offsets_of(read(log, 2, upto=log.high_watermark).records) == [(2, 2)]
    assert log.bytes_between(0, 2) == len(batch(1, 2))


def test_every_offset_below_a_bound_is_read_and_none_from_it_on(disk, batch):
    disk.config = LogConfig(segment_bytes=3 * len(batch(1, 2)))
    log = disk.log()
    for _ in range(8):
        append(log, batch, 1, 2)
    for bound in (0, 2, 6, 10, 16):
        held = [bool(read(log, offset, upto=bound).records) for offset in range(17)]
        assert held == [offset < bound for offset in range(17)]


def test_the_log_start_rises_to_the_high_watermark_at_most(disk, batch):
    log = disk.log()
    for epoch in (0, 0, 3):
        append(log, batch, 1, epoch=epoch)
    log.set_high_watermark(2)
    with pytest.raises(OffsetOutOfRange):
        log.maybe_increment_log_start(3)
    assert (log.maybe_increment_log_start(1), log.maybe_increment_log_start(1)) == (True, False)
    assert (log.log_start_offset, log.epoch_entries) == (1, ((0, 1), (3, 2)))
    with pytest.raises(OffsetOutOfRange):
        read(log, 0)
    assert offsets_of(read(log, 1).records) == [(1, 1), (2, 2)]


def test_epochs_answer_with_the_log_end(disk, batch):
    log = disk.log()
    append(log, batch, 1, 2, epoch=1)
    append(log, batch, 1, epoch=4)
    log.assign_epoch(6, log.log_end_offset)
    assert log.latest_epoch == 6
    assert log.last_batch_epoch == 4
    ends = {epoch: log.end_offset_for_epoch(epoch) for epoch in (0, 1, 2, 4, 5, 6, 7)}
    assert {epoch: (end.leader_epoch, end.end_offset) for epoch, end in ends.items()} == {
        0: (0, 0),
        1: (1, 2),
        2: (1, 2),
        4: (4, 3),
        5: (4, 3),
        6: (6, 3),
        7: (-1, -1),
    }
    assert [log.epoch_at(offset) for offset in (0, 1, 2)] == [1, 1, 4]


def test_configuration_may_change_under_a_log(disk, batch):
    log = disk.log()
    append(log, batch, 1)
    disk.manager.set_configs({"other": LogConfig(max_message_bytes=1)})
    append(log, batch, 1)
    disk.manager.set_configs({"flights": msgspec.structs.replace(disk.config, max_message_bytes=1)})
    with pytest.raises(RecordsRejected):
        append(log, batch, 1)
