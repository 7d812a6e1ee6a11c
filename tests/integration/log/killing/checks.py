"""Log directories after their process was killed: everything that was told to be done is there, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from click.testing import CliRunner
from crc32c import crc32c

import regency
from killing.batches import Batch, unstamped
from killing.broker import CONFIG
from killing.files import end_of_files, read_checkpoint, read_epochs
from killing.ledger import Ledger
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.cli.main import cli
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, LeaderEpoch, Offset
from regency.runtime.disk import OsDisk

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)
BESIDE = {"meta.properties", ".lock", *CHECKPOINTS}
ROOTS = os.pathsep.join(str(Path(path).resolve().parents[1]) for path in (__file__, str(regency.__file__)))


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
        self._clock = ManualClock()
        self.root = root

    def run(self, scenario: str, point: str = "", nth: int = 0) -> Ledger:
        """Go through a scenario, to the place where its process dies if one is given, in new directories `root`."""
        self._number += 1
        self.root = self._root / str(self._number)
        self.root.mkdir()
        arguments = [sys.executable, "-m", "killing", scenario, str(self.root), point, str(nth)]
        done = subprocess.run(
            arguments,
            capture_output=True,
            check=False,
            timeout=60,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": ROOTS},
        )
        ledger = Ledger(done.stdout)
        words = done.stderr.decode()[-2000:]
        if point:
            assert done.returncode == -signal.SIGKILL, words
            assert ledger.reached == (point, nth), words
        else:
            assert done.returncode == 0, words
        return ledger

    def take_copy(self, other: Path) -> None:
        """Go on with a copy of what is in another `root`."""
        self._number += 1
        self.root = self._root / str(self._number)
        shutil.copytree(other, self.root)

    def check(self, ledger: Ledger, *, spoilt: bool = False) -> None:
        """Everything that was told to be done is there, and it goes on from there.

        `spoilt`: somebody else has been at the files since, and they need not be consistent before they are opened.
        """
        if not spoilt:
            self._check_as_it_lies(ledger)
        with self.opened() as manager:
            found = read(manager)
            check_contents(ledger, manager, found)
            self._clock.advance(2000)
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
        failures: list[str] = []
        manager = LogManager.open(
            [self.root / "a", self.root / "b"],
            CONFIG,
            broker_id=BrokerId(1),
            cluster_id="c",
            clock=self._clock,
            worker=InlineWorker(),
            recovery_threads=1,
            disk=UnsyncedDisk(),
            on_dir_failure=lambda path, why: failures.append(f"{path}: {why}"),
        )
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
                if held is not None and not held.is_unheard:
                    end = held.end if held.is_compacted else end_of_files(path)
                    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
                        assert offsets[name].get(path.name, 0) <= end, (name, path)

    def _check_names(self, manager: LogManager, ledger: Ledger) -> None:
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
            assert offset < batches[-1].following
            offset = Offset(batches[-1].following)
        epochs = tuple((epoch, start) for epoch, start in log.epoch_entries if start < log.log_end_offset)
        found[name] = Found(log.log_start_offset, log.log_end_offset, tuple(batches), epochs)
    return found


def check_contents(ledger: Ledger, manager: LogManager, found: dict[str, Found]) -> None:
    """Every log holds what it has to, and nothing else."""
    assert set(ledger.logs) - ledger.maybe_gone <= set(found) <= set(ledger.logs)
    for name, log in by_name(manager).items():
        held, here = ledger.logs[name], found[name]
        if not (held.is_unheard and here.start == here.end):
            assert held.least_start <= here.start <= max(held.start, held.least_start), name
            assert held.least_end <= here.end <= held.end or held.is_emptied, (name, here.end, vars(held))
        expected = [each for each in held.batches.values() if here.start < each.following and each.base < here.end]
        expected = expected if here.start < here.end else []  # a batch may straddle where an empty log begins
        if held.is_compacted:
            check_by_keys(expected, here, held.may_be_gone)
        else:
            assert list(here.batches) == expected, name
        assert (log.cleaned_to or 0) <= here.end
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


def check_by_keys(written: list[Batch], here: Found, may_be_gone: set[int]) -> None:
    """Nothing is gone but what had a later record of its key, nothing was invented, and each batch is where it was."""
    records = {offset: (key, value) for batch in written for offset, key, value in batch.records()}
    found = [(offset, (key, value)) for batch in here.batches for offset, key, value in batch.records()]
    offsets = [offset for offset, _ in found]
    assert offsets == sorted(set(offsets))
    assert all(records[offset] == record for offset, record in found)
    assert set(records) - set(offsets) <= may_be_gone
    places = {batch.base: batch.following for batch in written}
    assert all(places[batch.base] == batch.following for batch in here.batches)


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
