"""The drills of what nobody hears of and of a close that fails find what they are there for."""

from __future__ import annotations

import pytest
from simulation.defects import exposing
from simulation.faults.plan import DRILLS, Kind
from simulation.kernel.clock import Trace
from simulation.run import run
from simulation.shape import DRILL_EVERY, shape_of

pytestmark = pytest.mark.sim

UNHEARD = DRILL_EVERY * DRILLS.index(Kind.DRILL_LOST_WRITES)
LEAVING = DRILL_EVERY * DRILLS.index(Kind.DRILL_LEAVING)
"""The first seeds that go through them."""


def test_a_controller_is_deposed_once_and_topics_are_made_anew_while_the_next_one_rules() -> None:
    events: list[str] = []
    result = run(UNHEARD, shape_of("deep", UNHEARD), trace=Trace(on=True, listener=events.append))
    assert result.failure is None
    plays = [event.split(maxsplit=4)[4].strip() for event in events if " fault    drill " in event]
    assert plays[:4] == ["callers", "lost state", "new topics", "news meanwhile"]
    assert set(plays[4:]) == {"notifications"}
    begun = next(index for index, event in enumerate(events) if event.endswith("notifications"))
    assert any("was deleted and created again outside" in event for event in events[:begun])
    assert any("reassigned unheard-" in event for event in events[:begun])
    assert sum("rules in epoch" in event for event in events[:begun]) == 3
    assert any("the state znode is lost; the longest log" in event for event in events[:begun])
    assert any("too far beyond its state znode to be believed" in event for event in events[:begun])


@pytest.mark.parametrize(
    ("seed", "defect", "broken"),
    [
        (UNHEARD, "callers-unanswered", "InvariantBroken: callers-answered"),
        (UNHEARD, "lost-state-unasked", "InvariantBroken: leader-epoch-grows"),
        (UNHEARD, "ends-told-in-turn", "InvariantBroken: busy-are-heard"),
        (UNHEARD, "any-leader-epoch-believed", "InvariantBroken: election-raises-epoch"),
        (UNHEARD, "existing-state-unread", "NotConverged"),
        (UNHEARD, "created-anew-unnoticed", "InvariantBroken: epoch-not-ahead"),
        (UNHEARD, "deleted-amid-reassignment", "NotConverged"),
        (UNHEARD, "older-content-wins", "NotConverged"),
        (UNHEARD, "asked-edits-missed", "NotConverged"),
        (LEAVING, "marker-in-spite-of-failure", "InvariantBroken: marked-when-closed"),
    ],
)
def test_what_hardly_anything_else_shows_is_found(seed: int, defect: str, broken: str) -> None:
    failure = run(seed, exposing(shape_of("deep", seed), defect), defect=defect).failure
    assert failure is not None
    assert failure.startswith(broken)
