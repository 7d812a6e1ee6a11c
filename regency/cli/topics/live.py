"""How far each replica of some partitions is, asked of the replicas themselves: two requests per broker and 2,000 of
them, so that the answers are of the same moment, whichever controller rules.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.cli.asking.wire import cluster_wire
from regency.cli.context import say
from regency.model.ids import BrokerId, TopicId, TopicPartition

TIMEOUT_MS = 3_000


class LiveReplica(msgspec.Struct, frozen=True):
    """A replica as its broker has it now; None is unknown, and `error` says why.

    `lag` is how many offsets its log ends before the leader's; 0 where it has what was written after the leader
    answered.
    """

    broker: int
    log_start: int | None = None
    log_end: int | None = None
    high_watermark: int | None = None
    lag: int | None = None
    error: str | None = None


class Asked(msgspec.Struct, frozen=True):
    """A partition to ask about; `leader` is -1 for none."""

    name: TopicPartition
    leader: int
    replicas: Sequence[int]


def ask_replicas(
    servers: str, partitions: Sequence[Asked], ids: Mapping[str, TopicId]
) -> dict[TopicPartition, list[LiveReplica]]:
    """Every replica of these partitions, in the order of the assignment; `ids` are the topics'.

    Live brokers that do not answer are named on stderr.
    """
    from regency.clients.replicas.wire import replica_wire

    wanted: dict[BrokerId, list[TopicPartition]] = {}
    for each in partitions:
        for broker in each.replicas:
            wanted.setdefault(BrokerId(broker), []).append(each.name)
    with cluster_wire(servers) as cluster:
        nodes = cluster.brokers()
    with replica_wire(nodes, timeout_ms=TIMEOUT_MS) as wire:
        places = wire.places(wanted, ids)
        for broker, why in sorted(wire.silent.items()):
            say(f"Broker {broker} does not tell its offsets: {why}")
    found = {}
    for each in partitions:
        told = {broker: places[BrokerId(broker), each.name] for broker in each.replicas}
        led = told.get(each.leader)
        found[each.name] = [_live(broker, told[broker], led) for broker in each.replicas]
    return found


def _live(broker: int, told: object, led: object) -> LiveReplica:
    from regency.clients.replicas.wire import Place, Unanswered

    if isinstance(told, Place):
        lag = max(0, led.log_end - told.log_end) if isinstance(led, Place) else None
        return LiveReplica(broker, told.log_start, told.log_end, told.high_watermark, lag)
    error = told.why if isinstance(told, Unanswered) else str(getattr(told, "name", told))
    return LiveReplica(broker, error=error)
