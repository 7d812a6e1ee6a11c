"""How a simulated session finds a server, as `io` and `handshake` of `regency.runtime.zookeeper`. It never blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from regency.runtime.zookeeper.core import Watch
from regency.runtime.zookeeper.session import WatchMode
from simulation.kernel.scheduler import Timer
from simulation.zookeeper.link import Wire, ZkLink
from simulation.zookeeper.server import ServerConnection
from simulation.zookeeper.session_state import FIRST_PAUSE_MS, Phase, SessionState

if TYPE_CHECKING:
    from simulation.zookeeper.ensemble import Ensemble

LONGEST_PAUSE_MS: Final = 1000
SHORTEST_ATTEMPT_MS: Final = 200


class _Attempt:
    """What is asked of one server."""

    __slots__ = ("asked_ms", "generation", "seen_zxid", "session_id", "timer", "watches", "wire")

    def __init__(self, state: SessionState) -> None:
        self.generation = state.generation
        self.session_id = state.session_id
        self.seen_zxid = state.seen_zxid
        self.watches: tuple[Watch, ...] = state.watches.all()
        self.asked_ms = state.now_ms()
        self.wire: Wire | None = None
        self.timer: Timer | None = None


class Connector:
    """Tries all servers in random order, again and again, while there is no connection and one is wanted."""

    def __init__(self, state: SessionState, ensemble: Ensemble, link: ZkLink) -> None:
        self._state = state
        self._ensemble = ensemble
        self._link = link
        self._attempt: _Attempt | None = None
        self._candidates: list[int] = []
        self._busy = False
        self._pause_ms = FIRST_PAUSE_MS // 2
        state.reconnect = self.again

    def again(self, pause_ms: int) -> None:
        """There is no connection, or what is being asked for is wanted no more: try, after a pause if need be."""
        if not self._busy:
            self._busy = True
            self._pause_ms = FIRST_PAUSE_MS // 2
            self._after(pause_ms)
        elif self._attempt is not None:
            self._give_up()
            self._next()

    def stop(self) -> None:
        """End the attempt under way; nothing is tried any more once the session is closed."""
        self._give_up()

    def _after(self, pause_ms: int) -> None:
        state = self._state
        state.scheduler.at(state.process.clock.delay_us(pause_ms), self._round, state.process)

    def _round(self) -> None:
        self._candidates = list(range(len(self._ensemble.model.servers)))
        self._state.scheduler.random.shuffle(self._candidates)
        self._next()

    def _next(self) -> None:
        state = self._state
        state.expire_if_due()
        if state.phase is Phase.CLOSED:
            return
        if not self._candidates:
            self._pause_ms = min(self._pause_ms * 2, LONGEST_PAUSE_MS)
            self._after(self._pause_ms)
            return
        self._ask(self._candidates.pop())

    def _ask(self, server: int) -> None:
        state = self._state
        attempt = self._attempt = _Attempt(state)
        patience_ms = max(state.timeout_ms // len(self._ensemble.model.servers), SHORTEST_ATTEMPT_MS)
        attempt.timer = state.scheduler.at(
            state.process.clock.delay_us(patience_ms), lambda: self._failed(attempt), state.process
        )
        if not self._link.blocked:
            wire = attempt.wire = self._link.open(self._ensemble, state.process, self._broken)
            wire.travel(lambda: self._at_server(attempt, wire, server), there=True)

    def _at_server(self, attempt: _Attempt, wire: Wire, number: int) -> None:
        server = self._ensemble.connect(number, attempt.session_id, attempt.seen_zxid, self._state.requested_timeout_ms)
        if server is None:
            wire.reply(lambda: self._failed(attempt))
        elif server.session is None:
            wire.reply(lambda: self._expired(attempt))
        else:
            wire.server = server
            server.on_close = wire.ended_by_server
            server.on_event = lambda kind, path, zxid: wire.reply(lambda: self._state.heard(wire, kind, path, zxid))
            session_id, timeout_ms = server.session.id, server.session.timeout_ms
            server.when_applied(
                server.opened_zxid, lambda: wire.reply(lambda: self._granted(attempt, wire, session_id, timeout_ms))
            )

    def _granted(self, attempt: _Attempt, wire: Wire, session_id: int, timeout_ms: int) -> None:
        def connected() -> None:
            self._connected(attempt, wire, session_id, timeout_ms)

        if attempt.watches:
            wire.request(lambda server: _arm(server, attempt.watches, lambda: wire.reply(connected)))
        else:
            connected()

    def _connected(self, attempt: _Attempt, wire: Wire, session_id: int, timeout_ms: int) -> None:
        state = self._state
        state.expire_if_due()
        if attempt is not self._attempt:
            return
        if state.phase is Phase.CLOSED or (state.generation, state.session_id) != (
            attempt.generation,
            attempt.session_id,
        ):
            self._give_up()
            self._next()
            return
        if attempt.timer is not None:
            attempt.timer.cancel()
        self._attempt = None
        self._busy = False
        state.connected(wire, session_id, timeout_ms, attempt.asked_ms, attempt.watches)

    def _expired(self, attempt: _Attempt) -> None:
        if attempt is self._attempt:
            self._give_up()
            self._state.expired(attempt.session_id)
            self._next()

    def _failed(self, attempt: _Attempt) -> None:
        if attempt is self._attempt:
            self._give_up()
            self._next()

    def _broken(self, wire: Wire) -> None:
        attempt = self._attempt
        if attempt is not None and attempt.wire is wire:
            self._failed(attempt)
        else:
            self._state.disconnected(wire, "it was closed")

    def _give_up(self) -> None:
        attempt, self._attempt = self._attempt, None
        if attempt is not None:
            if attempt.timer is not None:
                attempt.timer.cancel()
            if attempt.wire is not None:
                attempt.wire.close()


def _arm(server: ServerConnection, watches: tuple[Watch, ...], done: Callable[[], None]) -> None:
    server.rearm(
        persistent=[watch.path for watch in watches if watch.mode is WatchMode.PERSISTENT],
        recursive=[watch.path for watch in watches if watch.mode is WatchMode.PERSISTENT_RECURSIVE],
        reply=done,
    )
