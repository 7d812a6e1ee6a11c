"""A machine's clocks: its durations drift, its wall time also steps. Implements regency's Clock.

And the trace: what happened in a run, and when.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable
from typing import Protocol

WALL_START_MS = 1_700_000_000_000
TRUE_RATE_PPM = 1_000_000


class Now(Protocol):
    """Where true time comes from."""

    now_us: int


class ProcessClock:
    """Clocks that run `rate_ppm` millionths as fast as virtual time. All processes of a machine have the same."""

    __slots__ = ("_is_true", "_now", "_rate_ppm", "_since_local_us", "_since_us", "_wall_offset_ms")

    def __init__(self, now: Now) -> None:
        self._now = now
        self._is_true = True
        """Whether it has always run as fast as virtual time, as most do: they are asked most often of all."""
        self._rate_ppm = TRUE_RATE_PPM
        self._since_us = 0
        self._since_local_us = 0
        self._wall_offset_ms = WALL_START_MS

    def monotonic_ms(self) -> int:
        """Milliseconds since the world began, as this machine counts them; never goes back."""
        if self._is_true:
            return self._now.now_us // 1000
        return self._local_us() // 1000

    def wall_ms(self) -> int:
        return self._local_us() // 1000 + self._wall_offset_ms

    def delay_us(self, local_ms: float) -> int:
        """Microseconds of virtual time until `local_ms` milliseconds have passed here, rounded up; at least 0."""
        if local_ms <= 0:
            return 0
        if self._is_true:
            return int(local_ms * 1000) + 1
        return -(-int(local_ms * 1000) * TRUE_RATE_PPM // self._rate_ppm) + 1

    def drift(self, rate_ppm: int) -> None:
        """Run that fast from now on; 1,000,000 is true."""
        self._since_local_us, self._since_us = self._local_us(), self._now.now_us
        self._rate_ppm = rate_ppm
        self._is_true = False

    def step(self, milliseconds: int) -> None:
        self._wall_offset_ms += milliseconds

    def set_right(self) -> None:
        """Set the wall clock to the true time, whatever has made it wrong; how fast it runs stays."""
        self._wall_offset_ms = WALL_START_MS + self._now.now_us // 1000 - self._local_us() // 1000

    def _local_us(self) -> int:
        return self._since_local_us + (self._now.now_us - self._since_us) * self._rate_ppm // TRUE_RATE_PPM


LAST = 40


class Trace:
    """Keeps the last events; with `on`, all of them are formatted: told to `listener` and taken into the digest.

    Off, an event costs a tuple; words are put together when somebody wants to read them.
    """

    def __init__(self, *, on: bool = False, listener: Callable[[str], None] | None = None, last: int = LAST) -> None:
        self.on = on
        self.digest = 0
        self.count = 0
        self._listener = listener
        self._now: Callable[[], int] = lambda: 0
        self._last: deque[tuple[int, str, str, str, tuple[object, ...]]] = deque(maxlen=last)

    def bind(self, now: Callable[[], int]) -> None:
        """Take the time of events from `now`, in microseconds."""
        self._now = now

    def note(self, kind: str, who: str, words: str, *values: object) -> None:
        """An event: `words % values`. Values must not change later, and must read the same on every machine."""
        self.count += 1
        event = (self._now(), kind, who, words, values)
        self._last.append(event)
        if self.on:
            line = _line(*event)
            self.digest = zlib.crc32(line.encode(), self.digest)
            if self._listener is not None:
                self._listener(line)

    def last(self) -> list[str]:
        return [_line(*event) for event in self._last]


def _line(now_us: int, kind: str, who: str, words: str, values: tuple[object, ...]) -> str:
    return f"{now_us / 1_000_000:10.6f} s  {kind:<8} {who:<14} {words % values if values else words}"
