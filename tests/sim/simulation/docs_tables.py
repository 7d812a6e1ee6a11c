"""`python -m simulation.docs_tables`: writes the tables of docs/internals/simulation.md from the code.

What code cannot say is how many seeds a defect needs and what shows it. That is measured by `python -m
simulation.defects NAME… -o json`, handed over by `--defects FILE`, and kept from the table for all others.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NamedTuple

from simulation import faults
from simulation.defects import BECAUSE, DEFECTS, SEEDS, UNSEEN
from simulation.defects.holes import HOLES
from simulation.faults.plan import DRILLS, Kind, plan
from simulation.judging.invariants import INVARIANTS
from simulation.shape import shape_of

DOCS: Final = Path(__file__).resolve().parents[3] / "docs" / "internals" / "simulation.md"

UNMEASURED: Final = "?"
"""What stands in the place of a measurement that nobody has made."""

_CELL: Final = re.compile(r"(?<!\\)\|")
_DRILL: Final = "drill: "
_FIRST_SEEDS: Final = 2000
"""Among so many seeds every drill comes first somewhere."""


class Measured(NamedTuple):
    """How soon a defect is caught, and by what: an invariant's name."""

    seeds: int
    broken: str


class TablesWrong(Exception):
    """The tables cannot be written: markers are missing, or a measurement is no catch."""


def rendered(text: str, measured: Mapping[str, Measured] | None = None) -> str:
    """The same text with all tables as the code has them. `measured` goes before what its table of defects says.

    Raises TablesWrong where a marker is not there exactly once.
    """
    known = {**measured_in(text), **(measured or {})}
    for name, rows in _tables(known).items():
        before, _, after = _parts(text, name)
        text = f"{before}\n\n{''.join(_lines(rows))}\n{after}"
    return text


def wrong_with(text: str) -> list[str]:
    """What differs between a text's tables and the code, and which measurements are missing or cannot be."""
    measured = measured_in(text)
    found: list[str] = []
    for name, rows in _tables(measured).items():
        held = _parts(text, name)[1].strip("\n").splitlines()
        wanted = [line.rstrip("\n") for line in _lines(rows)]
        different = [f"{name}: the code does not say: {line}" for line in held if line not in wanted]
        different += [f"{name}: not in the table: {line}" for line in wanted if line not in held]
        if not different and held != wanted:
            different.append(f"{name}: not in the order of the code")
        found += different
    for name in DEFECTS:
        row = measured.get(name)
        if row is None:
            found.append(f"defects: nobody has measured {name}")
        elif not 1 <= row.seeds <= SEEDS or row.broken not in INVARIANTS:
            found.append(f"defects: {name} cannot need {row.seeds} seeds and break {row.broken}")
    return found


def measured_in(text: str) -> dict[str, Measured]:
    """What the table of defects says of how soon each is caught, and by what."""
    rows = (_cells(line) for line in _parts(text, "defects")[1].splitlines())
    return {cells[0]: Measured(int(cells[3]), cells[4]) for cells in rows if len(cells) == 5 and cells[3].isdecimal()}


def measured_by(rows: Iterable[Mapping[str, object]]) -> dict[str, Measured]:
    """What `python -m simulation.defects -o json` writes. Raises TablesWrong where it did not catch one of DEFECTS."""
    found: dict[str, Measured] = {}
    for row in rows:
        name, seed, broken = row["defect"], row["seed"], row["broken"]
        if name in UNSEEN:
            continue
        if not isinstance(name, str) or not isinstance(seed, int) or not isinstance(broken, str):
            raise TablesWrong(f"{name} was not caught: it is one of UNSEEN, or something finds it no more")
        found[name] = Measured(seed, broken)
    return found


def what_drills_do() -> dict[Kind, list[str]]:
    """What every kind stands for in `deeds` of a `drills_….py`, read not run: the first docstring line of its script,
    or, where that only chooses among other scripts, of these.
    """
    found: dict[Kind, list[str]] = {}
    for path in sorted(Path(faults.__file__).parent.glob("drills_*.py")):
        tree = ast.parse(path.read_text("utf-8"), path.name)
        scripts = _scripts(tree)
        for key, value in _deeds(tree):
            deed = next((scripts[name] for name in _names(value) if name in scripts), None)
            if isinstance(key, ast.Attribute) and deed is not None:
                chosen = [scripts[name] for name in _of_itself(deed) if name in scripts]
                found[Kind[key.attr]] = [_first_line(each) for each in chosen or [deed]]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the tables, or compare. 0: they are as they should be; 1: they are not."""
    parser = argparse.ArgumentParser(prog="python -m simulation.docs_tables", description=__doc__)
    parser.add_argument("--defects", metavar="FILE", help="measurements of some or all defects; -: standard input")
    parser.add_argument("--check", action="store_true", help="write nothing; say what differs")
    options = parser.parse_args(arguments)
    text = DOCS.read_text("utf-8")
    try:
        new = rendered(text, measured_by(_read(options.defects)) if options.defects else None)
    except TablesWrong as error:
        sys.stderr.write(f"{error}\n")
        return 1
    if not options.check and new != text:
        DOCS.write_text(new, "utf-8")
    wrong = wrong_with(text if options.check else new)
    sys.stderr.writelines(f"{line}\n" for line in wrong)
    return 1 if wrong else 0


def _read(file: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text("utf-8"))
    return rows


def _tables(measured: Mapping[str, Measured]) -> dict[str, list[tuple[str, ...]]]:
    """The rows of all tables by the names of their markers, their heads first."""
    return {
        "drills": [("drill", "what happens", "first deep seed"), *_drills()],
        "invariants": [("name", "what must hold", "source"), *INVARIANTS.values()],
        "defects": [
            ("defect", "what the code does instead", "source", "seeds needed", "what shows it"),
            *(_defect(name, measured.get(name)) for name in DEFECTS),
        ],
        "planted in vain": [
            ("defect", "what the code does instead", "source", "why it is not found"),
            *((name, defect.what, defect.source, BECAUSE[name]) for name, defect in UNSEEN.items()),
        ],
        "holes": [
            ("source", "what was wrong", "planted as", "why not, or not all of it"),
            *((hole.ids, hole.what, ", ".join(hole.defects), hole.why_not) for hole in HOLES),
        ],
    }


def _defect(name: str, measured: Measured | None) -> tuple[str, ...]:
    defect = DEFECTS[name]
    seeds, broken = (str(measured.seeds), measured.broken) if measured else (UNMEASURED, UNMEASURED)
    return name, defect.what, defect.source, seeds, broken


def _drills() -> Iterator[tuple[str, ...]]:
    what, seeds = what_drills_do(), _first_seeds()
    for kind in DRILLS:
        if kind not in what or kind not in seeds:
            raise TablesWrong(f"{kind.name}: no deed of it in a drills_….py has a docstring, or no seed comes to it")
        first, *others = what[kind]
        yield kind.value.removeprefix(_DRILL), first, str(seeds[kind])
        yield from (("", other, "") for other in others)


@cache
def _first_seeds() -> dict[Kind, int]:
    """The first seed of the deep profile that goes through each drill."""
    found: dict[Kind, int] = {}
    for seed in range(1, _FIRST_SEEDS):
        if len(found) == len(DRILLS):
            break
        for fault in plan(shape_of("deep", seed), seed):
            if fault.kind in DRILLS:
                found.setdefault(fault.kind, seed)
    return found


def _scripts(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """The public methods that have a docstring."""
    methods = [each for held in tree.body if isinstance(held, ast.ClassDef) for each in held.body]
    functions = [each for each in methods if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    return {each.name: each for each in functions if ast.get_docstring(each)}


def _deeds(tree: ast.Module) -> Iterator[tuple[ast.expr | None, ast.expr]]:
    """What `deeds` has for which kind."""
    for function in tree.body:
        if isinstance(function, ast.FunctionDef) and function.name == "deeds":
            for table in (each for each in ast.walk(function) if isinstance(each, ast.Dict)):
                yield from zip(table.keys, table.values, strict=True)


def _names(value: ast.expr) -> list[str]:
    """The attributes that an expression names, those of arguments before those they are arguments of."""
    named = [each for each in ast.walk(value) if isinstance(each, ast.Attribute)]
    return [each.attr for each in sorted(named, key=lambda each: each.end_col_offset or 0, reverse=True)]


def _of_itself(method: ast.FunctionDef) -> list[str]:
    """The attributes of its own object that a method names, each once, in order."""
    named = [each for each in ast.walk(method) if isinstance(each, ast.Attribute)]
    own = [each for each in named if isinstance(each.value, ast.Name) and each.value.id == "self"]
    return list(dict.fromkeys(each.attr for each in sorted(own, key=lambda each: (each.lineno, each.col_offset))))


def _first_line(function: ast.FunctionDef) -> str:
    return (ast.get_docstring(function) or "").partition("\n")[0]


def _parts(text: str, name: str) -> tuple[str, str, str]:
    """What stands before a table, with its marker; the table; what stands after it, with its end marker."""
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise TablesWrong(f"there is not one {begin} … {end}")
    before, _, rest = text.partition(begin)
    table, _, after = rest.partition(end)
    return before + begin, table, end + after


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        cells = (_CELL.sub(r"\|", cell) for cell in row)
        yield f"| {' | '.join(cells)} |\n"
        if number == 0:
            yield "|---" * len(row) + "|\n"


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in _CELL.split(line.strip())[1:-1]]


if __name__ == "__main__":
    raise SystemExit(main())
