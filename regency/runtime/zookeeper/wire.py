"""ZooKeeper's frames, headers and handshake, and the bodies of its requests and replies.

Pure: bytes in, bytes out; paths are whole (with the chroot). Decoders raise WireError on what the protocol forbids.
Records that kazoo has come from its public `kazoo.protocol.serialization`; MultiRead, addWatch and setWatches2 it has
not. Source: zookeeper.jute, ZooDefs.OpCode, MultiOperationRecord, MultiResponse and WatcherEvent of ZooKeeper 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, TypeVar

import msgspec
from kazoo.protocol.serialization import Auth, CheckVersion, Connect, Create, Delete
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from regency.runtime.zookeeper import session as port
from regency.runtime.zookeeper.session import Children, Stat, Znode

MAX_REPLY_BYTES: Final = 256 * 1024 * 1024
"""A longer frame is not a reply but garbage."""

_INT: Final = struct.Struct("!i")
_INT_INT: Final = struct.Struct("!ii")
_REPLY_HEADER: Final = struct.Struct("!iqi")


class OpCode(IntEnum):
    """ZooDefs.OpCode."""

    CREATE = 1
    DELETE = 2
    GET_DATA = 4
    SET_DATA = 5
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    CHECK = 13
    MULTI = 14
    REMOVE_WATCHES = 18
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    CLOSE = -11
    ERROR = -1


class Xid(IntEnum):
    """Ids of frames that are not replies to a numbered request."""

    WATCH = -1
    PING = -2
    AUTH = -4


class ErrorNumber(IntEnum):
    """KeeperException.Code, where we tell them apart."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121
    AUTH_REQUIRED = -124


class WireError(Exception):
    """The server sent what its protocol does not allow; the connection is of no more use."""


class Reply(msgspec.Struct, frozen=True, gc=False):
    """One frame from the server. `error` is 0 where the request as a whole succeeded."""

    xid: int
    zxid: int
    error: int
    body: bytes


class ConnectReply(msgspec.Struct, frozen=True):
    """Answer to a Connect. `timeout_ms` is the negotiated session timeout; 0 or less: the session is expired."""

    timeout_ms: int
    session_id: int
    password: bytes


class FrameReader:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Every frame that `data` completes. Raises WireError on a length that no frame has."""
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _INT.size:
            length = _INT.unpack_from(self._buffer, start)[0]
            if not 0 <= length <= MAX_REPLY_BYTES:
                raise WireError(f"a frame of {length} bytes")
            end = start + _INT.size + length
            if len(self._buffer) < end:
                break
            yield bytes(self._buffer[start + _INT.size : end])
            start = end
        del self._buffer[:start]


def frame(payload: bytes) -> bytes:
    """`payload` with its length in front."""
    return _INT.pack(len(payload)) + payload


def request_frame(xid: int, op_code: int, payload: bytes) -> bytes:
    """A whole request as it goes onto the wire."""
    return frame(_INT_INT.pack(xid, op_code) + payload)


def decode_reply(data: bytes) -> Reply:
    """Header and body of a frame. Raises WireError."""
    if len(data) < _REPLY_HEADER.size:
        raise WireError(f"a reply of {len(data)} bytes")
    xid, zxid, error = _REPLY_HEADER.unpack_from(data)
    return Reply(xid, zxid, error, data[_REPLY_HEADER.size :])


def encode_connect(session_id: int, password: bytes, timeout_ms: int, last_zxid: int) -> bytes:
    """Frame that asks for a session: a new one where `session_id` is 0."""
    return frame(bytes(Connect(0, last_zxid, timeout_ms, session_id, password or bytes(16), False).serialize()))


def decode_connect(data: bytes) -> ConnectReply:
    """Raises WireError."""
    try:
        reply, _ = Connect.deserialize(data, 0)
    except struct.error as error:
        raise WireError("an answer to Connect that is too short") from error
    return ConnectReply(int(reply.time_out), int(reply.session_id), bytes(reply.passwd or b""))


def encode_auth(credential: str) -> bytes:
    """Frame that presents `user:password` (digest scheme)."""
    return request_frame(Xid.AUTH, OpCode.AUTH, bytes(Auth(0, "digest", credential).serialize()))


_LONG: Final = struct.Struct("!q")
_MULTI_HEADER: Final = struct.Struct("!iBi")
_HEADER_AND_LENGTH: Final = struct.Struct("!iBii")
"""Header of one operation, and the length of what follows: of the path, or of the data that was read."""
_MULTI_END: Final = _MULTI_HEADER.pack(-1, 1, -1)
_STAT: Final = struct.Struct("!qq16xi8xq4xiq")
"""czxid, mzxid, version, owner, number of children, pzxid: what is made use of."""
_WATCHER_TYPE_ANY: Final = 3
_MALFORMED: Final = (struct.error, UnicodeDecodeError, IndexError)

T = TypeVar("T")


def _encode_acl(acl: Sequence[ACL]) -> bytes:
    return bytes(Create("", b"", acl, 0).serialize())[2 * _INT.size : -_INT.size]


_OPEN_ACL: Final = _encode_acl(OPEN_ACL_UNSAFE)
_OWN_ACL: Final = _encode_acl(READ_ACL_UNSAFE + CREATOR_ALL_ACL)


class MultiResult(msgspec.Struct, frozen=True, gc=False):
    """One operation's part of a reply to a multi. `error` is a KeeperException code, 0 for done and for rolled back."""

    failed: bool
    error: int = 0
    path: str = ""
    stat: Stat | None = None


def encode_path(path: str) -> bytes:
    """A jute string: payload of sync, and the beginning of others."""
    encoded = path.encode()
    return _INT.pack(len(encoded)) + encoded


def encode_get_children(path: str) -> bytes:
    """Payload of getChildren without a watch."""
    return encode_path(path) + b"\0"


def encode_add_watch(path: str, mode: int) -> bytes:
    """Payload of addWatch. `mode`: 0 persistent, 1 persistent and recursive."""
    return encode_path(path) + _INT.pack(mode)


def encode_remove_watches(path: str) -> bytes:
    """Payload of removeWatches, for watches of any type on `path`."""
    return encode_path(path) + _INT.pack(_WATCHER_TYPE_ANY)


def encode_set_watches2(last_zxid: int, persistent: Sequence[str], recursive: Sequence[str]) -> bytes:
    """Payload of setWatches2 that arms persistent and recursive watches only."""
    return _LONG.pack(last_zxid) + _INT.pack(0) * 3 + _encode_paths(persistent) + _encode_paths(recursive)


def _encode_paths(paths: Sequence[str]) -> bytes:
    return _INT.pack(len(paths)) + b"".join(encode_path(path) for path in paths)


def encode_multi_read(op_code: OpCode, paths: Sequence[str]) -> bytes:
    """Payload of a MultiRead of getData or getChildren over `paths`."""
    parts: list[bytes] = []
    for path in paths:
        encoded = path.encode()
        parts += (_HEADER_AND_LENGTH.pack(op_code, 0, -1, len(encoded)), encoded, b"\0")
    return b"".join(parts) + _MULTI_END


def encode_op(op: port.Op, path: str, *, restrict: bool) -> bytes:
    """One operation of a multi at the whole `path`.

    `restrict`: what is created is everybody's to read and only our credential's to change.
    """
    match op:
        case port.SetData():
            return _encode_record(OpCode.SET_DATA, path, op.data, _INT.pack(op.version))
        case port.Create():
            flags = _INT.pack(int(op.ephemeral) | int(op.sequential) << 1)
            return _encode_record(OpCode.CREATE, path, op.data, (_OWN_ACL if restrict else _OPEN_ACL) + flags)
        case port.Delete():
            record = Delete(path, -1 if op.version is None else op.version)
        case port.Check():
            record = CheckVersion(path, -1 if op.version is None else op.version)
    return _MULTI_HEADER.pack(record.type, 0, -1) + bytes(record.serialize())


def _encode_record(op_code: OpCode, path: str, data: bytes, rest: bytes) -> bytes:
    """What is written in great numbers, without kazoo's help, which takes three times as long."""
    name = path.encode()
    return b"".join((_HEADER_AND_LENGTH.pack(op_code, 0, -1, len(name)), name, _INT.pack(len(data)), data, rest))


def encode_multi(encoded_ops: Sequence[bytes]) -> bytes:
    """Payload of a multi of operations encoded by `encode_op`."""
    return b"".join(encoded_ops) + _MULTI_END


def decode_multi(body: bytes) -> list[MultiResult]:
    """Results of a multi in the order of its operations."""

    def read(op_code: int, offset: int) -> tuple[MultiResult, int]:
        if op_code == OpCode.CREATE:
            path, offset = _read_string(body, offset)
            return MultiResult(failed=False, path=path), offset
        if op_code == OpCode.SET_DATA:
            return MultiResult(failed=False, stat=_read_stat(body, offset)), offset + _STAT.size
        if op_code == OpCode.ERROR:
            return MultiResult(failed=True, error=_INT.unpack_from(body, offset)[0]), offset + _INT.size
        return MultiResult(failed=False), offset

    return _decode_parts(body, read)


def decode_read_many(body: bytes, paths: Sequence[str]) -> Sequence[Znode | int]:
    """Znodes of a MultiRead of getData over `paths` (as they shall stand in the result), or the code of the failure."""
    return _decode_alike(body, paths) or _decode_each(body, paths)


def _decode_alike(body: bytes, paths: Sequence[str]) -> list[Znode]:
    """The same where all data are equally long, as states of partitions mostly are; empty where they are not.

    One call of C unpacks the whole reply.
    """
    record_size, rest = divmod(len(body) - _MULTI_HEADER.size, max(len(paths), 1))
    length = record_size - _HEADER_AND_LENGTH.size - _STAT.size
    if rest or length < 0 or not _MULTI_HEADER.unpack_from(body, record_size * len(paths))[1]:
        return []
    record = struct.Struct(f"{_HEADER_AND_LENGTH.format}{length}s{_STAT.format[1:]}")
    found = []
    for path, part in zip(paths, record.iter_unpack(memoryview(body)[: -_MULTI_HEADER.size]), strict=True):
        op_code, _, _, told, data, czxid, mzxid, version, owner, children, pzxid = part
        if op_code != OpCode.GET_DATA or told != length:
            return []
        found.append(Znode(path, data, Stat(czxid, mzxid, version, owner, children, pzxid)))
    return found


def _decode_each(body: bytes, paths: Sequence[str]) -> list[Znode | int]:
    parts: list[Znode | int] = []
    offset, last = 0, len(body) - _MULTI_HEADER.size
    try:
        while offset < last:
            op_code, done, _, number = _HEADER_AND_LENGTH.unpack_from(body, offset)
            if done:
                break
            if len(parts) == len(paths):
                raise WireError("a MultiRead answered more than was asked")
            offset += _HEADER_AND_LENGTH.size
            if op_code == OpCode.GET_DATA:
                end = offset + max(number, 0)
                stat = Stat(*_STAT.unpack_from(body, end))
                parts.append(Znode(paths[len(parts)], body[offset:end], stat))
                offset = end + _STAT.size
            else:
                parts.append(number)
        if not _MULTI_HEADER.unpack_from(body, offset)[1]:
            raise WireError("a multi reply without an end")
        if len(parts) != len(paths):
            raise WireError(f"a MultiRead answered {len(parts)} of {len(paths)} reads")
    except _MALFORMED as error:
        raise WireError(f"a multi reply that cannot be read: {error}") from error
    return parts


def decode_children_many(body: bytes, paths: Sequence[str]) -> Sequence[Children | int]:
    """Children of a MultiRead of getChildren over `paths`, or the code of the failure."""

    def read(op_code: int, offset: int) -> tuple[tuple[str, ...] | int, int]:
        if op_code != OpCode.GET_CHILDREN:
            return _INT.unpack_from(body, offset)[0], offset + _INT.size
        return _read_names(body, offset)

    found = _decode_parts(body, read)
    if len(found) != len(paths):
        raise WireError(f"{len(found)} results for {len(paths)} paths")
    return [part if isinstance(part, int) else Children(path, part) for path, part in zip(paths, found, strict=True)]


def decode_children(body: bytes) -> tuple[str, ...]:
    """Sorted names of a getChildren."""
    try:
        return _read_names(body, 0)[0]
    except _MALFORMED as error:
        raise WireError(f"a getChildren reply that cannot be read: {error}") from error


def decode_notice(body: bytes) -> tuple[int, str]:
    """What a watch saw (1 created, 2 deleted, 3 data changed, 4 children changed) and where."""
    try:
        event_type, _ = _INT_INT.unpack_from(body, 0)
        return event_type, _read_string(body, _INT_INT.size)[0]
    except _MALFORMED as error:
        raise WireError(f"a watch event that cannot be read: {error}") from error


def _decode_parts(body: bytes, read: Callable[[int, int], tuple[T, int]]) -> list[T]:
    parts: list[T] = []
    offset = 0
    try:
        while True:
            op_code, done, _ = _MULTI_HEADER.unpack_from(body, offset)
            if done:
                return parts
            part, offset = read(op_code, offset + _MULTI_HEADER.size)
            parts.append(part)
    except _MALFORMED as error:
        raise WireError(f"a multi reply that cannot be read: {error}") from error


def _read_names(body: bytes, offset: int) -> tuple[tuple[str, ...], int]:
    count = _INT.unpack_from(body, offset)[0]
    offset += _INT.size
    names: list[str] = []
    for _ in range(count):
        name, offset = _read_string(body, offset)
        names.append(name)
    return tuple(sorted(names)), offset


def _read_string(body: bytes, offset: int) -> tuple[str, int]:
    start = offset + _INT.size
    end = start + max(_INT.unpack_from(body, offset)[0], 0)
    if end > len(body):
        raise WireError("a reply that ends within a string")
    return body[start:end].decode(), end


def _read_stat(body: bytes, offset: int) -> Stat:
    return Stat(*_STAT.unpack_from(body, offset))
