"""Since when notifications of changed settings have been known, by the clock of the controller that saw them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

LASTS_MS = 15 * 60 * 1000
"""So long a notification stays, at least, once this controller has seen it. Kafka goes by ZooKeeper's time instead."""


class NotificationAges:
    """Names of notifications and when they were first seen; milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        self.awaited = False
        """Whether an event will come when the oldest is to be removed."""
        self._since: dict[str, int] = {}

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest was first seen; None: there is none."""
        return min(self._since.values(), default=None)

    def overdue(self, names: Iterable[str], now_ms: int) -> list[str]:
        """Which of those there are now have been known for too long."""
        self._since = {name: self._since.get(name, now_ms) for name in names}
        return [name for name, since in self._since.items() if now_ms - since >= LASTS_MS]

    def forget(self, names: Iterable[str]) -> None:
        """These are removed."""
        for name in names:
            self._since.pop(name, None)
