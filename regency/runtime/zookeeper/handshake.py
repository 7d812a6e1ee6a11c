"""From an open connection to a session on it: Connect, credentials, and all watches armed before anybody may ask."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from regency.model.clock import Clock
from regency.runtime.zookeeper.ops import below
from regency.runtime.zookeeper.records import encode_set_watches2
from regency.runtime.zookeeper.session import WatchMode
from regency.runtime.zookeeper.tcp import ZkSocket
from regency.runtime.zookeeper.watches import Watch
from regency.runtime.zookeeper.wire import (
    ConnectReply,
    FrameReader,
    OpCode,
    Reply,
    WireError,
    Xid,
    decode_connect,
    decode_reply,
    encode_auth,
    encode_connect,
    request_frame,
)

_ARM_BYTES: Final = 128 * 1024
_ARM_XID: Final = -8


class SessionExpired(Exception):
    """The server knows the session no more."""


class CredentialsRefused(Exception):
    """The server refuses the credentials, or wants some."""


class Interrupted(Exception):
    """The connection is not wanted any more."""


class Handshake:
    """One attempt on one connection. Raises OSError, WireError and the above; waits until `deadline_ms` at most."""

    def __init__(
        self, connection: ZkSocket, reader: FrameReader, clock: Clock, deadline_ms: int, wanted: Callable[[], bool]
    ) -> None:
        self._connection = connection
        self._reader = reader
        self._clock = clock
        self._deadline_ms = deadline_ms
        self._wanted = wanted
        self._frames: deque[bytes] = deque()

    def establish(self) -> None:
        """Wait until the connection is made."""
        while not self._connection.established():
            self._wait()

    def connect(self, session_id: int, password: bytes, timeout_ms: int, last_zxid: int) -> ConnectReply:
        """Ask for a session (a new one where `session_id` is 0). Raises SessionExpired."""
        self._send(encode_connect(session_id, password, timeout_ms, last_zxid))
        reply = decode_connect(self._next_frame())
        if reply.timeout_ms <= 0:
            raise SessionExpired
        return reply

    def authenticate(self, credential: str) -> None:
        """Present `user:password`. Raises CredentialsRefused."""
        self._send(encode_auth(credential))
        if self._reply_to(Xid.AUTH).error:
            raise CredentialsRefused

    def arm(self, watches: Sequence[Watch], chroot: str, last_zxid: int) -> None:
        """Arm `watches` on this connection. What fires meanwhile is not told: everybody is about to look again."""
        chunk: list[Watch] = []
        size = 0
        for watch in (*watches, None):
            if chunk and (watch is None or size > _ARM_BYTES):
                self._arm_chunk(chunk, chroot, last_zxid)
                chunk, size = [], 0
            if watch:
                chunk.append(watch)
                size += len(chroot) + len(watch.path) + 4

    def _arm_chunk(self, watches: Sequence[Watch], chroot: str, last_zxid: int) -> None:
        plain = [below(chroot, watch.path) for watch in watches if watch.mode is WatchMode.PERSISTENT]
        recursive = [below(chroot, watch.path) for watch in watches if watch.mode is WatchMode.PERSISTENT_RECURSIVE]
        self._send(request_frame(_ARM_XID, OpCode.SET_WATCHES2, encode_set_watches2(last_zxid, plain, recursive)))
        reply = self._reply_to(_ARM_XID)
        if reply.error:
            raise WireError(f"setWatches2 failed with error {reply.error}; ZooKeeper 3.6 or later is needed")

    def _reply_to(self, xid: int) -> Reply:
        while True:
            reply = decode_reply(self._next_frame())
            if reply.xid == xid:
                return reply
            if reply.xid != Xid.WATCH:
                raise WireError(f"a reply to request {reply.xid} while {xid} was due")

    def _send(self, data: bytes) -> None:
        self._connection.send(data)
        while self._connection.has_unsent:
            self._wait()
            self._connection.send()

    def _next_frame(self) -> bytes:
        while not self._frames:
            data = self._connection.receive()
            if data:
                self._frames.extend(self._reader.feed(data))
            else:
                self._wait()
        return self._frames.popleft()

    def _wait(self) -> None:
        if not self._wanted():
            raise Interrupted
        left_ms = self._deadline_ms - self._clock.monotonic_ms()
        if left_ms <= 0:
            raise TimeoutError("no answer in time")
        self._connection.wait(left_ms / 1000)
