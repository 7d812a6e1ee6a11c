"""A rate of bytes over the last few windows of time. Pure: told the time, never asks for it."""

from __future__ import annotations

from collections import deque


class _Window:
    __slots__ = ("size", "start_ms")

    def __init__(self, start_ms: int) -> None:
        self.start_ms = start_ms
        self.size = 0


class ByteRate:
    """Bytes per second, averaged over at most `windows` windows of `window_ms` (Kafka's SimpleRate).

    A short burst counts as if it had taken a whole window. A clock that goes back makes it begin anew: times from then
    on say nothing about what was counted before.
    """

    def __init__(self, windows: int, window_ms: int) -> None:
        self._window_ms = window_ms
        self._lasts_ms = windows * window_ms
        self._windows: deque[_Window] = deque()
        self._total = 0

    def record(self, size: int, now_ms: int) -> None:
        """Count `size` bytes as of now."""
        self._forget(now_ms)
        if not self._windows or now_ms - self._windows[-1].start_ms >= self._window_ms:
            self._windows.append(_Window(now_ms))
        self._windows[-1].size += size
        self._total += size

    def falls_to(self, limit: int, now_ms: int) -> int:
        """When the rate is no more than `limit` bytes per second, if nothing is counted until then; now if it is so."""
        self._forget(now_ms)
        total = self._total
        for window in self._windows:
            over = window.start_ms + self._lasts_ms
            if total * 1000 <= limit * self._window_ms:
                break
            averaged = window.start_ms - (-total * 1000 // limit) if limit > 0 else over
            if averaged < over:
                return max(averaged, now_ms)
            total -= window.size
            now_ms = max(now_ms, over)
        return now_ms

    def _forget(self, now_ms: int) -> None:
        """Drop windows that are over, or that have not begun yet by this clock."""
        windows = self._windows
        if windows and windows[-1].start_ms > now_ms:
            windows.clear()
            self._total = 0
        while windows and windows[0].start_ms + self._lasts_ms <= now_ms:
            self._total -= windows.popleft().size
