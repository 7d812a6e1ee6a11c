"""Both indexes against entries worked out by hand, in memory and from their files."""

from __future__ import annotations

import struct

import pytest

from regency.broker_agent.log.segments.indexes import OffsetIndex, TimeIndex
from regency.broker_agent.log.segments.open_files import LogFile, OpenFiles
from regency.runtime.disk import OsDisk


@pytest.fixture
def files():
    pool = OpenFiles(8, OsDisk())
    yield pool
    pool.close_all()


@pytest.fixture
def offsets(tmp_path, files):
    index = OffsetIndex(LogFile(tmp_path / "00000000000000000045.index", files), 45, 8 * 4)
    for offset, position in ((50, 100), (51, 300), (60, 700)):
        index.append(offset, position)
    return index


@pytest.fixture
def times(tmp_path, files):
    index = TimeIndex(LogFile(tmp_path / "00000000000000000045.timeindex", files), 45, 12 * 5)
    for timestamp, offset in ((10, 55), (20, 65), (30, 75)):
        index.maybe_append(timestamp, offset)
    return index


def test_offset_entries_are_four_bytes_of_distance_and_four_of_position(offsets):
    assert offsets.file.path.read_bytes() == struct.pack(">6I", 5, 100, 6, 300, 15, 700)


def test_time_entries_are_eight_bytes_of_time_and_four_of_distance(times):
    assert times.file.path.read_bytes() == struct.pack(">qIqIqI", 10, 10, 20, 20, 30, 30)


@pytest.mark.parametrize("reloaded", [False, True])
def test_offset_lookup_finds_the_last_entry_not_above(offsets, reloaded):
    if reloaded:
        offsets.file.close()
    assert offsets.last_position == 700
    assert [offsets.lookup(offset) for offset in (45, 49, 50, 51, 59, 60, 99)] == [0, 0, 100, 300, 300, 700, 700]
    assert [list(offsets.positions_up_to(offset)) for offset in (49, 59, 99)] == [[], [100, 300], [100, 300, 700]]


@pytest.mark.parametrize("reloaded", [False, True])
def test_time_lookup_finds_the_last_entry_not_above(times, reloaded):
    if reloaded:
        times.file.close()
    assert times.last == (30, 75)
    assert [times.lookup(at) for at in (9, 10, 25, 30, 99)] == [(-1, 45), (10, 55), (20, 65), (30, 75), (30, 75)]


def test_entries_that_do_not_rise_are_a_mistake(offsets, times):
    for entry in ((60, 800), (61, 700), (59, 900)):
        with pytest.raises(ValueError, match="does not come after"):
            offsets.append(*entry)
    with pytest.raises(ValueError, match="below the last"):
        times.maybe_append(40, 74)


def test_a_time_entry_is_written_only_for_a_greater_timestamp(times):
    times.maybe_append(30, 80)
    times.maybe_append(29, 81)
    assert len(times) == 3


def test_an_index_is_full_at_its_configured_size(offsets, times):
    assert (offsets.is_full, times.is_full) == (False, False)
    offsets.append(61, 800)
    times.maybe_append(40, 76)
    assert (offsets.is_full, times.is_full) == (True, True)


@pytest.mark.parametrize(
    ("offset", "position", "kept"), [(61, 999, 3), (60, 999, 2), (61, 700, 2), (52, 999, 2), (51, 300, 1), (50, 0, 0)]
)
def test_cutting_an_offset_index_drops_what_reaches_offset_or_byte(offsets, offset, position, kept):
    offsets.truncate_to(offset, position)
    assert len(offsets) == kept == offsets.file.path.stat().st_size // 8
    offsets.file.close()
    assert len(offsets) == kept


@pytest.mark.parametrize(("offset", "kept"), [(76, 3), (75, 2), (66, 2), (45, 0)])
def test_cutting_a_time_index_drops_what_reaches_the_offset(times, offset, kept):
    times.truncate_to(offset)
    assert len(times) == kept == times.file.path.stat().st_size // 12


def test_entries_after_a_cut_take_the_place_of_the_old_ones(offsets):
    offsets.truncate_to(51, 300)
    offsets.append(55, 250)
    assert offsets.file.path.read_bytes() == struct.pack(">4I", 5, 100, 10, 250)


@pytest.mark.parametrize(
    ("content", "sound"),
    [
        (b"", True),
        (struct.pack(">2I", 5, 100), True),
        (struct.pack(">2I", 5, 100) + b"\0", False),
        (struct.pack(">2I", 5, 1000), False),
        (struct.pack(">4I", 5, 100, 0, 0), False),
    ],
)
def test_an_offset_index_that_cannot_be_of_its_segment_is_noticed(offsets, content, sound):
    offsets.file.path.write_bytes(content)
    assert offsets.fits(1000) is sound


@pytest.mark.parametrize(
    ("content", "sound"),
    [
        (b"", True),
        (struct.pack(">qI", 5, 100), True),
        (struct.pack(">qI", 5, 100) + b"\0", False),
        (struct.pack(">qIqI", 5, 100, 0, 0), False),
    ],
)
def test_a_time_index_that_cannot_be_one_is_noticed(times, content, sound):
    times.file.path.write_bytes(content)
    assert times.fits() is sound


def test_resetting_empties_memory_and_file(offsets, times):
    offsets.reset()
    times.reset()
    assert (len(offsets), offsets.lookup(99), offsets.last_position) == (0, 0, 0)
    assert (len(times), times.last) == (0, (-1, 45))
    times.file.close()
    offsets.file.close()
    assert (offsets.last_position, times.last) == (0, (-1, 45))
