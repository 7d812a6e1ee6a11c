"""Processes that run schedules for the command, and end when it ends, however that is."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.pool import AsyncResult, Pool
from types import FrameType

from regency.runtime.supervise import die_with_parent
from simulation.options import wanted_shape
from simulation.run import RunResult, run
from simulation.shape import Shape

_AT_ONCE = 4
"""Seeds a worker takes at a time."""

_ENDING = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Inside, SIGTERM and a closed terminal raise SystemExit, so that `with` blocks end the workers.

    A signal that is ignored, as SIGHUP below `nohup`, stays so.
    """

    def leave(number: int, _frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, signal.SIG_IGN)  # once is enough: a terminal that closes may say so twice
        raise SystemExit(128 + number)

    handlers = {number: signal.getsignal(number) for number in _ENDING}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    for number in before:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def pool_of(jobs: int) -> Pool:
    return multiprocessing.get_context("fork").Pool(jobs, initializer=_belong, initargs=(os.getpid(),))


def results(options: Namespace) -> Iterator[RunResult]:
    """What comes of the seeds that the options name, as it comes."""
    if options.jobs == 1:
        yield from map(_one, _seeds(options))
        return
    with pool_of(options.jobs) as pool:
        if options.seconds is None:
            at_once = max(1, min(_AT_ONCE, options.seeds // (4 * options.jobs)))
            yield from pool.imap_unordered(_one, _seeds(options), chunksize=at_once)
            return
        waiting: list[AsyncResult[RunResult]] = []
        for arguments in _seeds(options):  # not all at once: the time may be over before the seeds are
            waiting.append(pool.apply_async(_one, (arguments,)))
            while len(waiting) >= options.jobs * 2:
                yield waiting.pop(0).get()
        for each in waiting:
            yield each.get()


def _seeds(options: Namespace) -> Iterator[tuple[int, Shape, str]]:
    deadline = None if options.seconds is None else time.monotonic() + options.seconds
    seed = options.seed
    while options.seeds is None or seed < options.seed + options.seeds:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield seed, wanted_shape(options, seed), options.defect
        seed += 1


def _one(arguments: tuple[int, Shape, str]) -> RunResult:
    seed, shape, defect = arguments
    logging.disable(logging.CRITICAL)
    return run(seed, shape, defect=defect)


def _belong(parent: int) -> None:
    """A worker ends when its parent ends it, not by a signal that meets both; or at once when its parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with suppress(OSError):  # where the kernel refuses, it ends when it has something to say to nobody
        die_with_parent()
    if os.getppid() != parent:
        os._exit(1)
