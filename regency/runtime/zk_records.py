"""Bodies of ZooKeeper's requests and replies, also those that kazoo has not: MultiRead, addWatch, setWatches2.

Pure: bytes in, bytes out; paths are whole (with the chroot). Decoders raise WireError on what the protocol forbids.
Source: zookeeper.jute, MultiOperationRecord, MultiResponse and WatcherEvent of ZooKeeper 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec
from kazoo.protocol.serialization import CheckVersion, Create, Delete, SetData
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from regency.runtime import zk_session as port
from regency.runtime.zk_session import Stat, Znode
from regency.runtime.zk_wire import OpCode, WireError

_INT: Final = struct.Struct("!i")
_INT_INT: Final = struct.Struct("!ii")
_LONG: Final = struct.Struct("!q")
_MULTI_HEADER: Final = struct.Struct("!iBi")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, 1, -1)
_STAT: Final = struct.Struct("!qqqqiiiqiiq")
_WATCHER_TYPE_ANY: Final = 3
_MALFORMED: Final = (struct.error, UnicodeDecodeError, IndexError)

T = TypeVar("T")


class MultiResult(msgspec.Struct, frozen=True, gc=False):
    """One operation's part of a reply to a multi. `error` is a KeeperException code, 0 for done and for rolled back."""

    failed: bool
    error: int = 0
    path: str = ""
    stat: Stat | None = None


class WatchNotice(msgspec.Struct, frozen=True):
    """A watch fired: type 1 created, 2 deleted, 3 data changed, 4 children changed."""

    type: int
    path: str


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
    header = _MULTI_HEADER.pack(op_code, 0, -1)
    return b"".join(header + encode_path(path) + b"\0" for path in paths) + _MULTI_END


def encode_op(op: port.Op, path: str, *, restrict: bool) -> bytes:
    """One operation of a multi at the whole `path`.

    `restrict`: what is created is everybody's to read and only our credential's to change.
    """
    match op:
        case port.Create():
            acl = READ_ACL_UNSAFE + CREATOR_ALL_ACL if restrict else OPEN_ACL_UNSAFE
            record = Create(path, op.data, acl, int(op.ephemeral) | int(op.sequential) << 1)
        case port.SetData():
            record = SetData(path, op.data, op.version)
        case port.Delete():
            record = Delete(path, -1 if op.version is None else op.version)
        case port.Check():
            record = CheckVersion(path, -1 if op.version is None else op.version)
    return _MULTI_HEADER.pack(record.type, 0, -1) + bytes(record.serialize())


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


def decode_read_many(body: bytes, paths: Sequence[str]) -> list[Znode | int]:
    """Znodes of a MultiRead of getData over `paths` (as they shall stand in the result), or the code of the failure."""
    position = iter(paths)

    def read(op_code: int, offset: int) -> tuple[Znode | int, int]:
        path = next(position, None)
        if path is None:
            raise WireError("a MultiRead answered more than was asked")
        if op_code != OpCode.GET_DATA:
            return _INT.unpack_from(body, offset)[0], offset + _INT.size
        start = offset + _INT.size
        end = start + max(_INT.unpack_from(body, offset)[0], 0)
        return Znode(path, body[start:end], _read_stat(body, end)), end + _STAT.size

    return _decode_parts(body, read)


def decode_children_many(body: bytes) -> list[tuple[str, ...] | int]:
    """Sorted names of a MultiRead of getChildren, or the code of the failure."""

    def read(op_code: int, offset: int) -> tuple[tuple[str, ...] | int, int]:
        if op_code != OpCode.GET_CHILDREN:
            return _INT.unpack_from(body, offset)[0], offset + _INT.size
        return _read_names(body, offset)

    return _decode_parts(body, read)


def decode_children(body: bytes) -> tuple[str, ...]:
    """Sorted names of a getChildren."""
    try:
        return _read_names(body, 0)[0]
    except _MALFORMED as error:
        raise WireError(f"a getChildren reply that cannot be read: {error}") from error


def decode_notice(body: bytes) -> WatchNotice:
    """What a watch saw."""
    try:
        event_type, _ = _INT_INT.unpack_from(body, 0)
        return WatchNotice(event_type, _read_string(body, _INT_INT.size)[0])
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
    czxid, mzxid, _, _, version, _, _, owner, _, num_children, pzxid = _STAT.unpack_from(body, offset)
    return Stat(czxid, mzxid, version, owner, num_children, pzxid)
