"""All the trials there are: every write and request of every scene, in every way; and the share that tests run."""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

from simulation.kernel.trace import Trace
from simulation.paused.scenes import SCENES
from simulation.paused.trial import WAYS, Outcome, Plant, nothing, pause_at, play

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
