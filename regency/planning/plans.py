"""Plans: other replicas for partitions, with as little copying as can be. Pure, and the same in any order of input.

Replicas come first: a rack is not used twice while another is free, no replica moves that may stay. Then preferred
leaders: as equal as reordering allows. What brokers hold is counted in replicas, not in bytes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import msgspec

from regency.model.ids import BrokerId, TopicPartition
from regency.planning.leaders import spread_leaders
from regency.planning.replicas import Aim, PlanImpossible, Replicas, place_all

__all__ = ["Move", "PlanImpossible", "Replicas", "change_replication_factor", "drain", "rebalance"]

Assignment = Mapping[TopicPartition, Replicas]


class Move(msgspec.Struct, frozen=True, gc=False):
    """Other replicas for a partition; `why` is for people. The same replicas in another order copy nothing."""

    partition: TopicPartition
    before: Replicas
    after: Replicas
    why: str = ""

    @property
    def adding(self) -> Replicas:
        """Replicas to be copied."""
        return tuple(replica for replica in self.after if replica not in self.before)

    @property
    def removing(self) -> Replicas:
        """Replicas to be deleted."""
        return tuple(replica for replica in self.before if replica not in self.after)


def rebalance(
    assignment: Assignment, brokers: Mapping[BrokerId, str | None], *, replication_factor: int | None = None
) -> list[Move]:
    """Spread all partitions over `brokers` (id to rack) and no others: replicas and leaders within 1 of each other.

    Brokers that are new are filled from those that have most. Replicas that share a rack although another has none are
    moved apart. Where racks forbid equal numbers, they are as equal as racks allow. Raises PlanImpossible.
    """
    return _plan(assignment, Aim(brokers, replication_factor=replication_factor, rebalance=True))


def drain(
    assignment: Assignment,
    brokers: Mapping[BrokerId, str | None],
    leaving: Collection[BrokerId],
    *,
    replication_factor: int | None = None,
    elsewhere: Mapping[BrokerId, int] | None = None,
) -> list[Move]:
    """Move everything off the brokers `leaving`, dead or alive, to the others among `brokers`; nothing else moves.

    So it is too where a broker is gone for ever. Raises PlanImpossible.
    """
    staying = {broker: rack for broker, rack in brokers.items() if broker not in leaving}
    aim = Aim(staying, frozenset(leaving), replication_factor, elsewhere=elsewhere or {})
    return _plan(assignment, aim)


def change_replication_factor(
    assignment: Assignment,
    brokers: Mapping[BrokerId, str | None],
    replication_factor: int,
    *,
    elsewhere: Mapping[BrokerId, int] | None = None,
) -> list[Move]:
    """Add replicas where least is, or take them away where most is; of those who stay, none moves.

    Replicas on brokers not in `brokers` are taken away first, preferred leaders last. Raises PlanImpossible.
    """
    return _plan(assignment, Aim(brokers, replication_factor=replication_factor, elsewhere=elsewhere or {}))


def count_replicas(assignment: Assignment) -> Counter[BrokerId]:
    """Replicas by broker."""
    return Counter(replica for replicas in assignment.values() for replica in replicas)


def _plan(assignment: Assignment, aim: Aim) -> list[Move]:
    if aim.replication_factor is not None and aim.replication_factor < 1:
        raise PlanImpossible(f"The replication factor must be 1 or more, not {aim.replication_factor}.")
    # partition 0 of every topic, then 1 of every topic: what is tried first moves first, and that spreads over topics
    partitions = sorted(assignment, key=lambda partition: (partition.partition, partition.topic))
    before = [tuple(assignment[partition]) for partition in partitions]
    placed = place_all(partitions, before, aim)
    after = spread_leaders(before, placed, aim.brokers, everywhere=aim.rebalance)
    moves = [
        Move(partition, old, new, _why(old, new, aim))
        for partition, old, new in zip(partitions, before, after, strict=True)
        if old != new
    ]
    return sorted(moves, key=lambda move: move.partition)


def _why(old: Replicas, new: Replicas, aim: Aim) -> str:
    gone = [replica for replica in old if replica not in new]
    left = [replica for replica in gone if aim.leaves(replica)]
    if len(old) != len(new):
        return f"{len(new)} replicas instead of {len(old)}"
    if left:
        return f"nothing stays on {_listed(left)}"
    if not gone:
        return "another preferred leader"
    racks = aim.racks
    if racks and len({racks[each] for each in old if each in racks}) < len({racks[each] for each in new}):
        return "replicas apart on racks"
    return f"{_listed(gone)} had more than others"


def _listed(brokers: Sequence[BrokerId]) -> str:
    return ("broker " if len(brokers) == 1 else "brokers ") + ", ".join(map(str, brokers))
