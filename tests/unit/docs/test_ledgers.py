"""Ledgers say which test shows what: what they name exists, nothing of Kafka is left out, none is silent.

Every heading of tests/ledger says how many rows its table has; rows of some tables are numbered.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
LEDGERS = ROOT / "tests" / "ledger"
SIMULATION = ROOT / "tests" / "sim" / "simulation"

PAGES = ("controller", "replication")

NUMBERED = {
    "What an implementation has to keep",
    "What must hold at any time",
    "Control requests",
    "Offsets",
    "ISR",
    "Fetchers",
}
LETTERED = {"Where logs differ"}


def page(name: str) -> str:
    return (LEDGERS / f"{name}.txt").read_text("utf-8")


def tables(name: str) -> Iterator[tuple[str, int, list[tuple[str, ...]]]]:
    """Heading, announced number of rows and cells of every table, without its head."""
    for part in re.split(r"^#+ ", page(name), flags=re.MULTILINE)[1:]:
        heading, _, text = part.partition("\n")
        cells = [tuple(map(str.strip, line.strip("|").split(" |"))) for line in text.splitlines() if line[:2] == "| "]
        if cells:
            title, _, count = heading.rpartition(" (")
            yield title, int(count.rstrip(")")), cells[1:]


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


def planted() -> Iterator[str]:
    """The functions of the simulation that plant a defect, by their decorator."""
    for file in sorted((SIMULATION / "defects").glob("*_defects.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.decorator_list:
                yield node.name.replace("_", "-")


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

    assert named - (set(planted()) - set(planted_in_vain())) == set()


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", PAGES)
def test_every_invariant_a_page_names_is_one_that_is_checked(name):
    assert set(re.findall(r"invariant `([^`]+)`", page(name))) - set(first_arguments("judging", "Invariant")) == set()


@pytest.mark.parametrize("name", [*PAGES, "found", "better", "holes"])
def test_every_scenario_bug_and_demand_has_its_row_once(name):
    for title, count, rows in tables(name):
        firsts = [row[0] for row in rows]
        assert (title, len(rows), len(set(firsts))) == (title, count, count)
        assert len({len(row) for row in rows}) == 1, f"a cell too many or too few in {title}"
        if title in NUMBERED:
            assert firsts == [str(number) for number in range(1, count + 1)]
        if title in LETTERED:
            assert firsts == list("ABCDEFG")


@pytest.mark.parametrize("name", PAGES)
def test_every_row_names_a_test_or_says_why_there_is_none(name):
    silent = [
        (title, first)
        for title, _, rows in tables(name)
        if title not in LETTERED
        for first, *_, proof, why in rows
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
