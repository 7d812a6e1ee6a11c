"""Who leads and who replicates what, as any broker tells: where a question to all replicas begins."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice

import msgspec

from regency.clients.cluster_client import DESCRIBE_CONFIGS_VERSION, TOPIC_RESOURCE
from regency.clients.cluster_metadata import METADATA_VERSION, metadata_request
from regency.clients.nodes import Node
from regency.kafka.codec import DescribeConfigsRequest, Message
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

TOPICS_AT_ONCE = 1_000
"""Of which settings are asked in one request."""
_CONNECT_TIMEOUT_MS = 3_000
_POLICY = "cleanup.policy"


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


def compacted_topics(servers: str, topics: Collection[str], *, timeout_ms: int) -> set[str]:
    """Those of these topics that are compacted by their settings, where these may be seen. Raises NobodyAnswers."""
    resource = DescribeConfigsRequest.DescribeConfigsResource
    version, found = DESCRIBE_CONFIGS_VERSION, set[str]()
    names = iter(sorted(topics))
    while some := list(islice(names, TOPICS_AT_ONCE)):
        resources = [
            resource(version=version, resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=[_POLICY])
            for name in some
        ]
        request = DescribeConfigsRequest(
            version=version, resources=resources, include_synonyms=False, include_documentation=False
        )
        found.update(
            result.resource_name
            for result in _ask_any(servers, request, timeout_ms, version).results
            for each in result.configs or ()
            if each.name == _POLICY and "compact" in (each.value or "")
        )
    return found


def _ask_any(servers: str, request: Message, timeout_ms: int, version: int = METADATA_VERSION) -> Message:
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
            return peer.exchange(request, version)
        except PeerUnavailable as error:
            said.append(str(error))
        finally:
            peer.close()
    raise NobodyAnswers(f"No broker answers at {servers}: {' '.join(said)}", hint="Check the address.")
