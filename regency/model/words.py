"""Words for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def counted(count: int, noun: str, more: str = "") -> str:
    """1 partition, 2 partitions; `more` where it is not the noun with an s."""
    return f"{count} {noun if count == 1 else more or f'{noun}s'}"


def listed(names: Sequence[object], most: int = 5) -> str:
    """Some of many names."""
    more = len(names) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")


def human_bytes(count: int) -> str:
    """1536 as 1.5 KiB."""
    size, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":
            break
        size /= 1024
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
