"""The scheduler: one OS thread, virtual time, and actors (greenlets) that belong to simulated processes.

Whatever happens is an entry of one heap, ordered by time and then by order of entry; chance comes from one generator.
So a seed determines a run. Work runs either on the scheduler's own greenlet, where it must not block, or in an actor.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet

from simulation.kernel.clock import ProcessClock, Trace

SECOND_US: Final = 1_000_000


class ProcessDied(GreenletExit):
    """The simulated process this code runs in is dead: it must not do anything any more. A BaseException."""


class TimedOut:
    """What `Scheduler.wait` returns when nobody resumed in time."""


TIMED_OUT: Final = TimedOut()


class SimulationStuck(BaseException):
    """Something that must not block would have to wait."""


class Timer:
    """Work that is due at some time."""

    __slots__ = ("cancelled", "has_turn", "is_watched", "of_loop", "process", "work")

    def __init__(
        self, work: Callable[[], object], process: Process | None, is_watched: bool, of_loop: bool = False
    ) -> None:
        self.work = work
        self.of_loop = of_loop
        self.has_turn = False
        """Whether a loop that needs time has come to it."""
        self.process = process
        self.is_watched = is_watched
        self.cancelled = False

    def cancel(self) -> None:
        """Do not run it, and hold on to nothing that it would need. Harmless when it has run."""
        self.cancelled = True
        self.work = _nothing


def _nothing() -> None:
    """What a timer that was cancelled does."""


class _Switch:
    """A timer that lets an actor go on, with a value."""

    __slots__ = ("actor", "cancelled", "process", "scheduler", "value")

    is_watched = True
    of_loop = False
    has_turn = False

    def __init__(self, scheduler: Scheduler, actor: Actor, value: Any) -> None:
        self.scheduler = scheduler
        self.actor = actor
        self.process = actor.process
        self.value = value
        self.cancelled = False

    def work(self) -> None:
        scheduler, actor = self.scheduler, self.actor
        carrier, value = actor.carrier, self.value
        if carrier is None:
            if actor.ended:
                return
            carrier, value = scheduler.carrier(), actor
            actor.carrier = carrier
        scheduler.current = actor
        try:
            carrier.switch(value)
        finally:
            scheduler.current = None


class _Wait:
    """An actor that is parked until `resume` or until its time is over, whichever comes first."""

    __slots__ = ("actor", "scheduler", "timer", "waiting")

    def __init__(self, scheduler: Scheduler, actor: Actor) -> None:
        self.scheduler = scheduler
        self.actor = actor
        self.waiting = True
        self.timer: Timer | None = None

    def resume(self, value: Any = None) -> None:
        if self.waiting:
            self.waiting = False
            if self.timer is not None:
                self.timer.cancel()
                self.timer = None
            self.scheduler.push(self.actor.process.needs_us(), _Switch(self.scheduler, self.actor, value))

    def time_out(self) -> None:
        self.resume(TIMED_OUT)


class Actor:
    """A thread of a process. A greenlet carries it from its first step to its end, and then others."""

    __slots__ = ("carrier", "ended", "name", "on_end", "process", "run")

    def __init__(self, process: Process, name: str, run: Callable[[], object]) -> None:
        self.process = process
        self.name = name
        self.run = run
        self.carrier: greenlet | None = None
        self.ended = False
        self.on_end: list[Callable[[], None]] = []


Due = Timer | _Switch


class Process:
    """A simulated operating-system process: it can die, be paused, go on. Its clocks are its own or its machine's."""

    __slots__ = (
        "_callbacks",
        "_cost",
        "_deferred",
        "_queue",
        "_scheduler",
        "_serves",
        "actors",
        "alive",
        "clock",
        "held",
        "incarnation",
        "loop_stands",
        "name",
        "paused",
        "pauses",
        "stands",
    )

    def __init__(
        self, scheduler: Scheduler, name: str, *, incarnation: int = 1, clock: ProcessClock | None = None
    ) -> None:
        self.name = name
        self.incarnation = incarnation
        self.alive = True
        self.paused = False
        self.pauses = 0
        """How often it was paused."""
        self.stands = 0
        """How often its data loop began to stand still."""
        self.loop_stands = False
        self.held = False
        """Whether anything of it is deferred."""
        self.clock = clock or ProcessClock(scheduler)
        self.actors: list[Actor] = []
        self._scheduler = scheduler
        self._cost: Callable[[], int] | None = None
        """What a step costs by now, in microseconds; None: nothing."""
        self._deferred: deque[Due] = deque()
        self._queue: deque[Timer] = deque()
        """What the data loop has yet to come to."""
        self._serves = False
        """Whether the data loop is at something, or about to be."""
        self._callbacks: list[Callable[[], None]] = []

    def check_alive(self) -> None:
        """Raise ProcessDied in a process that is dead."""
        if not self.alive:
            raise ProcessDied

    def on_death(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, on whatever greenlet, when the process dies."""
        self._callbacks.append(callback)

    def kill(self) -> None:
        """End it now, between any two instructions. Its greenlets get ProcessDied; harmless twice.

        Called within the process itself it returns: `check_alive` then raises.
        """
        if not self.alive:
            return
        self.alive = False
        self.paused = self.loop_stands = self.held = False
        self._cost = None
        self._deferred.clear()
        self._queue.clear()
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()
        self._scheduler.reap(self)

    def pause(self) -> None:
        """SIGSTOP: nothing of it runs until `resume`; its clocks go on."""
        if self.alive:
            self.paused = self.held = True
            self.pauses += 1

    def resume(self) -> None:
        """SIGCONT: whatever became due meanwhile runs now, in order."""
        self.paused = False
        self._let_go()

    def stand(self) -> None:
        """Its data loop stands still until `go_on`; its other threads, its session and its ports do not."""
        if self.alive:
            self.loop_stands = self.held = True
            self.stands += 1

    def go_on(self) -> None:
        """Whatever the data loop has to do since it stands is done now, in order."""
        self.loop_stands = False
        self._let_go()

    def slow_down(self, cost: Callable[[], int]) -> None:
        """Each step takes so many microseconds from now on: what the data loop does, and what others do up to a call
        of a port or a lock, and once they have been waited for."""
        if self.alive:
            self._cost = cost
            self.held = True

    def speed_up(self) -> None:
        """Steps take no time any more; what the data loop has not come to is done now, in order."""
        self._cost = None
        self.held = self.paused or self.loop_stands
        while self._queue:
            self._turn_to(self._queue.popleft())

    def needs_us(self) -> int:
        return 0 if self._cost is None else self._cost()

    def defers(self, timer: Due) -> bool:
        """Whether what is due has to wait: for the end of a pause, or for the data loop. It is kept until then."""
        if self.paused or (self.loop_stands and timer.of_loop):
            self._deferred.append(timer)
            return True
        if self._cost is None or timer.has_turn or not isinstance(timer, Timer) or not timer.of_loop:
            return False
        self._queue.append(timer)
        if not self._serves:
            self._serve()
        return True

    def _serve(self) -> None:
        """Come to the next, and to the one after it when this one's time is over."""
        self._serves = bool(self._queue)
        if self._queue:
            self._turn_to(self._queue.popleft())
            over = Timer(self._serve, self, is_watched=False, of_loop=True)
            self._turn_to(over, self.needs_us())

    def _turn_to(self, timer: Timer, delay_us: int = 0) -> None:
        timer.has_turn = True
        self._scheduler.push(delay_us, timer)

    def _let_go(self) -> None:
        self.held = self.paused or self.loop_stands or self._cost is not None
        deferred, self._deferred = self._deferred, deque()
        for timer in deferred:
            self._scheduler.push(0, timer)


class Scheduler:
    """Runs one simulated world."""

    def __init__(self, seed: int, trace: Trace | None = None) -> None:
        self.now_us = 0
        self.steps = 0
        self.random = random.Random(seed)
        self.trace = trace if trace is not None else Trace()
        self.trace.bind(lambda: self.now_us)
        self.current: Actor | None = None
        """The actor that runs; None on the scheduler's own greenlet."""
        self.process: Process | None = None
        """The process on whose behalf something runs."""
        self.of_loop = False
        """Whether its data loop does."""
        self.after_step: Callable[[], None] | None = None
        """Called after everything that happened and is watched, with `process` still set: the place of checks."""
        self.stopped = False
        self._heap: list[tuple[int, int, Due]] = []
        self._order = 0
        self._hub = getcurrent()
        self._idle: list[greenlet] = []

    # What is due

    def at(
        self,
        delay_us: int,
        work: Callable[[], object],
        process: Process | None = None,
        *,
        is_watched: bool = True,
        of_loop: bool = False,
    ) -> Timer:
        """Run `work` on the scheduler's greenlet, `delay_us` microseconds from now.

        With a process: not at all once it has died, and after its pause while it is paused. What is not watched only
        moves messages: nobody looks for what it has done. `of_loop`: the data loop of the process does it.
        """
        timer = Timer(work, process, is_watched, of_loop)
        self._order += 1
        heappush(self._heap, (self.now_us + delay_us, self._order, timer))
        return timer

    def push(self, delay_us: int, timer: Due) -> None:
        """Have an existing timer run `delay_us` microseconds from now."""
        self._order += 1
        heappush(self._heap, (self.now_us + delay_us, self._order, timer))

    def spawn(self, process: Process, name: str, run: Callable[[], object], *, delay_us: int = 0) -> Actor:
        """Start an actor: it runs after `delay_us` microseconds and what is due then and was asked for earlier."""
        process.check_alive()
        actor = Actor(process, name, run)
        process.actors.append(actor)
        self.push(delay_us, _Switch(self, actor, None))
        return actor

    # Waiting, for actors

    def wait(self, register: Callable[[Callable[[Any], None]], object], timeout_us: int | None = None) -> Any:
        """Park the current actor until `resume(value)` is called; the value, or TIMED_OUT after `timeout_us`.

        `register` is called at once with `resume`, of which only the first call counts.
        """
        actor = self.current
        if actor is None:
            raise SimulationStuck("something waits on the scheduler's own greenlet: a data loop would stand still")
        actor.process.check_alive()
        wait = _Wait(self, actor)
        register(wait.resume)
        if timeout_us is not None and wait.waiting:
            wait.timer = self.at(max(timeout_us, 0), wait.time_out, actor.process, is_watched=False)
        return self._hub.switch()

    def compute(self) -> None:
        """Let pass what a step costs the current actor, if anything: before it calls a port, or takes a lock."""
        actor = self.current
        if actor is not None and actor.process.held and (delay_us := actor.process.needs_us()):
            self.sleep_us(delay_us)

    def sleep_us(self, delay_us: int) -> None:
        """Let virtual time pass for the current actor."""
        actor = self.current
        if actor is None:
            raise SimulationStuck("something sleeps on the scheduler's own greenlet")
        actor.process.check_alive()
        self.push(delay_us, _Switch(self, actor, None))
        self._hub.switch()

    # Running

    def run_until(self, until_us: int) -> None:
        """Run everything that is due up to this time, then let it be this time. Raises what work raises."""
        heap = self._heap
        while heap and heap[0][0] <= until_us and not self.stopped:
            when, _, timer = heappop(heap)
            if timer.cancelled:
                continue
            process = timer.process
            self.now_us = when
            if process is not None:
                if not process.alive:
                    continue
                if process.held and process.defers(timer):
                    continue
            self.steps += 1
            self.process = process
            self.of_loop = timer.of_loop
            try:
                timer.work()
            except ProcessDied:
                pass
            if timer.is_watched:
                after_step = self.after_step
                if after_step is not None:
                    after_step()
            self.process = None
        if not self.stopped:
            self.now_us = max(self.now_us, until_us)

    def stop(self) -> None:
        self.stopped = True

    def reap(self, process: Process) -> None:
        """Throw ProcessDied into every greenlet of a dead process, now or as soon as the scheduler has control."""
        if getcurrent() is not self._hub:
            self.at(0, lambda: self.reap(process))
            return
        before = self.current, self.process
        for actor in list(process.actors):
            if not actor.ended:
                self.current, self.process = actor, process
                if actor.carrier is not None:
                    actor.carrier.throw(ProcessDied)
                self._ended(actor)
        self.current, self.process = before

    def close(self) -> None:
        """Let go of the greenlets that carry nobody."""
        for carrier in self._idle:
            carrier.throw(GreenletExit)
        self._idle.clear()

    def carrier(self) -> greenlet:
        """A greenlet that carries nobody; switching to it with an actor has it carry that one."""
        return self._idle.pop() if self._idle else greenlet(self._carry, self._hub)

    def _carry(self, actor: Actor | None) -> None:
        while actor is not None:
            try:
                actor.run()
            except ProcessDied:
                pass
            finally:
                self._ended(actor)
            actor = None  # it is held by nobody while others run
            self._idle.append(getcurrent())
            actor = self._hub.switch()

    def _ended(self, actor: Actor) -> None:
        if not actor.ended:
            actor.ended, actor.carrier = True, None
            if actor in actor.process.actors:
                actor.process.actors.remove(actor)
            for callback in actor.on_end:
                callback()
