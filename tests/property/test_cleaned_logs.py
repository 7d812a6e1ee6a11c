"""A cleaned log is the log by its keys: the last record of each, at its offset, and nothing that was not there."""

from __future__ import annotations

from typing import Any

import pytest
from cleaned_logs import NOW, Bench, Rec, compacted, make
from hypothesis import given, settings
from hypothesis import strategies as st

from regency.kafka.logfiles.file_names import CLEANED
from regency.model.ids import Offset


def batches(lists: list[tuple[list[Rec], int]], base: int) -> list[bytes]:
    made = []
    for records, codec in lists:
        made.append(make(records, base, codec=codec))
        base += len(records)
    return made


RECORDS = st.lists(
    st.builds(
        Rec,
        st.one_of(
            st.none(),
            st.sampled_from([b"", b"\0", b"\0\0", b"k" * 513, b"k" * 512 + b"l"]),
            st.binary(max_size=3),
            st.binary(max_size=40),
        ),
        st.one_of(st.none(), st.binary(max_size=200)),
        st.integers(0, NOW),
        st.sampled_from([(), (("h", b"1"), ("", b""))]),
    ),
    min_size=1,
    max_size=30,
)
LOG = st.lists(st.lists(st.tuples(RECORDS, st.integers(0, 4)), min_size=1, max_size=16), min_size=1, max_size=3)


@settings(max_examples=60, deadline=None)
@given(log=LOG, buffer_bytes=st.sampled_from([100, 3000, 1 << 20]), dirty=st.floats(0, 1))
def test_a_cleaned_log_is_the_model_by_keys(
    tmp_path_factory: pytest.TempPathFactory, log: Any, buffer_bytes: int, dirty: float
) -> None:
    bench = Bench(tmp_path_factory.mktemp("log"))
    for segment in log:
        bench.segment(*batches(segment, bench.end))
    before = bench.read()
    first_dirty = Offset(int(dirty * (bench.end - 1)))

    cleaned = bench.clean(buffer_bytes=buffer_bytes, first_dirty=first_dirty)

    assert cleaned.end == bench.end
    assert bench.read() == compacted(before, first_dirty=first_dirty, end=bench.end)
    assert bench.headers()[-1].next_offset == bench.end
    assert not list(bench.directory.glob(f"*{CLEANED}*"))
    again = bench.clean(buffer_bytes=buffer_bytes)
    assert bench.read() == compacted(before, end=bench.end)
    assert again.without_key == 0
