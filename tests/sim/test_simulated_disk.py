"""What a simulated disk forgets when the power is cut, what its processes can do to it, and how it fails."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from simulation.disk import MountedDisk, SimDisk
from simulation.kernel.scheduler import Process, ProcessDied, Scheduler

from regency.kafka.logfiles.checkpoints import replace_file
from regency.runtime.disk import Disk


class World:
    """A disk, and one process after the other that has it."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(seed)
        self.device = SimDisk(self.scheduler)
        self.starts = 0
        self.start()

    def start(self) -> None:
        self.starts += 1
        self.process = Process(self.scheduler, f"agent-{self.starts}")
        self.disk = self.device.mount(self.process)

    def crash(self, *, lossy: bool) -> None:
        self.process.kill()
        self.device.crash(lossy=lossy)
        self.start()


@pytest.fixture
def world() -> World:
    return World()


def write(disk: MountedDisk, path: str, *parts: bytes, sync: bool = False) -> None:
    """Append each part in a write of its own."""
    fd = disk.open(Path(path))
    for part in parts:
        assert disk.write(fd, part, disk.size(fd)) == len(part)
    if sync:
        disk.sync(fd)
    disk.close(fd)


def listing(disk: Disk, directory: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in disk.names_in(directory):
        path = directory / name
        found[name] = listing(disk, path) if disk.is_directory(path) else disk.read_file(path)
    return found


# Crashes


SEEDS = range(60)


def after_each_crash(prepare: Callable[[MountedDisk], object], look: Callable[[MountedDisk], object]) -> list[object]:
    """What is seen after power cuts of many seeds."""
    seen = []
    for seed in SEEDS:
        world = World(seed)
        prepare(world.disk)
        world.crash(lossy=True)
        seen.append(look(world.disk))
    return seen


def content(path: str) -> Callable[[MountedDisk], bytes | None]:
    return lambda disk: disk.read_file(Path(path)) if disk.exists(Path(path)) else None


def test_what_was_synced_stays_with_a_prefix_of_what_came_later() -> None:
    def prepare(disk: MountedDisk) -> None:
        write(disk, "/f", b"one", sync=True)
        disk.sync_path(Path("/"))
        write(disk, "/f", b"two", b"three")

    seen = set(after_each_crash(prepare, content("/f")))
    prefixes = {b"onetwothree"[:length] for length in range(3, 12)}
    zeros_after = {b"onetwothree"[:length] for length in (4, 5, 7, 8, 9, 10)}
    assert seen <= prefixes | {kept.ljust(6 if len(kept) < 6 else 11, b"\0") for kept in zeros_after}
    assert {b"one", b"onetwo", b"onetwothree"} < seen


def test_a_cut_may_be_undone_but_not_without_what_was_written_after_it() -> None:
    def prepare(disk: MountedDisk) -> None:
        write(disk, "/f", b"abcdef", sync=True)
        disk.sync_path(Path("/"))
        fd = disk.open(Path("/f"))
        disk.truncate(fd, 2)
        disk.write(fd, b"XY", 2)

    assert set(after_each_crash(prepare, content("/f"))) == {b"abcdef", b"ab", b"abX", b"abX\0", b"abXY"}


def test_names_that_were_not_synced_go_in_the_order_they_came() -> None:
    def prepare(disk: MountedDisk) -> None:
        for name in ("/a", "/b"):
            disk.close(disk.open(Path(name)))
        disk.sync_path(Path("/"))
        disk.rename(Path("/a"), Path("/c"))
        disk.remove(Path("/b"))
        disk.make_directory(Path("/d"))

    seen = set(after_each_crash(prepare, lambda disk: tuple(disk.names_in(Path("/")))))
    assert seen == {("a", "b"), ("b", "c"), ("c",), ("c", "d")}


def test_a_replaced_file_is_the_old_one_or_the_new_one_and_never_a_part() -> None:
    seen = set()
    for seed in SEEDS:
        for operations in range(8):
            world = World(seed)
            replace_file(world.disk, Path("/f"), b"old", sync=True)
            died = kill_after(world, operations, lambda disk: replace_file(disk, Path("/f"), b"new", sync=True))
            world.crash(lossy=True)
            found = world.disk.read_file(Path("/f"))
            assert found == b"new" or died, "what was promised to last did not"
            seen.add(found)
    assert seen == {b"old", b"new"}


def kill_after(world: World, operations: int, work: Callable[[MountedDisk], object]) -> bool:
    """Do some work in a process that dies before its next operation after that many; returns whether it did."""
    left = operations

    def count(name: str, path: str) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            world.process.kill()

    world.device.on_operation(count)
    try:
        work(world.disk)
    except ProcessDied:
        return True
    finally:
        world.device.on_operation(None)
    return False


def test_a_rename_without_a_sync_may_be_undone_or_show_a_part() -> None:
    def prepare(disk: MountedDisk) -> None:
        replace_file(disk, Path("/f"), b"old", sync=True)
        replace_file(disk, Path("/f"), b"new", sync=False)

    assert set(after_each_crash(prepare, content("/f"))) == {b"old", b"", b"n", b"n\0\0", b"ne", b"ne\0", b"new"}


# Processes


def test_a_dead_process_can_do_nothing_and_its_descriptors_are_nobodys(world: World) -> None:
    fd = world.disk.open(Path("/f"))
    dead = world.disk
    world.crash(lossy=False)
    for use in (
        lambda: dead.write(fd, b"x", 0),
        lambda: dead.close(fd),
        lambda: dead.open(Path("/f")),
        lambda: dead.exists(Path("/f")),
        lambda: dead.rename(Path("/f"), Path("/g")),
    ):
        with pytest.raises(ProcessDied):
            use()
    with pytest.raises(OSError, match="Bad file descriptor"):
        world.disk.read(fd, 1, 0)
    assert listing(world.disk, Path("/")) == {"f": b""}


def test_a_lock_is_held_until_it_is_closed_or_its_process_dies(world: World) -> None:
    other = world.device.mount(Process(world.scheduler, "other"))
    fd = world.disk.lock(Path("/lock"))
    with pytest.raises(BlockingIOError):
        other.lock(Path("/lock"))
    world.disk.close(fd)
    second = other.lock(Path("/lock"))
    with pytest.raises(BlockingIOError):
        world.disk.lock(Path("/lock"))
    other.close(second)
    world.disk.lock(Path("/lock"))
    world.crash(lossy=False)
    other.lock(Path("/lock"))


def test_a_file_is_as_old_as_its_last_write_by_the_processs_clock(world: World) -> None:
    fd = world.disk.open(Path("/f"))
    written_ms = world.process.clock.wall_ms()
    world.scheduler.run_until(7_000_000)
    assert (world.disk.modified_ms(fd), world.process.clock.wall_ms()) == (written_ms, written_ms + 7000)


# Faults


def test_a_full_disk_takes_what_fits_and_then_nothing_until_it_is_freed(world: World) -> None:
    fd = world.disk.open(Path("/f"))
    world.device.fill(5)
    assert [world.disk.write(fd, b"abc", 0), world.disk.write(fd, b"defg", 3)] == [3, 2]
    with pytest.raises(OSError, match="No space left") as refused:
        world.disk.write(fd, b"h", 5)
    assert refused.value.errno == errno.ENOSPC
    assert world.disk.write(fd, b"XY", 0) == 2
    world.device.heal()
    assert world.disk.write(fd, b"h", 5) == 1
    assert world.disk.read(fd, 9, 0) == b"XYcdeh"


def test_a_failing_disk_fails_from_some_operation_on_until_it_is_repaired(world: World) -> None:
    fd = world.disk.open(Path("/f"))
    world.device.fail(after=1)
    assert world.disk.write(fd, b"a", 0) == 1
    for use in (lambda: world.disk.sync(fd), lambda: world.disk.names_in(Path("/"))):
        with pytest.raises(OSError, match="Input/output error") as refused:
            use()
        assert refused.value.errno == errno.EIO
    world.device.heal()
    world.device.fail(once=True)
    with pytest.raises(OSError, match="Input/output error"):
        world.disk.sync(fd)
    world.disk.sync(fd)


def test_short_writes_are_short_and_never_nothing(world: World) -> None:
    fd = world.disk.open(Path("/f"))
    world.device.write_short(1.0)
    assert {world.disk.write(fd, b"abcd", 0) for _ in range(50)} == {1, 2, 3}


def test_a_slow_disk_takes_an_actors_time_and_nobody_elses(world: World) -> None:
    world.device.slow(50_000)
    times: list[int] = []

    def work() -> None:
        for _ in range(20):
            write(world.disk, "/f", b"x", sync=True)
            times.append(world.scheduler.now_us)

    write(world.disk, "/g", b"x", sync=True)
    world.scheduler.spawn(world.process, "worker", work)
    world.scheduler.run_until(10_000_000)
    assert len(times) == 20
    assert times == sorted(set(times))
    assert times[-1] <= 20 * 2 * 50_000


def test_every_operation_is_told_before_it_happens(world: World) -> None:
    told: list[tuple[str, str]] = []
    world.device.on_operation(lambda name, path: told.append((name, path)))
    replace_file(world.disk, Path("/f"), b"x", sync=True)
    assert told == [
        ("open_empty", "/f.tmp"),
        ("write", "/f.tmp"),
        ("sync", "/f.tmp"),
        ("rename", "/f.tmp"),
        ("sync_path", "/"),
    ]
