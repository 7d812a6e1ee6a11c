"""The simulation finds what it is there to find: a sample here, every defect in `./dev ci`."""

from __future__ import annotations

import pytest
from simulation.defects import BECAUSE, DEFECTS, UNSEEN, planted
from simulation.defects.__main__ import first_catch
from simulation.defects.patching import Patch

SAMPLE = (
    "acknowledge-early",
    "any-broker-epoch",
    "duplicates-written",
    "never-synced",
    "truncate-to-watermark",
    "unfenced-writes",
)

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("name", SAMPLE)
def test_the_defect_is_caught(name: str) -> None:
    seed, failure = first_catch(name)
    assert seed is not None, f"nothing is wrong although {DEFECTS[name].what}"
    assert failure


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
