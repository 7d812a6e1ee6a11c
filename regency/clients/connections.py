"""Connections to the brokers of one cluster: one per broker, and questions that any broker may answer.

For one thread at a time, but for what `peer` gives (one thread per broker) and for `close` (any thread).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

from regency.clients.cluster_metadata import METADATA_VERSION, ClusterMetadata, metadata_reply, metadata_request
from regency.clients.errors import ClusterUnavailable
from regency.clients.nodes import Node
from regency.clients.settings import ClientSettings
from regency.kafka.codec import Message
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.clock import Clock, SystemClock

FIRST_PATIENCE_MS: Final = 2_000
"""How long a broker may take when all are asked for the first time; twice as long with each round. A paused broker
takes connections, but never answers: it must not use up the whole time."""
TOLD_AFTER_MS: Final = 5_000
"""How long no broker may answer until the caller hears of it."""

Address = tuple[str, int]


class Connections:
    """Connects when asked. Every wait ends with `close`."""

    def __init__(
        self,
        settings: ClientSettings,
        *,
        clock: Clock = SystemClock(),  # noqa: B008 - has no state
        sleep: Callable[[float], object] | None = None,
        on_silence: Callable[[ClusterUnavailable], object] | None = None,
    ) -> None:
        """`on_silence` is called, once for each question, when no broker has answered it for TOLD_AFTER_MS."""
        self._settings = settings
        self._on_silence = on_silence
        self._clock = clock
        self._ended = threading.Event()
        self._sleep = self._ended.wait if sleep is None else sleep
        self._lock = threading.Lock()
        self._peers: dict[Address, PeerConnection] = {}
        self._order: list[Address] = list(settings.bootstrap_servers)
        """Whom to ask what any broker knows: first who answered last."""

    @property
    def now_ms(self) -> int:
        """Monotonic time, for deadlines."""
        return self._clock.monotonic_ms()

    @property
    def closed(self) -> bool:
        """Whether it was closed, by any thread."""
        return self._ended.is_set()

    def close(self) -> None:
        """Close all connections; callers that wait for an answer or in `back_off` go on at once."""
        self._ended.set()
        with self._lock:
            peers = list(self._peers.values())
        for peer in peers:
            peer.close()

    def back_off(self, failures: int, deadline_ms: int) -> bool:
        """Wait after so many failures in a row (1 or more), not beyond the deadline. Whether time is left then."""
        longest = self._settings.retry_backoff_max_ms
        wait = min(longest, self._settings.retry_backoff_ms << min(failures - 1, 16), deadline_ms - self.now_ms)
        if wait > 0:
            self._sleep(wait / 1000)
        return self.now_ms < deadline_ms and not self.closed

    def peer(self, node: Node) -> PeerConnection:
        """The connection to a broker."""
        return self._at((node.host, node.port))

    def metadata(self, names: Collection[str] | None, deadline_ms: int, *, turn: bool = False) -> ClusterMetadata:
        """What one broker knows of these topics, or of all; with `turn` another than last time where there is one.

        Raises ClusterUnavailable when none answers by the deadline.
        """
        if turn:
            self._order.append(self._order.pop(0))
        found = metadata_reply(self._ask_any(metadata_request(names), METADATA_VERSION, deadline_ms))
        asked = self._order[0]
        known = [(node.host, node.port) for node in found.brokers.values()]
        after = known.index(asked) + 1 if asked in known else 0
        self._order = list(dict.fromkeys([asked, *known[after:], *known[:after], *self._order]))
        return found

    def ask_once(self, message: Message, version: int) -> Message:
        """The answer of any broker, each asked once and shortly: for what one can do without.

        Raises ClusterUnavailable.
        """
        failures: dict[Address, str] = {}
        timeout = min(FIRST_PATIENCE_MS, self._settings.request_timeout_ms)
        for address in list(self._order):
            if self.closed:
                break
            answer = self._ask(address, message, version, timeout, failures)
            if answer is not None:
                return answer
        raise self._unavailable(failures)

    def _ask_any(self, message: Message, version: int, deadline_ms: int) -> Message:
        """The answer of the first that gives one; who does not is asked last from then on."""
        patience = FIRST_PATIENCE_MS
        failures: dict[Address, str] = {}
        rounds = 0
        tell = self._on_silence
        tell_ms = self.now_ms + TOLD_AFTER_MS
        while True:
            for address in list(self._order):
                timeout = min(patience, self._settings.request_timeout_ms, deadline_ms - self.now_ms)
                if timeout <= 0 or self.closed:
                    raise self._unavailable(failures)
                answer = self._ask(address, message, version, timeout, failures)
                if answer is not None:
                    return answer
                if tell is not None and self.now_ms >= tell_ms and not self.closed:
                    tell(self._unavailable(failures))
                    tell = None
            rounds += 1
            patience = min(patience * 2, self._settings.request_timeout_ms)
            self.back_off(rounds, deadline_ms)

    def _ask(
        self, address: Address, message: Message, version: int, timeout_ms: int, failures: dict[Address, str]
    ) -> Message | None:
        """The answer of one; None, and the reason in `failures`, for one that gives none, who is asked last next."""
        try:
            return self._at(address).exchange(message, version, timeout_ms=timeout_ms)
        except PeerUnavailable as error:
            failures[address] = error.message
            self._order.remove(address)
            self._order.append(address)
            return None

    def _at(self, address: Address) -> PeerConnection:
        with self._lock:
            if address not in self._peers:
                self._peers[address] = peer = PeerConnection(
                    *address,
                    client_id=self._settings.client_id,
                    connect_timeout_ms=self._settings.connect_timeout_ms,
                    request_timeout_ms=self._settings.request_timeout_ms,
                )
                if self._ended.is_set():
                    peer.close()
            return self._peers[address]

    def _unavailable(self, failures: dict[Address, str]) -> ClusterUnavailable:
        told = " ".join(failures.values()) or "There was no time left to ask."
        return ClusterUnavailable(
            f"No broker of the cluster at {self._settings.servers} answers. {told}",
            hint="Check kafka.bootstrap.servers, and with `regency status` whether the brokers are up.",
            silent=True,
        )
