"""Decision records of one host in pages: bounded, in the order they were made, whatever is written meanwhile."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from regency.history.records import Decision, decode_decision

PAGE_BYTES = 1 << 20
"""About so much makes a page."""

ROLES = ("agent", "controller")
_NUMBERED = re.compile(r"\.(\d+)\.jsonl$")


class Position(NamedTuple):
    """A decision's place among those of its process. An agent counts over its whole life, whatever the epoch."""

    role: str
    epoch: int
    number: int


class Wanted(msgspec.Struct, frozen=True):
    """Which decisions are wanted. Times are wall milliseconds since 1970; `until_ms` 0 is the end."""

    subjects: frozenset[str] = frozenset()
    topic: str = ""
    """Its partitions are wanted besides."""
    since_ms: int = 0
    until_ms: int = 0

    def takes(self, decision: Decision) -> bool:
        """Whether this one is wanted."""
        if decision.time_ms < self.since_ms or (self.until_ms and decision.time_ms > self.until_ms):
            return False
        if decision.subject in self.subjects or not (self.subjects or self.topic):
            return True
        topic, _, number = decision.subject.rpartition("-")
        return bool(self.topic) and topic == self.topic and number.isdigit()

    def may_take(self, line: bytes) -> bool:
        """Whether it is worth while to decode a line."""
        if self.topic and self.topic.encode() in line:
            return True
        return not (self.subjects or self.topic) or any(subject.encode() in line for subject in self.subjects)


class Page(msgspec.Struct, frozen=True):
    """Lines as they stand in the files, and where to go on; None where that was all."""

    lines: tuple[bytes, ...]
    next: Position | None


def read_page(directory: Path, wanted: Wanted, after: Position | None = None, *, most: int = PAGE_BYTES) -> Page:
    """The wanted decisions behind `after`, about `most` bytes of them. Files that cannot be read are skipped."""
    lines: list[bytes] = []
    size = 0
    for role in ROLES:
        if after is not None and role < after.role:
            continue
        last = after if after is not None and after.role == role else Position(role, -1, -1)
        with ExitStack() as stack:
            for line in _lines(stack, directory, role, wanted.since_ms):
                if not wanted.may_take(line):
                    continue
                decision = decode_decision(line)
                if decision is None or not wanted.takes(decision):
                    continue
                here = Position(role, 0 if role == "agent" else decision.controller_epoch, decision.number)
                if here <= last:
                    continue
                if size >= most:
                    return Page(tuple(lines), last)
                lines.append(line)
                size += len(line)
                last = here
    return Page(tuple(lines), None)


def _lines(stack: ExitStack, directory: Path, role: str, since_ms: int) -> Iterator[bytes]:
    """The lines of a process's files, oldest first. All are opened before one is read: a rotation moves none away."""
    files: list[BinaryIO] = []
    for path in sorted(directory.glob(f"{role}*.jsonl"), key=_age):
        try:
            if path.stat().st_mtime * 1000 >= since_ms:
                files.append(stack.enter_context(path.open("rb")))
        except OSError:
            continue
    for file in reversed(files):
        for line in file:
            yield line.rstrip(b"\n")


def _age(path: Path) -> int:
    numbered = _NUMBERED.search(path.name)
    return int(numbered[1]) if numbered else 0
