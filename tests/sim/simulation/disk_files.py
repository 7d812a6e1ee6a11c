"""What is on a simulated disk: files and directories that remember how to undo whatever was not synced.

A power cut keeps, of every file and of every directory, what was synced and a random prefix of what happened to it
afterwards. The last write that is kept may be torn: what is missing of it is missing, or zeros, where the size came to
the disk before the bytes. Names and contents are lost independently of each other, as POSIX allows.
"""

from __future__ import annotations

import errno
from random import Random
from typing import Any, Final

from regency.kafka.record_batch import Buffer

_WORDS: Final = {
    errno.EBADF: "Bad file descriptor",
    errno.EEXIST: "File exists",
    errno.EIO: "Input/output error",
    errno.EISDIR: "Is a directory",
    errno.ENOENT: "No such file or directory",
    errno.ENOSPC: "No space left on device",
    errno.ENOTDIR: "Not a directory",
    errno.ENOTEMPTY: "Directory not empty",
    errno.EAGAIN: "Resource temporarily unavailable",
    errno.EMFILE: "Too many open files",
}
"""Not the machine's own words, which differ from machine to machine."""


UNCHANGED: Final = 1 << 62


def refusal(number: int, path: str) -> OSError:
    """The OSError, of the right subclass, that the operating system would raise."""
    return OSError(number, _WORDS[number], path)


class File:
    """Bytes as the page cache has them, and how to get back to what was synced."""

    __slots__ = ("_undo", "changed_from", "content", "lock_owner", "seen", "written_ms")

    def __init__(self, now_ms: int) -> None:
        self.content = bytearray()
        self.written_ms = now_ms
        """When it was changed, by the wall clock that its machine had then."""
        self.lock_owner: object | None = None
        self.seen: list[Any] = []
        """What has been read of it behind the back of its owner, in order of bytes."""
        self.changed_from = UNCHANGED
        """The lowest byte that was overwritten or cut off since then."""
        self._undo: list[tuple[int, bytes, int, int]] = []
        """Per change: position, the bytes that were there, size before, and bytes written (-1: the file was cut)."""

    @property
    def unsynced(self) -> int:
        """How many changes would be lost in the worst case."""
        return len(self._undo)

    @property
    def is_cut(self) -> bool:
        """Whether it was cut off since it was synced."""
        return any(written < 0 for _, _, _, written in self._undo)

    def write(self, data: Buffer, position: int) -> None:
        """Put `data` at `position`; a gap before it is zeros."""
        content = self.content
        size, length = len(content), len(data)
        if position == size:
            self._undo.append((position, b"", size, length))
            content += data
            return
        if not length:
            return
        if position > size:
            content.extend(bytes(position - size))
        self._changes(position)
        self._undo.append((position, bytes(content[position : position + length]), size, length))
        content[position : position + length] = data

    def truncate(self, size: int) -> None:
        content = self.content
        before = len(content)
        if size < before:
            self._changes(size)
            self._undo.append((size, bytes(content[size:]), before, -1))
            del content[size:]
        elif size > before:
            self._undo.append((before, b"", before, size - before))
            content.extend(bytes(size - before))

    def sync(self) -> None:
        self._undo.clear()

    def lose(self, chance: Random | None) -> int:
        """The power is cut: keep a prefix of the changes since the last sync, or none. Returns how many are gone."""
        undo = self._undo
        if not undo:
            return 0
        kept = 0 if chance is None else chance.randint(0, len(undo))
        lost = len(undo) - kept
        torn: tuple[int, bytes] | None = None
        for index in range(len(undo) - 1, kept - 1, -1):
            position, before, size, length = undo[index]
            if chance is not None and index == kept and length > 1 and chance.random() < 0.5:
                whole = self.content[position : position + chance.randint(1, length - 1)]
                zeros = bytes(length - len(whole)) if position == size and chance.random() < 0.5 else b""
                torn = position, bytes(whole + zeros)
            self._take_back(position, before, size, length)
        if torn is not None:
            self._put(*torn)
        undo.clear()
        return lost

    def _take_back(self, position: int, before: bytes, size: int, length: int) -> None:
        content = self.content
        self._changes(position)
        if length < 0:
            content += before
        else:
            content[position : position + length] = before
            del content[size:]

    def _changes(self, position: int) -> None:
        self.changed_from = min(self.changed_from, position)

    def _put(self, position: int, data: bytes) -> None:
        content = self.content
        self._changes(position)
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data


class Directory:
    """Names, and how to get back to those that were synced."""

    __slots__ = ("_undo", "entries", "known")

    def __init__(self) -> None:
        self.entries: dict[str, File | Directory] = {}
        self.known: dict[str, Directory] = {}
        """Of the whole tree: directories that were found before, by path, until one comes, goes or is renamed."""
        self._undo: list[tuple[tuple[str, File | Directory | None], ...]] = []
        """Per change: the names it touched, with what they meant before."""

    def put(self, name: str, node: File | Directory) -> None:
        self._undo.append(((name, self.entries.get(name)),))
        self.entries[name] = node
        if isinstance(node, Directory):
            self.known.clear()
            node.known = self.known

    def drop(self, name: str) -> None:
        node = self.entries.pop(name)
        self._undo.append(((name, node),))
        if isinstance(node, Directory):
            self.known.clear()

    def move(self, source: str, target: str) -> None:
        """Rename in one step, over whatever has the new name."""
        node = self.entries.pop(source)
        self._undo.append(((source, node), (target, self.entries.get(target))))
        self.entries[target] = node
        if isinstance(node, Directory):
            self.known.clear()

    def sync(self) -> None:
        self._undo.clear()

    def lose(self, chance: Random | None) -> int:
        """The power is cut: keep a prefix of the changes since the last sync, or none. Returns how many are gone."""
        undo = self._undo
        if not undo:
            return 0
        self.known.clear()
        kept = 0 if chance is None else chance.randint(0, len(undo))
        lost = len(undo) - kept
        for index in range(len(undo) - 1, kept - 1, -1):
            for name, before in undo[index]:
                if before is None:
                    self.entries.pop(name, None)
                else:
                    self.entries[name] = before
        undo.clear()
        return lost


class Tree:
    """All files and directories below `/`, by path."""

    __slots__ = ("root",)

    def __init__(self) -> None:
        self.root = Directory()

    def find(self, path: str) -> File | Directory:
        above, _, last = path.rpartition("/")
        if not last:
            return self.directory(above) if above else self.root
        found = self.directory(above).entries.get(last)
        if found is None:
            raise refusal(errno.ENOENT, path)
        if isinstance(found, Directory):
            self.root.known[path] = found
        return found

    def look(self, path: str) -> File | Directory | None:
        try:
            return self.find(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def directory(self, path: str) -> Directory:
        known = self.root.known.get(path)
        if known is not None:
            return known
        node = self.find(path)
        if not isinstance(node, Directory):
            raise refusal(errno.ENOTDIR, path)
        return node

    def file(self, path: str) -> File:
        """The file at `path`. Raises FileNotFoundError, NotADirectoryError, IsADirectoryError."""
        node = self.find(path)
        if not isinstance(node, File):
            raise refusal(errno.EISDIR, path)
        return node

    def parent(self, path: str) -> tuple[Directory, str]:
        """The directory that holds or would hold `path`, and its name there. Raises as `directory`."""
        above, _, name = path.rpartition("/")
        return self.directory(above), name

    def sync(self) -> None:
        """All that was written is on the disk, as when the kernel has got to it."""
        waiting = [self.root]
        while waiting:
            directory = waiting.pop()
            directory.sync()
            for node in directory.entries.values():
                if isinstance(node, Directory):
                    waiting.append(node)
                else:
                    node.sync()

    def lose(self, chance: Random | None) -> tuple[int, int]:
        """The power is cut: without chance, all that was not synced is gone. Returns how many writes and names are."""
        return _lose(self.root, chance)


def _lose(directory: Directory, chance: Random | None) -> tuple[int, int]:
    writes, names = 0, directory.lose(chance)
    for name in sorted(directory.entries):
        node = directory.entries[name]
        if isinstance(node, Directory):
            below_writes, below_names = _lose(node, chance)
            writes, names = writes + below_writes, names + below_names
        else:
            writes += node.lose(chance)
    return writes, names
