"""`python -m simulation.defects`: plants every defect in turn, and shows how soon it is caught and by what."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from simulation.defects import BECAUSE, DEFECTS, SEEDS, UNSEEN, exposing
from simulation.options import again
from simulation.output import Output, say
from simulation.run import run
from simulation.shape import Shape, shape_of
from simulation.tables import measured
from simulation.workers import ended_by_signals, pool_of

PROGRAM = "python -m simulation.defects"
PROFILE = "deep"


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


def first_catch(name: str, seeds: int = SEEDS, *, likely: int | None = None) -> tuple[int | None, str]:
    """The first seed of the deep profile that catches the defect, and how it fails. Raises KeyError.

    `likely` is tried before all others. A seed that fails without the defect catches nothing.
    """
    first = () if likely is None else (likely,)
    for seed in (*first, *range(1, seeds + 1)):
        shape = exposing(shape_of(PROFILE, seed), name)
        failure = run(seed, shape, defect=name).failure
        if failure is not None and failure.startswith(_CATCHES) and _SURPRISE not in failure and _passes(seed, shape):
            return seed, failure
    return None, ""


@cache
def _passes(seed: int, shape: Shape) -> bool:
    """Whether nothing is wrong where no defect is planted. Says so where something is; once in a process."""
    failure = run(seed, shape).failure
    if failure is not None:
        say(f"{PROGRAM}: seed {seed} catches nothing, it fails without a defect: {failure}\n")
        say(f"to see it: {again(PROFILE, seed, unreconciled=not shape.reconciles)}\n")
    return failure is None


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the table. 0: every defect is caught; 1: some are not; 2: wrong use, or output that cannot be written.

    130: Ctrl-C; 141: nobody reads the output any more.
    """
    output = Output(PROGRAM)
    try:
        with ended_by_signals():
            status = _main(arguments, output)
    except KeyboardInterrupt:
        say(f"{PROGRAM}: interrupted\n")
        status = 128 + signal.SIGINT
    return output.end(status)


def _main(arguments: Sequence[str] | None, output: Output) -> int:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("defects", nargs="*", metavar="NAME", help="only these (default: all)")
    parser.add_argument("--seeds", type=int, default=SEEDS, metavar="N", help=f"seeds to try (default: {SEEDS})")
    parser.add_argument(
        "--known", action="store_true", help="try the seeds that found them before: whether all are caught"
    )
    parser.add_argument("-o", "--output", choices=("markdown", "json"), default="markdown", help="form of the table")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.defects if name not in DEFECTS and name not in UNSEEN]
    if unknown:
        parser.error(f"there is no defect {', '.join(unknown)}; there are {', '.join(DEFECTS)}")
    if output.lost:
        return 0  # nobody would hear of it; `output` makes that another status
    known = measured() if options.known else {}
    wanted = [
        (name, options.seeds, known[name].seeds if name in known else None) for name in options.defects or DEFECTS
    ]
    rows = _rows(wanted)
    output.write(_table(rows, options.output, with_unseen=not options.defects))
    return 0 if all(row.seed is not None for row in rows) else 1


def _table(rows: Sequence[Row], form: str, *, with_unseen: bool) -> str:
    if form == "json":
        return json.dumps([row._asdict() for row in rows], indent=2) + "\n"
    lines = _markdown(rows) + (_markdown_of_unseen() if with_unseen else [])
    return "".join(f"{line}\n" for line in lines)


def _rows(wanted: Sequence[tuple[str, int, int | None]]) -> list[Row]:
    with pool_of(min(os.cpu_count() or 1, len(wanted))) as pool:
        return pool.map(_row, wanted, chunksize=1)


def _row(wanted: tuple[str, int, int | None]) -> Row:
    name, seeds, likely = wanted
    logging.disable(logging.CRITICAL)
    seed, failure = first_catch(name, seeds, likely=likely)
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
