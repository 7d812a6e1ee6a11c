"""What controller processes say of themselves, all asked at the same time, and why none of them rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import grpc
import msgspec

from regency.clients.nodes import Node
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2, inspection_pb2
from regency.runtime.grpc.channels import ControllerClient, InspectionClient, open_channel

DESCRIBE_TIMEOUT_MS: Final = 3_000


class ControllerFacts(msgspec.Struct, frozen=True, rename={"epoch": "controller_epoch"}):
    """A controller process; None for what is unknown because it did not answer, or is only known to who rules."""

    broker: int
    address: str
    rules: bool | None = None
    epoch: int | None = None
    state: str | None = None
    live_brokers: int | None = None
    topics: int | None = None
    partitions: int | None = None
    leaderless: int | None = None
    unacknowledged: int | None = None
    in_contact: bool | None = None
    """With ZooKeeper; None also where it is too old to tell."""
    blocked: str | None = None
    """Why no controller can rule, where it knows."""


def newest_ruler(controllers: Collection[ControllerFacts]) -> ControllerFacts | None:
    """The controller that rules, if any does; of two that say so the one of the newer epoch."""
    return max((each for each in controllers if each.rules), key=lambda each: each.epoch or 0, default=None)


def describe_controllers(nodes: Mapping[BrokerId, Node]) -> list[ControllerFacts]:
    """What every controller process says of itself, by broker; in 3 s, however many of them are frozen."""
    channels = {broker: open_channel(node.address) for broker, node in nodes.items()}
    try:
        return ask_controllers(nodes, channels, timeout_ms=DESCRIBE_TIMEOUT_MS)
    finally:
        for channel in channels.values():
            channel.close()


def ask_controllers(
    nodes: Mapping[BrokerId, Node], channels: Mapping[BrokerId, grpc.Channel], *, timeout_ms: int
) -> list[ControllerFacts]:
    """What every controller process says of itself, by broker. The channels stay open."""
    describe, summarise = controller_pb2.DescribeControllerRequest(), inspection_pb2.SummariseRequest()
    asked = {
        broker: (
            ControllerClient(channel).describe.future(describe, timeout=timeout_ms / 1000),
            InspectionClient(channel).summarise.future(summarise, timeout=timeout_ms / 1000),
        )
        for broker, channel in channels.items()
    }
    return [_facts(nodes[broker], *map(_answer, asked[broker])) for broker in sorted(asked)]


def _answer(future: Any) -> Any:
    """What came, None for nothing: it is away, frozen, or of a version that has no such method."""
    try:
        return future.result()
    except (grpc.RpcError, grpc.FutureCancelledError):
        return None


def _facts(
    node: Node,
    described: controller_pb2.DescribeControllerResponse | None,
    summary: inspection_pb2.SummariseResponse | None,
) -> ControllerFacts:
    rules = None if described is None else described.active
    if summary is not None:
        rules = summary.error_code == ErrorCode.NONE
    if rules is None:
        return ControllerFacts(node.id, node.address)
    epoch = summary.controller_epoch if summary is not None else described.controller_epoch if described else None
    counted = described if rules else None
    return ControllerFacts(
        broker=node.id,
        address=node.address,
        rules=rules,
        epoch=epoch if rules else None,
        state=None if described is None else described.state,
        live_brokers=None if counted is None else counted.live_brokers,
        topics=None if counted is None else counted.topics,
        partitions=None if counted is None else counted.partitions,
        leaderless=None if counted is None else counted.offline_partitions,
        unacknowledged=None if counted is None else counted.unacknowledged,
        in_contact=None if summary is None else summary.in_contact,
        blocked=(summary.message or None) if summary is not None and not rules else None,
    )


def zookeeper_is_away(controllers: Collection[ControllerFacts]) -> bool:
    """Whether no controller process that answers has contact with ZooKeeper."""
    told = [each for each in controllers if each.rules is not None]
    return bool(told) and all(each.in_contact is False for each in told)


def nobody_rules(controllers: Collection[ControllerFacts]) -> str:
    """Why no controller rules, in a sentence."""
    if not controllers:
        return "No controller rules: no broker is live."
    silent = [each.broker for each in controllers if each.rules is None]
    cut_off = [each.broker for each in controllers if each.rules is not None and each.in_contact is False]
    waiting = [each.broker for each in controllers if each.rules is not None and each.in_contact is not False]
    blocked = next((each.blocked for each in controllers if each.blocked), "")
    if blocked:
        words = f"No controller rules: {blocked.rstrip('.')}"
    elif cut_off and not waiting:
        words = f"ZooKeeper is away, so no controller rules: {_those_of(cut_off)} no contact with it"
    else:
        words = "No controller rules now"
        words += f": one is being elected, {_those_of(waiting)} contact with ZooKeeper" if waiting else ""
        words += f"; {_those_of(cut_off)} none" if cut_off else ""
    if silent:
        words += f"; the controller process{'es' if len(silent) > 1 else ''} of {_listed(silent)} did not answer"
    return f"{words}."


def _those_of(brokers: Sequence[int]) -> str:
    return f"{_listed(brokers)} {'have' if len(brokers) > 1 else 'has'}"


def _listed(brokers: Sequence[int]) -> str:
    return f"broker{'s' if len(brokers) > 1 else ''} {', '.join(map(str, brokers))}"
