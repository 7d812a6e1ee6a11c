"""Snapshot files of producer states, and rebuilding the states from a snapshot and the batches after it."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from regency.broker_agent.log.producer_state import ProducerStates
from regency.broker_agent.log.segments.segments import Segments
from regency.kafka.logfiles.checkpoints import CheckpointMalformed, replace_file
from regency.kafka.logfiles.file_names import SNAPSHOT, offset_file, parse_offset_file
from regency.model.crash_points import crash_point
from regency.model.ids import Offset
from regency.runtime.disk import Disk

logger = logging.getLogger(__name__)


def snapshot_offsets(disk: Disk, directory: Path) -> list[Offset]:
    """Offsets at which snapshots were taken, rising."""
    parsed = (parse_offset_file(name) for name in disk.names_in(directory) if name.endswith(SNAPSHOT))
    return sorted(found[0] for found in parsed if found)


def write_snapshot(disk: Disk, directory: Path, producers: ProducerStates) -> None:
    """Take a snapshot at the states' end offset. One that says the same is left as it is, and on the disk if it was."""
    path = offset_file(directory, producers.end_offset, SNAPSHOT)
    content = producers.encode()
    is_there = disk.exists(path)
    if is_there and disk.read_file(path) == content:
        return
    crash_point("log.snapshot.before_write")
    # what is there may be on the disk: after a power cut, half of the new one must not stand in its place
    replace_file(disk, path, content, sync=is_there)
    crash_point("log.snapshot.after_write")


def remove_snapshots(disk: Disk, directory: Path, offsets: Iterable[Offset]) -> None:
    """Remove the snapshots taken at these offsets, which takes no descriptor."""
    for offset in offsets:
        disk.remove(offset_file(directory, offset, SNAPSHOT), missing_ok=True)


def restore(disk: Disk, directory: Path, segments: Segments, *, trusted: Offset, log_end: Offset) -> ProducerStates:
    """States at `log_end`, behind which there may be more: the newest sound snapshot not above `trusted`, and the
    batches after it.

    Snapshots above `trusted` are removed, damaged ones too; one is written at each segment the batches are read from.
    """
    producers = _newest(disk, directory, trusted)
    start = producers.end_offset
    for segment in segments.from_offset(start) if start < log_end else ():
        if segment.base_offset >= log_end:
            break
        if segment.base_offset > start:
            producers.end_offset = segment.base_offset
            write_snapshot(disk, directory, producers)
        for _, header in segment.headers(segment.indexed_below(start)):
            if start <= header.base_offset < log_end:
                producers.update(header)
    producers.end_offset = log_end
    return producers


def _newest(disk: Disk, directory: Path, trusted: Offset) -> ProducerStates:
    producers = ProducerStates()
    for offset in reversed(snapshot_offsets(disk, directory)):
        path = offset_file(directory, offset, SNAPSHOT)
        if offset > trusted:
            disk.remove(path)
            continue
        try:
            producers.load_snapshot(disk, path, offset)
        except CheckpointMalformed as error:
            logger.warning("removed a damaged snapshot of producers: %s", error)
            disk.remove(path)
        else:
            break
    return producers
