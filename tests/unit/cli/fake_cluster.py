"""A cluster in the place of the wire: what commands ask of it is noted, and answered as a test says."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from regency.cli.asking.controllers import ControllerFacts
from regency.cli.asking.wire import ClusterWire, PartitionFacts, TopicFacts
from regency.clients.nodes import Node
from regency.kafka.codec import DescribeConfigsRequest, DescribeConfigsResponse
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2

AT = ("--bootstrap-server", "nobody:1")
MIN_ISR = "min.insync.replicas"
NODES = {BrokerId(broker): Node(BrokerId(broker), f"h{broker}", 9000 + broker) for broker in (1, 2, 3)}


class FakeCluster(ClusterWire):
    """Brokers 1 to 3, of which 2 rules in epoch 7; no topics. Nothing else is to be asked, unless a test answers it."""

    def __init__(self) -> None:
        self.nodes = dict(NODES)
        self.facts = [facts(1), facts(2, rules=True, epoch=7), facts(3)]
        self.min_isr = 1
        """What any topic has for min.insync.replicas; commands may ask for that."""
        self.silent: list[BrokerId] = []
        self.known: list[TopicFacts] = []
        self.asked: list[tuple[Any, int | None]] = []
        """Messages, and which broker was asked; None for any."""
        self.deletions: list[admin_pb2.Deletion] = []

    def close(self) -> None:
        pass

    def brokers(self) -> dict[BrokerId, Node]:
        return self.nodes

    def controllers(self) -> dict[BrokerId, Node]:
        return self.nodes

    def silent_brokers(self) -> list[BrokerId]:
        return self.silent

    def controller_facts(self) -> list[ControllerFacts]:
        return self.facts

    def topics(self, names: Collection[str] | None = None, *, broker: int | None = None) -> list[TopicFacts]:
        there = {each.name: each for each in self.known}
        missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return [
            there.get(name, TopicFacts(name, error_code=missing)) for name in sorted(there if names is None else names)
        ]

    def ask(self, message: Any, version: int, *, broker: int | None = None, timeout_ms: int = 1) -> Any:
        if isinstance(message, DescribeConfigsRequest) and message.resources[0].configuration_keys == [MIN_ISR]:
            return _configs(message.resources, MIN_ISR, self.min_isr)
        self.asked.append((message, broker))
        return self.answer(message, version, broker)

    def answer(self, message: Any, version: int, broker: int | None) -> Any:
        """What a broker answers."""
        raise AssertionError(f"nobody is to be asked {message}")

    def order(self, address: str, method: Any, request: Any, *, timeout_ms: int = 1) -> Any:
        """What a controller answers to a call."""
        assert isinstance(request, admin_pb2.ListDeletionsRequest), request
        return admin_pb2.ListDeletionsResponse(deletions=self.deletions)


def _configs(asked: Any, key: str, value: int) -> DescribeConfigsResponse:
    result = DescribeConfigsResponse.DescribeConfigsResult
    entry = result.DescribeConfigsResourceResult(
        version=4, name=key, value=str(value), config_source=5, read_only=False, is_sensitive=False, synonyms=[]
    )
    named = [
        result(resource_type=each.resource_type, resource_name=each.resource_name, configs=[entry], version=4)
        for each in asked
    ]
    return DescribeConfigsResponse(version=4, results=named)


def facts(
    broker: int,
    *,
    rules: bool | None = False,
    epoch: int | None = None,
    unacknowledged: int = 0,
    offline: int = 0,
    in_contact: bool = True,
) -> ControllerFacts:
    if not rules:
        state, contact = (None, None) if rules is None else ("Idle", in_contact)
        return ControllerFacts(broker, f"c{broker}:1", rules, state=state, in_contact=contact)
    return ControllerFacts(broker, f"c{broker}:1", rules, epoch, "Idle", 0, 0, 0, offline, unacknowledged)


def partition(number: int, leader: int, replicas: list[int], isr: list[int] | None = None) -> PartitionFacts:
    return PartitionFacts(number, leader, replicas, replicas if isr is None else isr, leader_epoch=4)
