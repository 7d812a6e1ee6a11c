"""Where connections wait that have not asked yet, or have their answer and are not closed yet. They cost no thread.

One thread accepts them and reads what they ask. There is room for `MOST_WAITING`; one more sends the one that has
waited longest away, so whoever asks at once is heard, however many say nothing.
"""

from __future__ import annotations

import logging
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from regency.runtime.http.messages import Response, encode, text

logger = logging.getLogger(__name__)

MOST_WAITING = 64
HEAD_BYTES = 16_384
LINGER_S = 1.0
"""How long to wait after an answer for the client to close; closing first could destroy what it has not read."""
NO_DESCRIPTOR_S = 0.1
"""Between attempts to accept while no descriptor is free: asking again at once would take a whole core."""
END_OF_HEAD = b"\r\n\r\n"


class Guest:
    """One connection in the lobby. `head` is what it has asked so far; None once it has its answer."""

    def __init__(self, connection: socket.socket, deadline: float, head: bytearray | None) -> None:
        self.connection = connection
        self.deadline = deadline
        self.head = head


class Lobby:
    """Accepts on `listening` and gives each request's head to `asked`, on the thread that calls `run`.

    `asked(connection, head)` owns the connection from then on; `see_out` takes it back. `ask_s`: seconds that a
    client has for its request.
    """

    def __init__(
        self, listening: socket.socket, asked: Callable[[socket.socket, bytes], None], *, ask_s: float
    ) -> None:
        self._listening = listening
        self._asked = asked
        self._ask_s = ask_s
        self._selector = selectors.DefaultSelector()
        self._guests: dict[socket.socket, Guest] = {}
        """By arrival, oldest first."""
        self._leaving: deque[socket.socket] = deque()
        self._wake, self._bell = socket.socketpair()
        self._is_accepting = True
        self._stopping = False
        self._over = False
        for end in (listening, self._wake, self._bell):
            end.setblocking(False)
        for end in (listening, self._wake):  # here, since a server that stops at once closes `listening` before `run`
            self._selector.register(end, selectors.EVENT_READ)

    def run(self) -> None:
        """Serve until `stop`."""
        while not self._stopping:
            for key, _ in self._selector.select(self._until_due()):
                if key.fileobj is self._listening:
                    self._accept()
                elif key.fileobj is self._wake:
                    self._take_back()
                elif (guest := self._guests.get(key.fileobj)) is not None:  # type: ignore[call-overload]
                    self._read(guest)
            self._give_up_overdue()
        self._over = True
        for guest in list(self._guests.values()):
            self._dismiss(guest)
        self._close_leaving()
        self._selector.close()
        for end in (self._listening, self._wake, self._bell):
            end.close()

    def see_out(self, connection: socket.socket) -> None:
        """Close a connection once its client has, or a second from now. From any thread, after its answer."""
        self._leaving.append(connection)
        if self._over:
            self._close_leaving()
        self._ring()

    def refuse(self, connection: socket.socket, response: Response, *, body: bool = True) -> None:
        """Answer what is short without waiting, then see the connection out."""
        with suppress(OSError):  # who does not take it learns of it by the closing
            connection.setblocking(False)
            connection.send(encode(response, body=body))
        self.see_out(connection)

    def stop(self) -> None:
        """Have `run` close everything and return. Harmless twice, from any thread."""
        self._stopping = True
        self._ring()

    def _close_leaving(self) -> None:
        with suppress(IndexError):  # another thread may take them, too
            while True:
                self._leaving.popleft().close()

    def _ring(self) -> None:
        with suppress(OSError):  # the bell rings already, or nobody is there any more
            self._bell.send(b"!")

    def _until_due(self) -> float | None:
        deadlines = [guest.deadline for guest in self._guests.values()]
        return max(0.0, min(deadlines) - time.monotonic()) if deadlines else None

    def _accept(self) -> None:
        for _ in range(MOST_WAITING):
            try:
                connection, _ = self._listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                if self._is_accepting and not self._stopping:
                    logger.warning("HTTP: no connection can be accepted now: %s", error)
                self._is_accepting = False
                time.sleep(NO_DESCRIPTOR_S)
                return
            self._is_accepting = True
            self._read(self._admit(connection, self._ask_s, bytearray()))

    def _take_back(self) -> None:
        with suppress(BlockingIOError):
            self._wake.recv(4096)
        while self._leaving:
            connection = self._leaving.popleft()
            try:
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                connection.close()
            else:
                self._admit(connection, LINGER_S, None)

    def _admit(self, connection: socket.socket, seconds: float, head: bytearray | None) -> Guest:
        while len(self._guests) >= MOST_WAITING:
            oldest = next(iter(self._guests.values()))
            self._send_away(oldest, text(503, f"more than {MOST_WAITING} connections wait, this one longest"))
        connection.setblocking(False)
        guest = Guest(connection, time.monotonic() + seconds, head)
        self._guests[connection] = guest
        self._selector.register(connection, selectors.EVENT_READ)
        return guest

    def _read(self, guest: Guest) -> None:
        try:
            data = guest.connection.recv(HEAD_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            logger.debug("HTTP: a client went away: %s", error)
            data = b""
        if not data:
            self._dismiss(guest)
        elif guest.head is not None:
            guest.head += data
            self._look(guest, guest.head)

    def _look(self, guest: Guest, head: bytearray) -> None:
        end = head.find(END_OF_HEAD)
        if end > HEAD_BYTES or (end < 0 and len(head) > HEAD_BYTES):
            self._leave(guest)
            self.refuse(guest.connection, text(431, f"the head of the request is longer than {HEAD_BYTES} bytes"))
        elif end >= 0:
            self._leave(guest)
            self._asked(guest.connection, bytes(head[:end]))

    def _give_up_overdue(self) -> None:
        now = time.monotonic()
        for guest in [guest for guest in self._guests.values() if guest.deadline <= now]:
            self._send_away(guest, text(408, f"no request came within {self._ask_s:g} s"))

    def _send_away(self, guest: Guest, response: Response) -> None:
        if guest.head is not None:
            with suppress(OSError):
                guest.connection.send(encode(response, body=True))
        self._dismiss(guest)

    def _dismiss(self, guest: Guest) -> None:
        self._leave(guest)
        guest.connection.close()

    def _leave(self, guest: Guest) -> None:
        self._selector.unregister(guest.connection)
        del self._guests[guest.connection]
