"""The simulation finds what it is there to find: a sample here, every defect in `./dev ci`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from simulation.defects import BECAUSE, DEFECTS, UNSEEN, planted
from simulation.defects.__main__ import _passes, first_catch
from simulation.defects.patching import Patch
from simulation.shape import Shape

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


def test_a_seed_that_fails_without_the_defect_catches_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    played: list[tuple[int, str]] = []

    def fails_always_at_2_and_with_a_defect_from_4_on(seed: int, _shape: Shape, *, defect: str = "") -> SimpleNamespace:
        played.append((seed, defect))
        fails = seed == 2 or (seed >= 4 and defect)
        return SimpleNamespace(failure="NotConverged: planted" if fails else None)

    _passes.cache_clear()
    monkeypatch.setattr("simulation.defects.__main__.run", fails_always_at_2_and_with_a_defect_from_4_on)
    try:
        assert [first_catch(name) for name in ("one", "two")] == [(4, "NotConverged: planted")] * 2
        assert first_catch("one", seeds=3) == (None, "")
    finally:
        _passes.cache_clear()
    assert [seed for seed, defect in played if not defect] == [2, 4], "without a defect each only once"
    assert capsys.readouterr().err.count("seed 2 catches nothing, it fails without a defect: NotConverged") == 1


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
