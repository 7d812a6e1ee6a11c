"""Copies of what the ruling controller knows, made on its thread a little at a time, for who examines the cluster."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import msgspec

from regency.controller.channel.channel_manager import BrokerBacklog
from regency.controller.events import ControllerState, Request
from regency.controller.state.context import ControllerContext
from regency.controller.state.topic_entry import TopicEntry
from regency.controller.term import Term
from regency.model.facts import Broker
from regency.model.ids import BrokerId, ControllerEpoch, TopicPartition


class ClusterCopy(msgspec.Struct, frozen=True):
    """What concerns all topics."""

    epoch: ControllerEpoch
    brokers: dict[BrokerId, Broker]
    shutting_down: frozenset[BrokerId]
    topics: dict[str, int]
    """With how many partitions each."""
    to_delete: frozenset[str]
    waiting: dict[str, str]
    """Those of them whose deletion waits, and for what."""
    leaderless: frozenset[TopicPartition]
    offline_partitions: int
    backlogs: list[BrokerBacklog]


class CopyCluster(Request[ClusterCopy]):
    """Copy what concerns all topics."""

    state = ControllerState.IDLE
    cause = "examination"


class CopyTopics(Request[dict[str, TopicEntry]]):
    """Copy what is known of these topics; those that are gone are left out."""

    state = ControllerState.IDLE
    cause = "examination"

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__()
        self.names = tuple(names)


def copy_cluster(term: Term, _request: CopyCluster) -> ClusterCopy:
    """Some dictionaries: a few milliseconds for a hundred thousand topics."""
    context = term.context
    return ClusterCopy(
        term.epoch,
        dict(context.brokers),
        frozenset(context.shutting_down),
        {name: len(entry.assignments) for name, entry in context.topics.items()},
        frozenset(context.topics_to_delete),
        dict(context.topics_ineligible),
        frozenset(context.leaderless),
        context.offline_partitions(),
        term.channels.backlogs(),
    )


def copy_topics(term: Term, request: CopyTopics) -> dict[str, TopicEntry]:
    """The lists are copied, what they hold never changes."""
    known = term.context.topics
    return {name: _copied(known[name]) for name in request.names if name in known}


def context_of(cluster: ClusterCopy, topics: dict[str, TopicEntry]) -> ControllerContext:
    """The copies as a context that knows these topics alone, for rules that look at one."""
    context = ControllerContext()
    for broker in cluster.brokers.values():
        context.add_broker(broker)
    for broker_id in sorted(cluster.shutting_down):
        context.begin_shutdown(broker_id)
    context.topics = topics
    context.topics_to_delete = set(cluster.to_delete)
    context.leaderless = {partition for partition in cluster.leaderless if partition.topic in topics}
    return context


def _copied(entry: TopicEntry) -> TopicEntry:
    copied = copy.copy(entry)
    copied.assignments = entry.assignments[:]
    copied.leadership = entry.leadership[:]
    copied.partition_states = entry.partition_states[:]
    copied.replica_states = entry.replica_states[:]
    return copied
