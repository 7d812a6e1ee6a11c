"""Brokers' log directories after their process was killed: what may be there by what it told, and what is there."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from click.testing import CliRunner
from crc32c import crc32c

from regency.broker_agent.log.disk import OsDisk
from regency.broker_agent.log.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.cli.main import cli
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, LeaderEpoch, Offset
from regency.model.log_config import LogConfig

BROKER = Path(__file__).with_name("killed_broker.py")
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=100, segment_index_bytes=120, file_delete_delay_ms=1000)
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint", "replication-offset-checkpoint")
BESIDE = {"meta.properties", ".lock", *CHECKPOINTS}


class Batch(NamedTuple):
    """A batch as it stands in a log."""

    base: int
    following: int
    epoch: int
    data: bytes

    @staticmethod
    def all_in(content: bytes) -> Iterator[Batch]:
        """The whole and sound batches at the beginning of `content`. By hand, not with the code under test."""
        while len(content) > 61:
            base, size, epoch, _, crc = struct.unpack_from(">qiibI", content)
            if size <= 49 or len(content) < 12 + size or crc32c(content[21 : 12 + size]) != crc:
                break
            (last,) = struct.unpack_from(">i", content, 23)
            yield Batch(base, base + last + 1, epoch, content[: 12 + size])
            content = content[12 + size :]


class Held:
    """What a log has to hold: from some offset between `least_start` and `start`, to one from `least_end` to `end`."""

    def __init__(self) -> None:
        self.least_start = self.start = self.least_end = self.end = self.mark = 0
        self.batches: dict[int, Batch] = {}
        self.is_emptied = False
        """Whether it may also be empty, wherever it begins."""

    def append(self, batches: list[Batch]) -> None:
        """Some of these may follow."""
        self.least_end = self.end = batches[0].base
        self.batches = {base: batch for base, batch in self.batches.items() if base < self.end}
        self.batches |= {batch.base: batch for batch in batches}
        self.end = batches[-1].following

    def cut(self, offset: int) -> None:
        """What is at `offset` and above may be gone."""
        if offset >= self.end:
            return
        if offset <= self.start:
            self.start_over(offset)
            return
        straddling = [batch.base for batch in self.batches.values() if batch.base < offset < batch.following]
        self.least_end = min([offset, *straddling])
        self.least_start = min(self.least_start, self.least_end)
        self.mark = min(self.mark, self.least_end)

    def start_over(self, offset: int) -> None:
        """All may be gone."""
        self.is_emptied = True
        self.least_end = offset
        self.mark = 0

    def done(self) -> None:
        """The last operation is done."""
        if self.is_emptied:
            self.is_emptied = False
            self.least_start = self.start = self.end = self.least_end
            self.batches.clear()
        elif self.least_end < self.end and max(self.batches, default=0) < self.least_end:
            self.end = self.least_end


class Ledger:
    """What a process told before it was killed."""

    def __init__(self, told: bytes) -> None:
        self.logs: dict[str, Held] = {}
        self.maybe_gone: set[str] = set()
        self.strays = 0
        self.reached: tuple[str, int] | None = None
        self.passed: Counter[str] = Counter()
        self.operation: dict[str, Any] | None = None
        """The one that was under way."""
        for line in told.splitlines():
            self._take(json.loads(line))

    def _take(self, line: dict[str, Any]) -> None:
        match line:
            case {"op": _}:
                self.operation = line
                self._begin(line)
            case {"done": _}:
                assert self.operation is not None
                self._end(self.operation | line)
                self.operation = None
            case {"reached": name, "nth": nth}:
                self.reached = (name, nth)
            case {"passed": passed}:
                self.passed = Counter(passed)
            case {"failed": what}:
                pytest.fail(f"a directory failed: {what}")

    def _begin(self, line: dict[str, Any]) -> None:
        name = line["log"]
        match line["op"]:
            case "create":
                self.logs[name] = Held()
                self.maybe_gone.add(name)
            case "append":
                self.logs[name].append([each for data in line["batches"] for each in Batch.all_in(bytes.fromhex(data))])
            case "cut":
                self.logs[name].cut(line["offset"])
            case "lose":
                self.logs[name].least_end = line["offset"]
            case "start over":
                self.logs[name].start_over(line["offset"])
            case "raise start" | "expire":
                self.logs[name].start = max(self.logs[name].start, line["offset"])
            case "delete" | "stray":
                self.maybe_gone.add(name)
                self.strays += line["op"] == "stray"

    def _end(self, line: dict[str, Any]) -> None:
        name = line["log"]
        match line["op"]:
            case "create":
                self.maybe_gone.discard(name)
            case "append":
                self.logs[name].least_end = self.logs[name].end
            case "cut":
                held = self.logs[name]
                if not held.is_emptied:
                    kept = [each for each in held.batches.values() if each.following <= held.least_end]
                    held.batches = {each.base: each for each in kept}
                    held.start = min(held.start, held.least_end)
                held.done()
            case "start over":
                self.logs[name].done()
            case "expire":
                self.logs[name].least_start = self.logs[name].start = line["offset"]
            case "checkpoint":
                for each, start in line["starts"].items():
                    self.logs[each].least_start = start
                    self.logs[each].mark = line["marks"][each]
            case "delete" | "stray":
                del self.logs[name]
                self.maybe_gone.discard(name)


class Found(NamedTuple):
    """What a log holds."""

    start: int
    end: int
    batches: tuple[Batch, ...]
    epochs: tuple[tuple[int, int], ...]


class Kills:
    """Processes that kill themselves, each in new directories, and what is found there afterwards."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._number = 0
        self.root = root

    def run(self, scenario: str, point: str = "", nth: int = 0) -> Ledger:
        """Go through a scenario, to the place where its process dies if one is given, in new directories `root`."""
        self._number += 1
        self.root = self._root / str(self._number)
        self.root.mkdir()
        arguments = [sys.executable, str(BROKER), scenario, str(self.root), point, str(nth)]
        done = subprocess.run(arguments, capture_output=True, check=False, timeout=60, stdin=subprocess.DEVNULL)
        ledger = Ledger(done.stdout)
        words = done.stderr.decode()[-2000:]
        if point:
            assert done.returncode == -signal.SIGKILL, words
            assert ledger.reached == (point, nth), words
        else:
            assert done.returncode == 0, words
        return ledger

    def check(self, ledger: Ledger) -> None:
        """Everything that was told to be done is there, and it goes on from there."""
        self._check_as_it_lies(ledger)
        with self.opened() as manager:
            found = read(manager)
            check_contents(ledger, manager, found)
            manager.clock.advance(2000)  # type: ignore[attr-defined]
            manager.remove_deleted_files()
            self._check_names(manager, ledger)
        with self.opened() as manager:
            assert read(manager) == found, "another crash at once"
            for name, log in by_name(manager).items():
                go_on(log, found[name])
            found = read(manager)
            manager.close()
        status, words = self._dump()
        assert status == 0, words
        files = self._files()
        with self.opened() as manager:
            assert read(manager) == found
            manager.close()
        assert self._files() == files, "a restart changes files"

    @contextmanager
    def opened(self) -> Iterator[LogManager]:
        """The directories opened as an agent does at its start; as after a crash afterwards, unless closed."""
        clock = ManualClock()
        failures: list[str] = []
        manager = LogManager.open(
            [self.root / "a", self.root / "b"],
            CONFIG,
            broker_id=BrokerId(1),
            cluster_id="c",
            clock=clock,
            worker=InlineWorker(),
            recovery_threads=1,
            disk=UnsyncedDisk(),
            on_dir_failure=lambda path, why: failures.append(f"{path}: {why}"),
        )
        manager.clock = clock  # type: ignore[attr-defined]
        try:
            yield manager
        finally:
            manager._services.files.close_all()
            for logs in manager.directories:
                logs.directory.unlock()
        assert failures == []

    def _check_as_it_lies(self, ledger: Ledger) -> None:
        """Checkpoints are whole, and not above what the files hold, before anybody mends anything."""
        for directory in self._directories():
            offsets = {name: read_checkpoint(directory / name) for name in CHECKPOINTS}
            for path in directory.glob("*-[0-9]"):
                read_epochs(path / "leader-epoch-checkpoint")
                held = ledger.logs.get(path.name)
                if held is not None and not held.is_emptied:
                    end = end_of_files(path)
                    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
                        assert offsets[name].get(path.name, 0) <= end, (name, path)

    def _check_names(self, manager: LogManager, ledger: Ledger) -> None:
        """Nothing lies about that nobody needs."""
        logs = [log for directory in manager.directories for log in directory.logs.values()]
        strays = 0
        for directory in self._directories():
            homes = {log.directory.name for log in logs if log.directory.parent == directory}
            others = {path.name for path in directory.iterdir()} - homes - BESIDE
            assert all(name.endswith("-stray") for name in others), others
            strays += len(others)
        assert strays <= ledger.strays
        for log in logs:
            names = {path.name for path in log.directory.iterdir() if path.suffix != ".snapshot"}
            bases = [f"{base:020d}" for base in log.segment_base_offsets]
            assert {f"{base}.log" for base in bases} <= names
            assert names - {f"{base}{suffix}" for base in bases for suffix in (".log", ".index", ".timeindex")} <= {
                "leader-epoch-checkpoint",
                "partition.metadata",
            }
            ends = [int(path.stem) for path in log.directory.glob("*.snapshot")]
            assert all(end <= log.log_end_offset for end in ends), ends

    def _dump(self) -> tuple[int, str]:
        """`regency log dump` of everything."""
        paths = [str(path) for each in self._directories() for path in (each, *each.glob("*-[0-9]")) if path.is_dir()]
        result = CliRunner().invoke(cli, ["log", "dump", "--verify-index-only", *paths], prog_name="regency")
        return result.exit_code, result.output

    def _directories(self) -> list[Path]:
        return sorted(path for path in self.root.iterdir() if path.is_dir())

    def _files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in sorted(self.root.rglob("*")) if path.is_file()}


class UnsyncedDisk(OsDisk):
    """The operating system's, for who looks at what was left: nobody is killed any more."""

    def sync(self, fd: int) -> None:
        """Not needed."""

    def sync_path(self, path: Path) -> None:
        """Not needed, but it has to be there."""
        if not path.exists():
            raise FileNotFoundError(path)


class InlineWorker:
    """A worker pool that does its work at once."""

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Do it."""
        done(work())


def by_name(manager: LogManager) -> Mapping[str, PartitionLog]:
    return {str(partition): log for partition, log in manager.all().items()}


def read(manager: LogManager) -> dict[str, Found]:
    """What every log holds, read batch by batch."""
    found = {}
    for name, log in by_name(manager).items():
        batches: list[Batch] = []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            records = log.read(offset, 1, max_offset=log.log_end_offset, min_one_batch=True).records
            assert records, f"nothing is at {offset}, and {name} ends at {log.log_end_offset}"
            batches += Batch.all_in(bytes(records))
            assert batches[-1].base <= offset < batches[-1].following
            offset = Offset(batches[-1].following)
        epochs = tuple((epoch, start) for epoch, start in log.epoch_entries if start < log.log_end_offset)
        found[name] = Found(log.log_start_offset, log.log_end_offset, tuple(batches), epochs)
    return found


def check_contents(ledger: Ledger, manager: LogManager, found: dict[str, Found]) -> None:
    """Every log holds what it has to, and nothing else."""
    assert set(ledger.logs) - ledger.maybe_gone <= set(found) <= set(ledger.logs)
    for name, log in by_name(manager).items():
        held, here = ledger.logs[name], found[name]
        if not (held.is_emptied and here.start == here.end):
            assert held.least_start <= here.start <= max(held.start, held.least_start), name
            assert held.least_end <= here.end <= held.end or held.is_emptied, (name, here.end, vars(held))
        expected = [each for each in held.batches.values() if here.start < each.following and each.base < here.end]
        expected = expected if here.start < here.end else []  # a batch may straddle where an empty log begins
        assert list(here.batches) == expected, name
        assert here.end in {here.start, *(batch.following for batch in expected)}
        starts: dict[int, int] = {}
        for batch in expected:
            starts.setdefault(batch.epoch, max(batch.base, here.start))
        assert here.epochs == tuple(starts.items()), name
        mark = log.set_high_watermark(manager.high_watermark_checkpoint(log.topic_partition))
        assert min(held.mark, here.end) <= mark <= here.end
        assert log.topic_id in (UUID(int=7), UUID(int=0))
        assert name in ledger.maybe_gone or log.topic_id == UUID(int=7)
        for directory in manager.directories:
            if directory.directory.path == log.directory.parent:
                for checkpoint in CHECKPOINTS[:2]:
                    assert read_checkpoint(log.directory.parent / checkpoint).get(name, 0) <= here.end


def go_on(log: PartitionLog, found: Found) -> None:
    """A producer repeats its last batch, which is known, and sends another."""
    epoch = LeaderEpoch(max([0, *(epoch for epoch, _ in log.epoch_entries)]))
    last = found.batches[-1] if found.batches else None
    if last is not None:
        again = log.append_as_leader(unstamped(last.data), epoch, 0)
        assert (again.duplicate, again.base_offset) == (True, last.base)
        sequence, count = struct.unpack_from(">i", last.data, 53)[0], last.following - last.base
        following = bytearray(unstamped(last.data))
        struct.pack_into(">i", following, 53, sequence + count)
        struct.pack_into(">I", following, 17, crc32c(following[21:]))
        added = log.append_as_leader(following, epoch, 0)
        assert (added.duplicate, added.base_offset) == (False, found.end)


def unstamped(data: bytes) -> bytearray:
    """A batch as its producer sent it."""
    return bytearray(bytes(8) + data[8:12] + b"\xff" * 4 + data[16:])


def end_of_files(directory: Path) -> int:
    """Where the batches in a partition's files end, without a hole."""
    end = 0
    for path in sorted(directory.glob("*.log")):
        base = int(path.stem)
        if end and base != end:
            break
        end = base
        for batch in Batch.all_in(path.read_bytes()):
            if batch.base != end and end != base:
                return end
            end = batch.following
    return end


def read_checkpoint(path: Path) -> dict[str, int]:
    """Offsets by partition, read by hand; empty where there is no file."""
    entries = read_lines(path)
    return {f"{topic}-{number}": int(offset) for topic, number, offset in entries}


def read_epochs(path: Path) -> list[tuple[int, int]]:
    """Leader epochs, read by hand."""
    return [(int(epoch), int(start)) for epoch, start in read_lines(path)]


def read_lines(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    version, number, *lines, last = path.read_text().split("\n")
    assert (version, number, last) == ("0", str(len(lines)), ""), path
    return [line.split(" ") for line in lines]


@pytest.fixture
def kills(tmp_path: Path) -> Kills:
    """Runs processes that kill themselves."""
    return Kills(tmp_path)


@pytest.fixture(scope="session")
def passed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """How often each scenario passes each crash point, by point."""
    runs = Kills(tmp_path_factory.mktemp("passed"))
    found: dict[str, dict[str, int]] = {}
    for scenario in ("leading", "following", "recovering", "moving"):
        ledger = runs.run(scenario)
        for point, times in ledger.passed.items():
            found.setdefault(point, {})[scenario] = times
        runs.check(ledger)
    return found
