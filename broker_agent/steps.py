"""Work that may be long, in steps of a few milliseconds: its caller does something else between two of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[None, None, T]
"""Yields after each step, and returns the outcome."""


def at_once(steps: Steps[T]) -> T:
    """All steps, for who has nothing else to do, or knows that there are few."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            outcome: T = end.value
            return outcome
