"""Who leads and who replicates what, as any broker tells: where a question to all replicas begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from regency.clients.cluster_metadata import METADATA_VERSION, metadata_request
from regency.clients.nodes import Node
from regency.kafka.apis import Message
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

_CONNECT_TIMEOUT_MS = 3_000


class NobodyAnswers(RegencyError):
    """None of the brokers that were named answers."""

    code = "nobody_answers"
    retriable = True


class Assignment(msgspec.Struct, frozen=True):
    """A partition. `leader`: None while it has no leader."""

    name: TopicPartition
    topic_id: TopicId
    leader: int | None
    replicas: tuple[BrokerId, ...]


class Assignments(msgspec.Struct, frozen=True):
    """`nodes` are the live brokers. `partitions`: of topics that are there, by name and number."""

    nodes: Mapping[BrokerId, Node]
    partitions: Mapping[TopicPartition, Assignment]

    @property
    def topics(self) -> set[str]:
        """The topics that are there."""
        return {name.topic for name in self.partitions}


def assignments(servers: str, topics: Collection[str] | None, *, timeout_ms: int) -> Assignments:
    """Partitions of these topics (None: of all there are) as the first broker of `host:port,...` that answers has them.

    Topics that do not exist are left out. Raises NobodyAnswers.
    """
    answer = _ask_any(servers, metadata_request(topics), timeout_ms)
    nodes = {BrokerId(each.node_id): Node(BrokerId(each.node_id), each.host, each.port) for each in answer.brokers}
    found: dict[TopicPartition, Assignment] = {}
    for topic in sorted(answer.topics, key=lambda topic: topic.name or ""):
        if topic.error_code != ErrorCode.NONE:
            continue
        for each in sorted(topic.partitions, key=lambda each: int(each.partition_index)):
            name = TopicPartition(topic.name, each.partition_index)
            leader = each.leader_id if each.leader_id >= 0 else None
            found[name] = Assignment(name, TopicId(topic.topic_id), leader, tuple(map(BrokerId, each.replica_nodes)))
    return Assignments(nodes, found)


def _ask_any(servers: str, request: Message, timeout_ms: int) -> Message:
    said: list[str] = []
    for server in servers.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not colon or not port.isdecimal():
            said.append(f"{server.strip()!r} is not HOST:PORT")
            continue
        peer = PeerConnection(
            host.strip("[]"),
            int(port),
            client_id="regency-pipeline",
            connect_timeout_ms=min(timeout_ms, _CONNECT_TIMEOUT_MS),
            request_timeout_ms=timeout_ms,
        )
        try:
            return peer.exchange(request, METADATA_VERSION)
        except PeerUnavailable as error:
            said.append(str(error))
        finally:
            peer.close()
    raise NobodyAnswers(f"No broker answers at {servers}: {' '.join(said)}", hint="Check the address.")
