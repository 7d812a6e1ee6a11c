"""Questions to single brokers and to controllers, for what kafka-python's admin client cannot say.

That are settings of all brokers at once (it wants a number), the endpoints of controllers, and what only they answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from regency.cli.asking.kafka_clients import first_that_answers
from regency.cli.asking.refusals import refusal
from regency.cli.exits import CommandFailed, Exit
from regency.clients.controllers import ask_controller
from regency.clients.nodes import Node
from regency.kafka.apis import Message
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2
from regency.runtime.grpc.channels import RpcFailed
from regency.runtime.grpc.clients import ControllerClient

CONNECT_TIMEOUT_MS = 5_000
REQUEST_TIMEOUT_MS = 30_000
DESCRIBE_TIMEOUT_MS = 3_000
_BROKERS, _CONTROLLERS = 1, 2


class ControllerFacts(msgspec.Struct, frozen=True):
    """A controller process; None for what is unknown because it did not answer, or is only known to who rules."""

    broker: int
    address: str
    rules: bool | None
    epoch: int | None
    state: str | None
    live_brokers: int | None
    topics: int | None
    partitions: int | None
    offline_partitions: int | None
    unacknowledged: int | None


class ClusterWire:
    """Asks one broker at a time. Raises CommandFailed for who does not answer."""

    def __init__(self, servers: str) -> None:
        host, _, port = first_that_answers(servers).rpartition(":")
        self._first = _peer(host.strip("[]"), int(port))
        self._peers: dict[BrokerId, PeerConnection] = {}

    def close(self) -> None:
        """Close all connections."""
        for peer in (self._first, *self._peers.values()):
            peer.close()

    def brokers(self) -> dict[BrokerId, Node]:
        """The live brokers."""
        return self._nodes(_BROKERS)

    def controllers(self) -> dict[BrokerId, Node]:
        """The controller processes of the live brokers, by broker."""
        return self._nodes(_CONTROLLERS)

    def ask(self, message: Message, version: int, *, broker: BrokerId | None = None) -> Message:
        """The answer of one broker, or of any."""
        peer = self._first if broker is None else self._peer_of(broker)
        try:
            return peer.exchange(message, version)
        except PeerUnavailable as error:
            raise CommandFailed(str(error), hint="Try again; `regency status` shows who is up.") from error

    def controller_facts(self) -> list[ControllerFacts]:
        """What every controller process says of itself."""
        return [_facts(node) for _, node in sorted(self.controllers().items())]

    def ruling(self) -> ControllerFacts:
        """The controller that rules; of two that say so the one of the newer epoch. Raises CommandFailed."""
        ruling = [facts for facts in self.controller_facts() if facts.rules]
        if not ruling:
            raise CommandFailed(
                "No controller rules now.", hint="Try again; one is perhaps being elected.", status=Exit.IN_PROGRESS
            )
        return max(ruling, key=lambda facts: facts.epoch or 0)

    def _nodes(self, endpoint_type: int) -> dict[BrokerId, Node]:
        from regency.kafka.codec import DescribeClusterRequest

        answer = self.ask(DescribeClusterRequest(version=1, endpoint_type=endpoint_type), 1)
        if answer.error_code != ErrorCode.NONE:
            raise refusal("the cluster", answer.error_code, answer.error_message)
        nodes = [Node(BrokerId(each.broker_id), each.host, each.port, each.rack) for each in answer.brokers]
        return {node.id: node for node in sorted(nodes, key=lambda node: node.id)}

    def _peer_of(self, broker: BrokerId) -> PeerConnection:
        if broker not in self._peers:
            node = find(self.brokers(), broker)
            self._peers[broker] = _peer(node.host, node.port)
        return self._peers[broker]


@contextmanager
def cluster_wire(servers: str) -> Iterator[ClusterWire]:
    """A ClusterWire that is closed at the end."""
    wire = ClusterWire(servers)
    try:
        yield wire
    finally:
        wire.close()


def find(nodes: dict[BrokerId, Node], broker: BrokerId) -> Node:
    """A live broker. Raises CommandFailed naming those there are."""
    if broker not in nodes:
        listed = ", ".join(map(str, nodes)) or "none"
        raise CommandFailed(f"Broker {broker} is not live; live are {listed}.")
    return nodes[broker]


def _facts(node: Node) -> ControllerFacts:
    try:
        told = ask_controller(
            node.address,
            lambda channel: ControllerClient(channel).describe,
            controller_pb2.DescribeControllerRequest(),
            timeout_ms=DESCRIBE_TIMEOUT_MS,
        )
    except RpcFailed:
        return ControllerFacts(node.id, node.address, None, None, None, None, None, None, None, None)
    rules = told.active
    return ControllerFacts(
        node.id,
        node.address,
        rules,
        told.controller_epoch if rules else None,
        told.state,
        told.live_brokers if rules else None,
        told.topics if rules else None,
        told.partitions if rules else None,
        told.offline_partitions if rules else None,
        told.unacknowledged if rules else None,
    )


def _peer(host: str, port: int) -> PeerConnection:
    return PeerConnection(
        host,
        port,
        client_id="regency-cli",
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
