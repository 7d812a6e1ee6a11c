"""The faults of a run: drawn from its seed before it begins, so that what the cluster does cannot change them."""

from __future__ import annotations

import random
from enum import Enum
from typing import NamedTuple

from simulation.shape import Shape

SECOND_US = 1_000_000


class Kind(Enum):
    """A kind of fault; the value is how likely it is among others."""

    KILL_AGENT = "kill agent"
    KILL_CONTROLLER = "kill controller"
    PAUSE_AGENT = "pause agent"
    PAUSE_CONTROLLER = "pause controller"
    PAUSE_HOST = "pause host"
    STOP_AGENT = "stop agent"
    CRASH_AT_POINT = "crash at point"
    PAUSE_AT_POINT = "pause at point"
    CRASH_AT_DISK = "crash at disk operation"
    ISOLATE = "isolate host"
    ONE_WAY = "one-way partition"
    SPLIT = "cut a pair"
    LOSS = "lossy link"
    DELAY = "slow link"
    LOSE_ANSWERS = "answers lost"
    RESET = "reset connections"
    ZK_CUT = "cut from zookeeper"
    ZK_LOST_REPLY = "zookeeper reply lost"
    ZK_EXPIRE = "session expired"
    ZK_SLOW = "slow zookeeper"
    ZK_OUTAGE = "zookeeper outage"
    ZK_LAG = "lagging zookeeper server"
    DISK_FULL = "disk full"
    DISK_FAILS = "disk fails"
    DISK_SLOW = "slow disk"
    CLOCK_DRIFT = "clock drifts"
    CLOCK_STEP = "clock steps"
    DELETE_CONTROLLER = "delete /controller"
    KILL_CLIENT = "kill client"


class Fault(NamedTuple):
    """One fault: what happens to whom, when, and for how long."""

    at_us: int
    kind: Kind
    broker: int
    other: int
    """A second broker, never the same."""
    for_us: int
    detail: float
    """Uniform in [0, 1): whatever else the kind has to choose."""
    lossy: bool

    def __str__(self) -> str:
        lossy = ", losing what was not synced" if self.lossy else ""
        lasting = f"for {self.for_us / SECOND_US:.3f} s"
        return f"{self.kind.value}: broker {self.broker}, other {self.other}, {lasting}{lossy}"


CRASHES = (Kind.KILL_AGENT, Kind.CRASH_AT_POINT, Kind.CRASH_AT_DISK)
LONG = (Kind.PAUSE_AGENT, Kind.PAUSE_CONTROLLER, Kind.PAUSE_HOST, Kind.ISOLATE, Kind.ZK_CUT, Kind.ZK_OUTAGE)


def plan(shape: Shape, seed: int) -> list[Fault]:
    """The faults of a seed, by time. All are over at `shape.heal_s`."""
    chance = random.Random(f"faults {seed}")
    kinds = _swarm(shape, chance)
    first, last = int(shape.first_fault_s * SECOND_US), int(shape.heal_s * SECOND_US)
    times = sorted(chance.randrange(first, last - 2 * SECOND_US) for _ in range(shape.faults))
    lossy_left = shape.lossy
    faults: list[Fault] = []
    for at_us in times:
        kind = chance.choice(kinds)
        broker = chance.randint(1, shape.brokers)
        other = chance.choice([each for each in range(1, shape.brokers + 1) if each != broker])
        duration = int(chance.choice((0.3, 1.0, 2.0, 4.0, 8.0)) * (0.5 + chance.random()) * SECOND_US)
        lossy = kind in CRASHES and lossy_left > 0 and chance.random() < 0.7
        lossy_left -= lossy
        faults.append(Fault(at_us, kind, broker, other, min(duration, last - at_us), chance.random(), lossy))
    return faults


def _swarm(shape: Shape, chance: random.Random) -> list[Kind]:
    """A few kinds, so that a run goes deep into how they meet; now and then all of them."""
    every = [kind for kind in Kind if shape.lossy or kind is not Kind.CRASH_AT_DISK or shape.profile == "deep"]
    if chance.random() < 0.2:
        return every
    kinds = chance.sample(every, chance.randint(2, 7))
    if not any(kind in CRASHES or kind in LONG for kind in kinds):
        kinds.append(chance.choice((*CRASHES, *LONG)))
    return kinds
