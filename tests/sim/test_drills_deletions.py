"""The drill of deletions gets through its scripts, and what it is there for is found by it."""

from __future__ import annotations

import pytest
from simulation.faults.plan import Kind, drill_of
from simulation.kernel.clock import Trace
from simulation.run import run
from simulation.shape import shape_of

pytestmark = pytest.mark.sim

SEED = 44
"""The first that goes through it, where nothing is reconciled."""

FOUND = {
    "deleted-topics-known": "NotConverged",
    "marker-removed-first": "NotConverged",
    "nothing-comes-late": "HistoryWrong",
    "topic-deletions-not-resumed": "NotConverged",
}
"""Defects that hardly anything else shows, and what is wrong then."""


def test_every_script_is_played_to_its_end_and_all_is_well_afterwards() -> None:
    events: list[str] = []
    shape = shape_of("deep", SEED).unreconciled()
    assert drill_of(shape, SEED) is Kind.DRILL_DELETIONS
    result = run(SEED, shape, trace=Trace(on=True, listener=events.append))
    assert result.failure is None
    told = [event.split(maxsplit=4)[4].strip() for event in events if " fault    drill " in event]
    assert set(told) == {
        "ended amid a deletion",
        "sent before the deletion",
        "what was sent before the deletion arrives",
        "deleted without one",
    }
    begun = next(index for index, event in enumerate(events) if "deleted without one" in event)
    died = next(index for index, event in enumerate(events) if "is at controller.deletion." in event)
    waits = next(index for index, event in enumerate(events) if "holds replicas and is not live" in event)
    assert died < begun < waits
    assert any(": gone (was being deleted)" in event for event in events[waits:])


@pytest.mark.parametrize("defect", FOUND)
def test_what_it_is_there_for_is_found(defect: str) -> None:
    failure = run(SEED, shape_of("deep", SEED), defect=defect).failure
    assert failure is not None
    assert failure.startswith(FOUND[defect])
