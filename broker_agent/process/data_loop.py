"""The data loop (asyncio, in the main thread; owns partitions, logs and purgatory) and the ways to reach it.

Implements the ports `Loop`, `Worker` and `Timer`. Everything here only moves calls between threads; it decides nothing.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar, Final, TypeVar

from regency.broker_agent.ports import Worker
from regency.model.clock import Clock
from regency.model.errors import RegencyError
from regency.runtime.descriptors import is_shortage
from regency.runtime.logging import is_power_of_ten

logger = logging.getLogger(__name__)

T = TypeVar("T")


class LoopClosed(RegencyError):
    """The agent is stopping: nothing is taken any more."""

    code: ClassVar[str] = "agent_stopping"
    retriable: ClassVar[bool] = True


class DataLoop:
    """The running asyncio loop, reachable from any thread. Built on the loop's own thread."""

    def __init__(self, on_death: Callable[[str, BaseException], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_death = on_death

    def post(self, work: Callable[[], None]) -> None:
        """Run `work` on the loop soon; from any thread. Dropped when the loop is closed. A failure ends the agent."""
        try:
            self._loop.call_soon_threadsafe(self._guarded, work)
        except RuntimeError:
            logger.debug("dropped a call to the closed data loop")

    def call(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """Run `work` on the loop and wait for its result; from another thread only. Raises what it raises.

        Raises LoopClosed when the loop is closed or does not get to it within `timeout_ms` milliseconds.
        """
        outcome: concurrent.futures.Future[T] = concurrent.futures.Future()

        def run() -> None:
            if not outcome.set_running_or_notify_cancel():
                return
            try:
                outcome.set_result(work())
            except Exception as error:  # noqa: BLE001 (carried to the caller, whatever it is)
                outcome.set_exception(error)

        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError as error:
            raise LoopClosed("The agent is stopping.") from error
        try:
            return outcome.result(timeout_ms / 1000)
        except concurrent.futures.TimeoutError as error:
            if outcome.done():
                raise
            outcome.cancel()
            raise LoopClosed(f"The data loop did not answer within {timeout_ms} ms.") from error

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # noqa: BLE001 (a passive object in an unknown state must not go on)
            self._on_death("the data loop", error)


class LoopWorker:
    """The worker pool: runs blocking work on `threads` threads and hands the outcome back to the data loop."""

    def __init__(self, loop: DataLoop, threads: int, name: str) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` on a pool thread, then `done` with its result or its exception on the data loop."""

        def run() -> None:
            outcome: T | BaseException
            try:
                outcome = work()
            except Exception as error:  # noqa: BLE001 (carried to `done`)
                outcome = error
            self._loop.post(lambda: done(outcome))

        try:
            self._pool.submit(run)
        except RuntimeError:
            self._loop.post(lambda: done(LoopClosed("The agent is stopping.")))

    def close(self) -> None:
        """Finish what is running, drop what waits."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class LoopTimer:
    """Wakes one passive object: calls `run_due(now)` no later than the earliest time asked for. Data loop only."""

    def __init__(self, clock: Clock, on_death: Callable[[str, BaseException], None]) -> None:
        self._clock = clock
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._run_due: Callable[[int], None] | None = None
        self._handle: asyncio.TimerHandle | None = None
        self._due = 0

    def bind(self, run_due: Callable[[int], None]) -> None:
        """Say whom to wake. Times asked for before are kept."""
        self._run_due = run_due

    def wake_by(self, monotonic_ms: int) -> None:
        """Call the owner no later than this time; an earlier wake already asked for stays."""
        if self._handle is not None:
            if self._due <= monotonic_ms:
                return
            self._handle.cancel()
        self._due = monotonic_ms
        delay = max(0, monotonic_ms - self._clock.monotonic_ms()) / 1000
        self._handle = self._loop.call_later(delay, self._fire)

    def close(self) -> None:
        """Wake no loop any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._run_due = None

    def _fire(self) -> None:
        self._handle = None
        if self._run_due is None:
            return
        try:
            self._run_due(self._clock.monotonic_ms())
        except Exception as error:  # noqa: BLE001 (a passive object in an unknown state must not go on)
            self._on_death("the data loop", error)


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
