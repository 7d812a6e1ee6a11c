"""A small HTTP server for probes and scrapes: GET and HEAD of a few paths, one request per connection, all bounded.

It has threads of its own, so that nothing else waits for it: one accepts, and each request has one while it is served.
A client that is slow to ask or to read costs one of `MOST_AT_ONCE` places for some seconds and nothing more.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping

from regency.runtime.grpc_servers import PortUnavailable
from regency.runtime.http.messages import BadRequest, Request, Response, encode, parse_head, text
from regency.runtime.supervise import OnDeath, start_thread

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Response]

MOST_AT_ONCE = 8
HEAD_BYTES = 16_384
ASK_S = 5.0
"""A request that is not there this long after its connection is given up."""
READ_S = 30.0
"""An answer that is not taken within this time is given up."""
LINGER_S = 1.0
"""How long to wait after an answer for the client to close; closing first could destroy what it has not read."""
BACKLOG = 32
FAILURES_PER_LINE = 100


class HttpServer:
    """Serves `routes`, handlers by path. `port_key` is the setting to name where the port cannot be had."""

    def __init__(
        self, routes: Mapping[str, Handler], *, name: str, port_key: str, ask_s: float = ASK_S, read_s: float = READ_S
    ) -> None:
        self._routes = dict(routes)
        self._name = name
        self._port_key = port_key
        self._ask_s = ask_s
        self._read_s = read_s
        self._places = threading.BoundedSemaphore(MOST_AT_ONCE)
        self._socket: socket.socket | None = None
        self._stopping = threading.Event()
        self._failures = 0

    def bind(self, host: str, port: int) -> int:
        """Take a port (0: any free one; host "": every interface) and tell which. Raises PortUnavailable."""
        try:
            self._socket = _listen(host, port)
        except OSError as error:
            raise PortUnavailable(
                f"Cannot serve HTTP on {host or '*'}:{port}: {os.strerror(error.errno) if error.errno else error}.",
                hint=f"Stop the process that has this port, set {self._port_key} to another one, or to -1 for none.",
            ) from error
        bound: int = self._socket.getsockname()[1]
        logger.info("serving HTTP on %s:%d: %s", host or "*", bound, " ".join(sorted(self._routes)))
        return bound

    def start(self, on_death: OnDeath) -> None:
        """Serve, on threads of its own."""
        start_thread(f"{self._name}-accept", self._accept, on_death, ends=True)

    def stop(self) -> None:
        """Take no more requests and release the port. Harmless twice."""
        self._stopping.set()
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread in accept
            except OSError:
                pass
            self._socket.close()

    def _accept(self) -> None:
        assert self._socket is not None
        while not self._stopping.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError as error:
                if self._stopping.is_set():
                    return
                logger.warning("HTTP: a connection was not accepted: %s", error)
                time.sleep(0.1)  # no descriptor is free: asking again at once would take a whole core
                continue
            if not self._places.acquire(blocking=False):
                _refuse(connection)
                continue
            threading.Thread(target=self._serve, args=(connection,), name=self._name, daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        try:
            with connection:
                request, response = self._answer(connection)
                if response is not None:
                    self._send(connection, encode(response, body=request is None or request.method != "HEAD"))
                    _linger(connection)
        except OSError as error:
            logger.debug("HTTP: a client went away: %s", error)
        finally:
            self._places.release()

    def _send(self, connection: socket.socket, data: bytes) -> None:
        connection.settimeout(self._read_s)
        try:
            connection.sendall(data)
        except TimeoutError:
            # What it has not read is dropped with the connection, and does not stay in the system's memory.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise

    def _answer(self, connection: socket.socket) -> tuple[Request | None, Response | None]:
        """What was asked and what to answer; both None where the client closed without asking."""
        try:
            head = _read_head(connection, time.monotonic() + self._ask_s)
            if head is None:
                return None, None
            request = parse_head(head)
        except TimeoutError:
            return None, text(408, f"no request came within {self._ask_s:g} s")
        except BadRequest as error:
            return None, text(400, f"not understood: {error}")
        except OverflowError:
            return None, text(431, f"the head of the request is longer than {HEAD_BYTES} bytes")
        handler = self._routes.get(request.path)
        if handler is None:
            return request, text(404, f"nothing here; there are {', '.join(sorted(self._routes))}")
        if request.method not in ("GET", "HEAD"):
            return request, text(405, "only GET and HEAD", {"Allow": "GET, HEAD"})
        try:
            return request, handler(request)
        except Exception as error:
            self._failures += 1
            if self._failures % FAILURES_PER_LINE == 1:
                logger.exception("HTTP: %s failed; %d such failures so far", request.path, self._failures)
            return request, text(500, f"{type(error).__name__}: {error}")


def _listen(host: str, port: int) -> socket.socket:
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        return socket.create_server((str(address[0]), int(address[1])), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    return socket.create_server(("", port), backlog=BACKLOG)


def _read_head(connection: socket.socket, deadline: float) -> bytes | None:
    """Everything before the empty line; None at the end of the stream. Raises TimeoutError, OverflowError, OSError."""
    head = bytearray()
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
        data = connection.recv(HEAD_BYTES)
        if not data:
            return None
        head += data
        end = head.find(b"\r\n\r\n")
        if end > HEAD_BYTES or (end < 0 and len(head) > HEAD_BYTES):
            raise OverflowError
        if end >= 0:
            return bytes(head[:end])


def _linger(connection: socket.socket) -> None:
    connection.shutdown(socket.SHUT_WR)
    deadline = time.monotonic() + LINGER_S
    while (left := deadline - time.monotonic()) > 0:
        connection.settimeout(left)
        if not connection.recv(HEAD_BYTES):
            return


def _refuse(connection: socket.socket) -> None:
    """Too many at once: say so without waiting for anything."""
    try:
        with connection:
            connection.setblocking(False)
            connection.send(encode(text(503, f"{MOST_AT_ONCE} requests are being served"), body=True))
    except OSError:
        pass  # it learns of it by the closing
