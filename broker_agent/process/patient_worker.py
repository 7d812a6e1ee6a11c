"""A worker pool whose jobs are done in the end: lack of descriptors, memory or threads only delays them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from regency.broker_agent.ports import Worker
from regency.model.errors import RegencyError
from regency.runtime.descriptors import is_shortage
from regency.runtime.logging import is_power_of_ten

logger = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_MS: Final = 500
"""Pause before a job is tried again."""


class PatientWorker:
    """Runs jobs that may run twice; `done` hears of results, and of errors that another attempt would not mend.

    Those are OSErrors other than a shortage, and RegencyErrors, as when the agent is stopping. Data loop only.
    """

    def __init__(self, worker: Worker, later: Callable[[int, Callable[[], None]], None]) -> None:
        """`later` runs something on the data loop after so many milliseconds."""
        self.retries = 0
        """Attempts that are repeated, since the start."""
        self._worker = worker
        self._later = later
        self._delayed = 0

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` on a pool thread, again after a pause if need be, then `done` on the data loop."""
        self._attempt(work, done, is_first=True)

    def _attempt(self, work: Callable[[], T], done: Callable[[T | BaseException], None], *, is_first: bool) -> None:
        def tried(outcome: T | BaseException) -> None:
            if isinstance(outcome, BaseException) and _may_pass(outcome):
                self._delay(outcome, is_first=is_first)
                self._later(RETRY_MS, lambda: self._attempt(work, done, is_first=False))
                return
            if not is_first:
                self._delayed -= 1
                if not self._delayed:
                    logger.info("all background work that had to be repeated is done; %d attempts failed", self.retries)
            done(outcome)

        self._worker.submit(work, tried)

    def _delay(self, error: BaseException, *, is_first: bool) -> None:
        self.retries += 1
        self._delayed += is_first
        if (is_first and self._delayed == 1) or is_power_of_ten(self.retries):
            logger.warning(
                "background work is delayed, and tried again every %d ms (%d times so far)",
                RETRY_MS,
                self.retries,
                exc_info=error,
            )


def _may_pass(error: BaseException) -> bool:
    return is_shortage(error) or not isinstance(error, OSError | RegencyError)
