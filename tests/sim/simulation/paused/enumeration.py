"""All the trials there are: every write and request of every scene, in every way; and the share that tests run.

And the breakers, each of which takes one fence away: some trial must find it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Final, NamedTuple

import msgspec

from regency.broker_agent.control.service import ControlService
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Check, Op
from simulation.defects import DEFECTS, UNSEEN
from simulation.defects.patching import Patch
from simulation.kernel.clock import Trace
from simulation.paused.scenes import SCENES
from simulation.paused.trial import WAYS, Outcome, Plant, nothing, pause_at, play
from simulation.paused.watch import Verb, verb_of, writing_verbs
from simulation.zookeeper.session_port import SimZkSession
from simulation.zookeeper.session_state import Call

EVERY: Final = 16
"""Of what is not the first of its kind the share has every so-many-th."""


class Trial(NamedTuple):
    """One of them. `way` is a key of WAYS."""

    scene: str
    number: int
    way: str

    def __str__(self) -> str:
        return f"--scene {self.scene} --number {self.number} --way {self.way}"


class Kind(NamedTuple):
    """What a moment is in essence."""

    verb: str
    event: str


@cache
def played(scene: str) -> Outcome:
    """A scene as it is when nobody is paused."""
    return play(*SCENES[scene])


def trials_of(scene: str) -> list[Trial]:
    """Every moment of a scene, in every way."""
    return [Trial(scene, moment.number, way) for moment in played(scene).moments for way in WAYS]


def share() -> dict[str, list[Trial]]:
    """By scene: of every kind of write or request the first there is, in every way; and others in turn by way.

    A kind is a function that writes, and the event during which it does; or what agents are asked for.
    """
    seen: set[Kind] = set()
    chosen: dict[str, list[Trial]] = {}
    others = 0
    for scene in SCENES:
        trials = chosen[scene] = []
        for moment in played(scene).moments:
            kind = Kind(moment.verb, moment.event)
            if kind not in seen:
                seen.add(kind)
                trials += [Trial(scene, moment.number, way) for way in WAYS]
                continue
            others += 1
            if others % EVERY == 0:
                trials.append(Trial(scene, moment.number, list(WAYS)[others // EVERY % len(WAYS)]))
    return chosen


def run(trial: Trial, *, trace: Trace | None = None, plant: Plant = nothing) -> Outcome:
    scene, shape = SCENES[trial.scene]
    return pause_at(scene, shape, trial.number, WAYS[trial.way], trace=trace, plant=plant)


WITHOUT_OFFICE: Final = {
    "store.elector._create": "creates what is missing before there is an office, and nothing where it is there",
    "store.elector._race": "is no write of a ruler: it creates /controller, which fails while somebody has it",
}
"""Functions whose writes nothing fences, and why."""

DEFECTS_OF_FENCES: Final = ("unfenced-writes", "newer-epoch-adopted", "any-controller-epoch")
"""Defects of the simulation that take fences away: of all writes, or at agents."""


class Breaker(NamedTuple):
    """Takes a fence away. `verb`: what has to be under way when the controller is paused; empty for anything."""

    name: str
    verb: str
    plant: Callable[[Patch], None]


def breakers() -> list[Breaker]:
    """One of every function that writes, one of what agents do aside, and the defects."""
    fenced = sorted(verb for verb in writing_verbs() if str(verb) not in WITHOUT_OFFICE)
    known = {**DEFECTS, **UNSEEN}
    return [
        *(Breaker(f"unfenced-{verb}", str(verb), partial(_unfence, verb)) for verb in fenced),
        Breaker("shut-down-for-anybody", "ShutDown", _shut_down_for_anybody),
        *(Breaker(name, "", known[name].plant) for name in DEFECTS_OF_FENCES),
    ]


def _unfence(verb: Verb, patch: Patch) -> None:
    """Where this function writes, it checks whatever version /controller_epoch has when that is sent.

    Not that there is no check at all: the invariants see that wherever nobody is paused.
    """
    submit = SimZkSession._submit_multi

    def adopting(self: SimZkSession, ops: Sequence[Op], generation: int | None) -> Call:
        epoch = self._connector._ensemble.read(paths.CONTROLLER_EPOCH)
        if epoch is not None and verb_of(sys._getframe(1)) == verb:
            ops = [_with_version(op, epoch.stat.version) for op in ops]
        return submit(self, ops, generation)

    patch.set(SimZkSession, "_submit_multi", adopting)


def _with_version(op: Op, version: int) -> Op:
    is_fence = isinstance(op, Check) and op.path == paths.CONTROLLER_EPOCH
    return msgspec.structs.replace(op, version=version) if is_fence else op


def _shut_down_for_anybody(patch: Patch) -> None:
    patch.edit(ControlService, "shut_down", ("if refused is not None:", "if False:"))
