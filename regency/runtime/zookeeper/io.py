"""The I/O thread of a session: finds a server, keeps one connection, moves bytes. What is sent `core` decides."""

from __future__ import annotations

import logging
import random
import socket
import threading
from typing import Final

from regency.model.clock import Clock
from regency.runtime.zookeeper.core import Attempt, Phase, SessionCore
from regency.runtime.zookeeper.handshake import CredentialsRefused, Handshake, Interrupted, SessionExpired
from regency.runtime.zookeeper.hosts import ConnectString
from regency.runtime.zookeeper.link import Link
from regency.runtime.zookeeper.tcp import Waker, ZkSocket
from regency.runtime.zookeeper.wire import FrameReader, OpCode, WireError, request_frame

logger = logging.getLogger(__name__)

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
        self,
        name: str,
        target: ConnectString,
        core: SessionCore,
        waker: Waker,
        clock: Clock,
        credential: str,
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
