"""Puts the results of a partition's pieces together: the verdict is as if it had been read in one. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from regency.clients.replicas.comparison import Divergence
from regency.clients.replicas.damages import Damaged, joined, read_to
from regency.clients.replicas.reading import (
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
from regency.clients.replicas.wire import Place
from regency.model.ids import BrokerId

_WORST_FIRST = (DAMAGED, DIVERGES, FAILED, MISSING, OFFLINE, BEHIND, AGREES)
_READ = (AGREES, DIVERGES, DAMAGED)
_MAY_PASS = (BEHIND, OFFLINE, MISSING, FAILED)
_AWAY = (OFFLINE, MISSING)
"""Nothing is known of such a replica by the second look, so that the first has not become untrue."""


def merged(whole: Partition, pieces: Sequence[PartitionResult]) -> PartitionResult:
    """The result for a partition of those of all its pieces, in their order."""
    damages = joined(damage for piece in pieces for damage in piece.damages)
    replicas = [_verdict(broker, pieces, damages) for broker in whole.places]
    return PartitionResult(whole, replicas, _divergences(pieces), damages)


def is_worth_another_look(result: PartitionResult, places: Partition) -> bool:
    """Whether a piece may come out better when it is read again, `places` being what replicas tell by now.

    It may where a replica was out of reach, behind or different, and has all of the piece now: a broker was just
    starting again, or a replica was being cut and copied again. Damage on a disk stays.
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


def after_another_look(first: PartitionResult, second: PartitionResult) -> PartitionResult:
    """What is known of a piece that was read twice.

    Damage stands as it was found. Of the rest the second look counts. Of a replica that went away before it the first
    does; and then also where others differed, and who did, unless those that are left were compared again and agree:
    fewer can tell less well whose content is the usual one.
    """
    damages = joined([*first.damages, *second.damages])
    before = {each.broker: each for each in first.replicas}
    now = {each.broker: each for each in second.replicas}
    lost = {broker for broker, each in before.items() if each.state in _READ and now[broker].state in _AWAY}
    compared = sum(each.state in _READ for each in second.replicas)
    stands = bool(lost) and (bool(second.divergences) or compared < 2)
    is_old = all(any(map(each.overlaps, first.divergences)) for each in second.divergences)
    stand = {broker for broker, each in before.items() if stands and (each.state == DIVERGES or is_old)}
    replicas = [_one_of(before[broker], each, takes_first=broker in lost | stand) for broker, each in now.items()]
    damaged = {each.broker for each in damages}
    divergences = list(second.divergences)
    if stands or any(before[broker].state == DIVERGES for broker in lost):
        divergences += [each for each in first.divergences if not any(map(each.overlaps, second.divergences))]
    return PartitionResult(
        second.partition,
        [replace(each, state=DAMAGED) if each.broker in damaged else each for each in replicas],
        sorted(divergences, key=lambda each: each.from_offset),
        damages,
    )


def _one_of(first: Verdict, second: Verdict, *, takes_first: bool) -> Verdict:
    """The second verdict or the first, with how far the replica was read in either."""
    reads = [each.read_to for each in (first, second) if each.read_to is not None]
    start = first.log_start if second.log_start is None else second.log_start
    takes_first = takes_first and first.state in _READ
    detail = second.detail if first.state == DAMAGED else ""
    chosen = replace(first, detail=detail or first.detail) if takes_first else second
    return replace(chosen, log_start=start, read_to=max(reads, default=None))


def _verdict(broker: BrokerId, pieces: Sequence[PartitionResult], damages: Sequence[Damaged]) -> Verdict:
    told = [next(each for each in piece.replicas if each.broker == broker) for piece in pieces]
    worst = min(told, key=lambda verdict: (_WORST_FIRST.index(verdict.state), not verdict.detail))
    start = next((each.log_start for each in told if each.log_start is not None), None)
    reached: int | None = None
    for piece, each in zip(pieces, told, strict=True):
        if each.read_to is None:
            break
        end = piece.partition.read_end
        read = end if read_to(end, piece.damages, broker) <= each.read_to else each.read_to
        reached = read if reached is None else max(reached, read)
        if read < end:
            break
    return Verdict(
        broker, worst.state, start, None if reached is None else read_to(reached, damages, broker), worst.detail
    )


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
