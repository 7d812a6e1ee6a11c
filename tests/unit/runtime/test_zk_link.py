"""One connection's requests: order, limits, pings and silence, on times given by hand."""

from __future__ import annotations

import pytest

from regency.runtime.zookeeper import link as zk_link
from regency.runtime.zookeeper.link import Link
from regency.runtime.zookeeper.session import ZkConnectionLost
from regency.runtime.zookeeper.wire import FrameReader, OpCode, WireError, frame

PING = frame(b"\xff\xff\xff\xfe\0\0\0\x0b")
PING_REPLY = frame(b"\xff\xff\xff\xfe" + bytes(12))


def reply(xid: int, body: bytes = b"") -> bytes:
    return frame(xid.to_bytes(4, "big") + (1).to_bytes(8, "big") + bytes(4) + body)


@pytest.fixture
def link() -> Link:
    return Link(timeout_ms=3000, now_ms=0, contact_ms=0, reader=FrameReader())


def test_replies_complete_requests_in_order_however_the_bytes_are_cut(link):
    first, second = link.submit(OpCode.SYNC, b"a"), link.submit(OpCode.SYNC, b"b")
    assert (link.take(0)[-1:], link.take(0)[-1:], link.take(0)) == (b"a", b"b", b"")
    stream = reply(1, b"one") + reply(2, b"two")
    for index in range(len(stream)):
        link.receive(stream[index : index + 1], 5)
    assert (first.result(0).body, second.result(0).body) == (b"one", b"two")


def test_a_reply_out_of_order_or_unasked_breaks_the_connection(link):
    link.submit(OpCode.SYNC, b"a")
    link.take(0)
    with pytest.raises(WireError):
        link.receive(reply(2), 0)


@pytest.mark.parametrize("garbage", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", frame(b"short")])
def test_what_is_no_frame_breaks_the_connection(link, garbage):
    with pytest.raises(WireError):
        link.receive(garbage, 0)


def test_a_ping_is_sent_after_a_third_of_the_timeout_without_requests(link):
    assert link.take(999) == b""
    assert link.next_due_ms() == 1000
    assert link.take(1000) == PING
    assert link.take(1000) == b""
    link.receive(PING_REPLY, 1100)
    assert link.contact_ms == 1000
    assert link.next_due_ms() == 2000


def test_a_server_that_owes_an_answer_is_overdue_after_two_thirds(link):
    assert not link.overdue(5000)
    link.submit(OpCode.SYNC, b"")
    link.take(100)
    assert not link.overdue(1999)
    assert link.overdue(2000)
    link.receive(reply(1), 2001)
    assert not link.overdue(9000)


def test_requests_beyond_the_window_wait_for_replies(link):
    for _ in range(zk_link.MAX_IN_FLIGHT + 1):
        link.submit(OpCode.SYNC, b"")
    assert all(link.take(0) for _ in range(zk_link.MAX_IN_FLIGHT))
    assert link.take(0) == b""
    link.receive(reply(1), 0)
    assert link.take(0)


def test_bytes_in_flight_are_bounded_too_but_one_request_always_goes(link):
    for _ in range(2):
        link.submit(OpCode.SYNC, bytes(zk_link.MAX_IN_FLIGHT_BYTES))
    assert link.take(0)
    assert link.take(0) == b""
    link.receive(reply(1), 0)
    assert link.take(0)


def test_a_cancelled_request_is_never_sent(link):
    cancelled, other = link.submit(OpCode.SYNC, b"no"), link.submit(OpCode.SYNC, b"yes")
    assert cancelled.cancel()
    assert link.take(0).endswith(b"yes")
    link.fail(ZkConnectionLost("gone"))
    assert isinstance(other.exception(0), ZkConnectionLost)


def test_failure_ends_sent_and_unsent_requests_each_with_an_error_of_its_own(link):
    futures = [link.submit(OpCode.SYNC, b"") for _ in range(3)]
    link.take(0)
    link.fail(ZkConnectionLost("gone", hint="look"))
    errors = [future.exception(0) for future in futures]
    assert [str(error) for error in errors] == ["gone look"] * 3
    assert len({id(error) for error in errors}) == 3
