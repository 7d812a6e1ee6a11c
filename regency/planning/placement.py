"""Where the replicas of new partitions go: Kafka's placement, rack-aware, without randomness of its own.

Pure. The same brokers, `start` and `shift` always give the same placement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import ClassVar

from regency.model.errors import RegencyError
from regency.model.ids import BrokerId


class PlacementImpossible(RegencyError):
    """Fewer brokers than replicas, or a number out of range."""

    code: ClassVar[str] = "placement_impossible"


def place_replicas(
    brokers: Mapping[BrokerId, str | None],
    partitions: int,
    replication_factor: int,
    *,
    start: int = 0,
    shift: int | None = None,
    first_partition: int = 0,
) -> dict[int, tuple[BrokerId, ...]]:
    """Place `partitions` new partitions (1 or more), numbered from `first_partition`, on `brokers` (id to rack).

    First replicas go round the brokers from index `start`; the other replicas are shifted by `shift` (as `start` if not
    given) plus one per whole round, so that the load of a dead broker falls on all others. With racks on every broker
    no two replicas share a rack while another rack has none (KIP-36); racks on only some brokers are ignored.

    Raises PlacementImpossible. Source: Kafka's AdminUtils.assignReplicasToBrokers.
    """
    if partitions < 1:
        raise PlacementImpossible(f"The number of partitions must be 1 or more, not {partitions}.")
    if replication_factor < 1:
        raise PlacementImpossible(f"The replication factor must be 1 or more, not {replication_factor}.")
    if replication_factor > len(brokers):
        listed = ", ".join(map(str, sorted(brokers))) or "none"
        plural = "" if replication_factor == 1 else "s"
        raise PlacementImpossible(
            f"Replication factor {replication_factor} needs {replication_factor} live broker{plural}, "
            f"{len(brokers)} {'is' if len(brokers) == 1 else 'are'} live ({listed})."
        )
    shift = start if shift is None else shift
    racks = {broker: rack for broker, rack in brokers.items() if rack}
    if len(racks) == len(brokers):
        return _rack_aware(racks, partitions, replication_factor, start, shift, first_partition)
    return _rack_unaware(sorted(brokers), partitions, replication_factor, start, shift, first_partition)


def continue_placement(
    brokers: Mapping[BrokerId, str | None], first: Sequence[BrokerId], have: int, count: int
) -> dict[int, tuple[BrokerId, ...]]:
    """Place partitions `have` to `count` - 1 of a topic whose partition 0 has the replicas `first`.

    As long as the brokers and partition 0 are what they were when the topic was placed, the outcome is what placing all
    `count` at once would have given: `start` and `shift` are found again from partition 0. Where its first broker is
    gone it begins at the next one. Raises PlacementImpossible.
    Source: Kafka's AdminZkClient.addPartitions, which forgets the shift of earlier rounds.
    """
    racks = {broker: rack for broker, rack in brokers.items() if rack}
    ordered = alternate_racks(racks) if len(racks) == len(brokers) else sorted(brokers)
    if first[0] in brokers:
        start = ordered.index(first[0])
    else:
        start = next((index for index, broker in enumerate(ordered) if broker >= first[0]), 0)
    shifts = [start, *range(len(ordered))] if len(first) <= len(ordered) else []
    shift = next(
        (each for each in shifts if place_replicas(brokers, 1, len(first), start=start, shift=each)[0] == tuple(first)),
        start,
    )
    shift += max(have - 1, 0) // max(len(ordered), 1)
    return place_replicas(brokers, count - have, len(first), start=start, shift=shift, first_partition=have)


def alternate_racks(racks: Mapping[BrokerId, str]) -> list[BrokerId]:
    """Brokers in an order that goes round the racks (sorted by name), each rack's brokers by id."""
    by_rack: dict[str, list[BrokerId]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    columns = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, columns), default=0)
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _rack_unaware(
    ordered: Sequence[BrokerId], partitions: int, replication_factor: int, start: int, shift: int, first_partition: int
) -> dict[int, tuple[BrokerId, ...]]:
    total = len(ordered)
    placed: dict[int, tuple[BrokerId, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % total == 0:
            shift += 1
        first = (partition + start) % total
        others = (ordered[_replica_index(first, shift, nth, total)] for nth in range(replication_factor - 1))
        placed[partition] = (ordered[first], *others)
    return placed


def _rack_aware(
    racks: Mapping[BrokerId, str],
    partitions: int,
    replication_factor: int,
    start: int,
    shift: int,
    first_partition: int,
) -> dict[int, tuple[BrokerId, ...]]:
    ordered = alternate_racks(racks)
    total = len(ordered)
    number_of_racks = len(set(racks.values()))
    placed: dict[int, tuple[BrokerId, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % total == 0:
            shift += 1
        first = (partition + start) % total
        replicas = [ordered[first]]
        used_racks = {racks[ordered[first]]}
        for nth in count():
            if len(replicas) == replication_factor:
                break
            broker = ordered[_replica_index(first, shift * number_of_racks, nth, total)]
            rack_is_free = racks[broker] not in used_racks or len(used_racks) == number_of_racks
            if rack_is_free and broker not in replicas:
                replicas.append(broker)
                used_racks.add(racks[broker])
        placed[partition] = tuple(replicas)
    return placed


def _replica_index(first: int, shift: int, nth: int, total: int) -> int:
    return (first + 1 + (shift + nth) % (total - 1)) % total
