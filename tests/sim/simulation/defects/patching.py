"""Putting other code in the place of production code, for a time."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple


class Patch:
    """Replaces attributes of modules and classes until `undo`."""

    def __init__(self) -> None:
        self._before: list[tuple[object, str, object]] = []

    def set(self, owner: object, name: str, value: object) -> None:
        """Replace an attribute that is there, of a class where it is defined: the class itself or one of its bases.

        Raises AttributeError where production code has none of this name; TypeError where it is a function, and the
        value cannot be called with all that this takes.
        """
        if isinstance(owner, type):
            owner = next((each for each in owner.__mro__ if name in vars(each)), owner)
        before = inspect.getattr_static(owner, name) if isinstance(owner, type) else getattr(owner, name)
        if inspect.isfunction(before) and inspect.isfunction(value):
            wanted = inspect.signature(before).parameters.values()
            by_name = {each.name: each for each in wanted if each.kind is each.KEYWORD_ONLY}
            variable = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
            inspect.signature(value).bind(*(each for each in wanted if each.kind not in variable), **by_name)
        self._before.append((owner, name, before))
        setattr(owner, name, value)

    def edit(self, owner: object, name: str, *changes: tuple[str, str]) -> None:
        """Replace a function by a copy of it whose source has each second text in the place of the first.

        Raises ValueError where production code does not have one of the texts exactly once any more.
        """
        held: Any = inspect.getattr_static(owner, name)
        if isinstance(held, property):
            held = held.fget
        function = inspect.unwrap(held)
        source = textwrap.dedent(inspect.getsource(function))
        for before, after in changes:
            if source.count(before) != 1:
                raise ValueError(f"{function.__qualname__} has {before!r} {source.count(before)} times, not once")
            source = source.replace(before, after)
        made: dict[str, object] = {}
        exec(compile(source, f"<{function.__qualname__}, with a defect>", "exec"), function.__globals__, made)
        self.set(owner, name, made[name])

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


class Defects(list[Defect]):
    """The defects of a module, in its order."""

    def of(self, source: str) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
        """Take in the function that plants one: its name, with dashes, and its docstring are the defect's."""

        def take(plant: Callable[[Patch], None]) -> Callable[[Patch], None]:
            self.append(
                Defect(plant.__name__.replace("_", "-"), " ".join((plant.__doc__ or "").split()), source, plant)
            )
            return plant

        return take
