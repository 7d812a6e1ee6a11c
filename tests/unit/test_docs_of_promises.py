"""Ledgers say which test shows what: what they name exists, nothing of Kafka is left out, none is silent.

What a page has to have rows for is in `promises/`, in a file of its name: scenarios below the headings of their tables,
then bugs. The other tables are numbered.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LISTS = Path(__file__).with_name("promises")
SIMULATION = ROOT / "tests" / "sim" / "simulation"

PAGES = sorted(path.stem for path in LISTS.glob("*.txt"))

NUMBERED = {
    "controller": {"## What an implementation has to keep": 12},
    "replication": {
        "## What must hold at any time": 14,
        "### Control requests": 25,
        "### Offsets": 9,
        "### ISR": 8,
        "### Fetchers": 13,
    },
}
"""How many rows the numbered tables of a page have."""

PATTERNS = "## Where logs differ"


def page(name: str) -> str:
    return (ROOT / "tests" / "ledger" / f"{name}.txt").read_text("utf-8")


def expected(name: str) -> dict[str, list[str]]:
    """First cells of a page's tables, by heading."""
    lists: dict[str, list[str]] = {}
    for line in (LISTS / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("#"):
            lists[line] = []
        elif line:
            list(lists.values())[-1].append(line)
    return lists


def rows(name: str, heading: str) -> dict[str, tuple[str, ...]]:
    """The cells of the table below a heading, by the first of each row."""
    _, found, rest = page(name).partition(f"\n{heading}\n")
    assert found, heading
    table = re.split(r"\n#", rest, maxsplit=1)[0].strip().splitlines()
    cells = [tuple(cell.strip() for cell in line.strip("|").split(" |")) for line in table if line.startswith("| ")]
    assert {len(row) for row in cells} == {len(cells[0])}, f"a cell too many or too few in {heading}"
    assert len({row[0] for row in cells}) == len(cells), f"a row twice in {heading}"
    return {row[0]: row[1:] for row in cells[1:]}


def functions(file: Path) -> list[str]:
    body = ast.parse(file.read_text("utf-8")).body
    return [node.name for node in body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]


def first_arguments(folder: str, called: str) -> Iterator[str]:
    """The first argument of every call of that name below a folder of the simulation."""
    for file in sorted((SIMULATION / folder).glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == called and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def planted_in_vain() -> Iterator[str]:
    """Keys of `BECAUSE`."""
    for file in sorted((SIMULATION / "defects").glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "BECAUSE":
                assert isinstance(node.value, ast.Dict)
                yield from (key.value for key in node.value.keys if isinstance(key, ast.Constant))


@pytest.mark.timeout(20)  # it parses some hundred files
@pytest.mark.parametrize("name", PAGES)
def test_every_test_a_page_names_is_there_once(name):
    named: dict[str, set[str]] = {}
    for stem, test in re.findall(r"`(test_\w+)::(\w+)`", page(name)):
        named.setdefault(stem, set()).add(test)
    assert sum(map(len, named.values())) > 200

    files = [file for file in (ROOT / "tests").rglob("test_*.py") if file.stem in named]
    there = Counter((file.stem, test) for file in files for test in functions(file))
    assert [f"{stem}::{each}" for stem in named for each in sorted(named[stem]) if there[stem, each] != 1] == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", PAGES)
def test_every_defect_a_page_names_is_one_to_be_found(name):
    named = set(re.findall(r"defect `([^`]+)`", page(name)))
    assert len(named) > 40

    assert named - (set(first_arguments("defects", "Defect")) - set(planted_in_vain())) == set()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", PAGES)
def test_every_invariant_a_page_names_is_one_that_is_checked(name):
    assert set(re.findall(r"invariant `([^`]+)`", page(name))) - set(first_arguments("judging", "Invariant")) == set()


@pytest.mark.parametrize(("name", "heading"), [(name, heading) for name in PAGES for heading in expected(name)])
def test_every_scenario_and_every_bug_has_its_row(name, heading):
    present = [re.sub(r" \(\d+\)$", "", first) for first in rows(name, heading)]

    assert sorted(present) == sorted(expected(name)[heading])


@pytest.mark.parametrize("name", PAGES)
def test_every_demand_has_its_row(name):
    for heading, count in NUMBERED[name].items():
        assert list(rows(name, heading)) == [str(number) for number in range(1, count + 1)]


def test_every_way_in_which_logs_differ_has_its_row():
    assert list(rows("replication", PATTERNS)) == list("ABCDEFG")


@pytest.mark.parametrize(
    ("name", "heading"), [(name, heading) for name in PAGES for heading in (*expected(name), *NUMBERED[name])]
)
def test_every_row_names_a_test_or_says_why_there_is_none(name, heading):
    silent = [
        first
        for first, (*_, proof, why) in rows(name, heading).items()
        if "`" not in proof and not (proof == "—" and why)
    ]

    assert silent == []


@pytest.mark.parametrize("name", [*PAGES, "simulation"])
def test_a_page_cites_nothing_that_its_readers_do_not_have(name):
    citing = re.compile(r"\b1[01]\.\d|[Dd]esign section|[Rr]eference section|sections? \d")
    text = page(name) if name in PAGES else (ROOT / "docs" / "internals" / f"{name}.md").read_text("utf-8")
    assert [line for line in text.splitlines() if citing.search(line)] == []


@pytest.mark.timeout(20)
@pytest.mark.parametrize("folder", ["broker_agent", "controller", "protos", "regency", "tests"])
def test_a_source_cites_nothing_that_its_readers_do_not_have(folder):
    citing = re.compile(r"[Dd]esign section|[Rr]eference (?:section|\d)")
    sources = [path for path in (ROOT / folder).rglob("*") if path.suffix in (".py", ".proto")]
    assert sources
    assert [str(path) for path in sources if citing.search(path.read_text("utf-8"))] == []
