"""The one way in which commands ask the cluster: Kafka's protocol to one broker at a time, gRPC to controllers.

Every question has a limit of time, and what goes wrong is a CommandFailed that says what to do next.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Final, TypeVar

import msgspec

from regency.cli.asking.controllers import (
    ControllerFacts,
    describe_controllers,
    newest_ruler,
    nobody_rules,
    zookeeper_is_away,
)
from regency.cli.asking.refusals import refusal
from regency.cli.exits import CommandFailed, Exit
from regency.clients.controllers import ask_controller
from regency.clients.nodes import Node
from regency.kafka.apis import Message
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.ids import BrokerId, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.runtime.grpc.channels import AdminClient, Method, RpcFailed

ANSWER_TIMEOUT_S: Final = 10.0
"""How long all brokers may take until the first of them says anything."""
CONNECT_TIMEOUT_MS: Final = 5_000
REQUEST_TIMEOUT_MS: Final = 30_000
MARGIN_MS: Final = 5_000
SILENT_AFTER_S: Final = 2.0
"""A live broker that takes longer for its first word is taken for frozen. A whole cluster is asked at once."""
LOOK_EVERY_S: Final = 0.3
RULER_WITHIN_S: Final = 20.0
"""For so long another controller may be elected before a request for it is given up."""
_BROKERS, _CONTROLLERS = 1, 2
_WHICH_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""ApiVersions version 0, correlation id 0, no client id, with its length before it: any broker answers that."""

RequestT = TypeVar("RequestT")


class PartitionFacts(msgspec.Struct):
    """A partition as metadata has it. `leader_id` is -1 without a leader."""

    partition_index: int
    leader_id: int
    replica_nodes: list[int]
    isr_nodes: list[int]
    leader_epoch: int = -1
    offline_replicas: list[int] = []

    @property
    def leader(self) -> int | None:
        """The leader; None while there is none."""
        return self.leader_id if self.leader_id >= 0 else None

    @property
    def out_of_sync(self) -> list[int]:
        """Replicas that are not in the ISR."""
        return [replica for replica in self.replica_nodes if replica not in self.isr_nodes]


class TopicFacts(msgspec.Struct):
    """A topic as metadata has it, partitions in order."""

    name: str
    partitions: list[PartitionFacts] = []
    error_code: int = 0
    topic_id: TopicId | None = None

    @property
    def replication_factor(self) -> int:
        """Replicas of the partition that has most."""
        return max((len(partition.replica_nodes) for partition in self.partitions), default=0)


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

    def topics(self, names: Collection[str] | None = None, *, broker: BrokerId | None = None) -> list[TopicFacts]:
        """Topics by name, as this broker or any knows them: all, or these, with an error where one is not there."""
        from regency.clients.cluster_metadata import METADATA_VERSION, metadata_request

        answer = self.ask(metadata_request(names), METADATA_VERSION, broker=broker)
        topics = [msgspec.convert(topic, TopicFacts, from_attributes=True) for topic in answer.topics]
        for topic in topics:
            topic.partitions.sort(key=lambda partition: partition.partition_index)
        return sorted(topics, key=lambda topic: topic.name)

    def ask(
        self, message: Message, version: int, *, broker: BrokerId | None = None, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> Message:
        """The answer of one broker, or of any, also of one that uses all the time that the request gives it."""
        peer = self._first if broker is None else self._peer_of(broker)
        timeout_ms = max(timeout_ms, getattr(message, "timeout_ms", 0) + MARGIN_MS)
        try:
            return peer.exchange(message, version, timeout_ms=timeout_ms)
        except PeerUnavailable as error:
            raise CommandFailed(str(error), hint="Try again; `regency status` shows who is up.") from error

    def ask_ruler(self, message: Message, version: int, *, repeatable: bool = False) -> Message:
        """The answer of the broker whose controller rules, which alone serves what changes topics and leaders.

        Where none rules any broker says why, such as that it has no contact with ZooKeeper. Asked again while another
        takes over; after no answer only what does no harm twice (`repeatable`).
        """
        deadline = time.monotonic() + RULER_WITHIN_S
        while True:
            sent = False
            try:
                ruling = self._live_ruler()
                sent = True
                answer = self.ask(message, version, broker=ruling)
            except CommandFailed as error:
                if (sent and not repeatable) or error.status is not Exit.FAILED or time.monotonic() >= deadline:
                    raise
            else:
                errors = _errors(answer)
                if ruling is None and ErrorCode.REQUEST_TIMED_OUT in errors:
                    self.check_ruled(_words(answer))  # the broker that was asked waited in vain for one that rules
                if ErrorCode.NOT_CONTROLLER not in errors:
                    return answer
                if time.monotonic() >= deadline:
                    if ruling is None:
                        raise none_rules(self.controller_facts())
                    return answer
            time.sleep(LOOK_EVERY_S)

    def silent_brokers(self) -> list[BrokerId]:
        """Live brokers that do not answer: frozen, or cut off, and not given up by ZooKeeper yet."""
        nodes = self.brokers()
        answered = set(_answering([node.address for node in nodes.values()], SILENT_AFTER_S))
        return [broker for broker, node in nodes.items() if node.address not in answered]

    def dead_brokers(self) -> list[int]:
        """Brokers that partitions are assigned to and that are not live."""
        named = {broker for topic in self.topics() for each in topic.partitions for broker in each.replica_nodes}
        return sorted(named - {*map(int, self.brokers())})

    def controller_facts(self) -> list[ControllerFacts]:
        """What every controller process says of itself."""
        return describe_controllers(self.controllers())

    def ruling(self) -> ControllerFacts:
        """The controller that rules; of two that say so the one of the newer epoch. Raises CommandFailed."""
        facts = self.controller_facts()
        found = newest_ruler(facts)
        if found is None:
            raise none_rules(facts)
        return found

    def check_ruled(self, why: str = "") -> None:
        """Raises CommandFailed where no controller rules, in a broker's words for it if it has some."""
        facts = self.controller_facts()
        if newest_ruler(facts) is None:
            raise none_rules(facts, why=why)

    def _live_ruler(self) -> BrokerId | None:
        facts = self.controller_facts()
        found = newest_ruler(facts)
        if found is None and facts and all(each.in_contact is False for each in facts):
            raise none_rules(facts)  # none can be elected, so it is not waited for
        if found is None and (blocked := next((each.blocked for each in facts if each.blocked), None)):
            raise CommandFailed(blocked, status=Exit.TIMED_OUT)  # to wait would be in vain
        if found is not None and found.broker not in self.brokers():
            raise CommandFailed(
                f"Broker {found.broker}, whose controller rules, is not live.",
                hint="Start it, or have another rule: `regency controller resign`.",
            )
        return None if found is None else BrokerId(found.broker)

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


def tell_controller(
    ruling: ControllerFacts,
    subject: str,
    method: Callable[[AdminClient], Method[RequestT, Any]],
    request: RequestT,
    *,
    unsafe: ErrorCode | None = None,
) -> Any:
    """What a controller answers to an order. Raises CommandFailed, also where it refuses; `unsafe`: for safety."""
    try:
        answer = ask_controller(ruling.address, lambda channel: method(AdminClient(channel)), request)
    except RpcFailed as error:
        raise CommandFailed(str(error), hint="`regency controller status` shows who rules.") from error
    code, words = answer.outcome.error_code, answer.outcome.message
    if code == unsafe:
        raise CommandFailed(words, status=Exit.REFUSED)
    if code != ErrorCode.NONE:
        raise refusal(subject, code, words)
    return answer


def find(nodes: dict[BrokerId, Node], broker: BrokerId) -> Node:
    """A live broker. Raises CommandFailed naming those there are."""
    if broker not in nodes:
        listed = ", ".join(map(str, nodes)) or "none"
        raise CommandFailed(f"Broker {broker} is not live; live are {listed}.")
    return nodes[broker]


def first_that_answers(servers: str) -> str:
    """The one of `host:port,...` that answers first: a paused broker takes connections, but never answers.

    Raises CommandFailed when none does in 10 s, and for what is no address.
    """
    named = [server.strip() for server in servers.split(",")]
    for server in named:
        _, colon, port = server.rpartition(":")
        if not colon or not port.isdecimal():
            raise CommandFailed(
                f"{server!r} is not HOST:PORT.", hint="Name brokers such as localhost:9092.", status=Exit.USAGE
            )
    found = next(_answering(named, ANSWER_TIMEOUT_S), None)
    if found is None:
        raise unreachable(servers)
    return found


def _answering(servers: Collection[str], within_s: float) -> Iterator[str]:
    """Those of these `host:port` that answer, the fastest first; all are asked at once, at each of their addresses."""
    deadline = time.monotonic() + within_s
    with ExitStack() as stack, selectors.DefaultSelector() as waiting:
        for server in servers:
            for begun in _links(server):
                waiting.register(stack.enter_context(begun), selectors.EVENT_WRITE, server)
        while waiting.get_map() and (left_s := deadline - time.monotonic()) > 0:
            for key, events in waiting.select(left_s):
                link = key.fileobj
                assert isinstance(link, socket.socket), "only links are registered"
                if events & selectors.EVENT_WRITE and _has_asked(link):
                    waiting.modify(link, selectors.EVENT_READ, key.data)
                    continue
                waiting.unregister(link)
                if events & selectors.EVENT_READ and _has_answered(link):
                    yield str(key.data)


def _links(server: str) -> Iterator[socket.socket]:
    """A connection that is being made to each address of `host:port`."""
    host, _, port = server.rpartition(":")
    with suppress(OSError, OverflowError, UnicodeError):
        for family, kind, protocol, _, address in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            with suppress(OSError, OverflowError):
                link = socket.socket(family, kind, protocol)
                link.setblocking(False)
                link.connect_ex(address)
                yield link


def _has_asked(link: socket.socket) -> bool:
    """Whether the connection was made, and the question is on its way."""
    try:
        return link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0 and link.send(_WHICH_VERSIONS) > 0
    except OSError:
        return False


def unreachable(servers: str) -> CommandFailed:
    """None of these brokers answered; names that have no address are named."""
    unknown = [
        host
        for host in dict.fromkeys(each.rpartition(":")[0].strip(" []") for each in servers.split(","))
        if not _has_address(host)
    ]
    why = f": {', '.join(unknown)} cannot be resolved" if unknown else ""
    return CommandFailed(
        f"No broker answers at {servers}{why}.",
        hint="Check the address, or start a cluster with `regency up --detach`.",
        status=Exit.TIMED_OUT,
    )


def none_rules(facts: Collection[ControllerFacts], why: str = "") -> CommandFailed:
    """No controller rules: why, in a broker's words if there are any, and what to do."""
    hint = "Try again in a moment."
    if zookeeper_is_away(facts):
        hint = "Bring ZooKeeper back; until then partitions keep their leaders, and nothing can be changed."
    return CommandFailed(why or nobody_rules(facts), hint=hint, status=Exit.IN_PROGRESS)


def _has_address(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None))
    except (OSError, UnicodeError):
        return False


def _has_answered(link: socket.socket) -> bool:
    """Whether there is something to read, and not only the end."""
    try:
        return bool(link.recv(1))
    except OSError:
        return False


def _rows(answer: Message) -> list[Any]:
    """The whole answer, and the topics it is about."""
    return [answer, *(row for field in ("topics", "responses", "results") for row in getattr(answer, field, ()))]


def _errors(answer: Message) -> set[int]:
    return {getattr(each, "error_code", ErrorCode.NONE) for each in _rows(answer)}


def _words(answer: Message) -> str:
    return next((each.error_message for each in _rows(answer) if getattr(each, "error_message", None)), "")


def _peer(host: str, port: int) -> PeerConnection:
    return PeerConnection(
        host,
        port,
        client_id="regency-cli",
        connect_timeout_ms=CONNECT_TIMEOUT_MS,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )
