"""One run: a world, its clients, its faults and its judges, from a seed to a verdict."""

from __future__ import annotations

import gc
import logging
import random
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import NamedTuple

from regency.broker_agent.control import service as control_service
from regency.broker_agent.registry import isr_store, topic_configs
from regency.broker_agent.replication import fetch, isr_maintenance
from regency.broker_agent.replication.fetcher import fetcher_logic
from regency.controller import term
from regency.controller.channel import request_batch, sender
from regency.controller.channel.metadata import MetadataLog
from regency.judge.findings import Verdict
from regency.judge.verdict import judge
from regency.model.errors import RegencyError
from regency.runtime.zookeeper import fenced
from simulation.admin import Admin
from simulation.defects import exposing, planted
from simulation.defects.patching import Patch
from simulation.faults.injector import LONGEST_US, Injector, aftershocks
from simulation.faults.plan import Fault, fitted, plan
from simulation.faults.points import Points, crash_point_names, favourites
from simulation.faults.stage import Told
from simulation.groups import Groups, in_pieces
from simulation.judging.invariants import broken
from simulation.judging.judges import InvariantBroken, Judges
from simulation.kernel.clock import Trace
from simulation.kernel.scheduler import Scheduler, SimulationStuck
from simulation.kernel.threads import simulated_threads
from simulation.moves import Mover, slowly
from simulation.shape import SECOND_US, Shape
from simulation.workload import Workload
from simulation.world import World

OFTEN = 0.6
"""How many of the runs of the deep profile."""


@contextmanager
def cut(profile: str, seed: int) -> Iterator[None]:
    """Inside, limits may be small; always what they are in production under the quick profile."""
    chance = random.Random(f"pieces {seed}")
    patch = Patch()
    try:
        if profile == "deep":
            patch.set(topic_configs, "_TOLD_AT_ONCE", 1)
        if profile == "deep" and chance.random() < OFTEN:
            patch.set(request_batch, "PARTITIONS_PER_DELTA", chance.choice((1, 2)))
            patch.set(sender, "CHUNK_BYTES", chance.choice((1, 200)))
            patch.set(term, "MANY_WRITES", chance.choice((1, 1_000)))
            patch.set(fenced, "MAX_BATCH_OPS", chance.choice((1, 3, fenced.MAX_BATCH_OPS)))
            patch.set(control_service, "SLICE", chance.choice((1, 2)))
            patch.set(isr_store, "BATCH", chance.choice((1, 2)))
            patch.set(isr_store, "NOTIFY_PARTITIONS", chance.choice((1, 2)))
            patch.set(isr_maintenance, "_SLICE", chance.choice((1, 2)))
            patch.set(fetcher_logic, "_CUTS_AT_ONCE", 1)
            patch.set(fetch, "PARTITIONS_PER_STEP", 1)
            patch.set(MetadataLog.read, "__defaults__", (chance.choice((1, 400)),))
            patch.set(MetadataLog.__init__, "__kwdefaults__", {"retained_bytes": chance.choice((400, 2_000))})
        yield
    finally:
        patch.undo()


LOOK_US = 250_000
"""How often convergence is looked at."""

LAST_POLLS_US = 3 * SECOND_US
"""Longer than the long poll that a consumer is in, its rest and a whole one more, which the judge asks for."""

LONGEST_POLLS_US = 10 * SECOND_US
"""More, where some partition was polled by nobody since: its leader may have moved meanwhile."""

READ_BACK_US = 20 * SECOND_US
"""How long reading back may take."""

QUIET_US = 2 * SECOND_US
"""Producers go on for at least so long after the last fault has healed."""

END_US = 4 * SECOND_US
"""About how long the end takes where all is well: converging, the last polls, reading back."""


class RunResult(NamedTuple):
    """What came of a seed. `failure` is None where nothing is wrong."""

    seed: int
    failure: str | None
    last_events: list[str]
    steps: int
    seconds: float
    """Virtual."""
    cpu_s: float
    digest: int
    passed: dict[str, int]
    died_at: dict[str, int]
    faults: dict[str, int]
    records: int


class HistoryWrong(Exception):
    """Clients saw what they must not see."""


class NotConverged(Exception):
    """The cluster is not well again within its time."""


def run(seed: int, shape: Shape, *, trace: Trace | None = None, defect: str = "") -> RunResult:
    """Run a seed to its verdict. Never raises for what is wrong with the cluster.

    With a defect it is the run that exposes it (`exposing`).
    """
    with no_collection():
        return _run(seed, shape, trace, defect)


def _run(seed: int, shape: Shape, trace: Trace | None, defect: str) -> RunResult:
    began = time.process_time()
    shape = fitted(exposing(shape, defect), seed)
    scheduler = Scheduler(seed, trace)
    run_ = _Run(seed, scheduler, shape)
    failure: str | None = None
    with ExitStack() as stack:
        stack.enter_context(simulated_threads(scheduler))
        stack.enter_context(run_.points.watching())
        stack.enter_context(cut(shape.profile, seed))
        stack.enter_context(slowly(shape, seed))
        stack.enter_context(in_pieces(shape, seed))
        stack.enter_context(planted(defect))
        stack.enter_context(log_lines(scheduler))
        try:
            run_.play()
        except (InvariantBroken, HistoryWrong, NotConverged, SimulationStuck) as error:
            failure = f"{type(error).__name__}: {error}"
        except Exception as error:
            failure = f"{type(error).__name__}: {error}"
            if scheduler.trace.on:
                logging.disable(logging.NOTSET)
                logging.getLogger(__name__).exception("the run ended by an exception")
        last_events = scheduler.trace.last()
        run_.end()
    return RunResult(
        seed,
        failure,
        last_events,
        scheduler.steps,
        scheduler.now_us / SECOND_US,
        time.process_time() - began,
        scheduler.trace.digest,
        dict(run_.points.passed),
        dict(run_.points.died_at),
        dict(run_.fault_counts),
        run_.workload.records,
    )


class _Run:
    """The stages of a run."""

    def __init__(self, seed: int, scheduler: Scheduler, shape: Shape) -> None:
        self._scheduler = scheduler
        self._shape = shape
        self.points = Points(scheduler)
        self.world = World(scheduler, shape)
        self.judges = Judges(self.world)
        self.workload = Workload(self.world, self.judges.facts)
        self.groups = Groups(self.world, self.judges.facts, seed)
        self._faults = plan(shape, seed)
        self.fault_counts: Counter[str] = Counter()
        """Faults that happened, by what reports call them."""
        self._aftershocks = aftershocks(shape, seed)
        self._seed = seed
        self._injector = self._new_injector()
        self._injector.schedule(self._faults)
        self._mover = Mover(self.world, seed)

    def play(self) -> None:
        """From the first start to the verdict. Raises what is wrong."""
        scheduler, shape = self._scheduler, self._shape
        for broker in self.world.hosts:
            delay = scheduler.random.randrange(SECOND_US)
            scheduler.at(delay, partial(self.world.start_agent, broker))
        Admin(self.world, shape.topics, self.workload.start)
        self.groups.start()
        self.judges.begin()
        scheduler.run_until(int(shape.heal_s * SECOND_US))
        self.world.note("heal", "world", "everything works again")
        self._injector.close()
        self._mover.close()
        self.world.heal()
        scheduler.run_until(max(scheduler.now_us + QUIET_US, int(shape.least_s * SECOND_US) - END_US))
        self.workload.stop()
        self.groups.settle()
        self._converge()
        verdict = self._judge()
        if not verdict.clean:
            raise HistoryWrong(verdict.summary())
        for faults in self._aftershocks:
            self._shake(faults)

    def end(self) -> None:
        """Let go of everything: greenlets that hang somewhere would be ended by the garbage collector, anywhere."""
        self._scheduler.after_step = None
        for host in self.world.hosts.values():
            for process in (host.agent_process, host.controller_process):
                if process is not None:
                    process.kill()
        self.workload.end()
        self.groups.close()
        self._scheduler.close()

    def _converge(self) -> None:
        """Wait until all is well, then read everything back. Raises NotConverged."""
        scheduler, patience_s = self._scheduler, self._shape.patience_s
        deadline = int((self._shape.heal_s + patience_s) * SECOND_US)
        reasons = ["nobody has looked"]
        while reasons:
            if scheduler.now_us >= deadline:
                raise NotConverged(f"not converged {patience_s:.0f} s after healing: {'; '.join(reasons)}")
            scheduler.run_until(scheduler.now_us + LOOK_US)
            reasons = self.workload.unfinished() or self._mover.unfinished() or self.groups.unfinished()
            reasons = reasons or self.judges.not_converged()
        self.world.note("heal", "world", "converged")
        self.workload.drained()
        scheduler.run_until(scheduler.now_us + LAST_POLLS_US)
        deadline = scheduler.now_us + LONGEST_POLLS_US
        while self.workload.unpolled() and scheduler.now_us < deadline:
            scheduler.run_until(scheduler.now_us + LOOK_US)
        self.workload.read_back()
        deadline = scheduler.now_us + READ_BACK_US
        while self.workload.unread():
            if scheduler.now_us >= deadline:
                raise NotConverged(f"could not read back {', '.join(map(str, self.workload.unread()))}")
            scheduler.run_until(scheduler.now_us + LOOK_US)
        scheduler.run_until(int(self._shape.least_s * SECOND_US))

    def _shake(self, faults: Sequence[Fault]) -> None:
        """All is well and nobody asks anything: a few faults, and it must come right by itself. Raises NotConverged."""
        scheduler, patience_s = self._scheduler, self._shape.patience_s
        injector = self._new_injector()
        injector.schedule([fault._replace(at_us=scheduler.now_us + fault.at_us) for fault in faults])
        scheduler.run_until(scheduler.now_us + LONGEST_US)
        self.world.note("heal", "world", "everything works again")
        injector.close()
        self.world.heal()
        deadline = scheduler.now_us + int(patience_s * SECOND_US)
        while reasons := self.judges.not_converged():
            if scheduler.now_us >= deadline:
                raise NotConverged(f"not converged {patience_s:.0f} s after an aftershock: {'; '.join(reasons)}")
            scheduler.run_until(scheduler.now_us + LOOK_US)

    def _new_injector(self) -> Injector:
        facts = self.judges.facts
        clients, lost = self.workload, facts.lost_states.add
        told = Told(
            facts.lossy_crash,
            clients.kill_client,
            clients.seek,
            clients.look_again,
            self._recreating,
            self._removing,
            lost,
            facts.compacted.add,
        )
        liked = favourites(_names(), self._seed)
        return Injector(self.world, self.points, _names(), liked, told, self.fault_counts)

    def _recreating(self, topic: str) -> None:
        self.groups.rules.gone_topics.add(topic)
        self.workload.recreating(topic)

    def _removing(self, topic: str) -> None:
        self.groups.rules.gone_topics.add(topic)
        self.judges.facts.removed.add(topic)

    def _judge(self) -> Verdict:
        self.workload.end()
        self.groups.end()
        self.judges.check_reads(self.workload.reads)
        return judge(self.workload.history(), self.workload.allowed())


_NAMES: list[str] = []


def _names() -> list[str]:
    if not _NAMES:
        _NAMES.extend(crash_point_names())
    return _NAMES


@contextmanager
def no_collection() -> Iterator[None]:
    """The garbage collector may run code of a simulated process at any moment: not within a run, but right after it.

    All that is garbage then is young: older objects, of which there are many, are not looked at.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.collect(0)
        if was:
            gc.enable()


class _LogLines(logging.Handler):
    def __init__(self, scheduler: Scheduler) -> None:
        super().__init__()
        self._scheduler = scheduler

    def emit(self, record: logging.LogRecord) -> None:
        """A log line of production code is an event; one that comes with an unexpected exception is a fault of it."""
        process = self._scheduler.process
        who = process.name if process else "world"
        kind = record.levelname.lower()
        self._scheduler.trace.note(kind[:8], who, "%s", record.getMessage())
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception) and not isinstance(error, RegencyError | OSError):
            raise broken("no-surprise", f"{who}: {record.getMessage()}: {type(error).__name__}: {error}") from error


@contextmanager
def log_lines(scheduler: Scheduler) -> Iterator[None]:
    """Errors that production code logs are looked at; with the trace on, whatever it logs is part of it."""
    logger = logging.getLogger("regency")
    handler, level, propagates = _LogLines(scheduler), logger.level, logger.propagate
    disabled = logging.root.manager.disable
    logging.disable(logging.NOTSET if scheduler.trace.on else logging.WARNING)
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagates
        logging.disable(disabled)
