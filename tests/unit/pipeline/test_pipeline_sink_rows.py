"""Rows that no topic could take are refused by their column and its value."""

from __future__ import annotations

import pyarrow as pa
import pytest
from mock_cluster import HEADERS, frame

from regency.pipeline.errors import RowRefused
from regency.pipeline.sink.rows import rows_of


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "topic name '' is not allowed: it is empty"),
        ("a b", "topic name 'a b' is not allowed: it contains ' '"),
        ("x" * 300, "it has 300 characters, 249 are allowed"),
    ],
)
def test_a_row_for_a_topic_that_nobody_could_create_is_refused_by_the_rule_of_names(name, words):
    batch = frame(topic=pa.array(["t", name]), value=pa.array(["0", "1"]))
    with pytest.raises(RowRefused, match="A row goes to no topic: ") as refused:
        rows_of(batch, None)
    assert words in refused.value.message
    assert rows_of(batch, "other").topics == "other", "where the column is not asked"


def broken_text() -> pa.Array:
    """A text that is no UTF-8, as CAST(x'fffe' AS STRING) makes it."""
    return pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())


def test_what_is_no_utf8_is_refused_by_its_column():
    value = pa.array([b""])
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1], pa.int32()), pa.StructArray.from_arrays([broken_text(), value], names=["key", "value"])
    )
    with pytest.raises(RowRefused, match=r"the column headers a key that is no UTF-8: b'\\xff\\xfe'"):
        rows_of(frame(value=value, headers=headers), "t")
    with pytest.raises(RowRefused, match="the column topic what is no UTF-8"):
        rows_of(frame(value=value, topic=broken_text()), None)
    assert rows_of(frame(value=broken_text()), "t").values == [b"\xff\xfe"]


def test_a_key_of_a_header_that_would_be_cut_is_refused():
    headers = pa.array([[{"key": "whole", "value": b""}, {"key": "a\0b", "value": b""}]], HEADERS)
    with pytest.raises(RowRefused, match=r"a header whose key has a NUL: 'a\\x00b'"):
        rows_of(frame(value=pa.array([b""]), headers=headers), "t")
