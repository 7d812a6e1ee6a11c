"""What stands in for `threading` in production modules: the same classes over actors, so that code runs unmodified;
and for `uuid4`, which must not differ from run to run.

Only what production uses is here. A lock that is taken while an actor waits elsewhere makes others wait in virtual
time; on the scheduler's own greenlet, which is every data loop, waiting is an error.
"""

from __future__ import annotations

import importlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

from simulation.kernel.scheduler import TIMED_OUT, Actor, ProcessDied, Scheduler, SimulationStuck

T = TypeVar("T")

MODULES = (
    "regency.controller.channel.channel_manager",
    "regency.controller.events",
    "regency.controller.channel.log_questions",
    "regency.controller.channel.metadata",
    "regency.controller.store.access",
    "regency.controller.state.reports",
    "regency.broker_agent.control.service",
    "regency.broker_agent.registry.isr_store",
    "regency.kafka.logfiles.checkpoints",
    "regency.broker_agent.log.directories.log_loading",
    "regency.broker_agent.registry.registration",
    "regency.broker_agent.registry.topic_configs",
    "regency.broker_agent.process.watchdog",
    "regency.runtime.grpc.channels",
)
"""Modules that name `threading`, and are simulated."""

EXECUTORS = ("regency.broker_agent.log.directories.log_loading",)
"""Modules that name `ThreadPoolExecutor`."""

UUIDS = ("regency.controller.store.elector", "regency.broker_agent.registry.registration")
"""Modules that name `uuid4`."""

_scheduler: Scheduler | None = None


def _world() -> Scheduler:
    if _scheduler is None:
        raise SimulationStuck("simulated threads are used outside a simulation")
    return _scheduler


class Lock:
    """threading.Lock."""

    __slots__ = ("_held", "_waiting")

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Callable[[Any], None]] = deque()

    def acquire(self) -> bool:
        world = _world()
        world.compute()
        while self._held:
            world.wait(self._waiting.append)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        if self._waiting:
            self._waiting.popleft()(None)

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Condition:
    """threading.Condition with a lock of its own. Nothing yields while it is held, but in `wait`."""

    __slots__ = ("_lock", "_waiting")

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock if lock is not None else Lock()
        self._waiting: deque[Callable[[Any], None]] = deque()

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Let the lock go until notified, or for `timeout` seconds of this process's clock."""
        resumes: list[Callable[[Any], None]] = []

        def register(resume: Callable[[Any], None]) -> None:
            resumes.append(resume)
            self._waiting.append(resume)

        self._lock.release()
        try:
            outcome = _world().wait(register, _timeout_us(timeout))
        finally:
            if resumes and resumes[0] in self._waiting:
                self._waiting.remove(resumes[0])
            _retake(self._lock)
        return outcome is not TIMED_OUT

    def notify(self, n: int = 1) -> None:
        for _ in range(min(n, len(self._waiting))):
            self._waiting.popleft()(None)

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """threading.Event."""

    __slots__ = ("_set", "_waiting")

    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Callable[[Any], None]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for resume in waiting:
            resume(None)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set; whether it was within `timeout` seconds of this process's clock."""
        if not self._set:
            _world().wait(self._waiting.append, _timeout_us(timeout))
        return self._set


class Thread:
    """threading.Thread: an actor of the process that starts it."""

    def __init__(
        self,
        target: Callable[..., object] | None = None,
        name: str = "thread",
        args: Sequence[Any] = (),
        daemon: bool | None = None,
    ) -> None:
        self.name = name
        self.daemon = daemon
        self._target = target
        self._args = args
        self._actor: Actor | None = None

    def start(self) -> None:
        world = _world()
        assert world.process is not None, "threads are started by processes"
        target = self._target
        assert target is not None
        self._actor = world.spawn(world.process, self.name, lambda: target(*self._args))

    def is_alive(self) -> bool:
        return self._actor is not None and not self._actor.ended

    def join(self, timeout: float | None = None) -> None:
        actor = self._actor
        if actor is None or actor.ended or actor is _world().current:
            return
        _world().wait(lambda resume: actor.on_end.append(lambda: resume(None)), _timeout_us(timeout))


class ThreadPoolExecutor:
    """concurrent.futures.ThreadPoolExecutor that does the work at once, where it is asked for."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "") -> None:
        del max_workers, thread_name_prefix

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def submit(self, work: Callable[..., T], *args: Any) -> Future[T]:
        future: Future[T] = Future()
        try:
            future.set_result(work(*args))
        except Exception as error:  # noqa: BLE001 - carried to whoever asks for the result
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., T], *arguments: Sequence[Any]) -> Iterator[T]:
        return map(work, *arguments)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        del wait, cancel_futures


@contextmanager
def simulated_threads(scheduler: Scheduler) -> Iterator[None]:
    """Inside, the simulated modules get these classes for `threading`, and this world to wait in."""
    global _scheduler  # noqa: PLW0603 - production code reaches its threads through a module's name
    here = importlib.import_module(__name__)
    places: list[tuple[ModuleType, str, object]] = []
    places += [(importlib.import_module(name), "threading", here) for name in MODULES]
    places += [(importlib.import_module(name), "ThreadPoolExecutor", ThreadPoolExecutor) for name in EXECUTORS]
    places += [(importlib.import_module(name), "uuid4", lambda: new_uuid(scheduler)) for name in UUIDS]
    present = [(module, name, stand_in) for module, name, stand_in in places if hasattr(module, name)]
    before = [(module, name, getattr(module, name)) for module, name, _ in present]
    outer, _scheduler = _scheduler, scheduler
    for module, name, stand_in in present:
        setattr(module, name, stand_in)
    try:
        yield
    finally:
        for module, name, original in before:
            setattr(module, name, original)
        _scheduler = outer


def new_uuid(scheduler: Scheduler) -> UUID:
    return UUID(int=scheduler.random.getrandbits(128), version=4)


def _timeout_us(seconds: float | None) -> int | None:
    if seconds is None:
        return None
    process = _world().process
    assert process is not None
    return process.clock.delay_us(seconds * 1000)


def _retake(lock: Lock) -> None:
    try:
        lock.acquire()
    except ProcessDied:
        # The process is dead, and so is everybody who could be surprised: the `with` block releases what it believes
        # to hold.
        pass
