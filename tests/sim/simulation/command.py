"""`./dev sim`: runs the seeds that its arguments name, and reports."""

from __future__ import annotations

import json
import logging
import signal
import time
from argparse import Namespace
from collections import Counter
from collections.abc import Sequence
from typing import Final

from simulation.defects import BECAUSE, DEFECTS, UNSEEN
from simulation.faults.points import crash_point_names
from simulation.kernel.clock import Trace
from simulation.options import MANY, PROGRAM, again, options_of, wanted_shape
from simulation.output import Output, is_watched, say
from simulation.run import RunResult, run
from simulation.workers import ended_by_signals, results

BY_MACHINE: Final = frozenset({"log.compaction.before_interrupt", "log.compaction.before_interrupted_names"})
"""Crash points of what clusters hardly do, a cut amid a swap: the machine of one compacted log passes them."""


class Coverage:
    """Adds runs up."""

    def __init__(self) -> None:
        self._names = crash_point_names()
        self.passed: Counter[str] = Counter()
        self.died_at: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    @property
    def all(self) -> int:
        """How many crash points there are in the code."""
        return len(self._names)

    def add(self, result: RunResult) -> None:
        self.passed.update(result.passed)
        self.died_at.update(result.died_at)
        self.faults.update(result.faults)

    def rows(self) -> list[tuple[str, int, int]]:
        """Every crash point, how often it was passed, and how often a process was struck there."""
        return [(name, self.passed[name], self.died_at[name]) for name in self._names]

    def missed(self) -> list[str]:
        return [name for name in self._names if name not in self.passed and name not in BY_MACHINE]


ENOUGH = 100
"""After so many schedules a crash point that was never passed is worth a line."""

INTERRUPTED = 128 + signal.SIGINT


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the arguments say. 0: all passed; 1: some failed; 2: wrong use, or output that cannot be written.

    130: Ctrl-C; 141: nobody reads the output any more. What has failed counts before what cannot be written.
    Raises SystemExit for wrong use and for signals.
    """
    output = Output(PROGRAM)
    try:
        with ended_by_signals():
            status = _main(options_of(arguments), output)
    except KeyboardInterrupt:
        say(f"{PROGRAM}: interrupted\n")
        status = INTERRUPTED
    except SystemExit as ended:
        raise SystemExit(output.end(ended.code if isinstance(ended.code, int) else 0)) from None
    return output.end(status)


def _main(options: Namespace, output: Output) -> int:
    logging.disable(logging.CRITICAL)
    if output.lost:
        return 0  # nobody would hear of it; `output` makes that another status
    if options.defects:
        _list_defects(options.output, output)
        return 0
    if options.trace:
        return _show(options, output)
    return _run_all(options, output)


def _list_defects(form: str, output: Output) -> None:
    known = {**DEFECTS, **UNSEEN}
    if form == "text":
        for name, defect in known.items():
            output.write(f"{name:<32} {defect.what}\n")
        return
    rows = [
        {"name": name, "what": defect.what, "source": defect.source, "planted_in_vain": BECAUSE.get(name)}
        for name, defect in known.items()
    ]
    output.write(json.dumps(rows, indent=2) + "\n")


def _show(options: Namespace, output: Output) -> int:
    """Run the one schedule to its end, also when nobody reads on: its verdict is the status."""
    trace = Trace(on=True, listener=lambda line: output.write(line + "\n"))
    result = run(options.seed, wanted_shape(options, options.seed), trace=trace, defect=options.defect)
    output.write(f"{result.steps} steps, {result.seconds:.3f} s of virtual time, digest {result.digest:08x}\n")
    if result.failure is not None:
        output.write(f"FAILED: {result.failure}\n")
    return 0 if result.failure is None else 1


def _run_all(options: Namespace, output: Output) -> int:
    """Run every seed, and report. Ctrl-C ends it with a report of what was done until then."""
    summary: _Summary | None = None
    interrupted = False
    try:
        summary = _Summary(options, output)
        for result in results(options):
            summary.add(result)
            if len(summary.failed) >= options.stop_after or output.lost:
                break
    except KeyboardInterrupt:
        interrupted = True
    if summary is None:
        say(f"{PROGRAM}: interrupted before the first schedule\n")
        return INTERRUPTED
    summary.tell()
    return INTERRUPTED if interrupted else summary.status


class _Summary:
    """What came of the schedules so far. Failures are told at once, or with all the rest where that is JSON."""

    def __init__(self, options: Namespace, output: Output) -> None:
        self._began = time.monotonic()
        self._options = options
        self._output = output
        self._is_text = options.output == "text"
        self._coverage = Coverage()
        self._busy_s = 0.0
        self._done = 0
        self.failed: list[RunResult] = []

    @property
    def status(self) -> int:
        incomplete = self._options.all_points and self._done >= MANY and bool(self._coverage.missed())
        return 1 if self.failed or incomplete else 0

    def add(self, result: RunResult) -> None:
        self._done += 1
        self._busy_s += result.cpu_s
        self._coverage.add(result)
        if result.failure is not None:
            self.failed.append(result)  # before it is looked at again, which Ctrl-C may end
            self.failed[-1] = self._seen_again(result)
            if self._is_text:
                self._tell_failure(self.failed[-1])
        elif self._is_text and is_watched():
            say(f"\r{self._done} schedules, {self._done / (time.monotonic() - self._began):.1f} a second ")

    def tell(self) -> None:
        if self._is_text:
            self._tell_text()
        else:
            self._output.write(json.dumps(self._report(), indent=2) + "\n")

    def _seen_again(self, result: RunResult) -> RunResult:
        """With the last events of a second run with the trace on, which has the log lines too."""
        shape = wanted_shape(self._options, result.seed)
        traced = run(result.seed, shape, trace=Trace(on=True), defect=self._options.defect)
        return result._replace(last_events=traced.last_events)

    def _again(self, result: RunResult) -> str:
        options = self._options
        return again(options.profile, result.seed, unreconciled=options.unreconciled, defect=options.defect)

    def _tell_failure(self, result: RunResult) -> None:
        lines = "\n  ".join(result.last_events)
        again = self._again(result)
        self._output.write(f"\nseed {result.seed} FAILED: {result.failure}\n  {lines}\nto see it again: {again}\n")
        self._output.flush()

    @property
    def _rate(self) -> float:
        return self._done / self._busy_s if self._busy_s else 0.0

    def _report(self) -> dict[str, object]:
        coverage = self._coverage
        counts = {"counts": {name: counts for name, *counts in coverage.rows()}} if self._options.points else {}
        return {
            "profile": self._options.profile,
            "first_seed": self._options.seed,
            "schedules": self._done,
            "failed": {
                str(result.seed): {
                    "failure": str(result.failure),
                    "last_events": result.last_events,
                    "again": self._again(result),
                }
                for result in self.failed
            },
            "seconds": round(time.monotonic() - self._began, 1),
            "schedules_per_core_second": round(self._rate, 2),
            "faults": dict(sorted(coverage.faults.items())),
            "crash_points": {
                "all": coverage.all,
                "passed": len(coverage.passed),
                "struck": len(coverage.died_at),
                "missed": coverage.missed(),
                **counts,
            },
        }

    def _tell_text(self) -> None:
        coverage, write = self._coverage, self._output.write
        passed, wall_s = self._done - len(self.failed), time.monotonic() - self._began
        write(
            f"sim: {passed} of {self._done} schedules passed in {wall_s:.0f} s, {self._rate:.2f} a second and core; "
            f"{len(coverage.passed)} of {coverage.all} crash points passed, struck at {len(coverage.died_at)}; "
            f"{len(coverage.faults)} kinds of faults\n"
        )
        if self._options.points:
            write(f"{'passed':>10} {'struck':>7}  crash point\n")
            for name, times, struck in coverage.rows():
                write(f"{times:>10} {struck:>7}  {name}\n")
        elif (missed := coverage.missed()) and self._done >= ENOUGH:
            write(f"never passed: {', '.join(missed)}\n")
        if self._options.all_points and self._done < MANY:
            write(f"crash points were not judged: {MANY} schedules or more pass all of them, these were {self._done}\n")
