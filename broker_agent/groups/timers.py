"""Deadlines of one shard: a heap, with lazy deletion. Passive: time is given to it."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from regency.broker_agent.groups.api import Effects

_COMPACT_ABOVE = 256
"""Dead entries are swept when the heap is longer than this and mostly dead."""

OnTime: TypeAlias = Callable[[int, Effects], None]
"""Called with the time, and with the effects to add to."""


class Timer:
    """Something that happens at a time; nothing while `deadline_ms` is None. Armed and cancelled through Timers."""

    __slots__ = ("deadline_ms", "on_time", "queued_ms")

    def __init__(self, on_time: OnTime) -> None:
        self.on_time = on_time
        self.deadline_ms: int | None = None
        self.queued_ms: int | None = None
        """Where it is in the heap: at its deadline, or before it was put off."""


class Timers:
    """Timers by deadline (monotonic).

    A deadline that is put off, as every heartbeat does, is only noted: the timer is found in the heap at its earlier
    time, and put back.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._numbers = count()
        self._armed = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """When `run_due` wants to be called; it may find that nothing is due yet. None: nothing is to happen."""
        heap = self._heap
        while heap and (heap[0][2].deadline_ms is None or heap[0][2].queued_ms != heap[0][0]):
            self._pop()
        return heap[0][0] if heap else None

    def arm(self, timer: Timer, deadline_ms: int) -> None:
        """Let it happen then, and no more when it was to happen before."""
        if timer.deadline_ms is None:
            self._armed += 1
        timer.deadline_ms = deadline_ms
        if timer.queued_ms is None or deadline_ms < timer.queued_ms:
            self._push(timer, deadline_ms)

    def cancel(self, timer: Timer) -> None:
        """Let it not happen."""
        if timer.deadline_ms is not None:
            self._armed -= 1
            timer.deadline_ms = None

    def run_due(self, now_ms: int, out: Effects) -> None:
        """Let everything happen whose time has come. What that arms waits for the next call, however near it is."""
        due: list[Timer] = []
        while self._heap and self._heap[0][0] <= now_ms:
            timer = self._pop()
            if timer is None or timer.deadline_ms is None:
                continue
            if timer.deadline_ms > now_ms:
                self._push(timer, timer.deadline_ms)
            else:
                due.append(timer)
        for timer in due:
            if timer.deadline_ms is not None and timer.deadline_ms <= now_ms and timer.queued_ms is None:
                self.cancel(timer)
                timer.on_time(now_ms, out)

    def _push(self, timer: Timer, at_ms: int) -> None:
        timer.queued_ms = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._numbers), timer))
        if len(self._heap) > _COMPACT_ABOVE and len(self._heap) > 2 * self._armed:
            self._compact()

    def _pop(self) -> Timer | None:
        """The timer of the first entry, which is not queued any more; None if the entry was out of date."""
        at_ms, _, timer = heapq.heappop(self._heap)
        if timer.queued_ms != at_ms:
            return None
        timer.queued_ms = None
        return timer

    def _compact(self) -> None:
        live: dict[Timer, tuple[int, int, Timer]] = {}
        for entry in self._heap:
            at_ms, _, timer = entry
            if timer.deadline_ms is None:
                timer.queued_ms = None
            elif timer.queued_ms == at_ms:
                live[timer] = entry
        self._heap = list(live.values())
        heapq.heapify(self._heap)
