"""Drills of the controller's conversation with agents: each finds what it is there for."""

from __future__ import annotations

import re

import pytest
from simulation.faults.plan import DRILLS, Kind, fitted
from simulation.run import run
from simulation.shape import DRILL_EVERY, directories_of, shape_of

from regency.model.ids import BrokerId

pytestmark = pytest.mark.sim


def first_seed(kind: Kind) -> int:
    """The first that goes through a drill."""
    return DRILL_EVERY * DRILLS.index(kind)


@pytest.mark.parametrize(
    ("kind", "defect", "broken"),
    [
        (Kind.DRILL_COPIES, "any-controller-epoch", "deposed-refused"),
        (Kind.DRILL_COPIES, "any-number", "requests-in-order"),
        (Kind.DRILL_COPIES, "numbers-restart", "not converged"),
        (Kind.DRILL_LATE_LEAVE, "earlier-process-obeyed", "incarnation-refused"),
        (Kind.DRILL_LATE_LEAVE, "shutdown-of-another-incarnation", "leavers-asked"),
        (Kind.DRILL_DISKS, "new-only-once", "new-partitions-placed"),
        (Kind.DRILL_DISKS, "shortage-is-success", "marks-after-cuts"),
        (Kind.DRILL_DISKS, "settings-told-in-part", "not converged"),
        (Kind.DRILL_UNHEARD, "no-look-again", "not converged"),
        (Kind.DRILL_TRUNCATIONS, "watermark-of-diverging", "logs-agree"),
        (Kind.DRILL_TRUNCATIONS, "divergence-by-offset", "(log-matching|isr-complete)"),  # whichever is looked at first
        (Kind.DRILL_TRUNCATIONS, "later-epoch-is-longer", "committed-kept"),
        (Kind.DRILL_LOST_TAILS, "producers-not-told", "not clean"),
        (Kind.DRILL_FORGETTING, "fetcher-lost-unsaid", "not converged"),
    ],
)
def test_what_a_drill_is_there_for_is_found(kind: Kind, defect: str, broken: str) -> None:
    seed = first_seed(kind)
    failure = run(seed, shape_of("deep", seed), defect=defect).failure
    assert failure is not None
    assert re.search(f": {broken}", failure)


def test_who_has_a_directory_offline_has_another_one() -> None:
    for seed in range(first_seed(Kind.DRILL_DISKS), 1_000, DRILL_EVERY * 12):
        assert len(directories_of(fitted(shape_of("deep", seed), seed), BrokerId(1))) == 2


@pytest.mark.parametrize("kind", [Kind.DRILL_TRUNCATIONS, Kind.DRILL_LOST_TAILS])
def test_where_a_drill_chooses_who_leads_nobody_gives_leadership_back(kind: Kind) -> None:
    for seed in range(first_seed(kind), 1_000, DRILL_EVERY * 12):
        assert fitted(shape_of("deep", seed), seed).balance_s == 0
