"""Few faults at a time, after all is well: nothing that happens later hides what they leave behind."""

from __future__ import annotations

import random

from simulation.faults.plan import SECOND_US, Fault, Kind
from simulation.shape import Shape

SHOCKS = 3
"""How many there are, in the deep profile."""

LONGEST_US = 7 * SECOND_US
"""After that everything is healed."""

_KINDS = (
    Kind.KILL_AGENT,
    Kind.KILL_CONTROLLER,
    Kind.BOUNCE,
    Kind.STOP_AGENT,
    Kind.PAUSE_AGENT,
    Kind.PAUSE_RULER,
    Kind.STALL_AT_POINT,
    Kind.CUT_AT_POINT,
    Kind.ISOLATE,
    Kind.ONE_WAY,
    Kind.SPLIT,
    Kind.LATE,
    Kind.LOSE_ANSWERS,
    Kind.RESET,
    Kind.ZK_CUT,
    Kind.ZK_BLINK,
    Kind.ZK_HALF_OPEN,
    Kind.ZK_RESET,
    Kind.ZK_LOST_REPLY,
    Kind.ZK_LOST_REPLY,
    Kind.ZK_LOST_REPLY,
    Kind.ZK_EXPIRE,
    Kind.ZK_SLOW,
    Kind.ZK_OUTAGE,
    Kind.DELETE_CONTROLLER,
)


def aftershocks(shape: Shape, seed: int) -> list[list[Fault]]:
    """The faults of each, their times counted from its beginning."""
    chance = random.Random(f"aftershocks {seed}")
    return [_shock(shape, chance) for _ in range(SHOCKS)] if shape.profile == "deep" else []


def _shock(shape: Shape, chance: random.Random) -> list[Fault]:
    faults = []
    broker, other = chance.sample(range(1, shape.brokers + 1), 2)
    choice = chance.random()
    if choice < 0.35:  # who rules does not hear of a restart, or of what leaders do about it
        at_us = chance.randrange(2 * SECOND_US)
        faults.append(Fault(0, Kind.BOUNCE, broker, other, SECOND_US // 3, chance.random(), lossy=False))
        faults.append(Fault(at_us, Kind.ZK_BLINK, broker, other, 2 * SECOND_US, chance.random(), lossy=False))
    elif choice < 0.6:  # agents are told to host what they cannot read the settings of
        at_us = SECOND_US // 5 + chance.randrange(SECOND_US // 5)
        faults.append(Fault(0, Kind.CREATE_TOPIC, broker, other, 0, chance.random(), lossy=False))
        faults.append(Fault(at_us, Kind.ZK_BLINK_AGENTS, broker, other, 2 * SECOND_US, chance.random(), lossy=False))
    for _ in range(chance.randint(0, 2) if faults else chance.randint(1, 3)):
        at_us = chance.choice((0, chance.randrange(SECOND_US)))
        broker = chance.randint(1, shape.brokers)
        other = chance.choice([each for each in range(1, shape.brokers + 1) if each != broker])
        duration = int(chance.choice((0.3, 1.0, 2.5, 6.0)) * (0.5 + chance.random() / 2) * SECOND_US)
        faults.append(Fault(at_us, chance.choice(_KINDS), broker, other, duration, chance.random(), lossy=False))
    return sorted(faults, key=lambda fault: fault.at_us)
