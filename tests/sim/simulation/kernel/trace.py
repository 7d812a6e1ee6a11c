"""What happened, in order: the last events for whoever reads, and a digest of all of them for whoever compares."""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable

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
