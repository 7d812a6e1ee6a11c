"""The simulation finds what it is there to find: a sample here, every defect in `./dev ci`."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from simulation.defects import BECAUSE, DEFECTS, UNSEEN, exposing, planted
from simulation.defects.__main__ import _passes, first_catch
from simulation.defects.patching import Patch
from simulation.faults.plan import OF_MEMORY, drill_of, plan
from simulation.shape import Shape, settings_of, shape_of

from regency.model.ids import BrokerId

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
    told = capsys.readouterr().err
    assert told.count("seed 2 catches nothing, it fails without a defect: NotConverged") == 1
    assert told.count("to see it: ./dev sim --profile deep --seed 2 --seeds 1 --trace --unreconciled") == 1


def test_what_takes_other_arguments_than_production_cannot_be_planted() -> None:
    owner = SimpleNamespace(elect=lambda isr, online, unsure=(), *, forced: None)
    with pytest.raises(TypeError):
        Patch().set(owner, "elect", lambda isr, online, *, forced: None)
    with pytest.raises(TypeError):
        Patch().set(owner, "elect", lambda isr, online, unsure: None)
    Patch().set(owner, "elect", lambda *arguments, **others: None)


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


def test_a_defect_is_looked_for_where_nothing_is_reconciled_unless_it_is_of_the_reconcile() -> None:
    shape = shape_of("deep", 1)._replace(grouped=False)
    assert exposing(shape, "") == exposing(shape, "never-reconciled") == shape
    exposed = exposing(shape, "errors-forgotten")
    assert exposed == shape.unreconciled() != shape
    assert settings_of(exposed, BrokerId(1)).regency_reconcile_interval_ms > exposed.heal_s * 1_000_000
    assert exposing(exposed, "errors-forgotten") == exposing(exposed, "") == exposed
    assert exposing(exposed, "never-reconciled") == shape


def test_where_nothing_is_reconciled_the_same_happens_but_that_agents_forget_nothing() -> None:
    left_out = 0
    for seed in range(1, 200):
        shape = shape_of("deep", seed)
        faults, fewer = plan(shape.reconciled(), seed), plan(shape.unreconciled(), seed)
        assert not {fault.kind for fault in fewer}.intersection(OF_MEMORY)
        if drill_of(shape.reconciled(), seed) not in OF_MEMORY:
            assert fewer == [fault for fault in faults if fault.kind not in OF_MEMORY]
        left_out += len(faults) - len(fewer)
    assert left_out > 10


def test_there_is_no_defect_of_another_name() -> None:
    with pytest.raises(KeyError), planted("no-such-defect"):
        pass


def test_of_each_that_is_planted_in_vain_it_is_said_why() -> None:
    assert BECAUSE.keys() == UNSEEN.keys()
    assert not UNSEEN.keys() & DEFECTS.keys()
