"""How far the replicas of partitions are, asked of each of them, and how long those take that are not in sync."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from regency.cli.asking.rates import CatchUp, catch_up, span
from regency.cli.asking.wire import cluster_wire
from regency.cli.context import current, say
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.model.words import counted, human_bytes

APART_S = 2.0
"""Between the two looks that give a rate."""
_OFFSETS_TIMEOUT_MS = 3_000


class LiveReplica(msgspec.Struct, frozen=True):
    """A replica as its broker has it now; None is unknown, and `error` says why.

    `lag` is how many offsets its log ends before the leader's; 0 where it has what was written after the leader
    answered. `lag_bytes` is about how much that is, by the average record of the leader's log; it and `catch_up` are
    told of a replica that is not in sync.
    """

    broker: int
    log_start: int | None = None
    log_end: int | None = None
    high_watermark: int | None = None
    lag: int | None = None
    error: str | None = None
    lag_bytes: int | None = None
    catch_up: CatchUp | None = None


_NAMES = {"epoch": "leader_epoch", "offline": "offline_replicas", "live": "positions"}


class PartitionRow(msgspec.Struct, frozen=True, rename=_NAMES):
    """A partition in `regency topics describe`. `leader` and its epoch are None while it has no leader.

    `live` has the replicas in their order, as each of them tells; it is empty where they were not asked.
    """

    topic: str
    partition: int
    leader: int | None
    epoch: int | None
    replicas: list[int]
    isr: list[int]
    offline: list[int]
    live: list[LiveReplica] = []

    @property
    def name(self) -> TopicPartition:
        """Which partition it is."""
        return TopicPartition(self.topic, self.partition)

    @property
    def outside(self) -> list[LiveReplica]:
        """Replicas that are not in sync, as they tell."""
        return [each for each in self.live if each.broker not in self.isr]

    @property
    def hw(self) -> int | None:
        """The leader's high watermark."""
        return next((replica.high_watermark for replica in self.live if replica.broker == self.leader), None)

    @property
    def leo(self) -> list[str]:
        """Log ends, in the order of the replicas."""
        return ["-" if replica.log_end is None else str(replica.log_end) for replica in self.live]

    @property
    def lag(self) -> list[str]:
        """How far each is behind the leader."""
        return ["-" if replica.lag is None else str(replica.lag) for replica in self.live]

    @property
    def catch_up(self) -> list[str]:
        """How long each takes until it is in sync."""
        return ["-" if replica.catch_up is None else _short(replica.catch_up) for replica in self.live]


def ask_replicas(rows: Sequence[PartitionRow], ids: Mapping[str, TopicId]) -> dict[TopicPartition, list[LiveReplica]]:
    """Every replica of these partitions, in the order of the assignment; of topics whose id is known.

    Live brokers that do not answer are named on stderr.
    """
    from regency.clients.replicas.wire import replica_wire

    asked = [row for row in rows if row.topic in ids]
    wanted: dict[BrokerId, list[TopicPartition]] = {}
    for row in asked:
        for broker in row.replicas:
            wanted.setdefault(BrokerId(broker), []).append(row.name)
    with cluster_wire(current().bootstrap_servers()) as cluster:
        nodes = cluster.brokers()
    with replica_wire(nodes, timeout_ms=_OFFSETS_TIMEOUT_MS) as wire:
        places = wire.places(wanted, ids)
        for broker, why in sorted(wire.silent.items()):
            say(f"Broker {broker} does not tell its offsets: {why}")
    found = {}
    for row in asked:
        told = {broker: places[BrokerId(broker), row.name] for broker in row.replicas}
        led = None if row.leader is None else told.get(row.leader)
        found[row.name] = [_live(broker, told[broker], led) for broker in row.replicas]
    return found


def _live(broker: int, told: object, led: object) -> LiveReplica:
    from regency.clients.replicas.wire import Place, Unanswered

    if isinstance(told, Place):
        lag = max(0, led.log_end - told.log_end) if isinstance(led, Place) else None
        return LiveReplica(broker, told.log_start, told.log_end, told.high_watermark, lag)
    error = told.why if isinstance(told, Unanswered) else str(getattr(told, "name", told))
    return LiveReplica(broker, error=error)


def estimated(rows: Sequence[PartitionRow], ids: Mapping[str, TopicId]) -> list[PartitionRow]:
    """With the rates of replicas that are not in sync and tell how far they are: these are asked a second time."""
    outside = [row for row in rows if any(each.lag is not None for each in row.outside)]
    if not outside:
        return list(rows)
    first_s = time.monotonic()
    time.sleep(APART_S)
    again = ask_replicas(outside, ids)
    between_s = time.monotonic() - first_s
    bytes_per_offset = _bytes_per_offset(outside)
    found = {row.name: _with_rates(row, again, between_s, bytes_per_offset.get(row.name)) for row in outside}
    return [found.get(row.name, row) for row in rows]


def _with_rates(
    row: PartitionRow,
    again: Mapping[TopicPartition, Sequence[LiveReplica]],
    between_s: float,
    bytes_per_offset: float | None,
) -> PartitionRow:
    before = {each.broker: each for each in row.live}
    live = []
    for each in again.get(row.name, row.live):
        was = before[each.broker].lag
        if each.broker not in row.isr and each.lag is not None:
            change = None if was is None else (each.lag - was) / between_s
            size = None if bytes_per_offset is None else round(each.lag * bytes_per_offset)
            each = msgspec.structs.replace(each, lag_bytes=size, catch_up=catch_up(each.lag, change))
        live.append(each)
    return msgspec.structs.replace(row, live=live)


def _bytes_per_offset(rows: Sequence[PartitionRow]) -> dict[TopicPartition, float]:
    """By the leaders' logs; partitions of which that is not known are left out."""
    from regency.clients.replicas.wire import replica_wire

    leaders: dict[BrokerId, list[TopicPartition]] = {}
    offsets = {}
    for row in rows:
        for each in row.live:
            if each.broker == row.leader and each.log_end is not None and each.log_end > (each.log_start or 0):
                leaders.setdefault(BrokerId(each.broker), []).append(row.name)
                offsets[row.name] = each.log_end - (each.log_start or 0)
    with cluster_wire(current().bootstrap_servers()) as cluster:
        nodes = cluster.brokers()
    with replica_wire(nodes, timeout_ms=_OFFSETS_TIMEOUT_MS) as wire:
        return {name: size / offsets[name] for (_, name), size in wire.sizes(leaders).items()}


def told_by_broker(rows: Sequence[PartitionRow]) -> list[str]:
    """Of each broker with replicas that are not in sync: how far it is behind, and how long it takes."""
    behind: dict[int, list[LiveReplica]] = {}
    for row in rows:
        for each in row.outside if row.leader is not None else ():
            behind.setdefault(each.broker, []).append(each)
    return [f"Broker {broker}: {_told(some)}." for broker, some in sorted(behind.items())]


def _told(some: Sequence[LiveReplica]) -> str:
    where = f"out of sync in {counted(len(some), 'partition')}"
    known = [each for each in some if each.lag is not None]
    if not known:
        return f"{where}; how far it is behind is not known while it does not answer"
    sizes = [each.lag_bytes for each in known]
    whole = None if None in sizes else sum(each or 0 for each in sizes)
    size = "" if whole is None else f" (about {human_bytes(whole)})"
    words = f"{where}, {sum(each.lag or 0 for each in known):,} records{size} behind"
    rates = [each.catch_up.per_s for each in known if each.catch_up is not None and each.catch_up.per_s is not None]
    times = [each.catch_up.in_s for each in known if each.catch_up is not None and each.catch_up.in_s is not None]
    if not rates:
        return words
    rate = sum(rates)
    words += f"; that {'shrinks' if rate > 0 else 'grows'} by {abs(rate):,.0f} records/s" if rate else "; that stays so"
    if len(times) < len(some):
        stuck = len(some) - len(times)
        return f"{words}: does not catch up" + (f" in {stuck} of them" if times else "")
    return f"{words}: {CatchUp(in_s=max(times)).told}"


def _short(found: CatchUp) -> str:
    if found.in_s is None:
        return "?" if found.per_s is None else "no"
    return span(found.in_s)
