"""`python -m simulation.paused`: pauses controllers at every write and request there is, in every way, on all cores."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from simulation.kernel.clock import Trace
from simulation.output import Output, is_watched, say
from simulation.paused.enumeration import Trial, breakers, played, run, share, trials_of
from simulation.paused.scenes import SCENES
from simulation.paused.trial import WAYS, Outcome, nothing
from simulation.workers import ended_by_signals, pool_of

PROGRAM = "python -m simulation.paused"
_AT_ONCE = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the arguments name. 0: all passed; 1: some failed; 2: wrong use, or output that cannot be written.

    130: Ctrl-C; 141: nobody reads the output any more.
    """
    output = Output(PROGRAM)
    try:
        with ended_by_signals():
            status = _main(_options(arguments), output)
    except KeyboardInterrupt:
        say(f"{PROGRAM}: interrupted\n")
        status = 128 + signal.SIGINT
    return output.end(status)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__)
    parser.add_argument("--scene", choices=sorted(SCENES), help="only this scene")
    parser.add_argument("--number", type=int, metavar="K", help="only its K-th write or request, counted from 1")
    parser.add_argument("--way", choices=sorted(WAYS), help="only in this way")
    parser.add_argument("--share", action="store_true", help="only what the tests run")
    parser.add_argument("--list", action="store_true", help="list the writes and requests, and end")
    parser.add_argument("--trace", action="store_true", help="run one trial and print everything that happens")
    parser.add_argument("--without", choices=sorted(each.name for each in breakers()), help="take a fence away")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, metavar="J", help="processes (default: cores)")
    options = parser.parse_args(arguments)
    if options.number is not None and options.scene is None:
        parser.error("--number counts within a scene: give --scene, too")
    if options.number is not None and not 0 < options.number <= len(played(options.scene).moments):
        parser.error(f"{options.scene} has the numbers 1 to {len(played(options.scene).moments)}")
    if options.trace and (options.number is None or options.way is None):
        parser.error("--trace shows one trial: give --scene, --number and --way")
    if options.jobs < 1:
        parser.error("--jobs must be 1 or more")
    return options


def _main(options: argparse.Namespace, output: Output) -> int:
    logging.disable(logging.CRITICAL)
    if output.lost:
        return 0  # nobody would hear of it; `output` makes that another status
    unplayed = [f"{scene} by itself: {failure}" for scene in _scenes(options) if (failure := played(scene).failure)]
    if unplayed:
        output.write("".join(f"{line}\n" for line in unplayed))
        return 1
    if options.list:
        for scene in _scenes(options):
            output.write("".join(f"{scene} {moment}\n" for moment in played(scene).moments))
        return 0
    if options.trace:
        return _show(Trial(options.scene, options.number, options.way), options.without, output)
    return _run_all(_trials(options), options, output)


def _scenes(options: argparse.Namespace) -> Iterable[str]:
    return SCENES if options.scene is None else [options.scene]


def _trials(options: argparse.Namespace) -> list[Trial]:
    shared = share() if options.share else {}
    trials = [trial for scene in _scenes(options) for trial in (shared[scene] if shared else trials_of(scene))]
    return [trial for trial in trials if options.number in (None, trial.number) and options.way in (None, trial.way)]


def _show(trial: Trial, without: str | None, output: Output) -> int:
    trace = Trace(on=True, listener=lambda line: output.write(line + "\n"))
    outcome = _run(trial, without, trace)
    output.write(f"digest {outcome.digest:08x}\n")
    if outcome.failure is not None:
        output.write(f"FAILED: {outcome.failure}\n")
    return 0 if outcome.failure is None else 1


def _run_all(trials: Sequence[Trial], options: argparse.Namespace, output: Output) -> int:
    began, busy_s, failed = time.monotonic(), 0.0, 0
    done: Counter[str] = Counter()
    unfinished: Counter[str] = Counter()
    for trial, outcome in _outcomes(trials, options):
        done[trial.way] += 1
        unfinished[trial.way] += not outcome.acted
        busy_s += outcome.cpu_s
        if outcome.failure is not None:
            failed += 1
            _tell_failure(trial, outcome, options.without, output)
        if is_watched():
            say(f"\r{done.total()} of {len(trials)} ")
    moments = [moment for scene in _scenes(options) for moment in played(scene).moments]
    writes = sum(moment.is_write for moment in moments)
    output.write(
        f"paused: {done.total() - failed} of {done.total()} trials passed in {time.monotonic() - began:.0f} s, "
        f"{busy_s:.0f} s of a core; {writes} writes and {len(moments) - writes} requests in the scenes\n"
    )
    for way in WAYS:
        output.write(f"{done[way]:>8} {way}; in {unfinished[way]} the successor still had something to do\n")
    return 1 if failed else 0


def _outcomes(trials: Sequence[Trial], options: argparse.Namespace) -> Iterator[tuple[Trial, Outcome]]:
    wanted = [(trial, options.without) for trial in trials]
    if options.jobs == 1:
        yield from map(_one, wanted)
        return
    with pool_of(options.jobs) as pool:
        yield from pool.imap_unordered(_one, wanted, chunksize=_AT_ONCE)


def _tell_failure(trial: Trial, outcome: Outcome, without: str | None, output: Output) -> None:
    again = f"{PROGRAM} {trial} --trace" + (f" --without {without}" if without else "")
    output.write(f"{outcome.struck}\n    FAILED: {outcome.failure}\n    to see it: {again}\n")
    output.flush()


def _one(wanted: tuple[Trial, str | None]) -> tuple[Trial, Outcome]:
    trial, without = wanted
    logging.disable(logging.CRITICAL)
    return trial, _run(trial, without)


def _run(trial: Trial, without: str | None, trace: Trace | None = None) -> Outcome:
    plant = nothing if without is None else next(each.plant for each in breakers() if each.name == without)
    return run(trial, trace=trace, plant=plant)


if __name__ == "__main__":
    raise SystemExit(main())
