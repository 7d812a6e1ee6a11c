"""`python -m simulation.defects`: plants every defect in turn, and shows how soon it is caught and by what."""

from __future__ import annotations

import argparse
import json
import logging
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from simulation.defects import BECAUSE, DEFECTS, UNSEEN
from simulation.run import run
from simulation.shape import shape_of

PROFILE = "deep"
SEEDS = 50


_CATCHES = ("InvariantBroken:", "HistoryWrong:", "NotConverged:")
_SURPRISE = "no-surprise"
"""A failure of this name, or one of other kinds, says that the defect itself raises what it should not: no catch."""


class Row(NamedTuple):
    """A row of the table. `seed` is the first one that catches the defect, counted from 1; None: none does."""

    defect: str
    what: str
    source: str
    seed: int | None
    broken: str


def first_catch(name: str, seeds: int = SEEDS) -> tuple[int | None, str]:
    """The first seed of the deep profile that catches the defect, and how it fails. Raises KeyError."""
    for seed in range(1, seeds + 1):
        failure = run(seed, shape_of(PROFILE, seed), defect=name).failure
        if failure is not None and failure.startswith(_CATCHES) and _SURPRISE not in failure:
            return seed, failure
    return None, ""


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the table. 0: every defect is caught; 1: some are not."""
    parser = argparse.ArgumentParser(prog="python -m simulation.defects", description=__doc__)
    parser.add_argument("defects", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"seeds to try (default: {SEEDS})")
    parser.add_argument("-o", "--output", choices=("markdown", "json"), default="markdown", help="form of the table")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.defects if name not in DEFECTS and name not in UNSEEN]
    if unknown:
        parser.error(f"there is no defect {', '.join(unknown)}; there are {', '.join(DEFECTS)}")
    rows = _rows([(name, options.seeds) for name in options.defects or DEFECTS])
    if options.output == "json":
        json.dump([row._asdict() for row in rows], sys.stdout, indent=2)
        sys.stdout.write("\n")
    else:
        sys.stdout.writelines(line + "\n" for line in _markdown(rows))
        if not options.defects:
            sys.stdout.writelines(line + "\n" for line in _markdown_of_unseen())
    return 0 if all(row.seed is not None for row in rows) else 1


def _rows(wanted: Sequence[tuple[str, int]]) -> list[Row]:
    with multiprocessing.get_context("fork").Pool(os.cpu_count() or 1) as pool:
        return pool.map(_row, wanted, chunksize=1)


def _row(wanted: tuple[str, int]) -> Row:
    name, seeds = wanted
    logging.disable(logging.CRITICAL)
    seed, failure = first_catch(name, seeds)
    defect = (DEFECTS | UNSEEN)[name]
    return Row(name, defect.what, defect.source, seed, _first_words(failure))


def _first_words(failure: str) -> str:
    """What was broken: an invariant's name, or what had not come right, without what differs from seed to seed."""
    kind, _, words = failure.partition(": ")
    if kind == "InvariantBroken":
        return words.partition(":")[0]
    return {"NotConverged": "converged", "HistoryWrong": "history"}.get(kind, kind)


def _markdown(rows: Iterable[Row]) -> list[str]:
    lines = ["| defect | what | source | seeds needed | broken |", "|---|---|---|---|---|"]
    for row in rows:
        seeds = "not caught" if row.seed is None else str(row.seed)
        lines.append(f"| {row.defect} | {row.what} | {row.source} | {seeds} | {row.broken} |")
    return lines


def _markdown_of_unseen() -> list[str]:
    lines = ["", "| planted in vain | what | why |", "|---|---|---|"]
    return lines + [f"| {name} | {UNSEEN[name].what} | {why} |" for name, why in BECAUSE.items()]


if __name__ == "__main__":
    raise SystemExit(main())
