"""The controller's queue and its loop: one thread, first in first out, and a caller that waits is answered."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from regency.controller.events import AssignmentsChanged, ControllerState, Event, ShutDown
from regency.model.clock import Clock

logger = logging.getLogger(__name__)


class EventQueue:
    """Events in order of arrival, from any thread. Each is processed or preempted, exactly once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._waiting: deque[tuple[int, Event]] = deque()
        """With the time since when they wait; monotonic, in milliseconds."""
        self._kinds: set[Event] = set()
        self._later: list[tuple[int, Event]] = []
        self._topics: set[str] = set()
        self._closed = False
        self.waited_ms = 0
        """How long the event that was taken last had waited; for who took it."""

    def __len__(self) -> int:
        with self._changed:
            return len(self._waiting)

    def put(self, event: Event) -> None:
        """Add an event. After `close` it is preempted at once."""
        with self._changed:
            if self._closed:
                event.preempt()
                return
            self._add(event, self._clock.monotonic_ms())

    def put_later(self, event: Event, delay_ms: int) -> None:
        """Add an event once `delay_ms` milliseconds are over; of equal ones that coalesce only the earliest stays."""
        with self._changed:
            due = self._clock.monotonic_ms() + delay_ms
            if event.coalesces:
                due = min([due, *(when for when, each in self._later if each == event)])
                self._later = [(when, each) for when, each in self._later if each != event]
            self._later.append((due, event))
            self._changed.notify()

    def preempt_all(self, event: Event) -> None:
        """Preempt everything that waits, then add `event`."""
        with self._changed:
            preempted = [event for _, event in self._waiting]
            self._waiting.clear()
            self._kinds.clear()
            self._later.clear()
            if not self._closed:
                self._add(event, self._clock.monotonic_ms())
        for each in preempted:
            each.preempt()

    def mark_topic(self, topic: str) -> None:
        """Note that a topic's znode must be read again; one event covers all that are marked."""
        with self._changed:
            if not self._closed:
                self._topics.add(topic)
                self._add(AssignmentsChanged(), self._clock.monotonic_ms())

    def take_marked_topics(self) -> list[str]:
        """The marked topics, sorted; the marks are gone."""
        with self._changed:
            marked, self._topics = sorted(self._topics), set()
            return marked

    def take(self) -> Event:
        """The next event; waits for one."""
        with self._changed:
            while True:
                event = self._next()
                if event is not None:
                    return event
                self._changed.wait(self._until_due_s())

    def poll(self) -> Event | None:
        """The next event if one waits or is due."""
        with self._changed:
            return self._next()

    def close(self) -> None:
        """Preempt everything that waits, and whatever is put from now on."""
        with self._changed:
            self._closed = True
        self.preempt_all(ShutDown())

    def _add(self, event: Event, since_ms: int) -> None:
        if event.coalesces:
            if event in self._kinds:
                return
            self._kinds.add(event)
        self._waiting.append((since_ms, event))
        self._changed.notify()

    def _next(self) -> Event | None:
        now = self._clock.monotonic_ms()
        due = [each for each in self._later if each[0] <= now]
        if due:
            self._later = [each for each in self._later if each[0] > now]
            for when, event in due:
                self._add(event, when)
        if not self._waiting:
            return None
        since, event = self._waiting.popleft()
        self.waited_ms = max(now - since, 0)
        self._kinds.discard(event)
        return event

    def _until_due_s(self) -> float | None:
        if not self._later:
            return None
        return max(min(when for when, _ in self._later) - self._clock.monotonic_ms(), 1) / 1000


class EventLoop:
    """Processes one event after the other on the thread that calls `run`."""

    def __init__(self, queue: EventQueue, process: Callable[[Event], None]) -> None:
        self._queue = queue
        self._process = process
        self.state = ControllerState.IDLE
        """What is being processed; read from other threads."""

    def run(self) -> None:
        """Process events until ShutDown was processed."""
        while True:
            event = self._queue.take()
            self.process(event)
            if isinstance(event, ShutDown):
                self._queue.close()
                return

    def process(self, event: Event) -> None:
        """Process one event. A caller that waits for its answer has one afterwards."""
        self.state = event.state
        try:
            self._process(event)
        finally:
            event.preempt()
            self.state = ControllerState.IDLE
