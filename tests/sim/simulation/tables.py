"""`./dev ledger [NAME]`: the tables of what is tested, from the code and from tests/ledger; no name: which there are.

What code cannot say is how many seeds a defect needs and what shows it. That is measured by `python -m
simulation.defects NAME… -o json` and kept by `./dev ledger --measured FILE`.
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
from simulation.faults.plan import DRILLS, Kind, plan
from simulation.judging.invariants import INVARIANTS
from simulation.shape import shape_of

MEASUREMENTS: Final = Path(__file__).parent / "defects" / "measured.json"
LEDGERS: Final = Path(__file__).resolve().parents[2] / "ledger"

_CELL: Final = re.compile(r"(?<!\\)\|")
_DRILL: Final = "drill: "
_FIRST_SEEDS: Final = 2000
"""Among so many seeds every drill comes first somewhere."""


class Measured(NamedTuple):
    """How soon a defect is caught, and by what: an invariant's name."""

    seeds: int
    broken: str


class TablesWrong(Exception):
    """A table cannot be printed, or a measurement is no catch."""


def measured() -> dict[str, Measured]:
    """How soon each defect was caught, and by what."""
    rows: dict[str, tuple[int, str]] = json.loads(MEASUREMENTS.read_text("utf-8"))
    return {name: Measured(*row) for name, row in rows.items()}


def wrong_with(held: Mapping[str, Measured]) -> list[str]:
    """Which measurements are missing, cannot be, or are of no defect."""
    found = [f"there is no defect {name}" for name in held if name not in DEFECTS]
    for name in DEFECTS:
        row = held.get(name)
        if row is None:
            found.append(f"{name} has not been measured")
        elif not 1 <= row.seeds <= SEEDS or row.broken not in INVARIANTS:
            found.append(f"{name} cannot need {row.seeds} seeds and break {row.broken}")
    return found


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


def counts() -> dict[str, int]:
    """Every table's name, and how many rows it has."""
    of_ledgers = {
        path.stem: sum(map(int, re.findall(r"^#+ .*\((\d+)\)$", path.read_text("utf-8"), re.MULTILINE)))
        for path in sorted(LEDGERS.glob("*.txt"))
    }
    return of_ledgers | {name: len(rows) - 1 for name, rows in _tables().items()}


def printed(name: str) -> str:
    """A table as text. Raises TablesWrong where there is none of that name."""
    tables = _tables()
    if name in tables:
        return "".join(_lines(tables[name]))
    if not (LEDGERS / f"{name}.txt").exists():
        raise TablesWrong(f"there is no table {name}; there are {', '.join(counts())}")
    return (LEDGERS / f"{name}.txt").read_text("utf-8")


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
    """Print, or keep measurements. 0: done; 1: a measurement is missing or no catch; 2: no such table."""
    parser = argparse.ArgumentParser(prog="./dev ledger", description=__doc__)
    parser.add_argument("name", nargs="?", help="the table to print; none: all names, with their numbers of rows")
    parser.add_argument("--measured", metavar="FILE", help="keep these measurements of defects; -: standard input")
    options = parser.parse_args(arguments)
    try:
        if options.measured:
            return _keep(measured_by(_read(options.measured)))
        if options.name:
            sys.stdout.write(printed(options.name))
        else:
            sys.stdout.writelines(f"{name:<18} {rows:>4}\n" for name, rows in counts().items())
    except TablesWrong as error:
        sys.stderr.write(f"ledger: {error}\n")
        return 1 if options.measured else 2
    return 0


def _keep(new: Mapping[str, Measured]) -> int:
    kept = {**measured(), **new}
    rows = [f"  {json.dumps(name)}: {json.dumps(kept[name])}" for name in DEFECTS if name in kept]
    MEASUREMENTS.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
    wrong = wrong_with(measured())
    sys.stderr.writelines(f"ledger: {line}\n" for line in wrong)
    return 1 if wrong else 0


def _read(file: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = json.loads(sys.stdin.read() if file == "-" else Path(file).read_text("utf-8"))
    return rows


def _tables() -> dict[str, list[tuple[str, ...]]]:
    """The rows of the simulation's tables by name, their heads first."""
    held = measured()
    return {
        "drills": [("drill", "what happens", "first deep seed"), *_drills()],
        "invariants": [("name", "what must hold", "source"), *INVARIANTS.values()],
        "defects": [
            ("defect", "what the code does instead", "source", "seeds needed", "what shows it"),
            *(_defect(name, held.get(name)) for name in DEFECTS),
        ],
        "planted-in-vain": [
            ("defect", "what the code does instead", "source", "why it is not found"),
            *((name, defect.what, defect.source, BECAUSE[name]) for name, defect in UNSEEN.items()),
        ],
    }


def _defect(name: str, row: Measured | None) -> tuple[str, ...]:
    defect = DEFECTS[name]
    seeds, broken = (str(row.seeds), row.broken) if row else ("?", "?")
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
    methods = [each for held in tree.body if isinstance(held, ast.ClassDef) for each in held.body]
    functions = [each for each in methods if isinstance(each, ast.FunctionDef) and not each.name.startswith("_")]
    return {each.name: each for each in functions if ast.get_docstring(each)}


def _deeds(tree: ast.Module) -> Iterator[tuple[ast.expr | None, ast.expr]]:
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


def _lines(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for number, row in enumerate(rows):
        cells = (_CELL.sub(r"\|", cell) for cell in row)
        yield f"| {' | '.join(cells)} |\n"
        if number == 0:
            yield "|---" * len(row) + "|\n"


if __name__ == "__main__":
    raise SystemExit(main())
