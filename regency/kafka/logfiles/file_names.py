"""Names of directories and files in a log directory, Kafka's to the letter."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path
from typing import Final
from uuid import UUID

from regency.model.ids import Offset, TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
TXN_INDEX: Final = ".txnindex"
SNAPSHOT: Final = ".snapshot"
DELETED: Final = ".deleted"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
TMP: Final = ".tmp"

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
LOCK: Final = ".lock"
META_PROPERTIES: Final = "meta.properties"
CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
BOOT: Final = "boot"
"""Under which boot of the machine the directory is written to; ours alone."""

MAX_NAME_BYTES: Final = 255

_PARTITION = re.compile(r"(?P<topic>[A-Za-z0-9._-]+)-(?P<partition>0|[1-9][0-9]*)")
_ASIDE = re.compile(r".+\.[0-9a-f]{32}-(?P<fate>delete|stray|future)")
_FUTURE = re.compile(_PARTITION.pattern + r"\.(?P<unique>[0-9a-f]{32})-future")
_OFFSET_FILE = re.compile(r"(?P<offset>[0-9]{20})(?P<suffix>\.[a-z]+)")


class DirectoryKind(Enum):
    """What a directory's name says it is."""

    PARTITION = "partition"
    DELETE = "delete"
    STRAY = "stray"
    FUTURE = "future"
    FOREIGN = "foreign"


def directory_kind(name: str) -> DirectoryKind:
    """What the directory of this name holds; FOREIGN where it is not one of Kafka's names."""
    if aside := _ASIDE.fullmatch(name):
        return DirectoryKind(aside["fate"])
    return DirectoryKind.PARTITION if _PARTITION.fullmatch(name) else DirectoryKind.FOREIGN


def parse_partition(name: str) -> TopicPartition | None:
    """The partition whose log a directory of this name holds."""
    if directory_kind(name) is not DirectoryKind.PARTITION:
        return None
    match = _PARTITION.fullmatch(name)
    assert match is not None
    return TopicPartition(match["topic"], int(match["partition"]))


def aside_name(partition: TopicPartition, unique: UUID, fate: DirectoryKind) -> str:
    """Name of a partition's directory once it is to be deleted or is stray; the topic is cut so that it fits."""
    tail = f"-{partition.partition}.{unique.hex}-{fate.value}"
    return partition.topic[: MAX_NAME_BYTES - len(tail)] + tail


def future_name(partition: TopicPartition, unique: UUID) -> str | None:
    """Name of the directory in which a log grows that will replace another; None where it would be too long.

    The topic is not cut: it must be read back.
    """
    name = f"{partition}.{unique.hex}-{DirectoryKind.FUTURE.value}"
    return name if len(name) <= MAX_NAME_BYTES else None


def parse_future(name: str) -> TopicPartition | None:
    """The partition whose future log a directory of this name holds."""
    match = _FUTURE.fullmatch(name)
    return TopicPartition(match["topic"], int(match["partition"])) if match else None


def replaced_name(future: str) -> str:
    """Name of the directory of the log that the one in `future` replaces, to be deleted: it tells that it does."""
    return future.removesuffix(DirectoryKind.FUTURE.value) + DirectoryKind.DELETE.value


def offset_file(directory: Path, offset: Offset, suffix: str) -> Path:
    """Path of a segment's file or of a snapshot."""
    return directory / f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[Offset, str] | None:
    """Offset and suffix of a segment's file or a snapshot; None for other names."""
    match = _OFFSET_FILE.fullmatch(name)
    return (Offset(int(match["offset"])), match["suffix"]) if match else None
