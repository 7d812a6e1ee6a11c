"""What replaces an agent's threads and sockets: its data loop, worker pools, timer, and the way to other processes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, TypeVar

from regency.broker_agent.log.cleaning.cleaner import Cleaning, clean
from regency.broker_agent.log.cleaning.job import Cleaned, CleaningJob
from regency.broker_agent.log.errors import CleanerDied, Uncleanable
from regency.broker_agent.process.data_loop import LoopClosed
from regency.runtime.disk import Disk
from simulation.kernel.scheduler import TIMED_OUT, Process, ProcessDied, Scheduler, SimulationStuck, Timer
from simulation.network import Call, NetFailed, Network

T = TypeVar("T")

HOP_US = 20
"""A call from one thread to another takes up to so many microseconds."""

WORK_US = 400
"""A job on a pool begins within so many microseconds."""


class SimLoop:
    """The data loop: calls run one after another on the scheduler's greenlet, and never wait. It may stand still."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process
        self._last_us = 0
        self._shown = 0

    @property
    def shown(self) -> int:
        """Grows from look to look of the watchdog, unless the loop stands still, as what LoopMeter counts does."""
        self._shown += not self._process.loop_stands
        return self._shown

    def post(self, work: Callable[[], object]) -> None:
        """Run `work` on the loop soon, in the order of posting."""
        self._scheduler.compute()
        if self._process.alive:
            self._scheduler.at(self._hop_us(), work, self._process, of_loop=True)

    def call(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """Run `work` on the loop and wait for its result; for actors. Raises what it raises, or LoopClosed."""
        self._scheduler.compute()
        outcome: list[T | Exception] = []

        def register(resume: Callable[[Any], None]) -> None:
            def run() -> None:
                try:
                    outcome.append(work())
                except Exception as error:  # noqa: BLE001 - carried to the caller
                    outcome.append(error)
                resume(None)

            self.post(run)

        if self._scheduler.wait(register, self._process.clock.delay_us(timeout_ms)) is TIMED_OUT:
            raise LoopClosed(f"The data loop did not answer within {timeout_ms} ms.")
        result = outcome[0]
        if isinstance(result, Exception):
            raise result
        return result

    def later(self, delay_ms: int, work: Callable[[], None]) -> None:
        """Run `work` after a while of this process's clock."""
        self._scheduler.at(self._process.clock.delay_us(delay_ms), work, self._process, of_loop=True)

    def _hop_us(self) -> int:
        now = self._scheduler.now_us
        self._last_us = max(self._last_us, now + 1 + self._scheduler.random.randrange(HOP_US))
        return self._last_us - now


class SimWorker:
    """A worker pool: every job is an actor; jobs overtake each other, as on several threads."""

    def __init__(self, scheduler: Scheduler, process: Process, loop: SimLoop, name: str) -> None:
        self._scheduler = scheduler
        self._process = process
        self._loop = loop
        self._name = name

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` in an actor, then `done` with its result or its exception on the data loop."""
        scheduler = self._scheduler

        def run() -> None:
            outcome: T | BaseException
            try:
                outcome = work()
            except Exception as error:  # noqa: BLE001 - carried to `done`
                outcome = error
            self._loop.post(lambda: done(outcome))

        def begin() -> None:
            scheduler.spawn(self._process, self._name, run, delay_us=scheduler.random.randrange(WORK_US))

        if self._process.alive:
            scheduler.at(0, begin, self._process, is_watched=False)


class _DiskOfCleaner:
    """The disk as the cleaner uses it: from its death on it does nothing, but that its files are closed."""

    def __init__(self, disk: Disk) -> None:
        self.is_dead = False
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        if self.is_dead and name != "close":
            raise ProcessDied
        return getattr(self._disk, name)


DEATHS: Final = 0.03
"""How often a cleaner dies at its work."""


class SimCleaner:
    """The cleaner's process: an actor, which takes its steps between those of all others, and now and then dies."""

    def __init__(self, scheduler: Scheduler, process: Process, loop: SimLoop, disk: Disk) -> None:
        self._scheduler = scheduler
        self._process = process
        self._loop = loop
        self._disk = disk

    def clean(self, job: CleaningJob, done: Callable[[Cleaned | BaseException], None]) -> None:
        scheduler = self._scheduler

        def run() -> None:
            outcome: Cleaned | BaseException
            disk: Any = _DiskOfCleaner(self._disk)
            steps = clean(job, disk)
            try:
                outcome = self._take_steps(steps)
            except (OSError, Uncleanable, CleanerDied) as error:
                outcome = error
            finally:  # what it has written stays, where it died
                disk.is_dead = True
                with suppress(ProcessDied):
                    steps.close()
            self._loop.post(lambda: done(outcome))

        scheduler.spawn(self._process, "cleaner", run, delay_us=scheduler.random.randrange(WORK_US))

    def _take_steps(self, steps: Cleaning) -> Cleaned:
        chance = self._scheduler.random
        left = chance.randrange(20) if chance.random() < DEATHS else -1
        while left:
            left -= 1
            try:
                next(steps)
            except StopIteration as end:
                cleaned: Cleaned = end.value
                return cleaned
            self._scheduler.sleep_us(chance.randrange(WORK_US))
        raise CleanerDied("as by SIGKILL")


class SimTimer:
    """Wakes one passive object, as LoopTimer does."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler = scheduler
        self._process = process
        self._run_due: Callable[[int], None] | None = None
        self._timer: Timer | None = None
        self._due = 0

    def bind(self, run_due: Callable[[int], None]) -> None:
        self._run_due = run_due

    def wake_by(self, monotonic_ms: int) -> None:
        """Call the owner no later than this time; an earlier wake already asked for stays."""
        if self._timer is not None:
            if self._due <= monotonic_ms:
                return
            self._timer.cancel()
        clock = self._process.clock
        self._due = monotonic_ms
        delay_us = clock.delay_us(monotonic_ms - clock.monotonic_ms())
        self._timer = self._scheduler.at(delay_us, self._fire, self._process, of_loop=True)

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._run_due = None

    def _fire(self) -> None:
        self._timer = None
        if self._run_due is not None:
            self._run_due(self._process.clock.monotonic_ms())


def ask(
    scheduler: Scheduler, network: Network, process: Process, source: str, address: str, request: Any, timeout_ms: int
) -> Any:
    """Send a request from an actor and wait: the answer, or NetFailed."""
    calls: list[Call] = []

    def register(resume: Callable[[Any], None]) -> None:
        timeout_us = process.clock.delay_us(timeout_ms)
        calls.append(network.call(process, source, address, request, resume, timeout_us=timeout_us))

    answer = scheduler.wait(register)
    assert answer is not None or calls[0].answered
    return answer if answer is not None else NetFailed("closed")


def driven(coroutine: Coroutine[object, None, T]) -> T:
    """The result of a coroutine all of whose waiting is an actor's: it runs to its end here, without asyncio."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    raise SimulationStuck("a coroutine waits for asyncio, which there is none of")
