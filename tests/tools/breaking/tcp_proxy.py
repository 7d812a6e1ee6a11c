"""A TCP proxy on 127.0.0.1 whose faults a test or a chaos run switches on and off. It knows nothing of what it carries.

One accepting thread, and one for each direction of each connection; all end with `close`. Works for any protocol over
TCP; `lose_next_reply` assumes only that a reply comes after what asked for it.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 64 * 1024
_CONNECT_TIMEOUT_S: Final = 5.0
_JOIN_TIMEOUT_S: Final = 5.0
_RESET: Final = b"\1\0\0\0\0\0\0\0"
"""SO_LINGER on with 0 s: close sends RST."""


class _Pair:
    """One connection through the proxy."""

    def __init__(self, client: socket.socket, server: socket.socket) -> None:
        self.client = client
        self.server = server
        self.forgotten = False
        """Nothing passes any more, either way."""
        self.reply_is_lost = False
        """A request has passed whose reply must not; whatever the server says next ends the connection."""
        self.ended = threading.Event()

    def end(self, *, reset: bool = False) -> None:
        """Close both sides; with `reset` the client sees a connection reset. Harmless twice."""
        self.ended.set()
        for side in (self.client, self.server):
            with contextlib.suppress(OSError):
                if reset:
                    side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                side.shutdown(socket.SHUT_RD if reset else socket.SHUT_RDWR)  # wakes the thread that reads from it
            side.close()


class TcpProxy:
    """Forwards connections to `target` until told otherwise; listens from the start. Thread-safe; a context manager.

    Faults hold for connections there are and for those to come, until `heal`; `reset_all` and `lose_next_reply` happen
    once.
    """

    def __init__(self, target: tuple[str, int], *, port: int = 0) -> None:
        self._target = target
        self._lock = threading.Condition()
        self._pairs: list[_Pair] = []
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._refusing = False
        self._holding_requests = False
        self._holding_replies = False
        self._delay_s = 0.0
        self._losing: list[Callable[[bytes], bool]] = []
        self._lost = 0
        self._listener = socket.create_server((_HOST, port))
        self._spawn(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    @property
    def connections(self) -> int:
        with self._lock:
            return len(self._pairs)

    @property
    def lost_replies(self) -> int:
        """How many replies `lose_next_reply` has swallowed so far."""
        with self._lock:
            return self._lost

    def black_hole(self) -> None:
        """Carry nothing either way, as a partition does: connections stay open and bytes wait until `heal`."""
        self._set(requests=True, replies=True)

    def black_hole_established(self) -> None:
        """Carry nothing over the connections there are now, as a firewall that has forgotten them; new ones work."""
        with self._lock:
            for pair in self._pairs:
                pair.forgotten = True

    def half_open(self) -> None:
        self._set(requests=False, replies=True)

    def refuse(self) -> None:
        """Reset every connection and every new one, as a host without that service does."""
        with self._lock:
            self._refusing = True
        self.reset_all()

    def delay(self, seconds: float) -> None:
        """Wait that long (0 or more) before each piece is passed on, both ways."""
        with self._lock:
            self._delay_s = seconds

    def lose_next_reply(self, matching: Callable[[bytes], bool] | None = None) -> None:
        """Let the next request pass, swallow what the server says next on that connection, and close it.

        `matching` says which piece of bytes from a client is meant (default: any). Meant for a connection on which
        nothing else is under way.
        """
        with self._lock:
            self._losing.append(matching or _any_request)

    def reset_all(self) -> None:
        """Reset the connections there are now; new ones are accepted."""
        with self._lock:
            for pair in self._pairs:
                pair.end(reset=True)
            self._lock.notify_all()

    def heal(self) -> None:
        """Forward as at first; what waited is passed on."""
        with self._lock:
            self._refusing = False
            self._delay_s = 0.0
            self._losing.clear()
            for pair in self._pairs:
                pair.forgotten = False
        self._set(requests=False, replies=False)

    def close(self) -> None:
        """End every connection and every thread. Harmless twice."""
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.reset_all()
        for thread in self._threads:
            thread.join(_JOIN_TIMEOUT_S)

    def _set(self, *, requests: bool, replies: bool) -> None:
        with self._lock:
            self._holding_requests, self._holding_replies = requests, replies
            self._lock.notify_all()

    def _spawn(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, name=f"tcp-proxy-{self._target[1]}", daemon=True)
        with self._lock:
            self._threads = [*(thread for thread in self._threads if thread.is_alive()), thread]
            thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(self._target, _CONNECT_TIMEOUT_S)
            except OSError:
                _Pair(client, client).end(reset=True)
                continue
            self._begin(_Pair(client, server))

    def _begin(self, pair: _Pair) -> None:
        for side in (pair.client, pair.server):
            side.settimeout(None)
            side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            unwanted = self._refusing or self._closed
            if not unwanted:
                self._pairs.append(pair)
        if unwanted:
            pair.end(reset=True)
            return
        self._spawn(lambda: self._pump(pair, requests=True))
        self._spawn(lambda: self._pump(pair, requests=False))

    def _pump(self, pair: _Pair, *, requests: bool) -> None:
        source, sink = (pair.client, pair.server) if requests else (pair.server, pair.client)
        with contextlib.suppress(OSError):
            while data := source.recv(_CHUNK):
                if not (self._may_pass(pair, requests=requests) and self._survives(pair, data, requests=requests)):
                    break
                sink.sendall(data)
            self._may_pass(pair, requests=requests)
        pair.end()
        with self._lock:
            if pair in self._pairs:
                self._pairs.remove(pair)

    def _may_pass(self, pair: _Pair, *, requests: bool) -> bool:
        """Wait as long as the faults of the moment want it; False where the connection has ended meanwhile."""

        def free() -> bool:
            holding = self._holding_requests if requests else self._holding_replies
            return pair.ended.is_set() or not (holding or pair.forgotten)

        with self._lock:
            self._lock.wait_for(free)
            delay_s = self._delay_s
        return not pair.ended.wait(delay_s) if delay_s else not pair.ended.is_set()

    def _survives(self, pair: _Pair, data: bytes, *, requests: bool) -> bool:
        with self._lock:
            if not requests:
                self._lost += pair.reply_is_lost
                return not pair.reply_is_lost
            if self._losing and self._losing[0](data):
                del self._losing[0]
                pair.reply_is_lost = True
            return True


def _any_request(_: bytes) -> bool:
    return True
