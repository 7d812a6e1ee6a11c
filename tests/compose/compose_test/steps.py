"""Runs one step after the other, says what each found, and keeps it for the summary."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from subprocess import SubprocessError

import msgspec
from confluent_kafka import KafkaException

from compose_test.engine import CommandFailed
from compose_test.waiting import CheckFailed
from regency.model.errors import RegencyError

FAILURES = (CheckFailed, CommandFailed, SubprocessError, RegencyError, KafkaException, OSError, LookupError, ValueError)
"""What a step ends with where something is wrong with what is tested; anything else is a mistake of the test."""


class Step(msgspec.Struct, frozen=True):
    """What became of a step. `said`: what it saw, or why it failed."""

    name: str
    ok: bool
    seconds: float
    said: str


class StepFailed(Exception):
    """A step failed that those after it need."""


class Steps:
    """The steps of one run, in order."""

    def __init__(self) -> None:
        self.done: list[Step] = []

    @property
    def ok(self) -> bool:
        return all(step.ok for step in self.done)

    def run(self, name: str, work: Callable[[], str | None], *, needed: bool = True) -> None:
        """Run a step and tell of it on stderr. Raises StepFailed where it fails and those after it need it."""
        _tell(f"   {name} …")
        started = time.monotonic()
        try:
            said, ok = work() or "", True
        except FAILURES as error:
            said, ok = str(error) or type(error).__name__, False
        step = Step(name, ok, round(time.monotonic() - started, 1), said)
        self.done.append(step)
        _tell(f"{'ok' if ok else 'FAILED':>6} {step.seconds:6.1f} s  {name}{': ' + said if said else ''}")
        if not ok and needed:
            raise StepFailed(name)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
