"""The drill of what somebody does unheard gets through all its scripts, and what it is there for is found by it."""

from __future__ import annotations

import pytest
from simulation.faults.plan import DRILLS, Kind, fitted
from simulation.kernel.clock import Trace
from simulation.run import run
from simulation.shape import DRILL_EVERY, shape_of

from regency.model.settings.log_config import NEVER

pytestmark = pytest.mark.sim

SEED = DRILL_EVERY * DRILLS.index(Kind.DRILL_UNHEARD)
"""The first that goes through it."""

FOUND = (
    "answered-before-done",
    "bounce-before-isr-change",
    "brokers-instead-of-partitions",
    "equal-epoch-is-stale",
    "isr-in-any-session",
    "kept-members-unchecked",
    "lossy-last-leads",
    "own-znode-is-enough",
    "unreachable-is-done",
    "watermarks-early",
)
"""Defects that hardly anything else shows."""

SCRIPTS = (
    "stale join",
    "write of a lost session",
    "half told",
    "contact lost again and again",
    "power cuts at elections",
    "returning together",
)


def test_a_power_cut_has_something_to_take_that_must_not_be_lost() -> None:
    shape = fitted(shape_of("deep", SEED), SEED)
    assert {(topic.min_insync, topic.unclean) for topic in shape.topics} == {(2, False)}
    assert (shape.storage.flush_messages, shape.storage.flush_ms) == (NEVER, NEVER)


def test_every_script_is_played_to_its_end_and_all_is_well_afterwards() -> None:
    events: list[str] = []
    result = run(SEED, shape_of("deep", SEED), trace=Trace(on=True, listener=events.append))
    assert result.failure is None
    told = [event.split(maxsplit=4)[4].strip() for event in events if " fault    drill " in event]
    assert set(SCRIPTS) <= set(told)
    assert "is over early" not in told
    assert any("which does not rule, to race again" in event for event in events)
    assert any("its leader" in event and "came without an address" in event for event in events)
    assert any("settings of their topics cannot be read" in event for event in events)
    assert any("has the longest log" in event for event in events)
    assert any("the session that owned the registration is gone" in event for event in events)


@pytest.mark.parametrize("defect", FOUND)
def test_what_it_is_there_for_is_found(defect: str) -> None:
    failure = run(SEED, shape_of("deep", SEED), defect=defect).failure
    assert failure is not None
    assert failure.startswith(("InvariantBroken", "NotConverged"))
    assert "no-surprise" not in failure
