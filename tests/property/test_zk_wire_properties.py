"""Whatever a server sends, decoding gives a value or a WireError, and frames survive any cutting."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from regency.runtime.zookeeper import wire as zk_wire
from regency.runtime.zookeeper.wire import FrameReader, WireError


@given(st.binary(max_size=200))
def test_decoders_never_fail_otherwise_than_by_wire_error(body):
    for decode in (
        zk_wire.decode_multi,
        zk_wire.decode_children,
        lambda data: zk_wire.decode_children_many(data, ["/a", "/b"]),
        zk_wire.decode_notice,
        lambda data: zk_wire.decode_read_many(data, ["/a", "/b"]),
        zk_wire.decode_reply,
        zk_wire.decode_connect,
    ):
        with contextlib.suppress(WireError):
            decode(body)


@given(st.lists(st.binary(max_size=50), max_size=10), st.data())
def test_frames_survive_any_cutting(payloads, data):
    stream = b"".join(zk_wire.frame(payload) for payload in payloads)
    reader = FrameReader()
    found: list[bytes] = []
    while stream:
        cut = data.draw(st.integers(1, len(stream)))
        found += reader.feed(stream[:cut])
        stream = stream[cut:]
    assert found == payloads
