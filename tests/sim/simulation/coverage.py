"""What many runs together have reached: crash points and faults."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from simulation.crash_points import crash_point_names

if TYPE_CHECKING:
    from simulation.run import RunResult


class Coverage:
    """Adds runs up."""

    def __init__(self) -> None:
        self._names = crash_point_names()
        self.passed: Counter[str] = Counter()
        self.died_at: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    @property
    def all(self) -> int:
        """How many crash points there are in the code."""
        return len(self._names)

    def add(self, result: RunResult) -> None:
        self.passed.update(result.passed)
        self.died_at.update(result.died_at)
        self.faults.update(result.faults)

    def rows(self) -> list[tuple[str, int, int]]:
        """Every crash point, how often it was passed, and how often a process was struck there."""
        return [(name, self.passed[name], self.died_at[name]) for name in self._names]

    def missed(self) -> list[str]:
        return [name for name in self._names if name not in self.passed]
