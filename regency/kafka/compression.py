"""What producers' compression made of a batch's records, undone and done again: gzip, snappy, lz4, zstd.

Bounded: a batch that claims or unpacks to more than the caller allows is refused before memory is spent on it.
"""

from __future__ import annotations

from typing import Final

import cramjam

from regency.kafka.record_batch import Buffer
from regency.model.errors import RegencyError

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
"""Codecs as the attributes of a batch name them."""

_FIRST_GUESS: Final = 8
_FEWEST_BYTES: Final = 64 << 10
_TOO_SMALL: Final = "failed to write whole buffer"
_XERIAL: Final = b"\x82SNAPPY\0"
"""Begins the blocks of snappy-java, as Kafka's own clients write them; librdkafka writes one plain block."""
_XERIAL_HEADER: Final = _XERIAL + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES: Final = 32 << 10
_LZ4_HEADER: Final = bytes.fromhex("04224d18604082")
"""Of a frame of independent blocks of 64 KiB: Kafka's reader refuses blocks that depend on each other."""
_LZ4_BLOCK_BYTES: Final = 64 << 10
_LZ4_PLAIN: Final = 1 << 31


class Undecodable(RegencyError):
    """These bytes are not what their codec writes, or unpack to too much. Says why."""

    code = "undecodable"


def decompress(codec: int, data: Buffer, most_bytes: int) -> Buffer:
    """The records of a batch. Raises Undecodable, also where they are more than `most_bytes`."""
    if codec == NONE:
        return data
    if codec == SNAPPY:
        return _snappy(memoryview(data), most_bytes)
    if codec not in _UNPACK:
        raise Undecodable(f"its compression {codec} is not one of Kafka's")
    size = min(max(_FIRST_GUESS * len(data), _FEWEST_BYTES), most_bytes)
    while True:
        out = bytearray(size)
        try:
            del out[_UNPACK[codec](data, out) :]
        except cramjam.DecompressionError as error:
            if str(error) != _TOO_SMALL:
                raise Undecodable(f"decompressing failed: {error}") from error
            if size == most_bytes:
                raise Undecodable(f"it unpacks to more than {most_bytes} bytes") from error
            size = min(4 * size, most_bytes)
        else:
            return out


def compress(codec: int, data: Buffer) -> bytes:
    """The same as a batch of this codec holds it, at the codec's default level, readable by every client of Kafka's."""
    if codec == GZIP:
        return bytes(cramjam.gzip.compress(data))
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(data))
    view = memoryview(data)
    if codec == LZ4:
        blocks = (_lz4_block(view[at : at + _LZ4_BLOCK_BYTES]) for at in range(0, len(view), _LZ4_BLOCK_BYTES))
        return b"".join((_LZ4_HEADER, *blocks, bytes(4)))
    if codec == SNAPPY:
        parts = [_XERIAL_HEADER]
        for at in range(0, len(view), _XERIAL_BLOCK_BYTES):
            block = bytes(cramjam.snappy.compress_raw(view[at : at + _XERIAL_BLOCK_BYTES]))
            parts += (len(block).to_bytes(4, "big"), block)
        return b"".join(parts)
    return bytes(data)


_UNPACK: Final = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}


def _lz4_block(plain: memoryview) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(plain, store_size=False))
    if len(packed) < len(plain):
        return len(packed).to_bytes(4, "little") + packed
    return (len(plain) | _LZ4_PLAIN).to_bytes(4, "little") + bytes(plain)


def _snappy(data: memoryview, most_bytes: int) -> bytes:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return _snappy_block(data, most_bytes)
    blocks = []
    left, at = most_bytes, len(_XERIAL_HEADER)
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        at += 4
        if size > len(data) - at:
            raise Undecodable(f"a snappy block of {size} bytes begins {len(data) - at} bytes before the end")
        blocks.append(_snappy_block(data[at : at + size], left))
        left -= len(blocks[-1])
        at += size
    return b"".join(blocks)


def _snappy_block(data: memoryview, most_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(data)
        if size > most_bytes:
            raise Undecodable(f"it unpacks to more than {most_bytes} bytes")
        return bytes(cramjam.snappy.decompress_raw(data))
    except cramjam.DecompressionError as error:
        raise Undecodable(f"decompressing failed: {error}") from error
