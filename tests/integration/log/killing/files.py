"""Files of a log directory, read by hand, not with the code under test."""

from __future__ import annotations

from pathlib import Path

from killing.batches import Batch


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
    return [(int(epoch), int(start)) for epoch, start in read_lines(path)]


def read_lines(path: Path) -> list[list[str]]:
    if not path.exists():
        return []
    version, number, *lines, last = path.read_text().split("\n")
    assert (version, number, last) == ("0", str(len(lines)), ""), path
    return [line.split(" ") for line in lines]
