"""Kafka's text checkpoint files: a version line, a count line, then one entry per line.

A file is replaced whole: written beside, synced, renamed over, and the directory synced.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from regency.kafka.logfiles.file_names import PARTITION_METADATA, TMP
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError
from regency.model.ids import LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.topic_ids import decode_topic_id, encode_topic_id
from regency.runtime.disk import Disk

_VERSION = "0"


class CheckpointMalformed(RegencyError):
    """A checkpoint file that does not read as Kafka's text format."""

    code = "checkpoint_malformed"

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}.")
        self.path = path
        self.reason = reason


def replace_file(disk: Disk, path: Path, content: bytes, *, sync: bool) -> None:
    """Put `content` at `path`: a reader finds the old or the new, never a part. `sync`: also after a power cut."""
    beside = path.with_name(path.name + TMP)
    write_new(disk, beside, content, sync=sync)
    crash_point("log.replacement.before_rename")
    disk.rename(beside, path)
    crash_point("log.replacement.after_rename")
    if sync:
        disk.sync_path(path.parent)
        crash_point("log.replacement.after_sync")


def write_new(disk: Disk, path: Path, content: bytes, *, sync: bool) -> None:
    """Put `content` into a file of its own at `path`. Raises OSError."""
    fd = disk.open_empty(path, 0 if sync else len(content))
    try:
        crash_point("log.new_file.before_write")
        written = 0
        while written < len(content):
            written += disk.write(fd, content[written:], written)
        if sync:
            crash_point("log.new_file.before_sync")
            disk.sync(fd)
    except OSError as error:
        error.filename = error.filename or str(path)
        raise
    finally:
        disk.close(fd)


def format_entries(entries: Iterable[str]) -> bytes:
    """Content of a checkpoint file with these lines."""
    lines = list(entries)
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def read_entries(disk: Disk, path: Path) -> list[list[str]]:
    """The words of every entry. Raises CheckpointMalformed, and FileNotFoundError where there is no file."""
    try:
        text = disk.read_file(path).decode()
    except UnicodeDecodeError as error:
        raise CheckpointMalformed(path, f"not text: {error}") from error
    lines = text.splitlines()
    if not lines:
        raise CheckpointMalformed(path, "it is empty; expected a version line")
    if lines[0].strip() != _VERSION:
        raise CheckpointMalformed(path, f"unrecognized version {lines[0]!r}; expected {_VERSION!r}")
    entries = [line.split() for line in lines[2:] if line.strip()]
    if len(lines) < 2 or lines[1].strip() != str(len(entries)):
        raise CheckpointMalformed(path, f"line 2 promises {lines[1:2]} entries, {len(entries)} follow")
    if not text.endswith("\n"):
        raise CheckpointMalformed(path, "its last line is cut off")
    return entries


def format_epochs(entries: Iterable[tuple[LeaderEpoch, Offset]]) -> bytes:
    """Content of leader-epoch-checkpoint."""
    return format_entries(f"{epoch} {start}" for epoch, start in entries)


def read_epochs(disk: Disk, path: Path) -> list[tuple[LeaderEpoch, Offset]]:
    """Entries (epoch, start offset) of leader-epoch-checkpoint. Errors as `read_entries`."""
    entries = read_entries(disk, path)
    try:
        epochs = [(LeaderEpoch(int(epoch)), Offset(int(start))) for epoch, start in entries]
    except ValueError as error:
        raise CheckpointMalformed(path, f"expected '<epoch> <start offset>' in each line: {error}") from error
    for (epoch, start), (next_epoch, next_start) in pairwise(epochs):
        if next_epoch <= epoch or next_start <= start:
            raise CheckpointMalformed(path, f"epoch {next_epoch} at {next_start} after epoch {epoch} at {start}")
    return epochs


def read_offsets(disk: Disk, path: Path) -> dict[TopicPartition, Offset]:
    """Offsets by partition of one of the three offset checkpoints. Errors as `read_entries`."""
    try:
        return {
            TopicPartition(topic, int(partition)): Offset(int(offset))
            for topic, partition, offset in read_entries(disk, path)
        }
    except ValueError as error:
        raise CheckpointMalformed(path, f"expected '<topic> <partition> <offset>' in each line: {error}") from error


class OffsetCheckpoint:
    """An offset checkpoint of a log directory.

    Contents are numbered when they are decided; an older one never replaces a newer.
    """

    def __init__(self, disk: Disk, path: Path) -> None:
        self.path = path
        self._disk = disk
        self._lock = threading.Lock()
        self._written = 0
        self._decided = 0

    def decide(self) -> int:
        """The number of a content that is decided now; to be called on the thread that decides."""
        self._decided += 1
        return self._decided

    def write(self, offsets: Mapping[TopicPartition, Offset], number: int) -> None:
        """Put the content decided as `number` on the disk, unless a newer one is there. From any thread, also twice."""
        ordered = sorted(offsets.items())
        content = format_entries(f"{partition.topic} {partition.partition} {offset}" for partition, offset in ordered)
        beside = self.path.with_name(f"{self.path.name}.{number}{TMP}")
        write_new(self._disk, beside, content, sync=True)
        with self._lock:  # nothing slow in here: the data loop may want it
            is_newest = number >= self._written
            if is_newest:
                crash_point("log.checkpoint.before_rename")
                self._disk.rename(beside, self.path)
                self._written = number
        if is_newest:
            crash_point("log.checkpoint.before_sync")
            self._disk.sync_path(self.path.parent)
            crash_point("log.checkpoint.after_sync")
        else:
            self._disk.remove(beside)

    def read(self) -> dict[TopicPartition, Offset]:
        """What is on the disk; empty where there is no file. Raises CheckpointMalformed."""
        try:
            return read_offsets(self._disk, self.path)
        except FileNotFoundError:
            return {}


def format_partition_metadata(topic_id: TopicId) -> bytes:
    """Content of partition.metadata (KIP-516)."""
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}\n".encode()


def read_partition_metadata(disk: Disk, directory: Path) -> TopicId | None:
    """Topic id of the log in `directory`; None where there is no file. Raises CheckpointMalformed."""
    path = directory / PARTITION_METADATA
    try:
        lines: Sequence[str] = disk.read_file(path).decode().splitlines()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise CheckpointMalformed(path, f"not text: {error}") from error
    fields = dict(line.split(": ", 1) for line in lines if ": " in line)
    try:
        if int(fields["version"]) < 0:
            raise CheckpointMalformed(path, f"unrecognized version {fields['version']}")
        return decode_topic_id(fields["topic_id"].strip())
    except (KeyError, ValueError) as error:
        raise CheckpointMalformed(path, f"expected a version and a topic_id: {error}") from error
