"""ZooKeeper's frames, headers and handshake. What stands in the frames of requests and replies: zk_records.

Pure: bytes in, bytes out. Records that kazoo has come from its public `kazoo.protocol.serialization`.
Source: zookeeper.jute and ZooDefs.OpCode of ZooKeeper 3.9.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final

import msgspec
from kazoo.protocol.serialization import Auth, Connect

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
