"""Which brokers hold each partition: who has to move, where to, and what else moves to even the brokers out. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import ClassVar

import msgspec

from regency.model.errors import RegencyError
from regency.model.ids import BrokerId, TopicPartition
from regency.planning.items import FREE, Spread
from regency.planning.spread import even_out, level

Replicas = tuple[BrokerId, ...]


class PlanImpossible(RegencyError):
    """There are not enough brokers for what is wanted."""

    code: ClassVar[str] = "plan_impossible"


class Aim(msgspec.Struct, frozen=True):
    """Where replicas may go (broker to rack), whom they leave, how many there shall be, and whether all may move.

    Racks count where all of `brokers` have one. `elsewhere` is what brokers have beside the partitions of the plan: it
    decides between brokers that are equal otherwise.
    """

    brokers: Mapping[BrokerId, str | None]
    leaving: frozenset[BrokerId] = frozenset()
    replication_factor: int | None = None
    rebalance: bool = False
    elsewhere: Mapping[BrokerId, int] = {}

    @property
    def racks(self) -> dict[BrokerId, str]:
        """Rack by broker; empty where racks do not count."""
        racks = {broker: rack for broker, rack in self.brokers.items() if rack}
        return racks if len(racks) == len(self.brokers) and len(set(racks.values())) > 1 else {}

    def leaves(self, broker: BrokerId) -> bool:
        """Whether no replica may stay on a broker."""
        return broker in self.leaving or (self.rebalance and broker not in self.brokers)


def place_all(partitions: Sequence[TopicPartition], before: Sequence[Replicas], aim: Aim) -> list[Replicas]:
    """Replicas of each partition as `aim` wants them, each new one in the place of one that goes.

    Raises PlanImpossible. `partitions` are in the order in which they are tried, and sorted by the caller.
    """
    _check(partitions, before, aim)
    prepared = _Replicas.prepared(before, aim)
    if aim.rebalance:
        placed = even_out(prepared) if prepared.loads else prepared
    else:
        level(prepared, FREE)
        placed = prepared
    return [_in_place(old, new) for old, new in zip(before, placed.held, strict=True)]


def _check(partitions: Sequence[TopicPartition], before: Sequence[Replicas], aim: Aim) -> None:
    """Raises PlanImpossible naming the first partitions for which there are too few brokers."""
    short: list[TopicPartition] = []
    example = ""
    for partition, replicas in zip(partitions, before, strict=True):
        wanted = aim.replication_factor or len(replicas)
        possible = {*aim.brokers, *(replica for replica in replicas if not aim.leaves(replica))}
        if wanted > len(possible):
            if not short:
                listed = ", ".join(map(str, sorted(possible))) or "none"
                example = f"{partition} would need {wanted} brokers, and there are {len(possible)} for it ({listed})"
            short.append(partition)
    if short:
        others = f"; the same holds for {len(short) - 1} more" if len(short) > 1 else ""
        raise PlanImpossible(
            f"{example}{others}.",
            hint="Start more brokers, or have fewer replicas: `regency topics set-rf NAME N`, or --replication-factor.",
        )


def _in_place(before: Replicas, held: Sequence[BrokerId]) -> Replicas:
    """What stays keeps its place; what is new takes the places of what went."""
    new = [replica for replica in held if replica not in before]
    if not new and len(held) == len(before):
        return before
    new.reverse()
    placed = [replica if replica in held else new.pop() for replica in before if replica in held or new]
    return (*placed, *reversed(new))


class _Replicas(Spread):
    """An item is a partition, which several brokers have."""

    def __init__(
        self,
        before: Sequence[Replicas],
        held: list[list[BrokerId]],
        aim: Aim,
        loads: dict[BrokerId, int],
        on: dict[BrokerId, dict[int, None]],
    ) -> None:
        super().__init__(loads, on)
        self.held = held
        self._before = before
        self._aim = aim
        self._racks = aim.racks
        self._rack_count = len(set(self._racks.values()))
        self._brokers = sorted(loads)
        if not aim.rebalance:
            self.lowest = 0  # who had a replica and may have it keeps it
        self._by_rack: dict[str, list[BrokerId]] = {}
        for broker in self._brokers if self._racks else ():
            self._by_rack.setdefault(self._racks[broker], []).append(broker)

    @classmethod
    def prepared(cls, before: Sequence[Replicas], aim: Aim) -> _Replicas:
        """What has to move has moved, to who has least; nothing else."""
        loads = dict.fromkeys(sorted(aim.brokers), 0)
        held = [[replica for replica in replicas if not aim.leaves(replica)] for replicas in before]
        for replicas in held:
            for replica in replicas:
                if replica in loads:
                    loads[replica] += 1
        spread = cls(before, held, aim, loads, {broker: {} for broker in loads})
        wanted = [aim.replication_factor or len(replicas) for replicas in before]
        spread._drop(wanted)
        if aim.rebalance and spread._racks:
            spread._repair_racks(wanted)
        spread._fill(wanted)
        for item, replicas in enumerate(held):
            for replica in replicas:
                if replica in loads:
                    spread.on[replica][item] = None
            spread.sort_loose(item)
        return spread

    def can(self, item: int, source: BrokerId, target: BrokerId) -> bool:
        """Not twice on a broker, and on as many racks as there can be."""
        held = self.held[item]
        if target in held:
            return False
        before = self._before[item]
        if not self._aim.rebalance and source == before[0] and target in before:
            return False  # of replicas that are too many, the preferred leader is the last to go
        if not self._racks:
            return True
        if self._racks.get(source) == self._racks[target]:
            return True
        now = self._on_racks(held)
        then = self._on_racks([target if replica == source else replica for replica in held])
        return then >= min(now, self._rack_count, len(held))

    def cost(self, item: int, source: BrokerId, target: BrokerId) -> int:
        """A replica where none was is a copy over the network."""
        before = self._before[item]
        return (target not in before) - (source not in before)

    def targets(self, item: int, source: BrokerId) -> Iterable[BrokerId]:
        """All brokers; where its replicas stand apart and racks are enough, those of the same rack and of free ones.

        Where replicas were too many and nothing else moves, only those that were taken away.
        """
        held = self.held[item]
        before = self._before[item]
        if not self._aim.rebalance and len(held) < len(before):
            return [replica for replica in before if replica in self.loads and replica not in held]
        if not self._racks:
            return self._brokers
        used = {self._racks[replica] for replica in held if replica in self._racks}
        if len(used) < len(held):
            return self._brokers
        own = self._racks[source]
        if len(used) == self._rack_count:
            return self._by_rack[own]
        return [
            broker for rack, brokers in self._by_rack.items() if rack == own or rack not in used for broker in brokers
        ]

    def put(self, item: int, source: BrokerId, target: BrokerId) -> None:
        """One replica elsewhere."""
        held = self.held[item]
        held[held.index(source)] = target

    def is_loose(self, item: int) -> bool:
        """Whether it has other replicas than before."""
        before = self._before[item]
        held = self.held[item]
        return len(held) < len(before) or any(replica not in before for replica in held)

    def holders(self, item: int) -> Iterable[BrokerId]:
        """Its replicas."""
        return self.held[item]

    def copy(self) -> _Replicas:
        """The same again."""
        spread = _Replicas(
            self._before,
            [list(replicas) for replicas in self.held],
            self._aim,
            dict(self.loads),
            {broker: dict(items) for broker, items in self.on.items()},
        )
        spread.loose = {broker: dict(items) for broker, items in self.loose.items()}
        return spread

    def _on_racks(self, replicas: Iterable[BrokerId]) -> int:
        """On how many known racks they are."""
        racks = self._racks
        return len({racks[replica] for replica in replicas if replica in racks})

    def _drop(self, wanted: Sequence[int]) -> None:
        """Take away replicas that are too many: of the dead first, then where racks stay apart and most is."""
        for item, held in enumerate(self.held):
            while len(held) > wanted[item]:
                self._take(held, held, first=self._before[item][0])

    def _repair_racks(self, wanted: Sequence[int]) -> None:
        """Take away replicas that share a rack, as many as must move before there is one on every rack."""
        for item, held in enumerate(self.held):
            needed = min(wanted[item], self._rack_count)
            if len(held) < 2 and wanted[item] == len(held):
                continue
            while self._on_racks(held) + wanted[item] - len(held) < needed:
                racks = [self._racks[replica] for replica in held]
                shared = [replica for replica, rack in zip(held, racks, strict=True) if racks.count(rack) > 1]
                self._take(held, shared, first=self._before[item][0])

    def _take(self, held: list[BrokerId], some: Collection[BrokerId], *, first: BrokerId) -> None:
        def rank(replica: BrokerId) -> tuple[bool, int, bool, int, int, int]:
            left = self._on_racks(each for each in held if each != replica) if self._racks else 0
            load = self.loads.get(replica, 0)
            return replica in self.loads, -left, replica == first, -load, -self._aim.elsewhere.get(replica, 0), -replica

        taken = min(some, key=rank)
        held.remove(taken)
        if taken in self.loads:
            self.loads[taken] -= 1

    def _fill(self, wanted: Sequence[int]) -> None:
        """Give partitions the replicas they lack, each where least is."""
        elsewhere = self._aim.elsewhere
        order = sorted((load, elsewhere.get(broker, 0), broker) for broker, load in self.loads.items())
        for item, held in enumerate(self.held):
            while len(held) < wanted[item]:
                position = self._emptiest(order, held, wanted[item])
                load, other, broker = order.pop(position)
                held.append(broker)
                self.loads[broker] = load + 1
                _insert(order, position, (load + 1, other, broker))

    def _emptiest(self, order: Sequence[tuple[int, int, BrokerId]], held: Sequence[BrokerId], wanted: int) -> int:
        """Position of the broker with least that the partition can go to."""
        if not self._racks:
            return next(position for position, (_, _, broker) in enumerate(order) if broker not in held)
        used = {self._racks[replica] for replica in held if replica in self._racks}
        must_be_new = len(used) + wanted - len(held) <= min(wanted, self._rack_count)
        possible = [position for position, (_, _, broker) in enumerate(order) if broker not in held]
        if must_be_new:
            apart = (position for position in possible if self._racks[order[position][2]] not in used)
            return next(apart, possible[0])
        return possible[0]


def _insert(order: list[tuple[int, int, BrokerId]], position: int, entry: tuple[int, int, BrokerId]) -> None:
    """Put back what stood at `position` before it grew."""
    while position < len(order) and order[position] < entry:
        position += 1
    order.insert(position, entry)
