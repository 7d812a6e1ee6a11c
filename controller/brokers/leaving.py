"""Brokers that operators want to leave, or say to be gone for good.

Of one that is to leave the controller says which incarnation is meant, and under which epochs it gets the order. The
agent then leaves as at SIGTERM, by asking for a controlled shutdown.

Only deletions wait for a dead broker for ever, because it may return with what was to be deleted. Once it is forgotten
nothing waits for it, in this term (the context) and in all later ones (its znode in /brokers/incarnations is gone).
Should it return all the same, it registers as a new broker: its first LeaderAndIsr does not name what it still has, so
that its agent sets that aside, and by topic ids nothing of it becomes part of a topic that was created again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from regency.controller.events import ControllerState, Request
from regency.controller.reassignment.replica_deletion import delete_replicas
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.controller.store.access import WriteCode
from regency.controller.store.cluster_store import remove_member
from regency.controller.term import Term
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch, PartitionReplica
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted, listed


class ForgottenBroker(msgspec.Struct, frozen=True):
    """What became of it, and how many replicas are not waited for any more."""

    id: BrokerId
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    replicas: int = 0


@dataclass(eq=False)
class ForgetBroker(Request[ForgottenBroker]):
    """A broker that is not live is gone for good."""

    broker: BrokerId

    state = ControllerState.BROKER_CHANGE
    cause = "forget_broker"


def forget_broker(term: Term, event: ForgetBroker) -> ForgottenBroker:
    """Forget a broker that neither lives nor is to hold anything. Raises ControllerMoved, ZkError."""
    broker = event.broker
    refusal = _refusal(term.context, broker)
    if refusal is not None:
        return refusal
    removed = remove_member(term.store.access, broker)
    if removed.code is WriteCode.MISSING and broker not in term.context.members:
        why = f"Nothing is known of a broker {broker}: nothing waits for it."
        return ForgottenBroker(broker, ErrorCode.BROKER_ID_NOT_REGISTERED, why)
    if removed.code not in (WriteCode.WRITTEN, WriteCode.MISSING):
        return ForgottenBroker(broker, ErrorCode.INVALID_REQUEST, f"Broker {broker} is coming back: it has registered.")
    term.context.members.discard(broker)
    term.decisions.note(f"broker {broker}", "dead", "forgotten", "an operator says that it is gone for good")
    waiting = _waiting(term.context, broker)
    delete_replicas(term, [each for each in waiting if not term.context.is_being_deleted(each.topic)])
    term.deletions.resume()
    return ForgottenBroker(broker, replicas=len(waiting))


def _waiting(context: ControllerContext, broker: BrokerId) -> list[PartitionReplica]:
    """Replicas that this broker is still to delete."""
    return [
        PartitionReplica(*partition, broker)
        for partition in dict.fromkeys((*context.deleting, *context.partitions_on((broker,))))
        if context.replica_state(partition, broker) is ReplicaState.DELETION_INELIGIBLE
    ]


def _refusal(context: ControllerContext, broker: BrokerId) -> ForgottenBroker | None:
    if broker in context.brokers:
        why = f"Broker {broker} is live. `regency brokers shutdown {broker}` ends it."
        return ForgottenBroker(broker, ErrorCode.INVALID_REQUEST, why)
    held = [each for each in context.partitions_on((broker,)) if not context.is_being_deleted(each.topic)]
    if held:
        count = counted(len(held), "partition")
        why = (
            f"Broker {broker} still has replicas of {count}: {listed(held)}. Move them first: "
            f"`regency brokers drain {broker}`; or cancel what moves them there: `regency partitions cancel`."
        )
        return ForgottenBroker(broker, ErrorCode.INVALID_REQUEST, why)
    return None


class SteeredBroker(msgspec.Struct, frozen=True):
    """Where a live broker is steered, by whom and under which epochs; or why it cannot be."""

    id: BrokerId
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    target: str = ""
    broker_epoch: BrokerEpoch = NO_BROKER_EPOCH
    controller_id: BrokerId = BrokerId(-1)
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    controller_endpoint: str = ""


@dataclass(eq=False)
class SteerBroker(Request[SteeredBroker]):
    """A broker is to be told to leave. `broker_epoch` -1: whichever incarnation lives."""

    broker: BrokerId
    broker_epoch: BrokerEpoch

    state = ControllerState.CONTROLLED_SHUTDOWN
    cause = "broker_shutdown_request"


def steer_broker(term: Term, event: SteerBroker) -> SteeredBroker:
    """Where and how to reach the broker, if it lives in the incarnation that is meant."""
    known = term.context.brokers.get(event.broker)
    if known is None:
        listed = ", ".join(map(str, sorted(term.context.brokers))) or "none"
        why = f"Broker {event.broker} is not live; live are {listed}."
        return SteeredBroker(event.broker, ErrorCode.BROKER_NOT_AVAILABLE, why)
    if event.broker_epoch not in (NO_BROKER_EPOCH, known.epoch):
        why = f"Broker {event.broker} is live under broker epoch {known.epoch}, not {event.broker_epoch}."
        return SteeredBroker(event.broker, ErrorCode.STALE_BROKER_EPOCH, why)
    endpoint = known.endpoint(term.settings.control_plane_listener_name)
    assert endpoint is not None, "brokers without it are left out"
    term.decisions.note(f"broker {event.broker}", "live", "told to leave", "an operator asked for it")
    return SteeredBroker(
        event.broker,
        target=f"{endpoint.host}:{endpoint.port}",
        broker_epoch=known.epoch,
        controller_id=term.settings.broker_id,
        controller_epoch=term.epoch,
        controller_endpoint=term.endpoint,
    )
