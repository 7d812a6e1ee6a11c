"""Damage found in replicas, and what was left unread because of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec


class Damaged(msgspec.Struct, frozen=True):
    """A batch that is not what its producer sent.

    `to_offset`: the last offset that was not read because of it; None where the batch was, and its checksum is wrong.
    """

    broker: int
    offset: int
    what: str
    to_offset: int | None = None


def unread(damages: Iterable[Damaged], broker: int) -> int:
    """How many offsets of a replica were not read because of damage."""
    return sum(
        each.to_offset - each.offset + 1 for each in damages if each.broker == broker and each.to_offset is not None
    )


def read_to(reached: int, damages: Iterable[Damaged], broker: int) -> int:
    """Where the last batch of a replica that was read ends, reading having come to `reached`."""
    for each in damages:
        if each.broker == broker and each.to_offset is not None and each.to_offset + 1 == reached:
            return each.offset
    return reached


def joined(damages: Iterable[Damaged]) -> list[Damaged]:
    """By broker and offset, each once; those that touch, as a border of pieces cuts them, in one."""
    found: list[Damaged] = []
    for each in sorted(set(damages), key=lambda damage: (damage.broker, damage.offset, damage.to_offset or -1)):
        last = found[-1] if found else None
        if last is None or last.broker != each.broker or last.to_offset is None or each.offset > last.to_offset + 1:
            found.append(each)
        elif each.to_offset is None:
            if each.offset > last.to_offset:
                found.append(each)
        elif each.to_offset > last.to_offset:
            found[-1] = Damaged(last.broker, last.offset, last.what, each.to_offset)
    return sorted(found, key=lambda damage: (damage.offset, damage.broker))
