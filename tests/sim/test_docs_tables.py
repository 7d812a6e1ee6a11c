"""The tables of docs/internals/simulation.md say what the code says, and whatever differs is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulation.defects import DEFECTS, UNSEEN
from simulation.docs_tables import (
    DOCS,
    Measured,
    TablesWrong,
    measured_by,
    measured_in,
    rendered,
    what_drills_do,
    wrong_with,
)
from simulation.faults.plan import DRILLS
from simulation.judging.invariants import INVARIANTS

pytestmark = pytest.mark.sim

DEFECT, *_, LAST = DEFECTS
EVERY = {name: Measured(1, "history") for name in DEFECTS}


@pytest.fixture
def text() -> str:
    return rendered(DOCS.read_text("utf-8"), EVERY)


def row_of(text: str, name: str) -> str:
    [row] = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
    return row


def test_the_docs_have_every_invariant_drill_and_defect_as_the_code_has_them() -> None:
    held = wrong_with(DOCS.read_text("utf-8"))
    assert not held, "\n".join([*held, "measure defects that are new, then run python -m simulation.docs_tables"])


def test_of_tables_just_written_nothing_is_wrong(text: str) -> None:
    assert wrong_with(text) == []
    assert rendered(text) == text


@pytest.mark.parametrize("name", ["no-surprise", DEFECT, LAST, next(iter(UNSEEN)), "who is about to join stops"])
@pytest.mark.parametrize(
    "change", [lambda row: "", lambda row: row.replace(" | ", " | Not: ", 1)], ids=["lacks", "says something else of"]
)
def test_a_table_that_lacks_a_name_or_says_something_else_of_it_is_found(
    text: str, name: str, change: Callable[[str], str]
) -> None:
    row = row_of(text, name)
    other = text.replace(f"{row}\n", change(f"{row}\n"))
    assert any(f"not in the table: | {name} |" in line for line in wrong_with(other))


def test_a_name_that_the_code_does_not_have_is_found(text: str) -> None:
    row = row_of(text, "history")
    [line] = wrong_with(text.replace(row, f"{row}\n| gone | Something once held. | own rule |"))
    assert "the code does not say: | gone |" in line


def test_rows_in_another_order_are_found(text: str) -> None:
    one, other = row_of(text, "converged"), row_of(text, "history")
    assert wrong_with(text.replace(f"{one}\n{other}", f"{other}\n{one}")) == [
        "invariants: not in the order of the code"
    ]


@pytest.mark.parametrize(("seeds", "broken"), [("0", "history"), ("101", "history"), ("3", "no-such-invariant")])
def test_a_measurement_that_cannot_be_is_found(text: str, seeds: str, broken: str) -> None:
    row = row_of(text, DEFECT)
    other = row.replace("| 1 | history |", f"| {seeds} | {broken} |")
    assert wrong_with(text.replace(row, other)) == [
        f"defects: {DEFECT} cannot need {seeds} seeds and break {broken}",
    ]


def test_a_defect_that_nobody_has_measured_is_found(text: str) -> None:
    row = row_of(text, DEFECT)
    anew = rendered(text.replace(row + "\n", ""))
    assert row_of(anew, DEFECT).endswith("| ? | ? |")
    assert wrong_with(anew) == [f"defects: nobody has measured {DEFECT}"]


def test_what_was_measured_stays_until_it_is_measured_again(text: str) -> None:
    anew = rendered(text, measured_by([{"defect": LAST, "seed": 7, "broken": "converged", "what": "", "source": ""}]))
    assert measured_in(anew) == {**EVERY, LAST: Measured(7, "converged")}


def test_a_defect_that_was_not_caught_is_not_written_down() -> None:
    assert measured_by([{"defect": next(iter(UNSEEN)), "seed": None, "broken": ""}]) == {}
    with pytest.raises(TablesWrong, match=DEFECT):
        measured_by([{"defect": DEFECT, "seed": None, "broken": ""}])


def test_a_text_without_markers_is_refused(text: str) -> None:
    for marker in ("<!-- invariants -->", "<!-- /drills -->"):
        with pytest.raises(TablesWrong, match="there is not one"):
            rendered(text.replace(marker, ""))


def test_of_every_drill_it_is_said_what_happens() -> None:
    assert not set(DRILLS) - what_drills_do().keys()


def test_failures_at_the_end_have_names_like_invariants() -> None:
    assert {"converged", "history"} <= INVARIANTS.keys()
