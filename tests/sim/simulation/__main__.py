"""`./dev sim`: runs many seeds on all cores, and shows what failed and how to see it again."""

from __future__ import annotations

import argparse
import json
import logging
import math
import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from types import FrameType
from typing import Any, TextIO

from simulation.coverage import Coverage
from simulation.defects import DEFECTS, UNSEEN
from simulation.kernel.trace import Trace
from simulation.run import RunResult, run
from simulation.shape import PROFILES, shape_of

EXAMPLES = """examples:
  ./dev sim --seeds 200                       200 schedules of the quick profile
  ./dev sim --seeds 50 --profile deep --seed 1000
  ./dev sim --seed 17 --seeds 1 --trace       one schedule, every event of it
  ./dev sim --seconds 170 -o json             as many as fit
"""
ENOUGH = 100
"""After so many schedules a crash point that was never passed is worth a line."""

MANY = 300
"""Deep schedules that together pass every crash point; about 160 did when this was written."""

MOST_JOBS = 256

_AT_ONCE = 4
"""Seeds a worker takes at a time."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that the arguments name. 0: all passed; 1: some failed; 2: wrong use."""
    options = _options(arguments)
    logging.disable(logging.CRITICAL)
    if options.defects:
        sys.stdout.writelines(f"{name:<32} {defect.what}\n" for name, defect in {**DEFECTS, **UNSEEN}.items())
        return 0
    signal.signal(signal.SIGTERM, _terminate)
    if options.trace:
        return _show(options.seed, options.profile, options.defect)
    return _run_all(options)


def _terminate(_number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + signal.SIGTERM)  # through the `with` blocks, which end the workers


def _run_all(options: argparse.Namespace) -> int:
    """Run every seed, and report. Ctrl-C ends it with a report of what was done until then."""
    began = time.monotonic()
    coverage = Coverage()
    failed: list[RunResult] = []
    busy_s = 0.0
    done = 0
    interrupted = False
    try:
        for result in _results(options):
            done += 1
            busy_s += result.cpu_s
            coverage.add(result)
            if result.failure is not None:
                failed.append(result)
                if options.output == "text":
                    _tell_failure(result, options.profile, options.defect)
                if len(failed) >= options.stop_after:
                    break
            elif options.output == "text" and sys.stderr.isatty():
                sys.stderr.write(f"\r{done} schedules, {done / (time.monotonic() - began):.1f} a second ")
                sys.stderr.flush()
    except KeyboardInterrupt:
        interrupted = True
    _report(options, coverage, failed, done, time.monotonic() - began, busy_s)
    if interrupted:
        return 128 + signal.SIGINT
    incomplete = options.all_points and done >= MANY and bool(coverage.missed())
    return 1 if failed or incomplete else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="./dev sim", description=__doc__, epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seeds", type=int, metavar="N", help="how many schedules (default: 100, or no limit with --seconds)"
    )
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed (default: 1)")
    parser.add_argument("--profile", choices=PROFILES, default="quick", help="kind of schedules (default: quick)")
    parser.add_argument("--trace", action="store_true", help="run the one seed and print everything that happens")
    parser.add_argument("--seconds", type=float, metavar="T", help="begin no schedule after so many seconds")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="processes (default: one a core)"
    )
    parser.add_argument("--defect", metavar="NAME", help="plant a defect (see docs/simulation.md)")
    parser.add_argument("--defects", action="store_true", help="list the defects that can be planted, and end")
    parser.add_argument(
        "--stop-after", type=int, default=5, metavar="F", help="failures after which to stop (default: 5)"
    )
    parser.add_argument(
        "--points", action="store_true", help="list every crash point: how often passed, how often struck at"
    )
    parser.add_argument(
        "--all-points",
        action="store_true",
        help=f"fail also when {MANY} schedules or more leave a crash point that none has passed",
    )
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="form of the report")
    options = parser.parse_args(arguments)
    _refuse_nonsense(parser, options)
    if options.seeds is None and options.seconds is None:
        options.seeds = 100
    if options.seeds is not None:
        options.jobs = min(options.jobs, options.seeds)
    options.defect = options.defect or ""
    return options


def _refuse_nonsense(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """End with status 2 and a line where options cannot be meant."""
    if options.trace:
        given = {
            "--seeds": options.seeds not in (None, 1),
            "--seconds": options.seconds is not None,
            "--points": options.points,
            "--all-points": options.all_points,
            "-o json": options.output == "json",
        }
        if any(given.values()):
            parser.error(f"--trace shows one schedule: leave out {', '.join(name for name in given if given[name])}")
    for name in ("seeds", "jobs", "stop_after"):
        value = getattr(options, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, not {value}")
    if options.jobs > MOST_JOBS:
        parser.error(f"--jobs must be at most {MOST_JOBS}, not {options.jobs}")
    if options.seconds is not None and not (math.isfinite(options.seconds) and options.seconds > 0):
        parser.error(f"--seconds must be more than 0, not {options.seconds:g}")
    known = {**DEFECTS, **UNSEEN}
    if options.defect is not None and options.defect not in known:
        near = get_close_matches(options.defect, known, 3)
        hint = f"perhaps {' or '.join(near)}" if near else "--defects lists them"
        parser.error(f"there is no defect {options.defect!r}; {hint}")


def _seeds(options: argparse.Namespace) -> Iterator[tuple[int, str, str]]:
    deadline = None if options.seconds is None else time.monotonic() + options.seconds
    seed = options.seed
    while options.seeds is None or seed < options.seed + options.seeds:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield seed, options.profile, options.defect
        seed += 1


def _results(options: argparse.Namespace) -> Iterator[RunResult]:
    if options.jobs == 1:
        yield from map(_one, _seeds(options))
        return
    context = multiprocessing.get_context("fork")
    with context.Pool(options.jobs, initializer=_leave_signals_to_parent) as pool:
        if options.seconds is None:
            at_once = max(1, min(_AT_ONCE, options.seeds // (4 * options.jobs)))
            yield from pool.imap_unordered(_one, _seeds(options), chunksize=at_once)
            return
        waiting: list[Any] = []
        for arguments in _seeds(options):  # not all at once: the time may be over before the seeds are
            waiting.append(pool.apply_async(_one, (arguments,)))
            while len(waiting) >= options.jobs * 2:
                yield waiting.pop(0).get()
        for each in waiting:
            yield each.get()


def _leave_signals_to_parent() -> None:
    """A worker ends when its parent ends it, not by a Ctrl-C that meets both."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _one(arguments: tuple[int, str, str]) -> RunResult:
    seed, profile, defect = arguments
    logging.disable(logging.CRITICAL)
    return run(seed, shape_of(profile, seed), defect=defect)


class _PipeClosed(BaseException):
    """Whoever reads the trace has seen enough. Not an Exception: it is none of the simulated cluster's."""


def _show(seed: int, profile: str, defect: str) -> int:
    try:
        return _show_all(seed, profile, defect)
    except (_PipeClosed, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains once more
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _show_all(seed: int, profile: str, defect: str) -> int:
    result = _traced(seed, profile, defect, sys.stdout)
    sys.stdout.write(f"{result.steps} steps, {result.seconds:.3f} s of virtual time, digest {result.digest:08x}\n")
    if result.failure is not None:
        sys.stdout.write(f"FAILED: {result.failure}\n")
    sys.stdout.flush()
    return 0 if result.failure is None else 1


def _traced(seed: int, profile: str, defect: str, to: TextIO) -> RunResult:
    def show(line: str) -> None:
        try:
            to.write(line + "\n")
        except BrokenPipeError as error:
            raise _PipeClosed from error

    return run(seed, shape_of(profile, seed), trace=Trace(on=True, listener=show), defect=defect)


def _tell_failure(result: RunResult, profile: str, defect: str) -> None:
    """What failed, and its last events: of a second run with the trace on, which has the log lines too."""
    traced = run(result.seed, shape_of(profile, result.seed), trace=Trace(on=True), defect=defect)
    again = f"./dev sim --profile {profile} --seed {result.seed} --seeds 1 --trace"
    again += f" --defect {defect}" if defect else ""
    lines = "\n  ".join(traced.last_events)
    sys.stdout.write(f"\nseed {result.seed} FAILED: {result.failure}\n  {lines}\nto see it again: {again}\n")


def _report(
    options: argparse.Namespace,
    coverage: Coverage,
    failed: Sequence[RunResult],
    done: int,
    wall_s: float,
    busy_s: float,
) -> None:
    rate = done / busy_s if busy_s else 0.0
    missed = coverage.missed()
    if options.output == "json":
        report = {
            "profile": options.profile,
            "first_seed": options.seed,
            "schedules": done,
            "failed": {str(result.seed): str(result.failure) for result in failed},
            "seconds": round(wall_s, 1),
            "schedules_per_core_second": round(rate, 2),
            "faults": dict(sorted(coverage.faults.items())),
            "crash_points": {
                "all": coverage.all,
                "passed": len(coverage.passed),
                "struck": len(coverage.died_at),
                "missed": missed,
                **({"counts": {name: counts for name, *counts in coverage.rows()}} if options.points else {}),
            },
        }
        json.dump(report, sys.stdout, indent=2)
        sys.stdout.write("\n")
        return
    sys.stdout.write(
        f"sim: {done - len(failed)} of {done} schedules passed in {wall_s:.0f} s, {rate:.2f} a second and core; "
        f"{len(coverage.passed)} of {coverage.all} crash points passed, struck at {len(coverage.died_at)}; "
        f"{len(coverage.faults)} kinds of faults\n"
    )
    if options.points:
        sys.stdout.write(f"{'passed':>10} {'struck':>7}  crash point\n")
        sys.stdout.writelines(f"{passed:>10} {struck:>7}  {name}\n" for name, passed, struck in coverage.rows())
    elif missed and done >= ENOUGH:
        sys.stdout.write(f"never passed: {', '.join(missed)}\n")
    if options.all_points and done < MANY:
        sys.stdout.write(
            f"crash points were not judged: {MANY} schedules or more pass all of them, these were {done}\n"
        )


if __name__ == "__main__":
    raise SystemExit(main())
