"""The drill of lost tails gets as far as it is meant to, and what it is there for is found by it."""

from __future__ import annotations

import pytest
from simulation.faults.plan import DRILLS, OF_MEMORY, Kind, drill_of, fitted, plan
from simulation.kernel.clock import Trace
from simulation.run import run
from simulation.shape import DRILL_EVERY, shape_of

pytestmark = pytest.mark.sim

SEED = DRILL_EVERY * DRILLS.index(Kind.DRILL_LOST_TAILS)
"""The first that goes through it."""


def test_every_drill_has_its_seeds() -> None:
    seeds = range(0, 2 * DRILL_EVERY * len(DRILLS), DRILL_EVERY)
    assert {drill_of(shape_of("deep", seed), seed) for seed in seeds} == set(DRILLS)
    assert {drill_of(shape_of("deep", seed).unreconciled(), seed) for seed in seeds} == set(DRILLS) - set(OF_MEMORY)
    assert drill_of(shape_of("deep", DRILL_EVERY + 1), DRILL_EVERY + 1) is None
    assert drill_of(shape_of("quick", DRILL_EVERY), DRILL_EVERY) is None


def test_a_shape_gets_what_its_drill_needs_and_nothing_else() -> None:
    shape = shape_of("deep", SEED)
    assert fitted(shape, SEED).storage.segment_bytes < 200
    assert fitted(shape, SEED + 1) == shape
    assert {fault.kind for fault in plan(fitted(shape, SEED), SEED)} == {Kind.DRILL_LOST_TAILS}


def test_a_tail_of_segments_is_cut_off_and_what_replaces_it_lost_with_the_power() -> None:
    events: list[str] = []
    result = run(SEED, shape_of("deep", SEED), trace=Trace(on=True, listener=events.append))
    assert result.failure is None
    begun = next(index for index, event in enumerate(events) if "cut and crash" in event)
    cut = next(index for index, event in enumerate(events) if index > begun and "truncated to" in event)
    assert any("lost" in event and "writes" in event for event in events[cut:])


@pytest.mark.parametrize("defect", ["cut-not-checkpointed", "settled-too-early", "strangers-begin-anywhere"])
def test_what_only_this_drill_finds_is_found(defect: str) -> None:
    failure = run(SEED, shape_of("deep", SEED), defect=defect).failure
    assert failure is not None
    assert failure.startswith(("InvariantBroken", "HistoryWrong"))
