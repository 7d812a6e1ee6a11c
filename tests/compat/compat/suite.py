"""What a suite of somebody else is, what it finds here, and how it is run."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

ROOT: Final = Path(__file__).resolve().parents[3]
KEPT: Final = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "regency" / "compat"
"""Fetched and built suites, for all checkouts; removed by hand when they are not wanted any more."""
OUT: Final = ROOT / "tests" / "out" / "compat"
LAST_LINES: Final = 15


class CannotRun(Exception):
    """The suite cannot be had or built here: a program is missing, or a registry does not answer."""


class Outcome(Enum):
    """Of one test."""

    PASSED = "passed"
    FAILED = "failed"
    LEFT_OUT = "left out"


class Case(msgspec.Struct, frozen=True):
    """A test of a suite. `reason` says why it was left out, or how it failed."""

    name: str
    outcome: Outcome
    seconds: float = 0.0
    reason: str = ""


class Target(msgspec.Struct, frozen=True):
    """The cluster that is tested, and how much of the suite is run."""

    bootstrap_servers: str
    zookeeper: str
    brokers: int
    short: bool


class Suite(msgspec.Struct, frozen=True):
    """A suite: what it needs and how it is run. `left_out` are tests that are not run, each with its reason."""

    name: str
    what: str
    programs: tuple[str, ...]
    """Without one of these it cannot be run."""
    run: Callable[[Suite, Target], list[Case]]
    brokers: int = 3
    """Of the cluster that is started for it; 0: it starts its own."""
    settings: Mapping[str, str | int | float] = {}
    built: str = ""
    """What is in its directory once it is built, if that takes minutes."""
    left_out: Mapping[str, str] = {}

    @property
    def directory(self) -> Path:
        """Where it is fetched to and built."""
        path = KEPT / self.name
        path.mkdir(parents=True, exist_ok=True)
        return path

    @property
    def log(self) -> Path:
        """What it prints, and what fetching and building it prints."""
        OUT.mkdir(parents=True, exist_ok=True)
        return OUT / f"{self.name}.log"

    def call(
        self,
        command: Sequence[str | Path],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        within_s: float,
        must: bool = False,
    ) -> tuple[int, str]:
        """Run a command of the suite in a process group of its own: exit status (124: its time was over), output.

        `must`: raises CannotRun where it fails.
        """
        words = [str(word) for word in command]
        began = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            log.write(f"\n$ {' '.join(words)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                words,
                cwd=cwd or self.directory,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                status = process.wait(within_s)
            except subprocess.TimeoutExpired:
                status = 124
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
        said = self.log.read_bytes()[began:].decode(errors="replace")
        if must and status != 0:
            last = "\n".join(said.splitlines()[-LAST_LINES:])
            raise CannotRun(f"{words[0]} ended with {status}, see {self.log}:\n{last}")
        return status, said

    def refuse_without_programs(self) -> None:
        """Raise CannotRun where a program that it needs is not here."""
        if missing := [program for program in self.programs if shutil.which(program) is None]:
            raise CannotRun(f"{', '.join(missing)} is not on this machine")

    def refuse_unless_built(self) -> None:
        """Raise CannotRun where it would have to be built."""
        if self.built and not (self.directory / self.built).exists():
            raise CannotRun(f"it is not built on this machine yet; `./dev compat {self.name}` builds it")

    def skipped(self) -> list[Case]:
        """The tests that are left out, as rows."""
        return [Case(name, Outcome.LEFT_OUT, reason=reason) for name, reason in sorted(self.left_out.items())]


def done(path: Path, make: Callable[[], None]) -> None:
    """Do what is done once, unless its mark is there; a broken attempt leaves none."""
    if not path.exists():
        make()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def timed(name: str, work: Callable[[], str]) -> Case:
    """A case of one's own: `work` gives what is wrong, or nothing."""
    began = time.monotonic()
    wrong = work()
    outcome = Outcome.FAILED if wrong else Outcome.PASSED
    return Case(name, outcome, round(time.monotonic() - began, 1), wrong)


def say(line: str) -> None:
    """Progress, on stderr."""
    print(f"compat: {line}", file=sys.stderr, flush=True)


def first(lines: Iterable[str], pattern: str) -> str:
    """The first line that has the pattern, without what is long in it."""
    return next((line.strip()[:200] for line in lines if re.search(pattern, line)), "")
