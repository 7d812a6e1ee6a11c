"""Records that no producer should send: each is an error that names it, and none is a crash, a hang or a wrong row."""

from __future__ import annotations

from typing import Any

import pytest

from regency.kafka.record_batch import BatchHeader
from regency.pipeline.records.decoding import BatchMalformed, Columns, Span, decode

NOW = 1_700_000_000_000


def varint(value: int) -> bytes:
    value = (value << 1 ^ value >> 63) & (2**64 - 1)
    made = b""
    while value > 0x7F:
        made += bytes([value & 0x7F | 0x80])
        value >>= 7
    return made + bytes([value])


def fields(
    delta: int = 0, key: bytes | None = None, value: bytes | None = b"v", headers: bytes = b"\0", timestamp: int = 0
) -> bytes:
    """A record without its length; `headers` with their number."""
    parts = [b"\0", varint(timestamp), varint(delta)]
    for part in (key, value):
        parts.append(varint(-1) if part is None else varint(len(part)) + part)
    return b"".join(parts) + headers


def record(*args: Any, **kwargs: Any) -> bytes:
    body = fields(*args, **kwargs)
    return varint(len(body)) + body


def header(count: int, *, base: int = 100, last: int | None = None, first_timestamp: int = NOW) -> BatchHeader:
    last = count - 1 if last is None else last
    return BatchHeader(base, 0, 0, 2, 0, 0, last, first_timestamp, first_timestamp, -1, -1, -1, count)


def read(data: bytes, told: BatchHeader, *, headers: bool = True) -> Columns:
    return decode(data, [Span(told, 0, len(data))], 0, 1 << 40, with_headers=headers)


def test_nulls_are_null_and_empty_ones_are_empty() -> None:
    data = record(0, None, None) + record(1, b"", b"") + record(2, b"k", None)
    columns = read(data, header(3))
    assert columns.key.to_pylist() == [None, b"", b"k"]
    assert columns.value.to_pylist() == [None, b"", None]
    assert columns.headers.to_pylist() == [None, None, None]
    assert columns.offset.tolist() == [100, 101, 102]


def test_headers_keep_order_and_repetition_and_may_have_no_value() -> None:
    one = varint(3) + varint(1) + b"a" + varint(1) + b"1" + varint(1) + b"a" + varint(-1) + varint(0) + varint(0)
    columns = read(record(0, headers=one) + record(1), header(2))
    assert columns.headers.to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "", "value": b""}],
        None,
    ]
    assert read(record(0, headers=one), header(1), headers=False).headers is None


def test_header_keys_that_are_not_text_have_a_replacement_character() -> None:
    one = varint(1) + varint(3) + b"a\xff\xe9" + varint(0)
    columns = read(record(0, headers=one), header(1))
    assert columns.headers.to_pylist() == [[{"key": "a\ufffd\ufffd", "value": b""}]]


def test_many_headers_of_few_records_are_read_in_time() -> None:
    many = varint(100_000) + (varint(0) + varint(-1)) * 100_000
    columns = read(record(0, headers=many) + record(1), header(2))
    assert len(columns.headers[0]) == 100_000
    assert columns.headers[1].as_py() is None


def test_timestamps_may_be_negative() -> None:
    columns = read(record(0, timestamp=-5) + record(1, timestamp=3), header(2, first_timestamp=-1))
    assert columns.timestamp_us.tolist() == [-6000, 2000]


@pytest.mark.parametrize("milliseconds", [2**53, -(2**53) - 10, 2**62])
def test_timestamps_out_of_range_are_refused(milliseconds: int) -> None:
    limit = (2**63 - 1) // 1000
    data = record(0) + record(1, timestamp=milliseconds)
    told = header(2, first_timestamp=0)
    if abs(milliseconds) <= limit:
        assert read(data, told).timestamp_us.tolist() == [0, milliseconds * 1000]
    else:
        with pytest.raises(
            BatchMalformed, match=rf"record 1 of 2 .*timestamp {milliseconds} ms is out of Spark's range"
        ):
            read(data, told)


def test_compaction_leaves_records_out() -> None:
    data = record(3) + record(70)
    assert read(data, header(2, last=99)).offset.tolist() == [103, 170]


def test_batches_of_one_record_are_read_together() -> None:
    one = record(0, value=b"x" * 9)
    spans = [Span(header(1, base=number), number * len(one), (number + 1) * len(one)) for number in range(500)]
    columns = decode(one * 500, spans, 100, 400, with_headers=False)
    assert columns.offset.tolist() == list(range(100, 400))
    assert columns.value.to_pylist() == [b"x" * 9] * 300


def test_batches_without_records_are_nothing() -> None:
    one = record(0)
    spans = [
        Span(header(0, base=1, last=5), 0, 0),
        Span(header(1), 0, len(one)),
        Span(header(0, base=200, last=5), 9, 9),
    ]
    assert decode(one + b"rest", spans, 0, 1000, with_headers=True).offset.tolist() == [100]
    assert len(decode(b"", spans[:1], 0, 1000, with_headers=True).offset) == 0


GOOD = record(0, value=b"a" * 70)
SECOND = varint(len(fields(1, value=b"a" * 70)))


@pytest.mark.parametrize(
    ("data", "count", "said"),
    [
        (GOOD, 2, r"record 1 of 2 \(from 0\): the batch ends where it should begin"),
        (GOOD + record(1), 1, r"9 bytes are left over after 1 records|8 bytes are left over after 1 records"),
        (GOOD[:-1], 1, r"record 0 of 1 \(from 0\): it claims more bytes than the batch has"),
        (GOOD + b"\x80" * 9, 2, r"record 1 of 2 \(from 0\): its length has no end"),
        (GOOD + varint(-2) + bytes(1), 2, r"record 1 of 2 \(from 0\): its length is not what it has"),
        (GOOD + varint(2**31 - 1) + bytes(9), 2, r"record 1 of 2 \(from 0\): it claims more bytes than the batch has"),
        (GOOD, 1000, r"announces 1000 records and has room for \d+"),
        (GOOD, -1, r"announces -1 records"),
        (GOOD + varint(3) + bytes(9), 2, r"record 1 of 2|left over"),
        (GOOD + record(1, headers=b"\x01"), 2, r"record 1 of 2 \(from 0\): its fields do not end where it does"),
        (GOOD + record(1, headers=b"\x00x"), 2, r"record 1 of 2 \(from 0\): its fields do not end where it does"),
        (GOOD + record(1, headers=b"\x02"), 2, r"record 1 of 2 \(from 0\): its headers do not end where it does"),
        (GOOD + record(1, headers=b"\xfe\xff\xff\xff\x0f\0\0"), 2, r"record 1 of 2 .*its headers do not end"),
        (GOOD + record(1, headers=b"\x02\x01\x02x"), 2, r"record 1 of 2 .*its headers do not end"),
        (GOOD + record(1, headers=b"\x02\x02x\x02y-"), 2, r"record 1 of 2 .*its headers do not end"),
        (GOOD + record(1, headers=b"\x04\x02x\x02y" + varint(-900) + b"\0"), 2, r"record 1 of 2 .*its headers do not"),
        (GOOD + record(1, headers=b"\x04\x02x\x02y" + varint(900) + b"\0"), 2, r"record 1 of 2 .*its headers do not"),
        (GOOD + record(1, headers=b"\x04\x02x\x02y\0" + varint(900) + b"\0"), 2, r"record 1 of 2 .*its headers do"),
        (GOOD + record(1, headers=b"\x04\x02x\x02y\0\0\0"), 2, r"record 1 of 2 .*its headers do not end"),
        (GOOD + record(0), 2, r"record 1 of 2 \(from 0\): its offset 100 is not between those of its neighbours"),
        (GOOD + record(2), 2, r"record 1 of 2 \(from 0\): its offset 102 is not between those of its neighbours"),
        (record(-1) + GOOD, 2, r"record 0 of 2 \(from 0\): its offset 99 is not between"),
    ],
)
def test_what_is_malformed_is_named(data: bytes, count: int, said: str) -> None:
    with pytest.raises(BatchMalformed, match=said) as refused:
        read(data, header(count))
    assert refused.value.span == 0


@pytest.mark.parametrize("size", [2**31 - 1, 100, 71])
def test_a_value_longer_than_its_record_is_refused(size: int) -> None:
    body = b"\0\0" + varint(1) + varint(-1) + varint(size) + b"a" * 70 + b"\0"
    with pytest.raises(BatchMalformed, match=r"record 1 of 3 .*: its fields do not end where it does"):
        read(GOOD + varint(len(body)) + body + record(2), header(3))


def test_the_batch_at_fault_is_told() -> None:
    bad = GOOD[:-1] + b"\2"
    spans = [Span(header(1, base=number), 0, len(GOOD)) for number in (0, 1, 2)]
    places = [0, len(GOOD), 2 * len(GOOD)]
    spans = [span._replace(start=at, stop=at + len(GOOD)) for span, at in zip(spans, places, strict=True)]
    with pytest.raises(BatchMalformed) as refused:
        decode(GOOD + GOOD + bad, spans, 0, 10, with_headers=True)
    assert refused.value.span == 2
    with pytest.raises(BatchMalformed) as refused:
        decode(GOOD + GOOD[:1] + b"\0" * len(GOOD[1:]) + GOOD, spans, 0, 10, with_headers=True)
    assert refused.value.span == 1


def test_equal_lengths_that_are_no_chain_are_not_believed() -> None:
    """In the middle of a run the next length differs, and later bytes look as if it went on."""
    alike = [record(number, value=b"a" * 20) for number in range(64)]
    longer = record(64, value=b"a" * (20 + len(alike[63]) - 3) + alike[63][:3])
    rest = [record(number, value=b"a" * 20) for number in range(65, 130)]
    data = b"".join([*alike, longer, *rest])
    columns = read(data, header(130))
    assert columns.offset.tolist() == list(range(100, 230))
    assert [len(value) for value in columns.value.to_pylist()][63:66] == [20, 20 + len(alike[63]), 20]


def test_headers_that_were_not_asked_for_are_not_looked_at() -> None:
    data = record(0, headers=b"\x02\x01\x02x")
    assert read(data, header(1), headers=False).value.to_pylist() == [b"v"]
