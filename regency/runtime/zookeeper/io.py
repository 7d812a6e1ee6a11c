"""The I/O thread of a session: finds a server, keeps one connection, moves bytes. What is sent `core` decides."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import random
import selectors
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from regency.model.clock import Clock
from regency.runtime.zookeeper.core import Attempt, Phase, SessionCore, Watch
from regency.runtime.zookeeper.hosts import ConnectString
from regency.runtime.zookeeper.link import Link
from regency.runtime.zookeeper.ops import below
from regency.runtime.zookeeper.session import WatchMode
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
    encode_set_watches2,
    request_frame,
)

logger = logging.getLogger(__name__)

_CHUNK: Final = 256 * 1024


class Waker:
    """Ends a wait of the I/O thread from another thread."""

    def __init__(self) -> None:
        self.receiver, self._sender = socket.socketpair()
        self.receiver.setblocking(False)
        self._sender.setblocking(False)

    def wake(self) -> None:
        """End the wait under way, or the next one. Never blocks; harmless after `close`."""
        with contextlib.suppress(OSError):
            self._sender.send(b"\0")

    def drain(self) -> None:
        """Forget the wakes so far."""
        with contextlib.suppress(OSError):
            while len(self.receiver.recv(4096)) == 4096:
                pass

    def close(self) -> None:
        """Release both ends."""
        self.receiver.close()
        self._sender.close()


class ZkSocket:
    """Raises OSError (TimeoutError included) where the connection cannot be made, breaks, or a wait takes too long."""

    def __init__(self, address: tuple[str, int], family: int, waker: Waker) -> None:
        self._waker = waker
        self._unsent = b""
        self._socket = socket.socket(family, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector = selectors.DefaultSelector()
        self._selector.register(waker.receiver, selectors.EVENT_READ)
        self._selector.register(self._socket, selectors.EVENT_WRITE)
        code = self._socket.connect_ex(address)
        if code not in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
            self.close()
            raise OSError(code, os.strerror(code))

    def established(self) -> bool:
        """Whether the connection is made; until it is, `wait` waits for that."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
        try:
            self._socket.getpeername()
        except OSError as error:
            if error.errno != errno.ENOTCONN:
                raise
            return False
        self._selector.modify(self._socket, selectors.EVENT_READ)
        return True

    def wait(self, timeout_s: float) -> None:
        """Until there is something to read, room for what is unsent, a wake, or time is up."""
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._waker.receiver:
                self._waker.drain()

    @property
    def has_unsent(self) -> bool:
        """Whether bytes wait for room in the socket; nothing else can be sent before."""
        return bool(self._unsent)

    def send(self, data: bytes = b"") -> None:
        """Send `data`, or what is left of the last; what finds no room waits."""
        had_unsent = self.has_unsent
        self._unsent = self._unsent + data if self._unsent else data
        with contextlib.suppress(BlockingIOError):
            while self._unsent:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
        if self.has_unsent != had_unsent:
            events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unsent else 0)
            self._selector.modify(self._socket, events)

    def receive(self) -> bytes | None:
        """What has arrived; None where nothing has. Raises ConnectionResetError where the server has closed."""
        try:
            data = self._socket.recv(_CHUNK)
        except BlockingIOError:
            return None
        if not data:
            raise ConnectionResetError(errno.ECONNRESET, "the server closed the connection")
        return data

    def close(self) -> None:
        """Release everything."""
        self._selector.close()
        self._socket.close()


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


_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_SHORTEST_ATTEMPT_MS: Final = 200
_SHORTEST_WAIT_MS: Final = 50
"""While the socket takes no more, a ping that is due cannot be sent, and there is nothing to hurry for."""

_SILENT_HALVINGS: Final = 2
"""A ZooKeeper that is just starting accepts connections that it never answers (in 24 of 60 restarts, with attempts
every millisecond): the first attempt may cost a quarter of what the session allows, not all of it."""

_Address = tuple[int, tuple[str, int]]


class IoThread:
    """Serves `core` until it is closed. Pauses after a session and between rounds over all servers: 50 ms to 1 s."""

    def __init__(
        self, name: str, target: ConnectString, core: SessionCore, waker: Waker, clock: Clock, credential: str
    ) -> None:
        self._target = target
        self._core = core
        self._waker = waker
        self._clock = clock
        self._credential = credential
        self._stopping = threading.Event()
        self._silent_attempts = 0
        self._order = random.SystemRandom()
        self._thread = threading.Thread(target=self._run, name=f"zk-io-{name}", daemon=True)

    def start(self) -> None:
        """Begin to connect."""
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End the thread and its connection now; waits at most `timeout_s`."""
        self._stopping.set()
        self._waker.wake()
        if self._thread.is_alive():
            self._thread.join(timeout_s)

    def _wanted(self) -> bool:
        return self._core.phase is not Phase.CLOSED and not self._stopping.is_set()

    def _wants(self, attempt: Attempt) -> bool:
        return self._core.wants(attempt) and not self._stopping.is_set()

    def _run(self) -> None:
        pause_s = _FIRST_PAUSE_S / 2
        while self._wanted():
            try:
                served = self._round()
            except Exception:  # whatever it is, a connection thread that ended would be worse than another attempt
                logger.exception("the ZooKeeper connection thread failed and goes on")
                served = False
            pause_s = _FIRST_PAUSE_S if served else min(pause_s * 2, _LONGEST_PAUSE_S)
            self._stopping.wait(pause_s)
        self._waker.close()

    def _round(self) -> bool:
        """Try every server once; whether one of them gave a session (which has ended again)."""
        addresses = self._addresses()
        for family, address in addresses:
            if not self._wanted():
                return False
            if self._serve(family, address, len(addresses)):
                return True
        return False

    def _addresses(self) -> list[_Address]:
        addresses: list[_Address] = []
        for host, port in self._target.servers:
            try:
                found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            except OSError as error:
                self._core.not_connected(f"{host}: {error.strerror or error}")
                continue
            addresses.extend((int(entry[0]), (str(entry[4][0]), port)) for entry in found)
        self._order.shuffle(addresses)
        return addresses

    def _serve(self, family: int, address: tuple[str, int], candidates: int) -> bool:
        where = f"{address[0]}:{address[1]}"
        attempt = self._core.attempt()
        connection: ZkSocket | None = None
        try:
            connection = ZkSocket(address, family, self._waker)
            link = self._open(connection, attempt, candidates)
            if link:
                self._pump(connection, link, where)
        except SessionExpired:
            self._core.refused(attempt, f"{where} says that it has expired")
        except CredentialsRefused:
            self._core.not_connected(f"ZooKeeper at {where} refused our credentials.", auth=True)
        except (OSError, WireError) as error:
            self._silent_attempts += isinstance(error, TimeoutError)
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._core.not_connected(f"{where}: {reason or 'timed out'}")
        except Interrupted:
            pass
        else:
            return link is not None
        finally:
            if connection:
                connection.close()
        return False

    def _open(self, connection: ZkSocket, attempt: Attempt, candidates: int) -> Link | None:
        share_ms = self._core.timeout_ms // max(candidates, 1) >> max(_SILENT_HALVINGS - self._silent_attempts, 0)
        deadline_ms = self._clock.monotonic_ms() + max(share_ms, _SHORTEST_ATTEMPT_MS)
        reader = FrameReader()
        handshake = Handshake(connection, reader, self._clock, deadline_ms, lambda: self._wants(attempt))
        handshake.establish()
        asked_ms = self._clock.monotonic_ms()
        reply = handshake.connect(
            attempt.session_id, attempt.password, self._core.requested_timeout_ms, attempt.last_zxid
        )
        if self._credential:
            handshake.authenticate(self._credential)
        handshake.arm(attempt.watches, self._target.chroot, attempt.last_zxid)
        self._silent_attempts = 0
        link = self._core.connected(attempt, reply, asked_ms, reader)
        if link is None:
            connection.send(request_frame(1, OpCode.CLOSE, b""))
        return link

    def _pump(self, connection: ZkSocket, link: Link, where: str) -> None:
        """Move bytes until the connection ends or is given up."""
        try:
            while not self._stopping.is_set():
                while data := connection.receive():
                    self._core.incoming(link, data)
                if connection.has_unsent:
                    connection.send()
                while not connection.has_unsent:
                    outgoing = self._core.outgoing(link)
                    if outgoing is None:
                        return
                    if not outgoing:
                        break
                    connection.send(outgoing)
                idle_ms = self._core.idle_ms(link)
                if idle_ms is None:
                    raise TimeoutError("it has gone silent")
                connection.wait(max(idle_ms, _SHORTEST_WAIT_MS if connection.has_unsent else 0) / 1000)
        except (OSError, WireError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            self._core.disconnected(link, f"{where}: {reason}")
        finally:
            self._core.disconnected(link, f"{where}: closed")
