"""A TCP connection to one ZooKeeper server whose every wait is bounded and can be interrupted."""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
from typing import Final

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
