"""A simulated disk: it outlives processes, forgets what was not synced when the power is cut, fills up, fails and lags.

`SimDisk` is the device and belongs to the machine; `mount` gives a process its view of it, which implements the
production port and dies with the process.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from regency.kafka.record_batch import Buffer
from simulation.disk_files import Directory, File, Tree, refusal
from simulation.kernel.scheduler import Process, ProcessDied, Scheduler

MAX_OPEN_FILES: Final = 4096
VOLUME_BYTES: Final = 1 << 40

TAKES_A_DESCRIPTOR: Final = frozenset(
    (
        "open",
        "open_existing",
        "open_directory",
        "open_empty",
        "lock",
        "read_file",
        "sync_path",
        "names_in",
        "remove_tree",
    )
)

OnOperation = Callable[[str, str], None]
Opened = tuple[File, str]
"""A file opened under some path: what a descriptor is, and what holds a lock."""
OpenDirectory = tuple[Directory, str]


class SimDisk:
    """Files that stay, and what is wrong with the device that holds them."""

    def __init__(self, scheduler: Scheduler, name: str = "disk") -> None:
        self.name = name
        self.scheduler = scheduler
        self.tree = Tree()
        self.power_cuts = 0
        self.operations = 0
        """How many operations there were while anything counted or hindered them."""
        self.hindered = False
        """Whether operations have to ask `admit`: a fault is on, or somebody watches."""
        self._watcher: OnOperation | None = None
        self._free_bytes: int | None = None
        self._failing: dict[str, int] = {}
        """By path: below it, how many operations still succeed."""
        self._fails_once = False
        self._descriptors: int | None = None
        self._slow_us = 0
        self._short_writes = 0.0

    def mount(self, process: Process) -> MountedDisk:
        """The disk as `process` sees it: no descriptor and no lock of another process is in it."""
        mounted = MountedDisk(self, process)
        process.on_death(mounted.let_go)
        return mounted

    def crash(self, *, lossy: bool, wholly: bool = False) -> None:
        """What the end of its processes does to the disk: nothing; but `lossy`, the power is cut with it.

        All is lost then that was not synced, if `wholly`; else a part of it.
        """
        if lossy:
            self.power_cuts += 1
            writes, names = self.tree.lose(None if wholly else self.scheduler.random)
            self.scheduler.trace.note("disk", self.name, "lost %d writes and %d names", writes, names)

    # Faults

    def on_operation(self, watcher: OnOperation | None) -> None:
        """Have `watcher(name, path)` called before every operation from now on; it may kill the process."""
        self._watcher = watcher
        self._reckon()

    def fill(self, free_bytes: int | None) -> None:
        """Have room for that many more bytes, until `heal`; None: for any number."""
        self._free_bytes = free_bytes
        self._reckon()

    @property
    def free_bytes(self) -> int | None:
        """Bytes there is still room for; None: any number."""
        return self._free_bytes

    def fail(self, after: int = 0, *, once: bool = False, below: str = "/") -> None:
        """Answer with I/O errors after that many operations: until `heal` or `mend`, or just once."""
        self._failing[below], self._fails_once = after, once
        self._reckon()

    def mend(self, below: str) -> None:
        self._failing.pop(below, None)
        self._reckon()

    def starve(self, after: int | None = 0) -> None:
        """Let processes take so many more descriptors, and then none; None: any number again."""
        self._descriptors = after
        self._reckon()

    def slow(self, up_to_us: int) -> None:
        """Have reads, writes and syncs of actors take up to that much virtual time; 0: none.

        Work on a data loop, which has no actor, is never held up, and changes of names take no time: they are in
        memory until they are synced.
        """
        self._slow_us = up_to_us
        self._reckon()

    def write_short(self, chance: float) -> None:
        """Let a write put down only a part of its bytes, with this chance."""
        self._short_writes = chance
        self._reckon()

    def heal(self) -> None:
        """Let nothing be wrong any more. Whoever watches goes on."""
        self._free_bytes = self._descriptors = None
        self._failing.clear()
        self._slow_us, self._short_writes = 0, 0.0
        self._reckon()

    def admit(self, operation: str, path: str, *, moves_data: bool) -> None:
        """Let an operation begin. Raises OSError where the device fails."""
        self.operations += 1
        if self._watcher is not None:
            self._watcher(operation, path)
        for below, left in self._failing.items():
            if path.startswith(below):
                self._failing[below] = left - 1
                if left <= 0:
                    if self._fails_once:
                        self.mend(below)
                    raise refusal(errno.EIO, path)
        if self._descriptors is not None and operation in TAKES_A_DESCRIPTOR:
            if not self._descriptors:
                raise refusal(errno.EMFILE, path)
            self._descriptors -= 1
        if moves_data and self._slow_us and self.scheduler.current is not None:
            self.scheduler.sleep_us(self.scheduler.random.randint(0, self._slow_us))

    def room_for(self, growth: int, length: int, path: str) -> int:
        """How many of `length` bytes can be written that make a file longer by `growth`. Raises ENOSPC for none."""
        written = length
        if self._free_bytes is not None and growth > 0:
            if growth > self._free_bytes:
                written -= growth - self._free_bytes
                if written <= 0:
                    raise refusal(errno.ENOSPC, path)
                growth = self._free_bytes
            self._free_bytes -= growth
        if written > 1 and self._short_writes and self.scheduler.random.random() < self._short_writes:
            written = self.scheduler.random.randint(1, written - 1)
        return written

    def _reckon(self) -> None:
        self.hindered = (
            self._watcher is not None
            or self._free_bytes is not None
            or bool(self._failing)
            or self._descriptors is not None
            or self._slow_us > 0
            or self._short_writes > 0
        )


class MountedDisk:
    """One process's view of a disk: the production port. Dead with its process."""

    __slots__ = ("_device", "_directories", "_next", "_open", "_process", "_tree")

    def __init__(self, device: SimDisk, process: Process) -> None:
        self._device = device
        self._process = process
        self._tree = device.tree
        self._open: dict[int, Opened] = {}
        self._directories: dict[int, OpenDirectory] = {}
        self._next = 3

    @property
    def max_open_files(self) -> int:
        return MAX_OPEN_FILES

    @property
    def boot_id(self) -> str:
        """As the port says: another one after every power cut."""
        return str(self._device.power_cuts)

    def let_go(self) -> None:
        """The process has died: its descriptors and locks are nobody's."""
        for opened in self._open.values():
            _unlock(opened)
        self._open.clear()
        self._directories.clear()

    # By descriptor

    def read(self, fd: int, size: int, position: int) -> bytes:
        file, path = self._file(fd)
        if self._device.hindered:
            self._begin("read", path, moves_data=True)
        return bytes(file.content[position : position + size])

    def write(self, fd: int, data: Buffer, position: int) -> int:
        file, path = self._file(fd)
        device = self._device
        length = len(data)
        if device.hindered:
            self._begin("write", path, moves_data=True)
            length = device.room_for(position + length - len(file.content), length, path)
            data = memoryview(data)[:length]
        file.write(data, position)
        file.written_ms = self._process.clock.wall_ms()
        return length

    def truncate(self, fd: int, size: int) -> None:
        file, path = self._file(fd)
        if self._device.hindered:
            self._begin("truncate", path)
        file.truncate(size)
        file.written_ms = self._process.clock.wall_ms()

    def sync(self, fd: int) -> None:
        node, path = self._directories.get(fd) or self._file(fd)
        if self._device.hindered:
            self._begin("sync", path, moves_data=True)
        node.sync()

    def size(self, fd: int) -> int:
        return len(self._file(fd)[0].content)

    def modified_ms(self, fd: int) -> int:
        return self._file(fd)[0].written_ms

    def close(self, fd: int) -> None:
        if self._directories.pop(fd, None) is None:
            opened = self._file(fd)
            del self._open[fd]
            _unlock(opened)

    # By path

    def open(self, path: Path) -> int:
        where = self._name("open", path)
        return self._descriptor((self._opened(where), where))

    def open_existing(self, path: Path) -> int:
        where = self._name("open_existing", path)
        return self._descriptor((self._tree.file(where), where))

    def open_directory(self, path: Path) -> int:
        where = self._name("open_directory", path)
        opened = self._tree.directory(where), where
        fd = self._free_descriptor(where)
        self._directories[fd] = opened
        return fd

    def open_empty(self, path: Path, size: int = 0) -> int:
        del size
        where = self._name("open_empty", path)
        file = self._opened(where)
        file.truncate(0)
        return self._descriptor((file, where))

    def lock(self, path: Path) -> int:
        where = self._name("lock", path)
        file = self._opened(where)
        if file.lock_owner is not None:
            raise refusal(errno.EAGAIN, where)
        opened = file, where
        file.lock_owner = opened
        return self._descriptor(opened)

    def read_file(self, path: Path) -> bytes:
        where = self._name("read_file", path, moves_data=True)
        return bytes(self._tree.file(where).content)

    def sync_path(self, path: Path) -> None:
        where = self._name("sync_path", path, moves_data=True)
        self._tree.find(where).sync()

    def sync_paths(self, paths: Sequence[Path]) -> dict[Path, OSError]:
        failed: dict[Path, OSError] = {}
        for path in paths:
            try:
                self.sync_path(path)
            except OSError as error:
                failed[path] = error
        return failed

    def rename(self, source: Path, target: Path) -> None:
        """As the port says; within one directory, as a log does."""
        old, new = self._name("rename", source), str(target)
        directory, old_name = self._tree.parent(old)
        moved = directory.entries.get(old_name)
        if moved is None:
            raise refusal(errno.ENOENT, old)
        into, new_name = self._tree.parent(new)
        if into is not directory:
            raise NotImplementedError(f"{old} is renamed to another directory: {new}")
        replaced = directory.entries.get(new_name)
        if replaced is moved:
            return
        if isinstance(replaced, Directory):
            if not isinstance(moved, Directory):
                raise refusal(errno.EISDIR, new)
            if replaced.entries:
                raise refusal(errno.ENOTEMPTY, new)
        elif replaced is not None and isinstance(moved, Directory):
            raise refusal(errno.ENOTDIR, new)
        directory.move(old_name, new_name)

    def remove(self, path: Path, *, missing_ok: bool = False) -> None:
        where = self._name("remove", path)
        directory, name = self._tree.parent(where) if not missing_ok else self._parent_if_any(where)
        node = directory.entries.get(name)
        if node is None:
            if missing_ok:
                return
            raise refusal(errno.ENOENT, where)
        if isinstance(node, Directory):
            raise refusal(errno.EISDIR, where)
        directory.drop(name)

    def remove_tree(self, path: Path) -> None:
        where = self._name("remove_tree", path)
        above, name = self._tree.parent(where)
        self._empty(self._tree.directory(where), where)
        above.drop(name)

    def make_directory(self, path: Path, *, parents: bool = False) -> None:
        where = self._name("make_directory", path)
        if parents:
            if isinstance(self._tree.look(where), Directory):
                return
            above = where.rpartition("/")[0]
            if above and self._tree.look(above) is None:
                self.make_directory(path.parent, parents=True)
        directory, name = self._tree.parent(where)
        if name in directory.entries:
            raise refusal(errno.EEXIST, where)
        directory.put(name, Directory())

    def names_in(self, directory: Path) -> list[str]:
        return sorted(self._tree.directory(self._name("names_in", directory)).entries)

    def exists(self, path: Path) -> bool:
        return self._tree.look(self._name("exists", path)) is not None

    def is_directory(self, path: Path) -> bool:
        return isinstance(self._tree.look(self._name("is_directory", path)), Directory)

    def space(self, path: Path) -> tuple[int, int]:
        """As the port says: of a volume without limit, unless it is filled."""
        self._tree.directory(self._name("space", path))
        free = self._device.free_bytes
        return VOLUME_BYTES, VOLUME_BYTES if free is None else free

    def _file(self, fd: int) -> Opened:
        if not self._process.alive:
            raise ProcessDied
        found = self._open.get(fd)
        if found is None:
            raise refusal(errno.EBADF, str(fd))
        return found

    def _name(self, operation: str, path: Path, *, moves_data: bool = False) -> str:
        if not self._process.alive:
            raise ProcessDied
        where = str(path)
        if self._device.hindered:
            self._begin(operation, where, moves_data=moves_data)
        return where

    def _begin(self, operation: str, path: str, *, moves_data: bool = False) -> None:
        self._device.admit(operation, path, moves_data=moves_data)
        if not self._process.alive:  # whoever watches may have killed it
            raise ProcessDied

    def _opened(self, where: str) -> File:
        directory, name = self._tree.parent(where)
        node = directory.entries.get(name)
        if node is None:
            node = File(self._process.clock.wall_ms())
            directory.put(name, node)
        elif isinstance(node, Directory):
            raise refusal(errno.EISDIR, where)
        return node

    def _descriptor(self, opened: Opened) -> int:
        fd = self._free_descriptor(opened[1])
        self._open[fd] = opened
        return fd

    def _free_descriptor(self, where: str) -> int:
        if len(self._open) + len(self._directories) >= MAX_OPEN_FILES:
            raise refusal(errno.EMFILE, where)
        self._next += 1
        return self._next - 1

    def _parent_if_any(self, where: str) -> tuple[Directory, str]:
        try:
            return self._tree.parent(where)
        except FileNotFoundError:
            return Directory(), ""

    def _empty(self, directory: Directory, where: str) -> None:
        for name in sorted(directory.entries):
            node = directory.entries[name]
            if isinstance(node, Directory):
                self._empty(node, f"{where}/{name}")
            elif self._device.hindered:
                self._begin("remove", f"{where}/{name}")
            directory.drop(name)


def _unlock(opened: Opened) -> None:
    if opened[0].lock_owner is opened:
        opened[0].lock_owner = None
