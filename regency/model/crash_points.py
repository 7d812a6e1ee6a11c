"""Named places at which a process may die with consequences: between two writes, before an answer, after a rename.

In production a crash point does nothing. The simulation sets `observe` and learns, by name, where a process is; it may
kill, pause or overtake it there. Names are `part.subject.when` and stand at exactly one place in the code.
"""

from __future__ import annotations

from collections.abc import Callable

_observer: Callable[[str], None] | None = None


def crash_point(name: str) -> None:
    """The process is at the place of this name."""
    if _observer is not None:
        _observer(name)


def observe(observer: Callable[[str], None] | None) -> None:
    """Have `observer` called at every crash point from now on; None: no more. Simulation only."""
    global _observer  # noqa: PLW0603 - one process, one observer; a parameter through every layer would cost the hot path
    _observer = observer
