"""How long each part of a failover took, in order. For the log, for `Describe` and for metrics."""

from __future__ import annotations

from regency.model.clock import Clock


class Phases:
    """Milliseconds per named part of what goes on since `__init__`; a part ends when it is marked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms = clock.monotonic_ms()
        self._parts: list[tuple[str, int]] = []

    @property
    def parts(self) -> tuple[tuple[str, int], ...]:
        """Name and milliseconds of each part that has ended."""
        return tuple(self._parts)

    @property
    def total_ms(self) -> int:
        """All parts together, milliseconds."""
        return sum(spent for _, spent in self._parts)

    def mark(self, part: str) -> None:
        """What went on since the last mark was `part`."""
        now = self._clock.monotonic_ms()
        self._parts.append((part, now - self._last_ms))
        self._last_ms = now

    def __str__(self) -> str:
        return ", ".join(f"{part} {spent}" for part, spent in self._parts)
