from __future__ import annotations

import struct

import pytest

from regency.broker_agent.listener.buffers import FrameOversized, FrameReader


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def read_all(reader: FrameReader) -> list[bytes]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


def test_frames_that_come_together_are_cut_apart() -> None:
    reader = FrameReader(100)
    reader.feed(framed(b"one", b"", b"three"))

    assert read_all(reader) == [b"one", b"", b"three"]
    assert not reader.is_inside_frame


def test_a_frame_that_comes_byte_by_byte_is_put_together() -> None:
    reader = FrameReader(100)
    frames = []
    for byte in framed(b"slowly", b"so"):
        reader.feed(bytes([byte]))
        frames += read_all(reader)

    assert frames == [b"slowly", b"so"]


def test_what_is_not_taken_yet_is_kept_when_more_comes() -> None:
    reader = FrameReader(100)
    reader.feed(framed(b"one", b"two"))
    first = reader.next_frame()
    reader.feed(framed(b"three"))

    assert first == b"one"
    assert read_all(reader) == [b"two", b"three"]


@pytest.mark.parametrize("size", [101, 0x7FFFFFFF, -1, -(2**31)])
def test_a_size_that_is_not_allowed_is_refused_when_it_is_announced(size: int) -> None:
    reader = FrameReader(100)
    reader.feed(struct.pack(">i", size))

    with pytest.raises(FrameOversized, match=str(size)):
        reader.next_frame()


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    reader = FrameReader(100)
    reader.feed(framed(bytes(100)))

    assert read_all(reader) == [bytes(100)]


@pytest.mark.parametrize("length", range(1, 9))
def test_it_knows_when_it_is_inside_a_frame(length: int) -> None:
    reader = FrameReader(100)
    reader.feed(framed(b"body")[:length])
    read_all(reader)

    assert reader.is_inside_frame is (length < 8)
