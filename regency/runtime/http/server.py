"""The standard library's HTTP for probes and scrapes, bounded: GET and HEAD of a few paths, one request per connection.

One thread accepts; each connection has one while it asks and is answered. There is room for `MOST_ASKING` that are not
being answered: one more closes the oldest of them, so that a client which asks at once is heard, however many say
nothing. A client that is slow to read keeps one of `MOST_AT_ONCE` places for some seconds. Probes have places of their
own, so neither keeps them waiting.
"""

from __future__ import annotations

import io
import logging
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from http.client import LineTooLong
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, unquote

import msgspec

from regency.runtime.grpc.servers import PortUnavailable
from regency.runtime.supervise import OnDeath, start_thread

logger = logging.getLogger(__name__)


class Request(msgspec.Struct, frozen=True):
    """The head of a request. Header names are in lower case."""

    method: str
    path: str
    query: dict[str, list[str]] = {}
    headers: dict[str, str] = {}


class Response(msgspec.Struct, frozen=True):
    """An answer. `headers` without those that every answer has."""

    status: int
    body: bytes
    headers: dict[str, str] = {}


def text(status: int, words: str) -> Response:
    """An answer for people."""
    return Response(status, f"{words}\n".encode(), {"Content-Type": "text/plain; charset=utf-8"})


def qualities(header: str) -> dict[str, float]:
    """The choices of an Accept or Accept-Encoding header with their weights, 0 to 1. What is malformed weighs 0."""
    found: dict[str, float] = {}
    for choice in header.split(","):
        name, *parameters = (part.strip() for part in choice.split(";"))
        quality = 1.0
        for parameter in parameters:
            key, _, number = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    quality = float(number)
                except ValueError:
                    quality = 0.0
        if name:
            found[name.lower()] = max(quality, found.get(name.lower(), 0.0))
    return found


Handler = Callable[[Request], Response]

MOST_ASKING = 64
MOST_AT_ONCE = 8
PROBES_AT_ONCE = 4
"""Beyond those: answers that are short and quickly made."""
HEAD_BYTES = 16_384
ASK_S = 5.0
"""A request that is not there this long after its connection is given up."""
READ_S = 30.0
"""An answer that is not taken within this time is given up."""
PLACE_S = 0.5
"""How long a request waits for a place: one that has just been answered may have its own for a moment more."""
BACKLOG = 128
NO_RESOURCES_S = 0.1
"""Between attempts to accept while no descriptor or thread is free: asking again at once would take a whole core."""
FAILURES_PER_LINE = 100


class HttpServer:
    """Serves `routes`, handlers by path; those in `probes` have places of their own.

    `port_key` is the setting to name where the port cannot be had. `ask_s`, `read_s`: seconds for a request to arrive,
    and for an answer to be taken.
    """

    def __init__(
        self,
        routes: Mapping[str, Handler],
        *,
        name: str,
        port_key: str,
        probes: Collection[str] = (),
        ask_s: float = ASK_S,
        read_s: float = READ_S,
    ) -> None:
        self.routes = dict(routes)
        self.ask_s = ask_s
        self.read_s = read_s
        self._name = name
        self._port_key = port_key
        places, probe_places = threading.Semaphore(MOST_AT_ONCE), threading.Semaphore(PROBES_AT_ONCE)
        self.places = {path: probe_places if path in probes else places for path in routes}
        self._socket: socket.socket | None = None
        self._asking: dict[socket.socket, None] = {}
        """Connections that are not being answered yet, oldest first."""
        self._lock = threading.Lock()
        self._stopping = False
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
        logger.info("serving HTTP on %s:%d: %s", host or "*", bound, " ".join(sorted(self.routes)))
        return bound

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where this host reaches the bound port: one of them answers."""
        assert self._socket is not None
        host = str(self._socket.getsockname()[0])
        return ("127.0.0.1", "::1") if host in ("0.0.0.0", "::") else (host,)  # noqa: S104 (nothing is bound here)

    def start(self, on_death: OnDeath) -> None:
        """Serve, on threads of its own."""
        assert self._socket is not None
        listening = self._socket
        start_thread(f"{self._name}-accept", lambda: self._accept(listening), on_death, ends=True)

    def stop(self) -> None:
        """Take no more requests, close the connections that have not asked, release the port. Harmless twice."""
        with self._lock:
            self._stopping = True
            for connection in self._asking:
                _hang_up(connection)
        if self._socket is not None:
            _hang_up(self._socket)  # wakes the thread that accepts
            self._socket.close()

    def has_asked(self, connection: socket.socket) -> None:
        """Count a connection no more among those that may be closed for others."""
        with self._lock:
            self._asking.pop(connection, None)

    def answer(self, request: Request) -> Response:
        """What the handler of the request's path says; its failure is status 500 and a line in the log."""
        try:
            return self.routes[request.path](request)
        except Exception as error:
            self._failures += 1
            if self._failures % FAILURES_PER_LINE == 1:
                logger.exception("HTTP: %s failed; %d such failures so far", request.path, self._failures)
            return text(500, f"{type(error).__name__}: {error}")

    def _accept(self, listening: socket.socket) -> None:
        short = False
        while not self._stopping:
            try:
                connection, _ = listening.accept()
            except OSError as error:
                short = self._wait_for_resources(error, said=short)
                continue
            self._admit(connection)
            try:
                threading.Thread(target=self._converse, args=(connection,), name=self._name, daemon=True).start()
                short = False
            except RuntimeError as error:  # the system has no thread left
                self.has_asked(connection)
                connection.close()
                short = self._wait_for_resources(error, said=short)

    def _wait_for_resources(self, error: Exception, *, said: bool) -> bool:
        if not self._stopping:
            if not said:
                logger.warning("HTTP: no connection can be accepted now: %s", error)
            time.sleep(NO_RESOURCES_S)
        return True

    def _admit(self, connection: socket.socket) -> None:
        with self._lock:
            if len(self._asking) >= MOST_ASKING:
                oldest = next(iter(self._asking))
                del self._asking[oldest]
                _hang_up(oldest)
            self._asking[connection] = None
            if self._stopping:
                _hang_up(connection)

    def _converse(self, connection: socket.socket) -> None:
        try:
            _Conversation(connection, self)
        except OSError as error:
            logger.debug("HTTP: a client went away: %s", error)
        finally:
            self.has_asked(connection)
            connection.close()


class _Conversation(BaseHTTPRequestHandler):
    """One connection: reads a request, answers it."""

    error_message_format = "%(message)s\n"
    error_content_type = "text/plain; charset=utf-8"
    server_version, sys_version = "regency", ""
    default_request_version = request_version = "HTTP/1.0"  # never 0.9, whose answers have no status
    command = requestline = ""

    def __init__(self, connection: socket.socket, server: HttpServer) -> None:
        self._http = server
        super().__init__(connection, None, server)  # type: ignore[arg-type]  # both are kept for subclasses only

    def setup(self) -> None:
        """Bound what the client may send."""
        super().setup()
        self.rfile = io.BufferedReader(_Head(self.connection, self._http.ask_s))

    def handle(self) -> None:
        """Serve one request."""
        try:
            self.handle_one_request()
        except LineTooLong:
            self.send_error(431, f"the head of the request is longer than {HEAD_BYTES} bytes")

    def do_GET(self) -> None:
        """Answer GET or HEAD of a route, where there is a place."""
        self.connection.settimeout(self._http.read_s)
        target, _, query = self.path.partition("?")
        path = unquote(target)
        try:
            headers = {name.lower(): ", ".join(self.headers.get_all(name, ())) for name in self.headers}
            request = Request(self.command, path, parse_qs(query, keep_blank_values=True, max_num_fields=1000), headers)
        except ValueError as error:
            self._send(text(400, f"the query cannot be read: {error}"))
            return
        place = self._http.places.get(path)
        if place is None:
            self._send(text(404, f"nothing here; there are {', '.join(sorted(self._http.routes))}"))
        elif not place.acquire(timeout=PLACE_S):
            self._send(text(503, "too many such requests are being served"))
        else:
            self._http.has_asked(self.connection)
            try:
                self._send(self._http.answer(request))
            finally:
                place.release()

    do_HEAD = do_GET  # noqa: N815  (the standard library's name)

    def log_message(self, format: str, *values: object) -> None:  # noqa: A002
        """Keep requests, and what is wrong with them, out of the log."""
        logger.debug("HTTP: " + format, *values)  # noqa: G003

    def _send(self, response: Response) -> None:
        self.send_response(response.status)
        for name, content in response.headers.items():
            self.send_header(name, content)
        self.send_header("Content-Length", str(len(response.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(response.body)
            except TimeoutError:
                # What it has not read is dropped with the connection, and does not stay in the system's memory.
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raise


class _Head(io.RawIOBase):
    """What a client sends: at most HEAD_BYTES, in so many seconds. Raises LineTooLong, and OSError for late or gone."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._deadline = time.monotonic() + seconds
        self._left = HEAD_BYTES

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """Receive what is there."""
        if not self._left:
            raise LineTooLong("head")
        self._connection.settimeout(max(0.001, self._deadline - time.monotonic()))
        received = self._connection.recv_into(buffer[: self._left])
        if not received:
            raise ConnectionAbortedError("the client left before it had asked")
        self._left -= received
        return received


def _hang_up(connection: socket.socket) -> None:
    """End a connection that another thread waits for, so that it stops waiting."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _listen(host: str, port: int) -> socket.socket:
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        return socket.create_server((str(address[0]), int(address[1])), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    return socket.create_server(("", port), backlog=BACKLOG)
