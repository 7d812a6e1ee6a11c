"""An operator says that a broker is gone for good: what still waits for it does so no more.

Only deletions wait for a dead broker for ever, because it may return with what was to be deleted. Once it is forgotten
nothing waits for it, in this term (the context) and in all later ones (its znode in /brokers/incarnations is gone).
Should it return all the same, it registers as a new broker: its first LeaderAndIsr does not name what it still has, so
that its agent sets that aside, and by topic ids nothing of it becomes part of a topic that was created again.
"""

from __future__ import annotations

import msgspec

from regency.controller.events import ControllerState, Request
from regency.controller.reassignment.replica_deletion import delete_replicas
from regency.controller.state.context import ControllerContext
from regency.controller.state.states import ReplicaState
from regency.controller.store.access import WriteCode
from regency.controller.store.members import remove_member
from regency.controller.term import Term
from regency.model.ids import BrokerId, PartitionReplica
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted, listed


class ForgottenBroker(msgspec.Struct, frozen=True):
    """What became of it, and how many replicas are not waited for any more."""

    id: BrokerId
    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    replicas: int = 0


class ForgetBroker(Request[ForgottenBroker]):
    """A broker that is not live is gone for good."""

    state = ControllerState.BROKER_CHANGE
    cause = "forget_broker"

    def __init__(self, broker: BrokerId) -> None:
        super().__init__()
        self.broker = broker


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
        PartitionReplica(partition.topic, partition.partition, broker)
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
            f"`regency brokers drain {broker} --wait`; or cancel what moves them there: `regency partitions cancel`."
        )
        return ForgottenBroker(broker, ErrorCode.INVALID_REQUEST, why)
    return None
