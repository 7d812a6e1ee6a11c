"""Answers that are ready, kept until no partition is half changed.

Every entry into the ReplicaManager holds them back; leaving the outermost one makes the calls. What is called may come
back in and add more, so nothing ever runs inside a state change (KAFKA-8334).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable

logger = logging.getLogger(__name__)


class Completions:
    """A queue of calls to make, and `with completions:` around whatever changes state. Data loop only."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._depth = 0

    def __enter__(self) -> None:
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        try:
            if self._depth == 1:
                self._drain()
        finally:
            self._depth -= 1

    def add(self, call: Callable[[], None]) -> None:
        """Have `call` made when nothing is half changed, in order."""
        self._queue.append(call)

    def _drain(self) -> None:
        while self._queue:
            call = self._queue.popleft()
            try:
                call()
            except Exception:  # one client's broken connection must not keep the others from their answers
                logger.exception("an answer could not be delivered")
