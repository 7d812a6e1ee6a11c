"""Items on brokers, and which of them may go from one broker to another at which cost. Pure.

Nothing here knows what an item is; `replicas.py` and `leaders.py` do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple, TypeVar

from regency.model.ids import BrokerId

FREE: Final = 0
"""Limit of a search to moves of items that have to move anyway."""
ANY: Final = 1
"""Limit of a search that moves whatever it must. No single move costs more."""

BATCH: Final = 256
"""How many items are looked up for an edge at once."""

S = TypeVar("S", bound="Spread")


class Hop(NamedTuple):
    """One item from one broker to another."""

    item: int
    source: BrokerId
    target: BrokerId


class Spread(ABC):
    """Items on brokers. `loads` counts what a broker has; `on` has what may leave it, in the order it is tried."""

    lowest: int = -1
    """The least that a move can cost."""

    def __init__(self, loads: dict[BrokerId, int], on: dict[BrokerId, dict[int, None]]) -> None:
        self.loads = loads
        self.on = on
        self.loose: dict[BrokerId, dict[int, None]] = {broker: {} for broker in loads}
        """Those of `on` that may have moves of cost 0 or -1; all others cost 1 wherever they go."""

    @abstractmethod
    def can(self, item: int, source: BrokerId, target: BrokerId) -> bool:
        """Whether the item may go from one broker, which has it, to another."""

    @abstractmethod
    def cost(self, item: int, source: BrokerId, target: BrokerId) -> int:
        """1 where a move is added, -1 where one is taken back, else 0."""

    @abstractmethod
    def targets(self, item: int, source: BrokerId) -> Iterable[BrokerId]:
        """Where it might go from there at all, in order."""

    @abstractmethod
    def put(self, item: int, source: BrokerId, target: BrokerId) -> None:
        """Write it down; `move` keeps loads and order."""

    @abstractmethod
    def is_loose(self, item: int) -> bool:
        """Whether it belongs to `loose` now."""

    @abstractmethod
    def holders(self, item: int) -> Iterable[BrokerId]:
        """The brokers that have it."""

    @abstractmethod
    def copy(self: S) -> S:
        """One that can be changed alone."""

    def move(self, item: int, source: BrokerId, target: BrokerId) -> None:
        """Move an item that may."""
        self.put(item, source, target)
        self.loads[source] -= 1
        self.loads[target] += 1
        del self.on[source][item]
        self.loose[source].pop(item, None)
        self.on[target][item] = None
        self.sort_loose(item)

    def sort_loose(self, item: int) -> None:
        """Put an item where it belongs after it changed."""
        if self.is_loose(item):
            for broker in self.holders(item):
                if item in self.on.get(broker, ()):
                    self.loose[broker][item] = None
        else:
            for broker in self.holders(item):
                self.loose.get(broker, {}).pop(item, None)


class Edges:
    """For every broker, the cheapest items to every other; looked up when needed, forgotten when it changed."""

    def __init__(self, spread: Spread, limit: int) -> None:
        self._spread = spread
        self._limit = limit
        self._known: dict[BrokerId, dict[BrokerId, tuple[int, list[int]]]] = {}
        self._refused: set[Hop] = set()

    def of(self, source: BrokerId) -> dict[BrokerId, tuple[int, list[int]]]:
        """Cost and some items by target."""
        if source not in self._known:
            found: dict[BrokerId, tuple[int, list[int]]] = {}
            self._look_at_loose(source, found)
            if self._limit >= ANY:
                self._look_at_firm(source, found)
            self._known[source] = found
        return self._known[source]

    def apply(self, way: Sequence[BrokerId], most: int) -> int:
        """Move an item along each step of a way, up to `most` times over. Returns how often."""
        steps = list(pairwise(way))
        costs = [self.of(source)[target][0] for source, target in steps]
        queues = [list(self.of(source)[target][1]) for source, target in steps]
        touched = set(way)
        done = 0
        while done < most:
            hops = self._move_once(steps, costs, queues)
            if not hops:
                break
            done += 1
            touched.update(holder for hop in hops for holder in self._spread.holders(hop.item))
        for broker in touched:
            self._known.pop(broker, None)
        if done:
            self._refused.clear()
        return done

    def _move_once(
        self, steps: Sequence[tuple[BrokerId, BrokerId]], costs: Sequence[int], queues: Sequence[list[int]]
    ) -> list[Hop]:
        """One item along each step, or none at all: the steps of one way can exclude each other."""
        spread = self._spread
        done: list[Hop] = []
        for (source, target), cost, queue in zip(steps, costs, queues, strict=True):
            item = self._next(source, target, cost, queue)
            if item is None:
                for hop in reversed(done):
                    spread.move(hop.item, hop.target, hop.source)
                return []
            spread.move(item, source, target)
            done.append(Hop(item, source, target))
        return done

    def _next(self, source: BrokerId, target: BrokerId, cost: int, queue: list[int]) -> int | None:
        """The next of the queue that still may go and costs the same. One that may not is not tried again soon."""
        spread = self._spread
        while queue:
            item = queue.pop(0)
            if item in spread.on[source] and spread.can(item, source, target):
                if spread.cost(item, source, target) == cost:
                    return item
            else:
                self._refused.add(Hop(item, source, target))
        return None

    def _look_at_loose(self, source: BrokerId, found: dict[BrokerId, tuple[int, list[int]]]) -> None:
        spread, refused = self._spread, self._refused
        enough = {source}
        for item in spread.loose[source]:
            if len(enough) >= len(spread.loads):
                return
            for target in spread.targets(item, source):
                if target in enough:
                    continue
                cost = spread.cost(item, source, target)
                known = found.get(target)
                if cost > self._limit or (known and (cost > known[0] or (cost == known[0] and len(known[1]) >= BATCH))):
                    continue
                if not spread.can(item, source, target) or (refused and Hop(item, source, target) in refused):
                    continue
                if known and known[0] == cost:
                    known[1].append(item)
                    if cost == spread.lowest and len(known[1]) >= BATCH:
                        enough.add(target)
                else:
                    found[target] = (cost, [item])

    def _look_at_firm(self, source: BrokerId, found: dict[BrokerId, tuple[int, list[int]]]) -> None:
        """Those that cost 1 wherever they go: some for every target are enough."""
        spread, refused = self._spread, self._refused
        loose = spread.loose[source]
        enough = {target for target, (cost, items) in found.items() if cost < 1 or len(items) >= BATCH}
        enough.add(source)
        for item in spread.on[source]:
            if len(enough) >= len(spread.loads):
                return
            if item in loose:
                continue
            for target in spread.targets(item, source):
                if target in enough or not spread.can(item, source, target):
                    continue
                if refused and Hop(item, source, target) in refused:
                    continue
                items = found.setdefault(target, (1, []))[1]
                items.append(item)
                if len(items) >= BATCH:
                    enough.add(target)
