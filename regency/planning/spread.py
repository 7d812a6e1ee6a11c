"""Moves items between brokers until every broker has its share, with as few moves as there can be.

Pure. A minimum-cost flow by successive shortest paths, on the graph of brokers: an edge is the cheapest item that may
go from one to another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple, TypeAlias

from regency.model.ids import BrokerId
from regency.planning.items import ANY, FREE, Edges, S, Spread

_SHARED: Final = BrokerId(-1)
"""The node that stands for what brokers may have between their least and their most."""

_Way: TypeAlias = "tuple[BrokerId, _Way] | None"
"""A way, last broker first."""


class Share(NamedTuple):
    """How much a broker shall have, at least and at most."""

    least: int
    most: int


def fair_share(total: int, count: int) -> Share:
    """What each of `count` brokers (1 or more) shall have of a total."""
    return Share(total // count, -(-total // count))


def level(spread: Spread, limit: int) -> None:
    """Even out as far as moves of at most `limit` allow, each, whatever they cost together."""
    edges = Edges(spread, limit)
    changed = True
    while changed:
        changed = False
        for source in sorted(spread.loads, key=lambda broker: (-spread.loads[broker], broker)):
            while way := _way_down(spread, edges, source):
                more = spread.loads[source] - spread.loads[way[-1]]
                if edges.apply(way, more // 2):
                    changed = True


def even_out(prepared: S) -> S:
    """All brokers within 1 of each other where that is possible, by as few moves as possible; else as even as found.

    Where brokers cannot get rid of what they have too much of (their rack has too few of them, say), these share what
    they have among themselves, and the others the rest: the search begins again with those shares.
    """
    brokers = sorted(prepared.loads)
    groups: list[tuple[BrokerId, ...]] = [tuple(brokers)]
    shares = dict.fromkeys(brokers, fair_share(sum(prepared.loads.values()), len(brokers)))
    while True:
        spread = prepared.copy()
        stuck = _reach_shares(spread, shares)
        if stuck is None:
            return spread
        finer = [part for group in groups for part in _split(group, stuck)]
        if len(finer) == len(groups):
            return spread
        groups = finer
        for group in groups:
            share = fair_share(sum(spread.loads[broker] for broker in group), len(group))
            shares.update(dict.fromkeys(group, share))


def _split(group: Sequence[BrokerId], stuck: Collection[BrokerId]) -> list[tuple[BrokerId, ...]]:
    halves = [
        tuple(broker for broker in group if broker in stuck),
        tuple(broker for broker in group if broker not in stuck),
    ]
    return [half for half in halves if half]


def _reach_shares(spread: Spread, shares: Mapping[BrokerId, Share]) -> set[BrokerId] | None:
    """Give every broker its share. Returns None, or the brokers that have too much and can give nothing away.

    Paths are taken in the order of their cost, which makes the sum the least: first free ones, then single moves of
    cost 1, then what is left.
    """
    for limit in (FREE, ANY):
        edges = Edges(spread, limit)
        if limit == ANY:
            _move_directly(spread, shares)
        while _imbalance(spread, shares):
            way, reached = _cheapest_way(spread, shares, edges)
            if way:
                _go(spread, shares, edges, way)
            elif limit == ANY:
                return reached
            else:
                break
    return None


def _go(spread: Spread, shares: Mapping[BrokerId, Share], edges: Edges, way: Sequence[BrokerId]) -> None:
    """Move along a way as often as its ends want it; one through what may be shared is two, of which both go once."""
    loads = spread.loads
    surplus = abs(_surplus(spread, shares))
    if _SHARED in way[1:-1]:
        middle = way.index(_SHARED)
        if edges.apply(way[:middle], 1) and not edges.apply(way[middle + 1 :], 1):
            return  # what is shared is shared otherwise now; the next way begins there
        return
    if way[0] == _SHARED:
        often, way = min(surplus, loads[way[1]] - shares[way[1]].least), way[1:]
    else:
        often = loads[way[0]] - shares[way[0]].most
    if way[-1] == _SHARED:
        often, way = min(often, surplus, shares[way[-2]].most - loads[way[-2]]), way[:-1]
    else:
        often = min(often, shares[way[-1]].least - loads[way[-1]])
    edges.apply(way, often)


def _imbalance(spread: Spread, shares: Mapping[BrokerId, Share]) -> bool:
    return any(not shares[broker].least <= load <= shares[broker].most for broker, load in spread.loads.items())


def _surplus(spread: Spread, shares: Mapping[BrokerId, Share]) -> int:
    """How much more brokers have above their most than others lack of their least."""
    above = sum(max(0, load - shares[broker].most) for broker, load in spread.loads.items())
    below = sum(max(0, shares[broker].least - load) for broker, load in spread.loads.items())
    return above - below


def _move_directly(spread: Spread, shares: Mapping[BrokerId, Share]) -> None:
    """Single moves of cost 1 or less, from who has too much to who has too little."""
    surplus = _surplus(spread, shares)
    for source in sorted(spread.loads, key=lambda broker: (-spread.loads[broker], broker)):
        if spread.loads[source] > (shares[source].least if surplus < 0 else shares[source].most):
            surplus = _relieve(spread, shares, source, surplus)


def _relieve(spread: Spread, shares: Mapping[BrokerId, Share], source: BrokerId, surplus: int) -> int:
    """Move from one broker what it has too much of. Returns the surplus that is left.

    A positive surplus may fill others above their least, a negative one is made up for by who has more than its least.
    """
    loads = spread.loads
    for item in list(spread.on[source]):
        if loads[source] <= (shares[source].least if surplus < 0 else shares[source].most):
            break
        lacking = [
            (loads[broker] - share.least, broker)
            for broker, share in shares.items()
            if loads[broker] < (share.most if surplus > 0 else share.least)
        ]
        if not lacking:
            break
        target = next((broker for _, broker in sorted(lacking) if spread.can(item, source, broker)), None)
        if target is None:
            continue
        surplus += (loads[source] <= shares[source].most) - (loads[target] >= shares[target].least)
        spread.move(item, source, target)
    return surplus


def _way_down(spread: Spread, edges: Edges, source: BrokerId) -> list[BrokerId]:
    """The shortest way to a broker that has at least 2 less: the emptiest of those found first."""
    ways: dict[BrokerId, _Way] = {source: (source, None)}
    ring = [source]
    while ring:
        following: list[BrokerId] = []
        for broker in ring:
            for target in sorted(edges.of(broker)):
                if target not in ways:
                    ways[target] = (target, ways[broker])
                    following.append(target)
        best = min(following, key=lambda broker: (spread.loads[broker], broker), default=None)
        if best is not None and spread.loads[best] <= spread.loads[source] - 2:
            return _brokers(ways[best])
        ring = following
    return []


def _cheapest_way(
    spread: Spread, shares: Mapping[BrokerId, Share], edges: Edges
) -> tuple[list[BrokerId], set[BrokerId]]:
    """The cheapest way from who has too much to who lacks; or none, and whom one gets to from who has too much."""
    loads = spread.loads
    surplus = _surplus(spread, shares)
    starts = [broker for broker in sorted(loads) if loads[broker] > shares[broker].most]
    if surplus < 0:
        starts.append(_SHARED)
    reached: dict[BrokerId, tuple[int, int, _Way]] = {broker: (0, 0, (broker, None)) for broker in starts}
    ring = starts
    while ring:
        following: dict[BrokerId, None] = {}
        for broker in ring:
            cost, steps, way = reached[broker]
            for target, more in _steps(spread, shares, edges, broker):
                known = reached.get(target)
                if steps <= len(loads) and (known is None or (cost + more, steps + 1) < known[:2]):
                    reached[target] = (cost + more, steps + 1, (target, way))
                    following[target] = None
        ring = list(following)
    ends = [broker for broker in sorted(loads) if loads[broker] < shares[broker].least and broker in reached]
    if surplus > 0 and _SHARED in reached:
        ends.append(_SHARED)
    if not ends:
        return [], {broker for broker in reached if broker != _SHARED}
    return _brokers(reached[min(ends, key=lambda broker: (*reached[broker][:2], broker))][2]), set()


def _steps(
    spread: Spread, shares: Mapping[BrokerId, Share], edges: Edges, broker: BrokerId
) -> list[tuple[BrokerId, int]]:
    """Edges out of a node, with their cost; those to and from what may be shared move nothing."""
    loads = spread.loads
    if broker == _SHARED:
        return [(each, 0) for each in sorted(loads) if shares[each].least < loads[each] <= shares[each].most]
    steps = [(target, cost) for target, (cost, _) in sorted(edges.of(broker).items())]
    if shares[broker].least <= loads[broker] < shares[broker].most:
        steps.append((_SHARED, 0))
    return steps


def _brokers(way: _Way) -> list[BrokerId]:
    """The way from its beginning."""
    brokers: list[BrokerId] = []
    while way is not None:
        broker, way = way
        brokers.append(broker)
    brokers.reverse()
    return brokers
