"""Every defect has been measured, every drill has a description, and docs/internals/evidence.md counts right."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from simulation.defects import DEFECTS, UNSEEN
from simulation.faults.plan import DRILLS
from simulation.judging.invariants import INVARIANTS
from simulation.tables import (
    Measured,
    TablesWrong,
    counts,
    main,
    measured,
    measured_by,
    printed,
    what_drills_do,
    wrong_with,
)

pytestmark = pytest.mark.sim

DEFECT, *_, LAST = DEFECTS
EVERY = {name: Measured(1, "history") for name in DEFECTS}
PAGE = Path(__file__).parents[2] / "docs" / "internals" / "evidence.md"


def test_every_defect_has_been_measured_and_no_other() -> None:
    held = wrong_with(measured())
    assert not held, "\n".join([*held, "python -m simulation.defects NAME -o json | ./dev ledger --measured -"])


def test_the_page_counts_as_the_code_does() -> None:
    told = {name: int(rows) for name, rows in re.findall(r"^\| `([\w-]+)` \| (\d+) \|", PAGE.read_text(), re.MULTILINE)}
    assert told == counts()


@pytest.mark.parametrize("row", [Measured(0, "history"), Measured(101, "history"), Measured(3, "no-such-invariant")])
def test_a_measurement_that_cannot_be_is_found(row: Measured) -> None:
    assert wrong_with({**EVERY, DEFECT: row}) == [f"{DEFECT} cannot need {row.seeds} seeds and break {row.broken}"]


def test_a_defect_without_measurement_and_one_that_is_gone_are_found() -> None:
    held = {name: row for name, row in EVERY.items() if name != LAST} | {"gone": Measured(1, "history")}
    assert wrong_with(held) == ["there is no defect gone", f"{LAST} has not been measured"]


def test_a_defect_that_was_not_caught_is_not_kept() -> None:
    assert measured_by([{"defect": next(iter(UNSEEN)), "seed": None, "broken": ""}]) == {}
    with pytest.raises(TablesWrong, match=DEFECT):
        measured_by([{"defect": DEFECT, "seed": None, "broken": ""}])


def test_tables_are_printed_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"| {DEFECT} | " in printed("defects")
    assert "### ControllerIntegrationTest" in printed("controller")
    assert all(name in printed("drills") for name in ("first deep seed", "a member restarts while the ISR is written"))
    assert main(["no-such-table"]) == 2
    assert "no table no-such-table; there are better, controller, found, holes, replication" in capsys.readouterr().err


def test_of_every_drill_it_is_said_what_happens() -> None:
    assert not set(DRILLS) - what_drills_do().keys()


def test_failures_at_the_end_have_names_like_invariants() -> None:
    assert {"converged", "history"} <= INVARIANTS.keys()
