"""A cleaned log is the log by its keys: the last record of each, at its offset, and nothing that was not there."""

from __future__ import annotations

import pytest
from cleaned_logs import DAY, NOW, Bench, Rec, make

from regency.broker_agent.log.errors import Uncleanable
from regency.kafka.logfiles.file_names import CLEANED
from regency.model.ids import Offset

A, B, C = b"a", b"b", b"c"


def test_all_batches_of_a_log_with_a_key_each_stay_as_they_are(bench: Bench) -> None:
    bench.segment(make([Rec(A, b"1"), Rec(B, b"2")], 0), make([Rec(C, b"3")], 2, codec=3))

    assert bench.clean().segments == ()
    assert not list(bench.directory.glob(f"*{CLEANED}"))


def test_a_map_that_is_full_ends_the_cleaning_after_a_batch_and_the_rest_stays(bench: Bench) -> None:
    for base in range(0, 600, 10):
        bench.segment(make([Rec(b"%d" % (key % 300), b"v") for key in range(base, base + 10)], base))
    before = bench.read()

    cleaned = bench.clean(map_bytes=24 * 211, load_factor=0.5)

    assert cleaned.end == 100
    assert bench.read() == before
    for _ in range(5):
        cleaned = bench.clean(map_bytes=24 * 211, load_factor=0.5, first_dirty=cleaned.end)
    assert cleaned.end == 600
    assert bench.read() == before[300:]


def test_a_batch_with_more_keys_than_the_map_takes_is_said(bench: Bench) -> None:
    bench.segment(make([Rec(b"%d" % key, b"v") for key in range(400)], 0))

    with pytest.raises(Uncleanable, match="dedupe"):
        bench.clean(map_bytes=24 * 211)


def test_offsets_that_are_missing_are_stepped_over(bench: Bench) -> None:
    bench.segment(make([Rec(A, b"1")], 0), end=50)
    bench.segment(make([Rec(A, b"2")], 70), end=100)

    cleaned = bench.clean()

    assert cleaned.end == 100
    assert [(each.offset, each.value) for each in bench.read()] == [(70, b"2")]


def test_a_deletion_stays_until_its_horizon_has_passed_and_timestamps_with_it(bench: Bench) -> None:
    bench.segment(make([Rec(A, b"1", 100), Rec(B, b"2", 200)], 0), make([Rec(A, None, 300), Rec(C, b"3", 400)], 2))

    bench.clean()

    assert [(each.offset, each.timestamp, each.value) for each in bench.read()] == [
        (1, 200, b"2"),
        (2, 300, None),
        (3, 400, b"3"),
    ]
    assert [header.delete_horizon_ms for header in bench.headers()] == [-1, NOW + DAY]
    bench.clean(now_ms=NOW + DAY - 1)
    assert [header.delete_horizon_ms for header in bench.headers()] == [-1, NOW + DAY]
    bench.clean(now_ms=NOW + DAY)
    assert [(each.offset, each.timestamp, each.value) for each in bench.read()] == [(1, 200, b"2"), (3, 400, b"3")]


def test_the_last_batch_of_a_producer_and_of_the_cleaning_stay_without_records(bench: Bench) -> None:
    bench.segment(
        make([Rec(A, b"1"), Rec(A, b"2")], 0, producer=(7, 1, 0)),
        make([Rec(A, b"3")], 2, producer=(8, 0, 0)),
        make([Rec(A, b"4")], 3, codec=1, producer=(7, 1, 2)),
        make([Rec(A, b"5")], 4),
        make([Rec(None, b"6")], 5),
    )

    bench.clean(producers={7: (3, 1), 9: (0, 0)})

    assert [(each.offset, each.value) for each in bench.read()] == [(4, b"5")]
    kept = [(header.base_offset, header.last_offset, header.record_count) for header in bench.headers()]
    assert kept == [(3, 3, 0), (4, 4, 1), (5, 5, 0)]
    first = bench.headers()[0]
    assert (first.producer_id, first.producer_epoch, first.base_sequence, first.size) == (7, 1, 2, 61)
    bench.segment(make([Rec(B, b"7")], 6))
    bench.clean(producers={7: (3, 1)}, first_dirty=Offset(6))
    assert [(header.base_offset, header.record_count) for header in bench.headers()] == [(3, 0), (4, 1), (6, 1)]


def test_segments_become_one_as_far_as_their_sizes_allow(bench: Bench) -> None:
    for base in range(8):
        bench.segment(make([Rec(b"%d" % base, b"v" * 100)], base))
    size = bench.sources[0].size

    cleaned = bench.clean(segment_bytes=3 * size)

    assert [each.sources for each in cleaned.segments] == [(0, 1, 2), (3, 4, 5), (6, 7)]
    assert len(bench.read()) == 8


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_a_batch_keeps_its_compression(bench: Bench, codec: int) -> None:
    noise = bytes((each * 7919) % 256 for each in range(70_000))
    bench.segment(make([Rec(A, b"1"), Rec(B, noise), Rec(C, b"x" * 200_000)], 0, codec=codec), make([Rec(A, b"2")], 3))

    bench.clean()

    assert [each.value for each in bench.read()] == [noise, b"x" * 200_000, b"2"]
    assert bench.headers()[0].codec == codec


def test_damage_is_found_and_nothing_written(bench: Bench) -> None:
    batch = bytearray(make([Rec(A, b"1"), Rec(A, b"2")], 0))
    batch[70] ^= 1
    bench.segment(bytes(batch))

    with pytest.raises(Uncleanable, match="the checksum of the batch at byte 0 is wrong"):
        bench.clean()
    assert not list(bench.directory.glob(f"*{CLEANED}"))
