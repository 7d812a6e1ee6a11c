"""Time as something that is handed in: production reads the operating system, tests and simulation move it by hand."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for durations and deadlines, one for timestamps that people and files see."""

    def monotonic_ms(self) -> int:
        """Milliseconds since an arbitrary start; never goes back."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC; may jump either way."""
        ...


class SystemClock:
    """The clocks of this machine."""

    def monotonic_ms(self) -> int:
        """Milliseconds of the operating system's monotonic clock."""
        return time.monotonic_ns() // 1_000_000

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by the operating system's wall clock."""
        return time.time_ns() // 1_000_000


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, monotonic_ms: int = 0, wall_ms: int = 1_700_000_000_000) -> None:
        self._monotonic_ms = monotonic_ms
        self._wall_ms = wall_ms

    def monotonic_ms(self) -> int:
        """The time it was set to."""
        return self._monotonic_ms

    def wall_ms(self) -> int:
        """The wall time it was set to."""
        return self._wall_ms

    def advance(self, milliseconds: int) -> None:
        """Let `milliseconds` (0 or more) pass on both clocks."""
        if milliseconds < 0:
            raise ValueError(f"time passes forwards, not by {milliseconds} ms")
        self._monotonic_ms += milliseconds
        self._wall_ms += milliseconds
