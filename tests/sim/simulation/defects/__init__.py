"""Deliberate defects, by name: what the simulation must be able to find. Test-only; production has no such switches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

Plant = Callable[[ExitStack], None]


@contextmanager
def planted(name: str) -> Iterator[None]:
    """Inside, production code has the defect of this name; none where it is empty."""
    if name:
        raise NotImplementedError(name)
    yield
