"""Sessions whose calls a test can make, although a test is no actor: virtual time runs while a call waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regency.runtime.zookeeper.session import SessionEvent, ZkError
from simulation.kernel.scheduler import SECOND_US, Process, Scheduler
from simulation.zookeeper.ensemble import Ensemble
from simulation.zookeeper.link import ZkLink
from simulation.zookeeper.session_port import SimZkSession


class ZkWorld:
    """An ensemble, and sessions of one process each. Calls run as actors, and virtual time runs while they wait."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.scheduler = Scheduler(seed)
        self.ensemble = Ensemble(self.scheduler, **options)
        self.processes = 0

    def run(self, milliseconds: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + milliseconds * 1000)

    def until(self, condition: Callable[[], Any], *, within: float = 60.0, what: str = "") -> Any:
        end = self.scheduler.now_us + int(within * SECOND_US)
        while not (value := condition()):
            assert self.scheduler.now_us < end, f"not within {within:g} s: {what}\n" + "\n".join(
                self.scheduler.trace.last()
            )
            self.run(1)
        return value

    def call(self, process: Process, work: Callable[[], Any]) -> Any:
        """What `work` returns or raises as an actor of `process`."""
        ended: list[tuple[Any, BaseException | None]] = []

        def run() -> None:
            try:
                ended.append((work(), None))
            except (ZkError, ValueError, RuntimeError) as error:
                ended.append((None, error))

        self.scheduler.spawn(process, "call", run)
        self.until(lambda: ended, what="the end of a call")
        value, error = ended[0]
        if error is not None:
            raise error
        return value

    def open(self, link: ZkLink | None = None, *, timeout_ms: int = 6000, **options: Any) -> Caller:
        self.processes += 1
        process = Process(self.scheduler, f"process-{self.processes}")
        link = link or ZkLink(self.scheduler)
        session = self.call(
            process,
            lambda: SimZkSession.connect(
                self.scheduler, process, self.ensemble, link, session_timeout_ms=timeout_ms, **options
            ),
        )
        return Caller(self, process, session, link)


class Caller:
    """A session whose calls a test can make, although a test is no actor."""

    def __init__(self, world: ZkWorld, process: Process, session: SimZkSession, link: ZkLink) -> None:
        self.world = world
        self.process = process
        self.real = session
        self.link = link
        self.events: list[tuple[SessionEvent, int]] = []
        session.listen(lambda event, generation: self.events.append((event, generation)))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.real, name)
        if not callable(value) or self.real._state.in_callback:
            return value
        return lambda *args, **options: self.world.call(self.process, lambda: value(*args, **options))

    def begin(self, work: Callable[[], Any]) -> list[Any]:
        """Let an actor do `work`; what it returned or raised is in the list once it has."""
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(work())
            except ZkError as error:
                outcome.append(error)

        self.world.scheduler.spawn(self.process, "call", run)
        return outcome
