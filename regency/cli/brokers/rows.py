"""What there is to say of brokers, from metadata: those that live, and those that assignments name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.cli.asking.metadata import TopicFacts
from regency.cli.asking.wire import ClusterWire
from regency.clients.nodes import Node
from regency.model.ids import BrokerId


class BrokerRow(msgspec.Struct, frozen=True):
    """A broker in `regency brokers list`; one that only assignments name is not live and has no address."""

    broker: int
    live: bool
    address: str | None
    rack: str | None
    rules: bool
    leads: int
    replicas: int
    out_of_sync: int


class ReplicaRow(msgspec.Struct, frozen=True):
    """A replica of a broker in `regency brokers describe`. `leader` is None while it has no leader."""

    topic: str
    partition: int
    role: str
    leader: int | None
    in_sync: bool
    offline: bool


def rows_of(nodes: Mapping[BrokerId, Node], ruler: int | None, topics: Sequence[TopicFacts]) -> list[BrokerRow]:
    """What there is to say of every broker that lives or has replicas."""
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    behind: dict[int, int] = {}
    for partition in (partition for topic in topics for partition in topic.partitions):
        leads[partition.leader_id] = leads.get(partition.leader_id, 0) + 1
        for replica in partition.replica_nodes:
            replicas[replica] = replicas.get(replica, 0) + 1
        for replica in partition.out_of_sync:
            behind[replica] = behind.get(replica, 0) + 1
    rows = []
    for broker in sorted({*map(int, nodes), *replicas}):
        node = nodes.get(BrokerId(broker))
        rows.append(
            BrokerRow(
                broker,
                node is not None,
                None if node is None else node.address,
                None if node is None else node.rack,
                broker == ruler,
                leads.get(broker, 0),
                replicas.get(broker, 0),
                behind.get(broker, 0),
            )
        )
    return rows


def replicas_of(broker: int, topics: Sequence[TopicFacts]) -> list[ReplicaRow]:
    """The replicas of a broker."""
    return [
        ReplicaRow(
            topic.name,
            partition.partition_index,
            "leader" if partition.leader_id == broker else "follower",
            partition.leader_id if partition.leader_id >= 0 else None,
            broker in partition.isr_nodes,
            broker in partition.offline_replicas,
        )
        for topic in topics
        for partition in topic.partitions
        if broker in partition.replica_nodes
    ]


def ruler_of(wire: ClusterWire) -> int | None:
    """The broker whose controller rules, if any does."""
    ruling = [facts for facts in wire.controller_facts() if facts.rules]
    return max(ruling, key=lambda facts: facts.epoch or 0).broker if ruling else None
