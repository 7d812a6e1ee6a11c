"""The simulation finds what it is there to find: every deliberate defect, within 50 seeds of the deep profile."""

from __future__ import annotations

import pytest
from simulation.defects import BECAUSE, DEFECTS, UNSEEN, planted
from simulation.defects.patching import Patch
from simulation.run import run
from simulation.shape import shape_of

SEEDS = range(1, 51)

pytestmark = pytest.mark.sim


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", DEFECTS)
def test_the_defect_is_caught(name: str) -> None:
    failures = (run(seed, shape_of("deep", seed), defect=name).failure for seed in SEEDS)
    caught = next((failure for failure in failures if failure is not None), None)
    assert caught is not None, f"nothing is wrong in {len(SEEDS)} seeds although {DEFECTS[name].what}"
    assert "no-surprise" not in caught, f"the defect itself is faulty: {caught}"


def test_a_defect_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    undone: list[tuple[object, str, object]] = []
    undo = Patch.undo

    def look(self: Patch) -> None:
        before = list(self._before)
        undo(self)
        undone.extend(before)

    monkeypatch.setattr(Patch, "undo", look)
    for name in (*DEFECTS, *UNSEEN):
        with planted(name):
            pass
    assert undone
    for owner, attribute, before in undone:
        held = vars(owner)[attribute] if isinstance(owner, type) else getattr(owner, attribute)
        assert held is before, (owner, attribute)


def test_there_is_no_defect_of_another_name() -> None:
    with pytest.raises(KeyError), planted("no-such-defect"):
        pass


def test_of_each_that_is_planted_in_vain_it_is_said_why() -> None:
    assert BECAUSE.keys() == UNSEEN.keys()
    assert not UNSEEN.keys() & DEFECTS.keys()
