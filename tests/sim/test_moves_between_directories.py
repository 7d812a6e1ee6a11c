"""A replica that moves between log directories on simulated disks: wherever its process or the power ends, there is one
log, with everything it must have, and the move goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from simulation.disk import SimDisk
from simulation.kernel.scheduler import Process, ProcessDied, Scheduler
from simulation.kernel.threads import simulated_threads
from simulation.log_machine import CONFIG, TP, Batch, QueuedWorker, known_producers, make_batch, read_all
from simulation.log_machine import Content as Held

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import CutNotPrepared, LogStorageError
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.directory_moves import DirectoryCopy
from regency.kafka.logfiles.file_names import parse_future
from regency.model.crash_points import observe
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicId

SOURCE, TARGET = Path("/first"), Path("/second")
TOPIC_ID = TopicId(UUID(int=7))
SWAP_POINTS = {
    "log.take_over.before_snapshot",
    "log.swap.before_flush",
    "log.swap.before_checkpoints",
    "log.swap.before_current",
    "log.swap.before_sync",
    "log.swap.before_future",
    "log.swap.after_future",
}


class Mover:
    """A machine with two directories, and a log that is moved from one to the other while it is appended to."""

    def __init__(self, seed: int) -> None:
        self.scheduler = Scheduler(seed)
        self.device = SimDisk(self.scheduler)
        self.batches: list[Batch] = []
        self.lasting = 0
        self.epoch = 0
        self.starts = 0

    def start(self) -> LogManager:
        self.starts += 1
        self.process = Process(self.scheduler, f"agent-{self.starts}")
        self.worker = QueuedWorker()
        self.manager = LogManager.open(
            [SOURCE, TARGET],
            CONFIG,
            broker_id=BrokerId(1),
            cluster_id="c",
            clock=self.process.clock,
            worker=self.worker,
            recovery_threads=1,
            on_dir_failure=lambda path, why: None,
            disk=self.device.mount(self.process),
            new_uuid=lambda: UUID(int=self.scheduler.random.getrandbits(128)),
        )
        return self.manager

    @property
    def log(self) -> PartitionLog:
        found = self.manager.get(TP)
        if found is None:
            raise LogStorageError(SOURCE, "it has failed, or there is no log")
        return found

    def fill(self) -> None:
        """A log in the first directory, part of it on the disk, over three leader epochs."""
        self.start()
        self.manager.prefer(TP, SOURCE)
        self.manager.create(TP, TOPIC_ID, CONFIG, is_new=True)
        for _ in range(3):
            self.new_epoch()
            self.append()
            self.append()
        self.log.flush()
        self.lasting = self.log.log_end_offset
        self.append()
        self.work_off()

    def new_epoch(self) -> None:
        self.epoch += 1
        self.log.assign_epoch(LeaderEpoch(self.epoch), self.log.log_end_offset)

    def append(self) -> None:
        base = self.batches[-1].following if self.batches else 0
        batch = make_batch(3, base, self.epoch, 5, base, 40)
        self.batches.append(batch)  # it may be there from now on
        self.log.append_as_follower(batch.data)

    def move(self) -> None:
        """All of it: ask, copy, sync, copy what came meanwhile, swap, go on, remove what is left."""
        self.ask()
        self.finish()

    def ask(self) -> None:
        target = self.manager.directory(TARGET)
        assert target is not None
        self.manager.futures.create(self.log, target)

    def finish(self) -> None:
        """From wherever it is: also after a restart."""
        future = self.manager.futures.get(TP)
        if future is not None:
            copy = DirectoryCopy(self.log, future)
            self.level(copy)
            holds: list[bool] = []
            self.manager.futures.prepare(TP, holds.append)
            self.append()
            self.work_off()
            if self.manager.offline_dirs:
                raise LogStorageError(self.manager.offline_dirs[0], "it has failed")
            assert holds == [True]
            copy.is_prepared = True
            self.level(copy)
            assert copy.may_be_swapped
            self.log.set_high_watermark(self.log.log_end_offset)
            assert self.manager.futures.swap(TP) is self.log
        self.append()
        self.work_off()
        self.scheduler.run_until(self.scheduler.now_us + 61_000_000)
        self.manager.remove_deleted_files()
        self.work_off()

    def level(self, copy: DirectoryCopy) -> None:
        while not copy.is_level:
            with suppress(CutNotPrepared):
                copy.advance(200)
            if not copy.future.is_settled:
                self.manager.futures.settle(TP, lambda: None)
                self.work_off()

    def work_off(self) -> None:
        while self.worker.jobs:
            self.worker.jobs.pop(0)()

    def die(self, *, lossy: bool) -> None:
        self.process.kill()
        self.device.crash(lossy=lossy)

    def check(self, *, lossy: bool) -> None:
        """There is one log, a prefix of what was written with all that must be there, and nobody else claims to be."""
        found = Held(self.log.log_start_offset, self.log.log_end_offset, tuple(read_all(self.log)))
        assert found.start == 0
        assert found.batches == tuple(self.batches[: len(found.batches)])
        least = self.lasting if lossy else self.batches[-1].base
        assert found.end >= least, (found.end, least)
        epochs = [entry for entry in self.log.epoch_entries if entry[1] < found.end]
        assert tuple(epochs) == found.epochs
        assert known_producers(self.log, found) == found.producers
        self.batches = list(found.batches)
        future = self.manager.futures.get(TP)
        if future is not None:
            assert future.home is not self.log.home
        self.new_epoch()  # whoever lost records leads again in another one

    def names(self) -> dict[Path, list[str]]:
        """What of the partition is in both directories."""
        disk = self.device.mount(self.process)
        return {path: [name for name in disk.names_in(path) if name.startswith(f"{TP}")] for path in (SOURCE, TARGET)}


def dies_at(mover: Mover, operation: int, work: Callable[[], object]) -> bool:
    """Have the process die before that many disk operations; whether it did."""
    left = operation

    def watch(name: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            mover.process.kill()

    mover.device.on_operation(watch)
    try:
        work()
    except ProcessDied:
        return True
    finally:
        mover.device.on_operation(None)
    return False


def operations_of_a_move() -> int:
    mover = Mover(1)
    with simulated_threads(mover.scheduler):
        mover.fill()
        before = mover.device.operations
        dies_at(mover, 1 << 30, mover.move)
        return mover.device.operations - before


OPERATIONS = 170
"""More than a move takes; the test below says so."""


def test_a_move_takes_no_more_disk_operations_than_are_tried_below() -> None:
    assert OPERATIONS * 0.6 < operations_of_a_move() < OPERATIONS


def test_a_move_passes_every_crash_point_of_a_swap() -> None:
    mover, passed = Mover(1), set()
    observe(passed.add)
    try:
        with simulated_threads(mover.scheduler):
            mover.fill()
            mover.move()
    finally:
        observe(None)
    assert passed >= SWAP_POINTS
    assert mover.names() == {SOURCE: [], TARGET: [str(TP)]}
    assert mover.log.epoch_entries == ((1, 0), (2, 6), (3, 12))


@pytest.mark.parametrize("lossy", (False, True), ids=("killed", "power cut"))
@pytest.mark.parametrize("part", range(10))
def test_wherever_a_move_is_interrupted_there_is_one_log_and_the_move_goes_on(part: int, *, lossy: bool) -> None:
    for operation in range(part, OPERATIONS, 10):
        mover = Mover(operation)
        with simulated_threads(mover.scheduler):
            mover.fill()
            died = dies_at(mover, operation, mover.move)
            mover.die(lossy=lossy)
            if died and dies_at(mover, operation % 37, mover.start):
                mover.die(lossy=lossy)
            if not mover.process.alive:
                mover.start()
            mover.check(lossy=lossy)
            if mover.log.home.path == SOURCE and mover.manager.futures.get(TP) is None:
                mover.ask()
            mover.finish()
            mover.die(lossy=lossy)
            mover.start()
            mover.check(lossy=True)
            mover.work_off()
            mover.manager.remove_deleted_files()
            mover.scheduler.run_until(mover.scheduler.now_us + 61_000_000)
            mover.manager.remove_deleted_files()
            mover.work_off()
            assert mover.names() == {SOURCE: [], TARGET: [str(TP)]}, operation


@pytest.mark.parametrize("failing", (SOURCE, TARGET))
def test_a_directory_that_fails_while_a_replica_moves_costs_nothing_that_was_on_the_disk(failing: Path) -> None:
    for operation in range(0, 110, 3):
        mover = Mover(operation)
        with simulated_threads(mover.scheduler):
            mover.fill()
            mover.device.fail(operation, below=str(failing))
            with suppress(LogStorageError):
                mover.move()
            assert mover.manager.offline_dirs in ((), (failing,))
            mover.device.heal()
            mover.die(lossy=False)
            mover.start()
            mover.check(lossy=True)


def test_a_log_whose_copy_is_out_of_reach_in_the_middle_of_a_swap_is_not_deleted() -> None:
    mover = Mover(3)
    with simulated_threads(mover.scheduler):
        mover.fill()
        mover.ask()
        died_between = []

        def die(point: str) -> None:
            if point == "log.swap.before_future":
                died_between.append(point)
                mover.process.kill()

        observe(die)
        try:
            with pytest.raises(ProcessDied):
                mover.finish()
        finally:
            observe(None)
        assert died_between
        mover.die(lossy=False)
        mover.device.fail(below=str(TARGET))
        mover.start()
        assert mover.manager.get(TP) is None
        mover.work_off()
        mover.scheduler.run_until(mover.scheduler.now_us + 120_000_000)
        mover.manager.remove_deleted_files()
        mover.work_off()
        mover.device.heal()
        mover.die(lossy=False)
        mover.start()
        mover.check(lossy=False)
        assert mover.log.home.path == TARGET
        names = mover.names()
        assert names[TARGET] == [str(TP)]
        assert [parse_future(name) for name in names[SOURCE]] == [None]


def test_a_log_that_is_created_while_a_future_one_has_no_source_keeps_that_as_a_stray() -> None:
    mover = Mover(3)
    with simulated_threads(mover.scheduler):
        mover.fill()
        mover.ask()
        mover.manager.close()
        mover.die(lossy=False)
        disk = mover.device.mount(Process(mover.scheduler, "operator"))
        disk.remove_tree(SOURCE / str(TP))
        mover.start()
        assert mover.manager.get(TP) is None
        mover.manager.create(TP, TOPIC_ID, CONFIG, is_new=False)
        assert mover.manager.futures.get(TP) is None
        assert [name.rpartition("-")[2] for name in mover.names()[TARGET] if name != str(TP)] == ["stray"]
        assert mover.log.log_end_offset == Offset(0)
