"""Requests byte for byte, replies as a server writes them, and the names of kazoo that the adapter leans on."""

from __future__ import annotations

import struct

import kazoo.protocol.serialization
import kazoo.security
import pytest

from regency.runtime.zookeeper import wire as zk_records
from regency.runtime.zookeeper import wire as zk_wire
from regency.runtime.zookeeper.session import Check, Children, Create, Delete, SetData, Stat
from regency.runtime.zookeeper.wire import OpCode, WireError

STAT = struct.pack("!qqqqiiiqiiq", 5, 6, 0, 0, 7, 0, 0, 8, 3, 2, 9)
READ = Stat(5, 6, 7, 8, 2, 9)
END = struct.pack("!iBi", -1, 1, -1)


def part(op_code: int, body: bytes) -> bytes:
    return struct.pack("!iBi", op_code, 0, -1 if op_code != -1 else 0) + body


def failure(code: int) -> bytes:
    return part(-1, struct.pack("!i", code))


def string(text: str) -> bytes:
    return struct.pack("!i", len(text.encode())) + text.encode()


def test_only_these_public_names_of_kazoo_are_used():
    """The adapter works with any kazoo that keeps these; it uses no client, no thread and no private name of it."""
    records = kazoo.protocol.serialization
    types = {name: getattr(records, name).type for name in ("Create", "Delete", "SetData", "CheckVersion", "Auth")}
    assert types == {
        "Create": OpCode.CREATE,
        "Delete": OpCode.DELETE,
        "SetData": OpCode.SET_DATA,
        "CheckVersion": OpCode.CHECK,
        "Auth": OpCode.AUTH,
    }
    assert records.Connect._fields == (
        "protocol_version",
        "last_zxid_seen",
        "time_out",
        "session_id",
        "passwd",
        "read_only",
    )
    assert kazoo.security.OPEN_ACL_UNSAFE and kazoo.security.READ_ACL_UNSAFE and kazoo.security.CREATOR_ALL_ACL


def test_a_connect_asks_for_a_session_and_its_answer_is_read():
    assert zk_wire.encode_connect(0x10, b"p" * 16, 3000, 9) == zk_wire.frame(
        struct.pack("!iqiq", 0, 9, 3000, 0x10) + struct.pack("!i", 16) + b"p" * 16 + b"\0"
    )
    answer = zk_wire.decode_connect(struct.pack("!iiq", 0, 3000, 0x10) + struct.pack("!i", 16) + b"q" * 16 + b"\0")
    assert (answer.timeout_ms, answer.session_id, answer.password) == (3000, 0x10, b"q" * 16)
    with pytest.raises(WireError):
        zk_wire.decode_connect(b"short")


def test_watch_requests_are_zookeeper_3_6_s():
    assert zk_records.encode_add_watch("/a", 1) == string("/a") + struct.pack("!i", 1)
    assert zk_records.encode_remove_watches("/a") == string("/a") + struct.pack("!i", 3)
    assert zk_records.encode_set_watches2(9, ["/p"], ["/r", "/s"]) == (
        struct.pack("!qiii", 9, 0, 0, 0)
        + struct.pack("!i", 1)
        + string("/p")
        + struct.pack("!i", 2)
        + string("/r")
        + string("/s")
    )


def test_a_multi_read_asks_for_each_path():
    assert zk_records.encode_multi_read(OpCode.GET_DATA, ["/a", "/é"]) == (
        part(4, string("/a") + b"\0") + part(4, string("/é") + b"\0") + END
    )


def test_operations_are_encoded_each_with_its_header():
    assert zk_records.encode_op(Check("/a", 3), "/a", restrict=False) == part(13, string("/a") + struct.pack("!i", 3))
    assert zk_records.encode_op(Check("/a", None), "/c/a", restrict=False).endswith(struct.pack("!i", -1))
    assert zk_records.encode_op(Delete("/a", 2), "/a", restrict=False) == part(2, string("/a") + struct.pack("!i", 2))
    assert zk_records.encode_op(SetData("/a", b"xy", 2), "/a", restrict=False) == part(
        5, string("/a") + string("xy") + struct.pack("!i", 2)
    )
    for ephemeral, sequential, flags in ((False, False, 0), (True, False, 1), (False, True, 2), (True, True, 3)):
        op = Create("/a", b"d", ephemeral=ephemeral, sequential=sequential)
        encoded = zk_records.encode_op(op, "/a", restrict=False)
        assert encoded == part(
            1,
            string("/a")
            + string("d")
            + struct.pack("!ii", 1, 31)
            + string("world")
            + string("anyone")
            + struct.pack("!i", flags),
        )
    assert b"auth" in zk_records.encode_op(Create("/a"), "/a", restrict=True)


def test_results_of_a_multi_keep_their_order():
    body = part(1, string("/c/n-0000000003")) + part(5, STAT) + part(2, b"") + part(13, b"") + END
    results = zk_records.decode_multi(body)
    assert [(result.failed, result.path, result.stat) for result in results] == [
        (False, "/c/n-0000000003", None),
        (False, "", READ),
        (False, "", None),
        (False, "", None),
    ]
    results = zk_records.decode_multi(failure(0) + failure(-103) + failure(-2) + END)
    assert [(result.failed, result.error) for result in results] == [(True, 0), (True, -103), (True, -2)]


def test_a_multi_read_tells_data_and_what_is_missing():
    body = part(4, string("x") + STAT) + failure(-101) + part(4, struct.pack("!i", -1) + STAT) + END
    found = zk_records.decode_read_many(body, ["/a", "/b", "/c"])
    assert [one if isinstance(one, int) else (one.path, one.data, one.stat) for one in found] == [
        ("/a", b"x", READ),
        -101,
        ("/c", b"", READ),
    ]
    with pytest.raises(WireError):
        zk_records.decode_read_many(body, ["/a"])


def test_names_of_children_are_sorted():
    names = struct.pack("!i", 2) + string("b") + string("a")
    assert zk_records.decode_children(names) == ("a", "b")
    assert zk_records.decode_children_many(part(8, names) + failure(-101) + END, ["/p", "/q"]) == [
        Children("/p", ("a", "b")),
        -101,
    ]


def test_a_watch_event_tells_type_and_path():
    assert zk_records.decode_notice(struct.pack("!ii", 4, 3) + string("/a")) == (4, "/a")
