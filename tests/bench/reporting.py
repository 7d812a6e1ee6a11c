"""What all benches share: their command lines, what they say while they run, and the file with the figures."""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from regency.model.errors import RegencyError

CORES = 2
"""Whatever a bench starts shares this many, so that figures of larger machines compare."""

_STARTED = time.monotonic()
_LOAD_BEFORE = os.getloadavg()[0]
"""Processes that wanted to run before the bench did: what else the machine was doing."""


def parser(doc: str | None, *, runs: int | None = None) -> argparse.ArgumentParser:
    """The command line of a bench: its module's docstring, `--json`, and `--runs` where it can be repeated."""
    made = argparse.ArgumentParser(
        prog=f"./dev bench {bench_name()}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    if runs is not None:
        made.add_argument("--runs", type=count, default=runs, help="how often; the median counts (default %(default)s)")
    made.add_argument("--json", type=file_to_write, metavar="FILE", help="write the figures to FILE too")
    return made


def run(main: Callable[[], int | None]) -> int:
    """Run a bench's `main` on two cores: what stops it is told in a line, not in a traceback. The exit status."""
    if hasattr(os, "sched_setaffinity"):  # whatever it starts stays there too; without this call, all cores are used
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:CORES])
    try:
        return main() or 0
    except (RegencyError, KafkaException, RuntimeError, TimeoutError, OSError) as error:
        print(f"bench {bench_name()}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def bench_name() -> str:
    """What `./dev bench` calls the script that runs."""
    return Path(sys.argv[0]).stem.removeprefix("bench_").replace("_", "-")


def count(text: str) -> int:
    """A flag's value: a whole number from 1 on."""
    try:
        value = int(text.replace("_", ""))
    except ValueError:
        value = 0
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return value


def multiple_of(unit: int) -> Callable[[str], int]:
    """A flag's value: a whole number of which a topic has `unit`."""

    def multiple(text: str) -> int:
        value = count(text)
        if value % unit:
            raise argparse.ArgumentTypeError(f"{text} is no multiple of {unit}, which a topic has")
        return value

    return multiple


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def file_to_write(text: str) -> Path:
    """A flag's value: a file that can be written when the bench is done."""
    path = Path(text)
    if path.is_dir() or not path.parent.is_dir():
        what = "is a directory" if path.is_dir() else f"cannot be written: there is no directory {path.parent}"
        raise argparse.ArgumentTypeError(f"{text!r} {what}")
    return path


def say(text: str) -> None:
    print(f"{time.monotonic() - _STARTED:7.1f} s  {text}", file=sys.stderr, flush=True)


class Progress:
    """Says how far something is, at most every two seconds."""

    EVERY_S = 2.0

    def __init__(self, what: str, total: int | None = None) -> None:
        self._what = what
        self._of = "" if total is None else f" of {total:,}"
        self._said = time.monotonic()

    def __call__(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= self.EVERY_S:
            self._said = now
            say(f"{self._what}: {done:,}{self._of}")


Figures = dict[str, float]


def repeat(runs: int, measure: Callable[[], Figures]) -> list[Figures]:
    """Measure so often, saying what each run gave."""
    measured = []
    for number in range(1, runs + 1):
        say(f"run {number} of {runs}")
        figures = measure()
        say("  ".join(f"{name}={value}" for name, value in figures.items()))
        measured.append(figures)
    return measured


def medians(runs: Sequence[Figures]) -> Figures:
    return {name: round(statistics.median(run[name] for run in runs), 4) for name in runs[0]}


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed (nearest rank); `ordered` rises and is not empty."""
    rank = math.ceil(len(ordered) * percent / 100)
    return ordered[min(max(rank, 1), len(ordered)) - 1]


def machine() -> dict[str, object]:
    """What the figures were measured on, and how busy it was with other things."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cores": cores,
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": round(_LOAD_BEFORE, 1),
    }


def write_report(
    path: Path | None, params: Mapping[str, object], results: Mapping[str, object], runs: Sequence[Figures] = ()
) -> None:
    """Print the results, and write them with what they were measured with, and every run where there were several."""
    print(" ".join(f"{name}={value}" for name, value in results.items() if not isinstance(value, dict | list)))
    if path is None:
        return
    kept = {name: value for name, value in params.items() if name != "json"}
    report: dict[str, object] = {"bench": bench_name(), "params": kept, "results": dict(results), "machine": machine()}
    if runs:
        report["runs"] = list(runs)
    path.write_text(json.dumps(report, indent=2) + "\n")


def repeat_and_report(
    arguments: argparse.Namespace, measure: Callable[[], Figures], params: Mapping[str, object] | None = None
) -> None:
    """Measure as often as `--runs` says; the median of each figure counts."""
    runs = repeat(arguments.runs, measure)
    write_report(arguments.json, vars(arguments) if params is None else params, medians(runs), runs)
