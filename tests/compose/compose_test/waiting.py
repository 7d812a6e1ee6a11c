"""The bounded wait on a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.25


class CheckFailed(Exception):
    """Something is not as it has to be."""


def expect(holds: object, what: str) -> None:
    if not holds:
        raise CheckFailed(what)


def eventually(condition: Callable[[], T | None], *, within_s: float, what: Callable[[], str] | str) -> T:
    """The first true value of `condition`. Raises CheckFailed after `within_s` seconds, with `what` it waited for."""
    deadline = time.monotonic() + within_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= deadline:
            raise CheckFailed(f"not within {within_s:g} s: {what if isinstance(what, str) else what()}")
        time.sleep(LOOK_EVERY_S)
