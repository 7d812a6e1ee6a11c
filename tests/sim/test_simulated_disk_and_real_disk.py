"""The simulated disk does what the operating system's does, for whatever is asked of it."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from simulation.disk import SimDisk
from simulation.kernel.scheduler import Process, Scheduler

from regency.runtime.disk import Disk, OsDisk

SLOTS = 3
NAMES = ("a", "b", "d", "e", "d/a", "d/b", "d/e", "d/e/a", "e/a", "a/x")
DIRECTORIES = ("d", "d/e", "e")
FILES = ("a", "d/a")
POSITIONS = st.integers(0, 12)


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(("open", "open_empty", "lock")), st.sampled_from(NAMES), st.integers(0, SLOTS - 1)),
        st.tuples(st.just("write"), st.integers(0, SLOTS - 1), st.binary(max_size=6), POSITIONS),
        st.tuples(st.just("read"), st.integers(0, SLOTS - 1), POSITIONS, POSITIONS),
        st.tuples(st.just("truncate"), st.integers(0, SLOTS - 1), POSITIONS),
        st.tuples(st.sampled_from(("size", "sync", "close")), st.integers(0, SLOTS - 1)),
        st.tuples(st.just("rename"), st.sampled_from(NAMES), st.sampled_from(("a", "b", "e"))),
        st.tuples(st.sampled_from(("remove", "discard", "remove_tree", "make", "make_all")), st.sampled_from(NAMES)),
        st.tuples(
            st.sampled_from(("read_file", "names_in", "exists", "is_directory", "sync_path", "sync_names")),
            st.sampled_from(NAMES),
        ),
    ),
    max_size=40,
)


class Hand:
    """Does the operations of a test on one disk, and tells what came of each."""

    def __init__(self, disk: Disk, root: Path) -> None:
        self._disk = disk
        self._root = root
        self._slots: list[int | None] = [None] * SLOTS

    def do(self, operation: tuple[object, ...]) -> object:
        """The result, or the number and the class of the error."""
        try:
            return self._do(*operation)
        except OSError as error:
            return type(error), error.errno

    def close(self) -> None:
        for slot in range(SLOTS):
            self._put(slot, None)

    def _do(self, name, *details):
        if name in ("open", "open_empty", "lock"):
            path, slot = details
            return self._put(slot, getattr(self._disk, name)(self._root / path))
        if isinstance(details[0], int):
            return self._by_descriptor(name, *details)
        path = self._root / details[0]
        if name == "rename":
            return self._disk.rename(path, path.with_name(details[1]))
        if name == "sync_names":
            fd = self._disk.open_directory(path)
            self._disk.sync(fd)
            return self._disk.close(fd)
        if name == "discard":
            return self._disk.remove(path, missing_ok=True)
        if name in ("make", "make_all"):
            return self._disk.make_directory(path, parents=name == "make_all")
        return getattr(self._disk, name)(path)

    def _by_descriptor(self, name, slot, *details):
        fd = self._slots[slot]
        if fd is None:
            return None
        if name == "close":
            return self._put(slot, None)
        return getattr(self._disk, name)(fd, *details)

    def _put(self, slot: int, fd: int | None) -> None:
        before, self._slots[slot] = self._slots[slot], fd
        if before is not None:
            self._disk.close(before)


@settings(max_examples=300, deadline=None)
@given(OPERATIONS)
def test_without_crashes_it_is_the_operating_systems(operations: list[tuple[object, ...]]) -> None:
    root = Path(tempfile.mkdtemp())
    scheduler = Scheduler(1)
    simulated = SimDisk(scheduler).mount(Process(scheduler, "agent"))
    simulated.make_directory(root, parents=True)
    for disk in (simulated, OsDisk()):
        for name in DIRECTORIES:
            disk.make_directory(root / name)
        for name in FILES:
            disk.close(disk.open(root / name))
    real_hand, simulated_hand = Hand(OsDisk(), root), Hand(simulated, root)
    try:
        for operation in operations:
            assert simulated_hand.do(operation) == real_hand.do(operation), operation
        assert listing(simulated, root) == listing(OsDisk(), root)
    finally:
        real_hand.close()
        shutil.rmtree(root)


def listing(disk: Disk, directory: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in disk.names_in(directory):
        path = directory / name
        found[name] = listing(disk, path) if disk.is_directory(path) else disk.read_file(path)
    return found
