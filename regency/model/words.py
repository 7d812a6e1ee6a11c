"""Words for people. Pure."""

from __future__ import annotations


def counted(count: int, noun: str, more: str = "") -> str:
    """1 partition, 2 partitions; `more` where it is not the noun with an s."""
    return f"{count} {noun if count == 1 else more or f'{noun}s'}"
