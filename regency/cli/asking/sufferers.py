"""Who suffers now: topics that refuse reads or writes, with the reason, and clients that brokers have refused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from regency.cli.asking.config_requests import min_isrs
from regency.cli.asking.meters import Figures, Meters
from regency.cli.asking.wire import ClusterWire, PartitionFacts, TopicFacts
from regency.cli.context import say
from regency.cli.exits import CommandFailed
from regency.clients.nodes import Node
from regency.model.ids import BrokerId
from regency.model.words import counted, listed

ALL, WRITES = "reads and writes", "writes with acks=all"
CONNECTIONS: Final = "kafka_server_socket_server_metrics_connection_count"
CLOSED: Final = "regency_closed_connections_total"
ERRORS: Final = "kafka_network_requestmetrics_errors_total"
CLIENT_METRICS: Final = (CONNECTIONS, CLOSED, ERRORS)
_REFUSALS: Final = ("too_many", "no_descriptors")
_SUFFERED: Final = (
    *("NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND"),
    *("KAFKA_STORAGE_ERROR", "REQUEST_TIMED_OUT"),
)
"""Errors of produces that are no fault of the client, and not mended by asking another broker."""


class RefusedTopic(msgspec.Struct, frozen=True):
    """Partitions of a topic that refuse something now, all for the same reason; `first` is one of them."""

    topic: str
    partitions: int
    of: int
    first: int
    refuses: str
    why: str

    @property
    def told(self) -> str:
        """In a sentence, without its end."""
        which = f"{self.partitions} of {counted(self.of, 'partition')}" if self.of > 1 else "its partition"
        refuse = "refuse" if self.of > 1 and self.partitions > 1 else "refuses"
        return f"{self.topic}: {which} {refuse} {self.refuses}: {self.why}"


class ClientFacts(msgspec.Struct, frozen=True):
    """Clients of a broker, as its listener counts them since its start; None where it does not tell.

    `connections` are open now, those of other brokers too; `connections_refused` were closed because of a limit;
    `failed_produces` are partitions, by the error that was answered.
    """

    broker: int
    connections: int | None = None
    connections_refused: int | None = None
    failed_produces: dict[str, int] | None = None


def refused_topics(wire: ClusterWire, topics: Sequence[TopicFacts], silent: Collection[int]) -> list[RefusedTopic]:
    """Topics with partitions that refuse something now; `silent` are live brokers that do not answer.

    Where settings cannot be read it is said on stderr that only partitions without a leader that answers are told.
    """
    names = [each.name for each in topics]
    try:
        least = min_isrs(wire, names) if names else {}
    except CommandFailed as error:
        least = {}
        say(f"Which topics refuse writes with acks=all is not known: {error.message}")
    else:
        if names and not least:
            say("Which topics refuse writes with acks=all is not known: no broker can read settings now.")
    return judge(topics, least, frozenset(map(int, wire.brokers())), silent)


def judge(
    topics: Sequence[TopicFacts], least: Mapping[str, int], live: Collection[int], silent: Collection[int]
) -> list[RefusedTopic]:
    """The same from what is known: `least` is min.insync.replicas by topic, where it is. Pure."""
    found = []
    for topic in topics:
        reasons: Counter[tuple[str, str]] = Counter()
        first: dict[tuple[str, str], int] = {}
        for each in topic.partitions:
            reason = _reason(each, least.get(topic.name, 0), live, silent)
            if reason is not None:
                reasons[reason] += 1
                first.setdefault(reason, each.partition_index)
        found += [
            RefusedTopic(topic.name, count, len(topic.partitions), first[reason], *reason)
            for reason, count in reasons.items()
        ]
    return found


def _reason(
    partition: PartitionFacts, least: int, live: Collection[int], silent: Collection[int]
) -> tuple[str, str] | None:
    if partition.leader is None:
        return ALL, f"no leader ({_away(partition, live, silent)})"
    if partition.leader in silent:
        return ALL, f"broker {partition.leader}, which leads, does not answer"
    if len(partition.isr_nodes) < least:
        return WRITES, f"{len(partition.isr_nodes)} in sync, min.insync.replicas is {least}"
    return None


def _away(partition: PartitionFacts, live: Collection[int], silent: Collection[int]) -> str:
    """Why none of the replicas leads."""
    replicas = sorted(partition.replica_nodes)
    kinds = {
        "not live": [each for each in replicas if each not in live],
        "frozen": [each for each in replicas if each in silent],
        "its directory offline": [each for each in replicas if each in live and each in partition.offline_replicas],
    }
    told = [f"{kind}: broker {listed(some)}" for kind, some in kinds.items() if some]
    return "; ".join(told) or f"none of its replicas on {listed(replicas)} may lead"


def clients(nodes: Sequence[Node]) -> list[ClientFacts]:
    """Of each broker."""
    told = Meters().read(nodes, CLIENT_METRICS)
    return [client_facts(node.id, told.get(node.id)) for node in nodes]


def client_facts(broker: BrokerId, told: Figures | None) -> ClientFacts:
    """Of one broker, from its CLIENT_METRICS."""
    if told is None:
        return ClientFacts(broker)
    failed = {
        label.partition(",")[0]: int(count)
        for (name, label), count in told.items()
        if name == ERRORS and label.partition(",")[2] == "Produce" and count
    }
    return ClientFacts(
        broker,
        int(sum(count for (name, _), count in told.items() if name == CONNECTIONS)),
        int(sum(count for (name, label), count in told.items() if name == CLOSED and label in _REFUSALS)),
        {error: count for error, count in failed.items() if error in _SUFFERED},
    )
