"""Puts the results of a partition's pieces together: the verdict is as if it had been read in one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from regency.clients.comparison import Divergence
from regency.clients.reading import (
    AGREES,
    BEHIND,
    DAMAGED,
    DIVERGES,
    FAILED,
    MISSING,
    OFFLINE,
    Partition,
    PartitionResult,
    Verdict,
)
from regency.clients.replica_wire import Place
from regency.model.ids import BrokerId

_WORST_FIRST = (DAMAGED, DIVERGES, FAILED, MISSING, OFFLINE, BEHIND, AGREES)
_MAY_PASS = (BEHIND, OFFLINE, MISSING, FAILED)


def merged(whole: Partition, pieces: Sequence[PartitionResult]) -> PartitionResult:
    """The result for a partition of those of all its pieces, in their order."""
    replicas = [_verdict(broker, pieces) for broker in whole.places]
    damages = [damage for piece in pieces for damage in piece.damages]
    return PartitionResult(whole, replicas, _divergences(pieces), list(dict.fromkeys(damages)))


def is_worth_another_look(result: PartitionResult, places: Partition) -> bool:
    """Whether a piece may come out better when it is read again, `places` being what replicas tell by now.

    It may where a replica was out of reach, behind or different, and has all of the piece now: a broker was just
    starting again, or a replica was being cut and copied anew. Damage on a disk stays.
    """
    end = result.partition.read_end
    if places.bound < end:
        return False  # the log itself was cut: what was said of it stands
    for verdict in result.replicas:
        place = places.places.get(BrokerId(verdict.broker))
        if not isinstance(place, Place) or place.high_watermark < end:
            continue
        if verdict.state == DIVERGES or verdict.state in _MAY_PASS:
            return True
    return False


def _verdict(broker: BrokerId, pieces: Sequence[PartitionResult]) -> Verdict:
    told = [next(each for each in piece.replicas if each.broker == broker) for piece in pieces]
    worst = min(told, key=lambda verdict: (_WORST_FIRST.index(verdict.state), not verdict.detail))
    start = next((each.log_start for each in told if each.log_start is not None), None)
    read_to: int | None = None
    for piece, each in zip(pieces, told, strict=True):
        if each.read_to is None:
            break
        read_to = each.read_to if read_to is None else max(read_to, each.read_to)
        if each.read_to < piece.partition.read_end:
            break
    return Verdict(broker, worst.state, start, read_to, worst.detail)


def _divergences(pieces: Sequence[PartitionResult]) -> list[Divergence]:
    """All, those that a border of pieces cut in two put together again."""
    found: list[Divergence] = []
    for piece in pieces:
        for each in piece.divergences:
            last = found[-1] if found else None
            if last is None or each.from_offset > last.to_offset + 1 or last.first.keys() != each.first.keys():
                found.append(each)
                continue
            for broker, batch in each.first.items():
                if last.first[broker] is None and batch is not None and batch.base_offset <= last.to_offset:
                    last.first[broker] = batch
            last.from_offset = min(last.from_offset, each.from_offset)
            last.to_offset = max(last.to_offset, each.to_offset)
    return found
