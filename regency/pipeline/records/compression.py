"""What a producer's compression has made of a batch's records, undone. Errors and limits, no records."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from regency.model.errors import RegencyError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
"""Codecs as the attributes of a batch name them."""

MOST_BYTES: Final = 1 << 30
"""Largest batch that is unpacked: a thousand times max.message.bytes, and within what Arrow's offsets can address."""

_STREAMS: Final = {GZIP: "gzip", LZ4: "lz4", ZSTD: "zstd"}
_CHUNK_BYTES: Final = 1 << 20
_XERIAL: Final = b"\x82SNAPPY\0"
"""Begins the blocks of snappy-java, as Kafka's own clients write them; librdkafka writes one plain block."""
_XERIAL_HEADER_BYTES: Final = 16
"""The magic, a version and the oldest version that can read it."""


class Undecodable(RegencyError):
    """These bytes are not what their codec writes, or too much. Says why."""

    code = "undecodable"


def decompress(codec: int, data: memoryview) -> bytes | memoryview | pa.Buffer:
    """The records of a batch. Raises Undecodable."""
    try:
        if codec == NONE:
            return data
        if codec == SNAPPY:
            return _snappy(data)
        if codec in _STREAMS:
            return _stream(_STREAMS[codec], data)
    except (pa.ArrowException, OSError) as error:
        raise Undecodable(f"decompressing failed: {str(error).rstrip('.')}") from error
    raise Undecodable(f"its compression {codec} is not one of Kafka's")


def _stream(name: str, data: memoryview) -> bytes:
    chunks: list[bytes] = []
    size = 0
    with pa.CompressedInputStream(pa.BufferReader(data), name) as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            chunks.append(chunk)
            size += len(chunk)
            if size > MOST_BYTES:
                raise Undecodable(f"it unpacks to more than {MOST_BYTES} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _snappy(data: memoryview) -> bytes | pa.Buffer:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, MOST_BYTES)
    blocks = []
    left = MOST_BYTES
    at = _XERIAL_HEADER_BYTES
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise Undecodable(f"a snappy block of {size} bytes begins {len(data) - at} bytes before the end")
        blocks.append(_snappy_block(data[at : at + size], left))
        left -= blocks[-1].size
        at += size
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _snappy_block(data: memoryview, most: int) -> pa.Buffer:
    """A block begins with the size of what it holds, as a varint."""
    size = shift = 0
    for byte in data[:5]:
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise Undecodable("a snappy block does not tell its size")
    if size > most:
        raise Undecodable(f"it unpacks to more than {MOST_BYTES} bytes")
    return pa.decompress(data, size, codec="snappy")
