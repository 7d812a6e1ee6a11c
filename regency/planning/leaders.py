"""Which replica of each partition stands first and leads when all are well: the preferred leader. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import compress

from regency.model.ids import BrokerId
from regency.planning.items import ANY, Spread
from regency.planning.spread import even_out, level

Replicas = tuple[BrokerId, ...]


def spread_leaders(
    before: Sequence[Replicas], after: Sequence[Replicas], brokers: Collection[BrokerId], *, everywhere: bool
) -> list[Replicas]:
    """`after` in an order that gives the brokers as equal numbers of preferred leaders as can be.

    `everywhere`: all partitions may get another one, as few as possible; else only those that changed do, and others
    count. A replica on a broker not among `brokers` never becomes first.
    """
    eligible = set(brokers)
    loads = dict.fromkeys(sorted(eligible), 0)
    on: dict[BrokerId, dict[int, None]] = {broker: {} for broker in loads}
    for item, (old, new) in enumerate(zip(before, after, strict=True)):
        if new[0] in loads:
            loads[new[0]] += 1
            if everywhere or old != new:
                on[new[0]][item] = None
    prepared = _Leaders([new[0] for new in after], before, after, loads, on)
    if everywhere and loads:
        leaders = even_out(prepared).leaders
    else:
        level(prepared, ANY)
        leaders = prepared.leaders
    return [_first(leader, new) for leader, new in zip(leaders, after, strict=True)]


def count_leaders(assignment: Iterable[Replicas]) -> Counter[BrokerId]:
    """Preferred leaders by broker."""
    return Counter(replicas[0] for replicas in assignment if replicas)


def _first(leader: BrokerId, replicas: Replicas) -> Replicas:
    if replicas[0] == leader:
        return replicas
    return (leader, *compress(replicas, (replica != leader for replica in replicas)))


class _Leaders(Spread):
    """An item is the leadership of a partition."""

    def __init__(
        self,
        leaders: list[BrokerId],
        before: Sequence[Replicas],
        after: Sequence[Replicas],
        loads: dict[BrokerId, int],
        on: dict[BrokerId, dict[int, None]],
    ) -> None:
        super().__init__(loads, on)
        self.leaders = leaders
        self._before = before
        self._after = after
        for items in on.values():
            for item in items:
                self.sort_loose(item)

    def can(self, item: int, source: BrokerId, target: BrokerId) -> bool:
        """Another replica of the partition."""
        return target != source and target in self._after[item]

    def cost(self, item: int, source: BrokerId, target: BrokerId) -> int:
        """Of a partition whose preferred leader stays a replica; the others lead in a new place anyway."""
        own = self._before[item][0]
        return (target != own) - (source != own) if own in self._after[item] else 0

    def targets(self, item: int, source: BrokerId) -> Iterable[BrokerId]:  # noqa: ARG002  (as above)
        """Its replicas."""
        return [replica for replica in self._after[item] if replica in self.loads]

    def put(self, item: int, source: BrokerId, target: BrokerId) -> None:  # noqa: ARG002  (the signature of the base)
        """Another leads."""
        self.leaders[item] = target

    def is_loose(self, item: int) -> bool:
        """Whether it is led by another than before."""
        return self.leaders[item] != self._before[item][0]

    def holders(self, item: int) -> Iterable[BrokerId]:
        """Who leads."""
        return (self.leaders[item],)

    def copy(self) -> _Leaders:
        """The same again."""
        return _Leaders(
            list(self.leaders),
            self._before,
            self._after,
            dict(self.loads),
            {broker: dict(items) for broker, items in self.on.items()},
        )
