"""What every suite shares: the bounded wait on a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

import pytest

T = TypeVar("T")


class Eventually(Protocol):
    """Waits until a condition holds."""

    def __call__(self, condition: Callable[[], T], *, within: float = 20.0, what: str = "") -> T:
        """The first true value of `condition`, asked again and again for `within` seconds; else the test fails."""
        ...


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    def wait(condition: Callable[[], T], *, within: float = 20.0, what: str = "") -> T:
        deadline = time.monotonic() + within
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() >= deadline:
                pytest.fail(f"not within {within:g} s: {what or condition}; last: {value!r}")
            time.sleep(0.05)

    return wait
