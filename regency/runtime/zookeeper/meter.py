"""Counts what becomes of a session with ZooKeeper: a source of metrics for the process that has it."""

from __future__ import annotations

from collections.abc import Iterable

from regency.model.clock import Clock
from regency.runtime.metrics import table as names
from regency.runtime.metrics.families import Family, Wanted, timers, value
from regency.runtime.metrics.recent import RecentTimes
from regency.runtime.zookeeper.session import SessionEvent, ZkSession


class ZkMeter:
    """Give `latencies` and `count_refusal` to `connect`, and the session to `watch`. Read by any thread."""

    def __init__(self, clock: Clock) -> None:
        self.latencies = RecentTimes()
        self._clock = clock
        self._connects = 0
        self._disconnects = 0
        self._expires = 0
        self._refusals = 0
        self._generation = 0
        self._began_ms: int | None = None

    def watch(self, session: ZkSession) -> None:
        """Count from now on; a session that is there already is the first connection."""
        session.listen(self._on_session)
        if not self._connects and session.connected:
            self._on_session(SessionEvent.CONNECTED, session.generation)

    def count_refusal(self) -> None:
        """ZooKeeper has refused our credentials, once more."""
        self._refusals += 1

    def collect(self, _: Wanted) -> Iterable[Family]:
        """Everything at this moment."""
        now_ms = self._clock.monotonic_ms()
        began_ms = self._began_ms
        yield value(names.ZK_CONNECTS, self._connects)
        yield value(names.ZK_DISCONNECTS, self._disconnects)
        yield value(names.ZK_EXPIRES, self._expires)
        yield value(names.ZK_AUTH_FAILURES, self._refusals)
        yield value(names.SESSION_AGE, 0 if began_ms is None else (now_ms - began_ms) / 1000)
        yield from timers(names.ZK_LATENCY, {(): self.latencies}, now_ms)

    def _on_session(self, event: SessionEvent, generation: int) -> None:
        if event is SessionEvent.CONNECTED:
            self._connects += 1
            if generation != self._generation:
                self._generation, self._began_ms = generation, self._clock.monotonic_ms()
        elif event is SessionEvent.SUSPENDED:
            self._disconnects += 1
        else:
            self._expires += 1
            self._began_ms = None
