"""What makes two records the same, what is there already, and what a repeated task does about it."""

from __future__ import annotations

import random
from uuid import UUID

import pyarrow as pa
import pytest

from regency.clients.errors import ClusterUnavailable
from regency.clients.settings import client_settings
from regency.pipeline.errors import RowRefused, TailGone
from regency.pipeline.sink.floors import TopicFloors
from regency.pipeline.sink.identity import (
    HEADER,
    HEADER_BYTES,
    WriteId,
    digest,
    named_its_partition,
    row_header,
    task_of,
    without_own,
)
from regency.pipeline.sink.rows import PIECE_BYTES, pieces, rows_of
from regency.pipeline.sink.tail import Settled, Written, _Finding, tail_ranges

QUERY = UUID(int=77)
WRITE = WriteId(QUERY, 3)
HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def some(number: int) -> bytes:
    return digest("t", None, None, b"%d" % number, None)


def test_a_header_tells_query_batch_task_position_and_whether_a_partition_was_named():
    value = row_header(WRITE.task_prefix(9), 2**40, explicit_partition=True)
    assert len(value) == HEADER_BYTES == 37
    assert value == QUERY.bytes + (3).to_bytes(8) + (9).to_bytes(4) + (2**40).to_bytes(8) + b"\x01"
    assert value.startswith(WRITE.prefix)
    assert (task_of(value), named_its_partition(value)) == (9, True)
    assert not named_its_partition(row_header(WRITE.task_prefix(9), 0, explicit_partition=False))


def test_records_differ_by_everything_they_are_made_of():
    different = [
        ("t", None, None, None, None),
        ("u", None, None, None, None),
        ("t", 0, None, None, None),
        ("t", 1, None, None, None),
        ("t", None, b"", None, None),
        ("t", None, None, b"", None),
        ("t", None, b"ab", b"c", None),
        ("t", None, b"a", b"bc", None),
        ("t", None, None, b"", [("a", None)]),
        ("t", None, None, b"", [("a", b"")]),
        ("t", None, None, b"", [("a", b""), ("b", b"")]),
        ("t", None, None, b"", [("b", b""), ("a", b"")]),
    ]
    assert len({digest(*each) for each in different}) == len(different)


def test_no_headers_and_only_our_own_are_the_same():
    own = [(HEADER, b"x")]
    assert (
        digest("t", None, b"k", b"v", own) == digest("t", None, b"k", b"v", []) == digest("t", None, b"k", b"v", None)
    )
    assert without_own([("a", b"1"), *own, ("a", b"2")]) == [("a", b"1"), ("a", b"2")]


def test_equal_rows_are_counted():
    written = Written([some(1), some(1), some(2)])
    assert written.missing([some(1), some(3), some(1), some(1), some(2)]) == [1, 3]
    assert (written.left, written.changed(), written.doubled()) == (0, 0, 0)


def test_records_that_are_no_row_are_told_from_records_that_are_there_too_often():
    written = Written([some(1), some(1), some(2), some(9), some(9)])
    assert written.missing([some(1), some(2)]) == []
    assert (written.left, written.changed(), written.doubled()) == (3, 2, 1)


def test_nothing_there_leaves_all_to_be_written():
    written = Written([])
    assert written.missing([some(1), some(1)]) == [0, 1]
    assert written.missing([]) == []
    assert (written.changed(), written.doubled(), written.records) == (0, 0, 0)


def test_digests_that_end_in_zeros_are_told_apart():
    low, high = b"a" * 15 + b"\x00", b"a" * 14 + b"\x00\x00"
    written = Written([low])
    assert written.missing([high, low]) == [0]


def test_whatever_was_written_of_rows_in_any_order_the_rest_is_written():
    choice = random.Random(5)
    for _ in range(50):
        rows = [some(choice.randrange(30)) for _ in range(choice.randrange(60))]
        there = choice.sample(rows, choice.randrange(len(rows) + 1))
        again = choice.sample(rows, len(rows))
        written = Written(there)
        cut = choice.randrange(len(again) + 1)
        missing = [again[row] for row in written.missing(again[:cut])]
        missing += [again[cut + row] for row in written.missing(again[cut:])]
        assert sorted(missing + there) == sorted(rows)
        assert (written.left, written.changed(), written.doubled()) == (0, 0, 0)


def record(value: bytes, *headers: tuple[str, bytes | None]) -> tuple[bytes, list[dict[str, object]]]:
    return value, [{"key": key, "value": content} for key, content in headers]


def read(*records: tuple[bytes, list[dict[str, object]]]) -> pa.RecordBatch:
    return pa.record_batch(
        [
            pa.array([None] * len(records), pa.binary()),
            pa.array([value for value, _ in records], pa.binary()),
            pa.array([headers for _, headers in records], HEADERS),
        ],
        names=["key", "value", "headers"],
    )


def test_records_of_the_task_are_found_among_those_of_others():
    mine = row_header(WRITE.task_prefix(2), 0, explicit_partition=False)
    named = row_header(WRITE.task_prefix(2), 1, explicit_partition=True)
    sibling = row_header(WRITE.task_prefix(5), 0, explicit_partition=False)
    earlier = row_header(WriteId(QUERY, 2).task_prefix(2), 0, explicit_partition=False)
    stranger = row_header(WriteId(UUID(int=78), 3).task_prefix(2), 0, explicit_partition=False)
    batch = read(
        record(b"plain"),
        record(b"mine", ("a", b"1"), (HEADER, mine)),
        record(b"sibling", (HEADER, sibling)),
        record(b"earlier", (HEADER, earlier)),
        record(b"stranger", (HEADER, stranger)),
        record(b"null", (HEADER, None)),
        record(b"named", (HEADER, named)),
    )
    for offered in (batch, pa.concat_batches([batch.slice(0, 3), batch.slice(3)])):
        finding = _Finding(WRITE, 2)
        finding.take("t", 4, offered)
        assert finding.digests == [
            digest("t", None, None, b"mine", [("a", b"1")]),
            digest("t", 4, None, b"named", None),
        ]
        assert finding.highest_task == 5
    sliced = _Finding(WRITE, 2)
    sliced.take("t", 4, batch.slice(1, 2))
    assert (len(sliced.digests), sliced.highest_task) == (1, 5)


def test_only_what_lies_above_the_floors_is_read():
    old, new = UUID(int=1), UUID(int=2)
    floors = {"t": TopicFloors(old, {0: 5, 1: 7}), "u": TopicFloors(old, {0: 9})}
    ends = {"t": TopicFloors(old, {0: 5, 1: 8, 2: 3}), "u": TopicFloors(new, {0: 4})}
    ranges = tail_ranges(client_settings({"bootstrap.servers": "localhost:1"}), floors, ends)
    assert [(range_.topic, range_.partition, range_.start, range_.end) for range_ in ranges] == [
        ("t", 1, 7, 8),
        ("t", 2, 0, 3),
        ("u", 0, 0, 4),
    ]
    assert all(range_.include_headers and range_.fail_on_data_loss for range_ in ranges)
    assert [range_.topic_id for range_ in ranges] == [old, old, new]


def test_a_log_that_ends_below_its_floor_is_no_tail_to_go_by():
    topic = UUID(int=1)
    with pytest.raises(TailGone, match=r"t-0: its log ends at 4, and had records up to 5 .*remove sinks/regency"):
        tail_ranges(
            client_settings({"bootstrap.servers": "localhost:1"}),
            {"t": TopicFloors(topic, {0: 5})},
            {"t": TopicFloors(topic, {0: 4})},
        )


def test_tasks_of_one_plan_wait_once_in_a_process():
    waits: list[tuple[str, ...]] = []
    settled = Settled(lambda _, topics: waits.append(tuple(topics)))
    client = client_settings({"bootstrap.servers": "localhost:1"})
    for topics, planned_ms in ((["t"], 1), (["t"], 1), (["t"], 2), (["t", "u"], 2), (["v"], 3), (["v"], 3)):
        settled.wait(client, topics, planned_ms)
    assert waits == [("t",), ("t",), ("t", "u"), ("v",)]
    for _ in range(2):
        settled.wait(client, ["v"], None)
    assert waits[4:] == [("v",), ("v",)], "a repeated task waits for its own predecessor"
    settled.wait(client, ["v"], 3)
    assert len(waits) == 6


def test_a_wait_that_failed_is_repeated():
    def fail(*_: object) -> None:
        raise ClusterUnavailable("nobody answers")

    settled = Settled(fail)
    for _ in range(2):
        with pytest.raises(ClusterUnavailable):
            settled.wait(client_settings({"bootstrap.servers": "localhost:1"}), ["t"], 1)


def frame(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def test_text_and_bytes_become_bytes_and_null_stays_null():
    rows = rows_of(frame(key=pa.array(["ä", None, ""]), value=pa.array([b"1", None, b""])), "t")
    assert (rows.keys, rows.values) == (["ä".encode(), None, b""], [b"1", None, b""])
    large = rows_of(frame(value=pa.array(["x"], pa.large_string())), "t")
    assert (large.values, large.keys, large.topics, large.partition(0)) == ([b"x"], None, "t", -1)


def test_the_option_topic_comes_before_the_column():
    batch = frame(topic=pa.array(["a", "b"]), value=pa.array([b"", b""]))
    assert rows_of(batch, "t").topics == "t"
    assert rows_of(batch, None).topics == ["a", "b"]
    assert rows_of(batch.slice(1), None).topics == "b"


@pytest.mark.parametrize(
    ("column", "words"),
    [
        ({"topic": pa.array(["a", None])}, "null in the column topic. Set option topic"),
        ({"partition": pa.array([0, -1], pa.int32())}, "names partition -1"),
        ({"headers": pa.array([None, [{"key": None, "value": b""}]], HEADERS)}, "a header without key"),
        ({"headers": pa.array([None, [None]], HEADERS)}, "a header without key"),
    ],
)
def test_rows_that_make_no_record_are_refused(column, words):
    topic = None if "topic" in column else "t"
    with pytest.raises(RowRefused) as refused:
        rows_of(frame(value=pa.array([b"", b""]), **column), topic)
    assert words in str(refused.value)


def test_batches_of_huge_rows_are_cut():
    batch = frame(value=pa.array([bytes(1 << 20)] * 10))
    sizes = [piece.num_rows for piece in pieces(batch)]
    assert sum(sizes) == 10
    assert max(sizes) * (1 << 20) <= PIECE_BYTES
    assert [piece.num_rows for piece in pieces(batch.slice(0, 0))] == []
    assert [piece.num_rows for piece in pieces(frame(value=pa.array([b"x"] * 9)))] == [9]
