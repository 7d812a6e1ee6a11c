"""Requests of a script, as bytes for a real server, and its replies in a form that the model can be compared with.

Pure. Records that `regency.runtime.zookeeper.wire` has are taken from there; the rest are those of zookeeper.jute.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import msgspec

from regency.runtime.zookeeper.session import Create, Delete, Op, SetData, Stat
from regency.runtime.zookeeper.wire import (
    OpCode,
    Reply,
    WireError,
    decode_children_many,
    decode_multi,
    decode_read_many,
    encode_add_watch,
    encode_multi,
    encode_multi_read,
    encode_op,
    encode_path,
    encode_remove_watches,
    frame,
)

_INT: Final = struct.Struct("!i")
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_OPEN_ACL: Final = _INT.pack(1) + _INT.pack(31) + encode_path("world") + encode_path("anyone")
_EXISTS: Final = 3
_GET_CHILDREN2: Final = 12
_CREATE2: Final = 15
_READS: Final = {
    "data": OpCode.GET_DATA,
    "exists": _EXISTS,
    "children": OpCode.GET_CHILDREN,
    "children2": _GET_CHILDREN2,
}


class Zxid(msgspec.Struct, frozen=True):
    """A zxid in an answer: not compared by value but by its place among all of a script."""

    value: int


class Owner(msgspec.Struct, frozen=True):
    """A session id in an answer: compared by which of a script's sessions it is."""

    value: int


Seen = tuple[object, ...]
"""An answer or an event: equal on both sides but for Zxid and Owner."""


class Request(msgspec.Struct, frozen=True):
    """One request.

    `kind`: write (a single operation), write2 (create2), multi; data, exists, children, children2 (reads, with a
    one-shot watch where `watch`); read_many, children_many, add_watch, remove_watches, sync.
    """

    kind: str
    paths: tuple[str, ...] = ()
    ops: tuple[Op, ...] = ()
    watch: bool = False
    """Of add_watch: recursive."""


class FullStat(msgspec.Struct, frozen=True):
    """A Stat with what the port leaves out."""

    stat: Stat
    cversion: int
    data_length: int

    def seen(self) -> Seen:
        return (*seen_stat(self.stat), self.cversion, self.data_length)


def seen_stat(stat: Stat) -> Seen:
    return (
        Zxid(stat.czxid),
        Zxid(stat.mzxid),
        Zxid(stat.pzxid),
        stat.version,
        stat.num_children,
        Owner(stat.ephemeral_owner),
    )


def encode(request: Request, xid: int) -> bytes:
    code, payload = _payload(request)
    return frame(_INT.pack(xid) + _INT.pack(code) + payload)


def _payload(request: Request) -> tuple[int, bytes]:
    kind = request.kind
    if kind in ("write", "write2"):
        return _single(request.ops[0], create2=kind == "write2")
    if kind == "multi":
        return OpCode.MULTI, encode_multi([encode_op(op, op.path, restrict=False) for op in request.ops])
    if kind == "read_many":
        return OpCode.MULTI_READ, encode_multi_read(OpCode.GET_DATA, request.paths)
    if kind == "children_many":
        return OpCode.MULTI_READ, encode_multi_read(OpCode.GET_CHILDREN, request.paths)
    path = request.paths[0]
    if kind == "add_watch":
        return OpCode.ADD_WATCH, encode_add_watch(path, int(request.watch))
    if kind == "remove_watches":
        return OpCode.REMOVE_WATCHES, encode_remove_watches(path)
    if kind == "sync":
        return OpCode.SYNC, encode_path(path)
    return _READS[kind], encode_path(path) + bytes([request.watch])


def _single(op: Op, *, create2: bool) -> tuple[int, bytes]:
    if isinstance(op, Create):
        flags = int(op.ephemeral) | int(op.sequential) << 1
        body = encode_path(op.path) + _buffer(op.data) + _OPEN_ACL + _INT.pack(flags)
        return _CREATE2 if create2 else OpCode.CREATE, body
    version = _INT.pack(-1 if op.version is None else op.version)
    if isinstance(op, SetData):
        return OpCode.SET_DATA, encode_path(op.path) + _buffer(op.data) + version
    assert isinstance(op, Delete)
    return OpCode.DELETE, encode_path(op.path) + version


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def decode(request: Request, reply: Reply) -> Seen:
    kind, body = request.kind, reply.body
    writes = kind in ("write", "write2", "multi")
    head: Seen = (kind, reply.error, Zxid(reply.zxid)) if writes else (kind, reply.error)
    if reply.error:
        return head
    if writes:
        return (*head, *_written(request, body))
    if kind == "read_many":
        found = decode_read_many(body, request.paths)
        return (*head, *(part if isinstance(part, int) else (part.data, seen_stat(part.stat)) for part in found))
    if kind == "children_many":
        listed = decode_children_many(body, request.paths)
        return (*head, *(part if isinstance(part, int) else part.names for part in listed))
    if kind == "data":
        data, end = _take(body, 0)
        return (*head, data, _full_stat(body, end).seen())
    if kind == "exists":
        return (*head, _full_stat(body, 0).seen())
    if kind in ("children", "children2"):
        names, end = _names(body)
        return (*head, names, _full_stat(body, end).seen()) if kind == "children2" else (*head, names)
    return head


def _written(request: Request, body: bytes) -> Seen:
    if request.kind == "multi":
        return tuple(
            (result.failed, result.error, result.path, None if result.stat is None else seen_stat(result.stat))
            for result in decode_multi(body)
        )
    if isinstance(request.ops[0], Create):
        path, end = _take(body, 0)
        return (path, _full_stat(body, end).seen()) if request.kind == "write2" else (path,)
    return (_full_stat(body, 0).seen(),) if isinstance(request.ops[0], SetData) else ()


def decode_event(reply: Reply) -> Seen:
    event_type = _INT.unpack_from(reply.body, 0)[0]
    return ("event", event_type, _take(reply.body, 8)[0].decode(), Zxid(reply.zxid))


def _take(body: bytes, offset: int) -> tuple[bytes, int]:
    start = offset + _INT.size
    end = start + max(_INT.unpack_from(body, offset)[0], 0)
    if end > len(body):
        raise WireError("a reply that ends too early")
    return body[start:end], end


def _names(body: bytes) -> tuple[tuple[str, ...], int]:
    names: list[str] = []
    offset = _INT.size
    for _ in range(_INT.unpack_from(body, 0)[0]):
        name, offset = _take(body, offset)
        names.append(name.decode())
    return tuple(sorted(names)), offset


def _full_stat(body: bytes, offset: int) -> FullStat:
    czxid, mzxid, _, _, version, cversion, _, owner, length, children, pzxid = _STAT.unpack_from(body, offset)
    return FullStat(Stat(czxid, mzxid, version, owner, children, pzxid), cversion, length)


def encode_set_watches(seen_zxid: int, lists: Sequence[Sequence[str]]) -> bytes:
    """Payload of setWatches2: data, exist, child, persistent and recursive watches."""
    body = struct.pack("!q", seen_zxid)
    for paths in lists:
        body += _INT.pack(len(paths)) + b"".join(encode_path(path) for path in paths)
    return body
