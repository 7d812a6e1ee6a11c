"""The logs of a lab's processes as one, by time. Reading is incremental: files grow, and new ones come.

A line that begins with no time (a traceback's) belongs to the one before it in its file, and moves with it.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from regency.cluster.state import ZOOKEEPER, ClusterState
from regency.model.ids import BrokerId

_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)[.,](\d{3})(Z?) ")
_CONTROLLER = re.compile(r"\S+ +\S+ +controller-\d+ ")
_BLOCK = 65_536


_NAMES = {"at_ms": "time_ms", "source": "process", "controller": "by_controller"}
"""Fields of an entry as JSON has them."""


class Entry(msgspec.Struct, frozen=True, order=True, rename=_NAMES):
    """What a process wrote at a time: one line, or several. `at_ms` never decreases within a file.

    `controller` says that a broker's controller process wrote it, into the log that it shares with its agent.
    """

    at_ms: int
    source: str
    text: str
    controller: bool = False


class LogFile:
    """One file of a source (`broker 2`, `zookeeper`), read on from where the last reading ended."""

    def __init__(self, source: str, path: Path) -> None:
        self.source = source
        self.path = path
        self._offset = 0
        self._at_ms = 0

    def skip_to_last(self, lines: int) -> None:
        """Begin at the last so many lines of the file, or a little before: at the line that has their first's time."""
        try:
            with self.path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                begin, wanted = size, lines
                while begin and wanted >= 0:
                    begin = max(0, begin - _BLOCK)
                    file.seek(begin)
                    wanted = lines - _timed_lines(file.read(size - begin))
                if begin:
                    file.seek(begin)
                    file.readline()  # half a line
                    begin = file.tell()
                self._offset = begin
        except OSError:
            self._offset = 0

    def read(self, *, finished: bool) -> Iterator[Entry]:
        """What was written since. A last line without an end is left for the next time, unless it is `finished`."""
        try:
            with self.path.open("rb") as file:
                if file.seek(0, os.SEEK_END) < self._offset:
                    self._offset = 0  # another file has its name, or it was emptied
                file.seek(self._offset)
                yield from self._entries(file, finished=finished)
        except FileNotFoundError:
            return

    def _entries(self, lines: Iterable[bytes], *, finished: bool) -> Iterator[Entry]:
        held: Entry | None = None
        for raw in lines:
            if not raw.endswith(b"\n") and not finished:
                break
            self._offset += len(raw)
            line = raw.decode(errors="replace").rstrip("\r\n")
            at_ms = _time_of(line)
            if at_ms is None and held is not None:
                held = msgspec.structs.replace(held, text=f"{held.text}\n{line}")
                continue
            if held is not None:
                yield held
            self._at_ms = max(self._at_ms, at_ms or self._at_ms or self._modified_ms())
            held = Entry(self._at_ms, self.source, line, _CONTROLLER.match(line) is not None)
        if held is not None:
            yield held

    def _modified_ms(self) -> int:
        return self.path.stat().st_mtime_ns // 1_000_000


def log_files(directory: Path, state: ClusterState) -> list[LogFile]:
    """The logs of all processes of the lab that there can be: of every broker, and of its own ZooKeeper."""
    files = [LogFile(f"broker {broker.id}", directory / broker.name / "agent.log") for broker in state.brokers]
    if state.zookeeper_port:
        own = directory / ZOOKEEPER
        files += [LogFile(ZOOKEEPER, own / "zookeeper.log"), LogFile(ZOOKEEPER, own / "zookeeper.out")]
    return files


def merged(files: Iterable[LogFile], *, finished: bool = True) -> Iterator[Entry]:
    """What the files have now, by time."""
    return heapq.merge(*(file.read(finished=finished) for file in files), key=lambda entry: entry.at_ms)


class Wanted(msgspec.Struct, frozen=True):
    """Whose entries are shown, all where none is named. `controllers`: the controller processes of all brokers."""

    brokers: frozenset[BrokerId] = frozenset()
    controllers: bool = False
    zookeeper: bool = False
    since_ms: int = 0

    def has(self, entry: Entry) -> bool:
        """Whether this entry is one of them."""
        if entry.at_ms < self.since_ms:
            return False
        if not (self.brokers or self.controllers or self.zookeeper):
            return True
        if entry.source == ZOOKEEPER:
            return self.zookeeper
        broker = BrokerId(int(entry.source.rpartition(" ")[2]))
        return broker in self.brokers or (self.controllers and entry.controller)


def _time_of(line: str) -> int | None:
    """Milliseconds since 1970 of the time that a line begins with: UTC with a Z, else this machine's."""
    found = _TIME.match(line)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found[1])
    except ValueError:
        return None
    moment = moment.replace(tzinfo=UTC) if found[3] else moment.astimezone()
    return int(moment.timestamp()) * 1000 + int(found[2])


def _timed_lines(block: bytes) -> int:
    return sum(_TIME.match(line.decode(errors="replace")) is not None for line in block.splitlines())
