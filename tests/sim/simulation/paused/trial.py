"""One run of a scene: to its end, or until a controller is paused somewhere, another rules, and it is resumed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from enum import Enum
from typing import Final, NamedTuple

from regency.controller.channel.metadata import MetadataLog
from regency.controller.controller import Controller
from regency.controller.elections import leader_elections
from regency.controller.events import ControllerChanged, Event, SessionEnded, ShutDown
from regency.controller.store import configs as store_configs
from regency.controller.topics import config_changes
from regency.model.errors import RegencyError
from regency.model.znodes import paths
from simulation.defects.patching import Patch
from simulation.faults.points import Points
from simulation.judging.judges import InvariantBroken, Judges
from simulation.kernel.clock import Trace
from simulation.kernel.scheduler import SECOND_US, Process, Scheduler, SimulationStuck
from simulation.kernel.threads import simulated_threads
from simulation.paused.deposed import Deposed
from simulation.paused.stage import Scene, Script, Stage
from simulation.paused.watch import Moment, Watch, When
from simulation.run import log_lines, no_collection
from simulation.shape import Shape
from simulation.world import World

SEED: Final = 1
"""Of every run: what a network does by chance is the same up to the pause."""

LOOK_US: Final = 50_000
"""How often a scene looks for what it waits for."""

NEAR_US: Final = 10_000
"""How often it is looked whether another rules."""

WELL_US: Final = SECOND_US // 4
PATIENCE_US: Final = 20 * SECOND_US
"""How long a scene waits for what it needs, and somebody for an end of what the pause has left behind."""

ALONE_US: Final = 3 * SECOND_US // 2
"""So long the deposed one goes on before whatever the scene has broken is mended."""

UNDER_WAY_US: Final = 2_000
"""So long a message takes at most, there or back."""

SPARE_US: Final = SECOND_US // 2
"""Before a session would expire that shall live on: what is on its way needs some time to arrive."""

HURRIED: Final = (
    (store_configs, "LASTS_MS", 2_000),
    (config_changes, "LASTS_MS", 2_000),
    (leader_elections, "FIRST_CHECK_MS", 1_000),
)
"""What controllers wait for longer than a scene shall last; in milliseconds."""

RETAINED_BYTES: Final = 300
"""Of metadata deltas: so few that a broker that is behind needs a snapshot."""


Plant = Callable[[Patch], None]
"""Plants a defect."""


class Deposition(Enum):
    """How somebody else comes to rule."""

    EXPIRED = "its session expires"
    DELETED = "/controller is deleted, and its session lives on"


class Way(NamedTuple):
    """How a controller is paused, and deposed."""

    when: When
    deposition: Deposition

    def __str__(self) -> str:
        return f"{self.when.name.lower()}-{self.deposition.name.lower()}"


WAYS: Final = {
    str(way): way
    for way in (
        Way(When.BEFORE, Deposition.EXPIRED),
        Way(When.SENT, Deposition.EXPIRED),
        Way(When.BEFORE, Deposition.DELETED),
        Way(When.SENT, Deposition.DELETED),
        Way(When.HELD, Deposition.DELETED),
    )
}
"""By name. What is on its way when the session expires does not arrive: ZooKeeper has closed the connection."""


class Outcome(NamedTuple):
    """What came of a run. `failure` is None where nothing is wrong."""

    failure: str | None
    moments: tuple[Moment, ...]
    events: frozenset[str]
    """Everything the controllers reacted to."""
    points: Mapping[str, int]
    """How often each crash point was passed."""
    struck: Moment | None
    acted: bool
    """Whether all was done, and everybody told, by who had taken over, when the paused one was resumed."""
    digest: int
    cpu_s: float


class Wrong(Exception):
    """Something else than an invariant is wrong."""


class SceneStuck(Wrong):
    """A scene waits in vain."""


class NobodyRules(Wrong):
    """Nobody takes over."""


class NotWell(Wrong):
    """What was left behind is not put right."""


def nothing(_: Patch) -> None:
    """No defect."""


def play(scene: Scene, shape: Shape, *, trace: Trace | None = None, plant: Plant = nothing) -> Outcome:
    return _run(scene, shape, 0, WAYS["before-expired"], trace, plant)


def pause_at(
    scene: Scene, shape: Shape, number: int, way: Way, *, trace: Trace | None = None, plant: Plant = nothing
) -> Outcome:
    """Pause the controller that is at moment `number`, until another has taken over."""
    return _run(scene, shape, number, way, trace, plant)


def _run(scene: Scene, shape: Shape, number: int, way: Way, trace: Trace | None, plant: Plant) -> Outcome:
    began = time.process_time()
    scheduler = Scheduler(SEED, trace)
    points, patch, failure = Points(scheduler), Patch(), None
    with ExitStack() as stack:
        stack.enter_context(simulated_threads(scheduler))
        stack.enter_context(points.watching())
        stack.enter_context(log_lines(scheduler))
        stack.enter_context(no_collection())
        stack.callback(patch.undo)
        plant(patch)
        for owner, name, value in HURRIED:
            patch.set(owner, name, value)
        patch.set(MetadataLog.__init__, "__kwdefaults__", {"retained_bytes": RETAINED_BYTES})
        trial = _Trial(scene, shape, number, way, points, scheduler, patch)
        stack.callback(trial.end)
        try:
            trial.run()
        except (InvariantBroken, SimulationStuck, RegencyError, AssertionError, Wrong) as error:
            failure = f"{type(error).__name__}: {error}"
    return Outcome(
        failure,
        tuple(trial.watch.moments),
        frozenset(trial.events),
        dict(points.passed),
        trial.struck,
        trial.acted,
        scheduler.trace.digest,
        time.process_time() - began,
    )


class _Trial:
    """The stages of a run."""

    def __init__(
        self, scene: Scene, shape: Shape, number: int, way: Way, points: Points, scheduler: Scheduler, patch: Patch
    ) -> None:
        self.struck: Moment | None = None
        self.acted = False
        self.events: set[str] = set()
        self._scheduler = scheduler
        self._number = number
        self._points = points
        self._way = way
        self._world = World(scheduler, shape)
        self._judges = Judges(self._world)
        self._deposed = Deposed(self._world, self._judges, patch)
        self.watch = Watch(self._world, number, way.when, self._strike)
        self._stage = Stage(self._world, self._judges, points, self.watch)
        self._script = scene(self._stage)
        patch.set(Controller, "_route", self._noting(Controller._route))

    def run(self) -> None:
        """From the first start to the verdict. Raises what is wrong."""
        self._judges.begin()
        self._play(self._script)
        self.watch.stop()
        if self._number:
            self._depose()
        self._world.heal()
        self._until_well()

    def end(self) -> None:
        self._scheduler.after_step = None
        self._script.close()
        self._stage.end()
        for host in self._world.hosts.values():
            for process in (host.agent_process, host.controller_process):
                if process is not None:
                    process.kill()

    def _strike(self, process: Process, moment: Moment) -> None:
        self.struck = moment
        self._deposed.begin(process)
        self._scheduler.stop()

    def _play(self, script: Script) -> None:
        """Until the end, or until somebody is paused."""
        for step in script:
            if isinstance(step, float):
                self._pass_us(int(step * SECOND_US))
            else:
                self._wait(step, PATIENCE_US)
            if self.struck is not None:
                return

    def _wait(self, until: Callable[[], bool], patience_us: int) -> None:
        deadline = self._scheduler.now_us + patience_us
        while self.struck is None and not until():
            if self._scheduler.now_us >= deadline:
                raise SceneStuck(f"at {self._scheduler.now_us / SECOND_US:.3f} s: {self._judges.not_converged()}")
            self._pass_us(LOOK_US)

    def _pass_us(self, time_us: int) -> None:
        self._scheduler.run_until(self._scheduler.now_us + time_us)
        self._scheduler.stopped = False

    def _depose(self) -> None:
        """Let somebody else take over, and then let the paused one go on."""
        if self.struck is None:
            raise SceneStuck(f"there are only {len(self.watch.moments)} writes and requests")
        deposed, world = self._deposed, self._world
        world.network.heal()  # or an agent that hears from nobody else would obey the old one, and rightly
        for broker, host in world.hosts.items():
            if host.agent is None:
                world.start_agent(broker)
            if host.controller_process is not None and host.controller_process is not deposed.process:
                host.controller_process.resume()
        deadline = self._scheduler.now_us + PATIENCE_US
        if self._way.deposition is Deposition.DELETED:
            self._pass_us(UNDER_WAY_US)  # what was sent arrives while it still rules
            world.zookeeper.delete_as_admin(paths.CONTROLLER)
            deadline = min(deadline, deposed.session_ends_us - SPARE_US)
        lives_on = self._way.deposition is Deposition.DELETED
        while self._scheduler.now_us < deadline and not (deposed.in_session is lives_on and deposed.is_forgotten()):
            self._pass_us(NEAR_US)
        if not deposed.is_replaced() or deposed.in_session is not lives_on:
            raise NobodyRules(f"somebody else rules: {deposed.is_replaced()}; it has a session: {deposed.in_session}")
        self.acted = deposed.is_forgotten()
        world.note("fault", "world", "another rules: what was paused goes on")
        self._points.disarm_all()
        for link in world.zk_links.values():
            link.lose_requests = link.lose_replies = 0  # what it does now arrives
        deposed.resumed()
        self.watch.let_go()
        assert deposed.process is not None
        deposed.process.resume()
        self._pass_us(ALONE_US)

    def _until_well(self) -> None:
        deadline = self._scheduler.now_us + PATIENCE_US
        while reasons := self._judges.not_converged():
            if self._scheduler.now_us >= deadline:
                raise NotWell("; ".join(reasons))
            self._pass_us(WELL_US)

    def _noting(self, route: Callable[[Controller, Event], None]) -> Callable[[Controller, Event], None]:
        """Have every event noted that a controller reacts to."""
        always = (ControllerChanged, SessionEnded, ShutDown)

        def noting(controller: Controller, event: Event) -> None:
            if isinstance(event, always) or controller._term is not None:
                self.events.add(type(event).__name__)
            route(controller, event)

        return noting
