"""The thread that calls back: it tells watches and listeners what happened, and gives up a session that is overdue.

It is apart from the I/O thread, so that neither a slow callback delays a ping nor a hanging DNS lookup delays LOST.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Final

from regency.model.clock import Clock
from regency.runtime.zookeeper.core import Delivery, SessionCore
from regency.runtime.zookeeper.session import SessionCallback

logger = logging.getLogger(__name__)

_MAX_WAIT_S: Final = 3600.0


class Dispatcher:
    """Deliveries in the order they were put. A callback that raises is logged and the next one is called."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._queue: queue.SimpleQueue[tuple[Delivery, tuple[SessionCallback, ...]] | None] = queue.SimpleQueue()
        self._listeners: list[SessionCallback] = []
        self._thread = threading.Thread(target=self._run, name=f"zk-callbacks-{name}", daemon=True)
        self._core: SessionCore | None = None

    def start(self, core: SessionCore) -> None:
        """Begin to call back and to guard the deadline of `core`."""
        self._core = core
        self._thread.start()

    def put(self, delivery: Delivery) -> None:
        """Deliver after everything put before, to those who listen by now. Never blocks."""
        self._queue.put((delivery, tuple(self._listeners)))

    def listen(self, callback: SessionCallback) -> None:
        """Add a listener of session events that are put from now on."""
        self._listeners.append(callback)

    def on_this_thread(self) -> bool:
        """Whether the caller is a callback."""
        return threading.current_thread() is self._thread

    def stop(self, timeout_s: float) -> None:
        """End the thread once what it is doing is done; waits at most `timeout_s`, and not at all from a callback."""
        self._core = None
        self._queue.put(None)
        if self._thread.is_alive() and not self.on_this_thread():
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while core := self._core:
            try:
                entry = self._queue.get(timeout=self._seconds_to_deadline(core))
            except queue.Empty:
                core.expire_if_due()
                continue
            if entry:
                self._deliver(core, *entry)

    def _deliver(self, core: SessionCore, delivery: Delivery, listeners: tuple[SessionCallback, ...]) -> None:
        if delivery.watch and delivery.watch_event:
            if core.is_current(delivery.watch):
                self._call(partial(delivery.watch.callback, delivery.watch_event), delivery)
        elif delivery.session_event:
            for listener in listeners:
                self._call(partial(listener, delivery.session_event, delivery.generation), delivery)

    def _call(self, callback: Callable[[], None], delivery: Delivery) -> None:
        try:
            callback()
        except Exception:  # a callback is foreign code: its fault must not cost the others their events
            logger.exception("a ZooKeeper callback failed on %s", delivery.watch_event or delivery.session_event)

    def _seconds_to_deadline(self, core: SessionCore) -> float:
        deadline_ms = core.deadline_ms()
        if deadline_ms is None:
            return _MAX_WAIT_S
        return max(deadline_ms - self._clock.monotonic_ms(), 0) / 1000
