"""A small HTTP server for probes and scrapes: GET and HEAD of a few paths, one request per connection, all bounded.

It has threads of its own, so that nothing else waits for it: one accepts and reads what is asked (`lobby`), and each
request has one while it is answered. A client that is slow to ask costs no thread; one that is slow to read costs one
of `MOST_AT_ONCE` places for some seconds. Probes have places of their own, so neither keeps them waiting.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
import threading
from collections.abc import Callable, Collection, Mapping

from regency.runtime.grpc.servers import PortUnavailable
from regency.runtime.http.lobby import Lobby
from regency.runtime.http.messages import BadRequest, Request, Response, encode, parse_head, text
from regency.runtime.supervise import OnDeath, start_thread

logger = logging.getLogger(__name__)

Handler = Callable[[Request], Response]

MOST_AT_ONCE = 8
PROBES_AT_ONCE = 4
"""Beyond those: answers that are short and quickly made."""
ASK_S = 5.0
"""A request that is not there this long after its connection is given up."""
READ_S = 30.0
"""An answer that is not taken within this time is given up."""
BACKLOG = 128
FAILURES_PER_LINE = 100


class HttpServer:
    """Serves `routes`, handlers by path; those in `probes` have places of their own.

    `port_key` is the setting to name where the port cannot be had.
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
        self._routes = dict(routes)
        self._name = name
        self._port_key = port_key
        self._ask_s = ask_s
        self._read_s = read_s
        places, probe_places = threading.Semaphore(MOST_AT_ONCE), threading.Semaphore(PROBES_AT_ONCE)
        self._places = {path: probe_places if path in probes else places for path in routes}
        self._socket: socket.socket | None = None
        self._lobby: Lobby | None = None
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

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where this host reaches the bound port: one of them answers."""
        assert self._socket is not None
        host = str(self._socket.getsockname()[0])
        return ("127.0.0.1", "::1") if host in ("0.0.0.0", "::") else (host,)  # noqa: S104 (nothing is bound here)

    def start(self, on_death: OnDeath) -> None:
        """Serve, on threads of its own."""
        assert self._socket is not None
        self._lobby = Lobby(self._socket, self._asked, ask_s=self._ask_s)
        start_thread(f"{self._name}-accept", self._lobby.run, on_death, ends=True)

    def stop(self) -> None:
        """Take no more requests and release the port. Harmless twice."""
        if self._lobby is not None:
            self._lobby.stop()
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            self._socket.close()

    def _asked(self, connection: socket.socket, head: bytes) -> None:
        """Answer what is known at once, on the lobby's thread; the rest has a thread, if there is a place."""
        assert self._lobby is not None
        try:
            request = parse_head(head)
        except BadRequest as error:
            self._lobby.refuse(connection, text(400, f"not understood: {error}"))
            return
        refusal = self._refusal(request)
        if refusal is not None:
            self._lobby.refuse(connection, refusal, body=request.method != "HEAD")
            return
        try:
            threading.Thread(target=self._serve, args=(connection, request), name=self._name, daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            self._places[request.path].release()
            self._lobby.refuse(connection, text(503, str(error)))

    def _refusal(self, request: Request) -> Response | None:
        """Why a request is not served; None: it is, and has a place."""
        if request.path not in self._routes:
            return text(404, f"nothing here; there are {', '.join(sorted(self._routes))}")
        if request.method not in ("GET", "HEAD"):
            return text(405, "only GET and HEAD", {"Allow": "GET, HEAD"})
        if not self._places[request.path].acquire(blocking=False):
            return text(503, "too many such requests are being served")
        return None

    def _serve(self, connection: socket.socket, request: Request) -> None:
        assert self._lobby is not None
        try:
            self._send(connection, encode(self._answer(request), body=request.method != "HEAD"))
        except OSError as error:
            logger.debug("HTTP: a client went away: %s", error)
            connection.close()
        else:
            self._lobby.see_out(connection)
        finally:
            self._places[request.path].release()

    def _send(self, connection: socket.socket, data: bytes) -> None:
        connection.settimeout(self._read_s)
        try:
            connection.sendall(data)
        except TimeoutError:
            # What it has not read is dropped with the connection, and does not stay in the system's memory.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise

    def _answer(self, request: Request) -> Response:
        try:
            return self._routes[request.path](request)
        except Exception as error:
            self._failures += 1
            if self._failures % FAILURES_PER_LINE == 1:
                logger.exception("HTTP: %s failed; %d such failures so far", request.path, self._failures)
            return text(500, f"{type(error).__name__}: {error}")


def _listen(host: str, port: int) -> socket.socket:
    if host:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        family, *_, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        return socket.create_server((str(address[0]), int(address[1])), family=family, backlog=BACKLOG)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=BACKLOG)
    return socket.create_server(("", port), backlog=BACKLOG)
