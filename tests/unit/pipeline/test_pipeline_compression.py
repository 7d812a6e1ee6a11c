"""Compressed batches that are broken, or larger than anything should be."""

from __future__ import annotations

import gzip
import struct
from typing import Any

import pyarrow as pa
import pytest

from regency.pipeline.records import compression as records_compression
from regency.pipeline.records.compression import Undecodable, decompress

DATA = b"some bytes, some bytes, some bytes" * 40


def framed(*blocks: bytes) -> bytes:
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(each)) + each for each in blocks)


def snappy(data: bytes) -> bytes:
    made: bytes = pa.compress(data, "snappy", asbytes=True)
    return made


def pack(codec: int, data: bytes) -> bytes:
    made: bytes = pa.compress(data, ["", "gzip", "snappy", "lz4", "zstd"][codec], asbytes=True)
    return made


def test_what_is_not_compressed_is_not_copied() -> None:
    view = memoryview(DATA)
    assert decompress(0, view) is view


def test_snappy_comes_plain_or_in_frames_of_any_number() -> None:
    for data in (snappy(DATA), framed(snappy(DATA)), framed(snappy(DATA[:100]), snappy(b""), snappy(DATA[100:]))):
        assert bytes(decompress(2, memoryview(data))) == DATA
    assert bytes(decompress(2, memoryview(framed()))) == b""


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_bytes_of_no_codec_are_refused(codec: int) -> None:
    whole = pack(codec, DATA)
    for broken in (b"garbage" * 20, whole[: len(whole) // 2], whole[:-1]):
        with pytest.raises(Undecodable, match="decompressing failed"):
            decompress(codec, memoryview(broken))


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_codecs_that_kafka_does_not_have_are_refused(codec: int) -> None:
    with pytest.raises(Undecodable, match=f"its compression {codec} is not one of Kafka's"):
        decompress(codec, memoryview(DATA))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "does not tell its size"),
        (b"\xff" * 20, "does not tell its size"),
        (b"\xff\xff\xff\xff\x0f" + b"x", "unpacks to more than"),
        (framed(snappy(DATA))[:-1], "a snappy block of .* bytes begins .* bytes before the end"),
        (framed(b"\xff" * 9), "does not tell its size"),
        (framed(snappy(DATA)) + b"\0\0", "a snappy block|does not tell its size"),
    ],
)
def test_snappy_that_claims_what_it_has_not_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(Undecodable, match=said):
        decompress(2, memoryview(data))


@pytest.mark.parametrize("made", [lambda data: (1, gzip.compress(data)), lambda data: (2, snappy(data))])
def test_a_small_batch_that_unpacks_to_a_huge_one_is_refused(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_compression, "MOST_BYTES", 3_000_000)
    codec, data = made(bytes(3_000_001))
    with pytest.raises(Undecodable, match="it unpacks to more than 3000000 bytes"):
        decompress(codec, memoryview(data))
    codec, data = made(bytes(3_000_000))
    assert len(bytes(decompress(codec, memoryview(data)))) == 3_000_000


def test_frames_of_snappy_have_one_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records_compression, "MOST_BYTES", 1000)
    with pytest.raises(Undecodable, match="more than 1000 bytes"):
        decompress(2, memoryview(framed(snappy(bytes(600)), snappy(bytes(600)))))
