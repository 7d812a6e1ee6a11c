"""Putting other code in the place of production code, for a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Patch:
    """Replaces attributes of modules and classes until `undo`."""

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute that is there. Raises AttributeError where production code has none of this name."""
        before = vars(owner)[name] if isinstance(owner, type) else getattr(owner, name)
        self._before.append((owner, name, before))
        setattr(owner, name, value)

    def undo(self) -> None:
        """Put everything back, last first."""
        while self._before:
            setattr(*self._before.pop())


class Defect(NamedTuple):
    """Something that production code does right, done wrong."""

    name: str
    """Kebab case."""
    what: str
    """What the code does instead, in a sentence."""
    source: str
    """Where the hole is described: a Kafka issue, a KIP, or a rule of the design."""
    plant: Callable[[Patch], None]
