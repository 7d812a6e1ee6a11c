"""Timers of a controller process: how long events wait and take, and how long requests to brokers wait.

At the edge, outside the passive controller: each timer is written by one thread, and read by a scrape's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from regency.controller.event_loop import EventQueue
from regency.controller.events import ControllerState, Event
from regency.model.clock import Clock
from regency.model.ids import BrokerId
from regency.runtime.metrics.recent import RecentTimes


class EventMeter:
    """Times of the events that one thread handles."""

    def __init__(self, queue: EventQueue, clock: Clock) -> None:
        self.waited = RecentTimes()
        """How long events waited in the queue."""
        self.handled = {state: RecentTimes() for state in ControllerState}
        """How long handling them took, by what they are about."""
        self._queue = queue
        self._clock = clock
        self._since_ms: int | None = None

    def timed(self, process: Callable[[Event], None]) -> Callable[[Event], None]:
        """`process`, with every call of it timed; it must be called by the thread that took the event."""

        def timed_process(event: Event) -> None:
            began_ms = self._since_ms = self._clock.monotonic_ms()
            self.waited.record(self._queue.waited_ms * 1000, began_ms)
            began_ns = time.perf_counter_ns()
            try:
                process(event)
            finally:
                took_us = (time.perf_counter_ns() - began_ns) // 1000
                self._since_ms = None
                self.handled[event.state].record(took_us, self._clock.monotonic_ms())

        return timed_process

    def in_hand_ms(self) -> int:
        """For how long the event in hand is being handled; 0 where none is."""
        since_ms = self._since_ms
        return 0 if since_ms is None else self._clock.monotonic_ms() - since_ms


class RequestMeter:
    """How long requests to brokers have waited, by broker. `requested` is what a channel manager is given."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waited: dict[BrokerId, RecentTimes] = {}

    def requested(self, broker: BrokerId, waited_ms: int) -> None:
        """A request is sent. One thread per broker."""
        waited = self._waited.get(broker)
        if waited is None:
            waited = self._waited.setdefault(broker, RecentTimes())
        waited.record(waited_ms * 1000, self._clock.monotonic_ms())

    def of(self, brokers: Collection[BrokerId]) -> dict[BrokerId, RecentTimes]:
        """The timers of these brokers, by id; those of others are forgotten, as their channels are."""
        for broker in [each for each in self._waited.copy() if each not in brokers]:
            self._waited.pop(broker, None)
        return dict(sorted(self._waited.copy().items()))
