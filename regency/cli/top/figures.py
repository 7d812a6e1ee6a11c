"""What `regency top` asks brokers themselves: bytes, volumes, lag of followers. What one does not tell stays unknown.

Bytes are asked for at each look; what an agent has to look at all of its partitions for, or at its volumes, every ten
seconds where that is much. Of partitions only those on the screen are asked for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from regency.cli.asking.disks import disks_used
from regency.cli.asking.meters import (
    BYTES_IN,
    BYTES_OUT,
    FOLLOWER_LAG,
    GROUP_AGE,
    GROUP_LAG_SUM,
    GROUP_MEMBERS,
    GROUP_OFFSET_SUM,
    LAG_UNKNOWN,
    NO_SERIES,
    Figures,
    Meters,
)
from regency.cli.asking.sufferers import CLIENT_METRICS, client_facts
from regency.cli.asking.wire import TopicFacts
from regency.clients.nodes import Node
from regency.model.ids import BrokerId, TopicId, TopicPartition

RARELY_S = 10.0
FEW_PARTITIONS = 20_000
"""In clusters with more, lag is asked for rarely: each agent looks at all of its partitions for it."""
MOST_ASKED = 200
"""Partitions of which every replica is asked how far it is."""
TIMEOUT_MS = 1_000


class BrokerFigures(msgspec.Struct, frozen=True):
    """What a broker has told; None is not known. Bytes are counters since its start.

    `lags` are records that others are behind what it leads, by follower; `unknown` partitions of which it has not heard
    how far the follower is. Both as of `lags_s`, on the monotonic clock.
    """

    bytes_in: float | None = None
    bytes_out: float | None = None
    topic_in: float | None = None
    topic_out: float | None = None
    """The same of the topic that is shown."""
    connections: int | None = None
    failed_produces: dict[str, int] | None = None
    """By error: those that are no fault of the client."""
    disk_used: float | None = None
    """Of the fullest volume of its log directories, 0 to 1."""
    lags: dict[int, int] | None = None
    unknown: dict[int, int] = {}
    lags_s: float = 0.0


class GroupFigures(msgspec.Struct):
    """What its coordinator has told of a group, as of `at_s` on the monotonic clock."""

    coordinator: int
    members: int
    at_s: float
    lag: int | None = None
    """Of the topics of which it is known."""
    partial: bool = False
    """Whether there are others."""


class FigureAsker:
    """Asks all live brokers at the same time. One thread at a time."""

    def __init__(self) -> None:
        self._meters = Meters()
        self._lags: dict[BrokerId, BrokerFigures] = {}
        self._lags_s = self._disks_s = -RARELY_S
        self._disks: dict[BrokerId, float | None] = {}
        self._ids: dict[str, TopicId] = {}

    def look(self, nodes: Sequence[Node], partitions: int, topic: str) -> dict[int, BrokerFigures]:
        """Figures of each broker, of `topic` too unless it is empty; the cluster has so many `partitions`."""
        now = time.monotonic()
        rarely = RARELY_S if partitions > FEW_PARTITIONS else 0.0
        lag_too = now - self._lags_s >= rarely
        names = [BYTES_IN, BYTES_OUT, *CLIENT_METRICS, *([FOLLOWER_LAG, LAG_UNKNOWN] if lag_too else ())]
        told = self._meters.read(nodes, names, [topic] if topic else ())
        if lag_too:
            self._lags_s = now
            self._lags = {broker: _lags(found, now) for broker, found in told.items()}
        if now - self._disks_s >= RARELY_S:
            self._disks_s, self._disks = now, disks_used(nodes)
        return {
            node.id: _figures(
                told.get(node.id, {}), topic, self._lags.get(node.id, BrokerFigures()), self._disks.get(node.id)
            )
            for node in nodes
        }

    def groups(self, nodes: Sequence[Node]) -> dict[str, GroupFigures]:
        """Groups by name, as their coordinators tell; of one that moved, as who looked last."""
        now = time.monotonic()
        found: dict[str, GroupFigures] = {}
        told = self._meters.read(nodes, [GROUP_MEMBERS, GROUP_OFFSET_SUM, GROUP_LAG_SUM, GROUP_AGE], topics=None)
        for broker, figures in told.items():
            for group, each in _groups(broker, figures, now).items():
                if group not in found or found[group].at_s < each.at_s:
                    found[group] = each
        return found

    def places(
        self, nodes: Sequence[Node], topics: Iterable[TopicFacts], wanted: Mapping[TopicPartition, Sequence[int]]
    ) -> dict[tuple[BrokerId, TopicPartition], int]:
        """Where the logs of these replicas, by partition, end; those are left out whose brokers do not tell."""
        from regency.clients.replicas.wire import Place, replica_wire

        ids = {each.name: each.topic_id for each in topics if each.topic_id is not None}
        asked: dict[BrokerId, list[TopicPartition]] = {}
        for name, replicas in wanted.items():
            for broker in replicas if name.topic in ids else ():
                asked.setdefault(BrokerId(broker), []).append(name)
        with replica_wire({node.id: node for node in nodes if node.id in asked}, timeout_ms=TIMEOUT_MS) as wire:
            found = wire.places(asked, ids)
        return {replica: place.log_end for replica, place in found.items() if isinstance(place, Place)}


def _figures(told: Figures, topic: str, lags: BrokerFigures, disk: float | None) -> BrokerFigures:
    one = bool(topic) and bool(told)  # a broker that has no series of the topic has nothing of it
    served = client_facts(BrokerId(-1), told or None)
    return msgspec.structs.replace(
        lags,
        connections=served.connections,
        failed_produces=served.failed_produces,
        bytes_in=told.get((BYTES_IN, "")),
        bytes_out=told.get((BYTES_OUT, "")),
        topic_in=told.get((BYTES_IN, topic), 0.0) if one else None,
        topic_out=told.get((BYTES_OUT, topic), 0.0) if one else None,
        disk_used=disk,
    )


def _lags(told: Figures, now_s: float) -> BrokerFigures:
    if not any(name == FOLLOWER_LAG for name, _ in told):  # an agent that is too old
        return BrokerFigures()
    by_name: dict[str, dict[int, int]] = {FOLLOWER_LAG: {}, LAG_UNKNOWN: {}}
    for (name, label), number in told.items():
        if name in by_name and label != NO_SERIES:
            by_name[name][int(label)] = int(number)
    return BrokerFigures(lags=by_name[FOLLOWER_LAG], unknown=by_name[LAG_UNKNOWN], lags_s=now_s)


def _groups(broker: BrokerId, told: Figures, now_s: float) -> dict[str, GroupFigures]:
    at_s = now_s - told.get((GROUP_AGE, ""), 0.0)
    found = {
        label: GroupFigures(int(broker), int(number), at_s)
        for (name, label), number in told.items()
        if name == GROUP_MEMBERS and label != NO_SERIES
    }
    for (name, label), _ in told.items():
        group, _, topic = label.rpartition(",")  # in no topic's name
        if name == GROUP_OFFSET_SUM and group in found:
            lag = told.get((GROUP_LAG_SUM, f"{group},{topic}"))
            if lag is None:
                found[group].partial = True
            else:
                found[group].lag = (found[group].lag or 0) + int(lag)
    return found
