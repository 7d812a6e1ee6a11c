"""A broker asks to leave: move what it leads to others, and take it out of the ISRs, before it goes.

From then on it leads nothing new and joins no ISR. That ends when it goes, when it registers again, when another
controller takes over, and when it is still there after the longest time that leaving may take by the settings, counted
from the last time it asked: then it has thought better of it, and is a broker like any other again.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from regency.controller.brokers.membership import bring_online, on_brokers_changed
from regency.controller.events import ControllerState, OfTerm, Request
from regency.controller.state.election import ElectionKind
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, PartitionReplica, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings


class ShutdownOutcome(msgspec.Struct, frozen=True):
    """What became of a controlled shutdown: refused, or which partitions the broker still leads."""

    error: ErrorCode = ErrorCode.NONE
    message: str = ""
    remaining: tuple[TopicPartition, ...] = ()


@dataclass(eq=False)
class ControlledShutdown(Request[ShutdownOutcome]):
    """A broker wants to leave: move what it leads."""

    broker: BrokerId
    broker_epoch: BrokerEpoch

    state = ControllerState.CONTROLLED_SHUTDOWN
    cause = "controlled_shutdown"


class ShutdownsOverdue(OfTerm):
    """A broker may have taken longer to leave than leaving takes."""

    state = ControllerState.CONTROLLED_SHUTDOWN
    cause = "aborted_shutdown"


def shutdown_patience_ms(settings: BrokerSettings) -> int:
    """The longest a broker may take to leave in order; one that is still there then is taken to stay."""
    once_ms = settings.controller_socket_timeout_ms + settings.controlled_shutdown_retry_backoff_ms
    return settings.controlled_shutdown_max_retries * once_ms


def shut_down_broker(term: Term, event: ControlledShutdown) -> ShutdownOutcome:
    """Move leaders off the broker and shrink the ISRs it is in. May be repeated: only what is left is handled.

    `remaining` are the partitions with other replicas that it still leads, because none of those is in sync. A
    partition whose only replica it holds goes away with it. Source: Kafka's doControlledShutdown.
    """
    context = term.context
    broker, broker_epoch = event.broker, event.broker_epoch
    known = context.brokers.get(broker)
    if known is None or broker_epoch > known.epoch:  # it asks before the word of its registration came
        on_brokers_changed(term)
        known = context.brokers.get(broker)
    if known is None:
        return ShutdownOutcome(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker} is not registered.")
    if broker_epoch not in (NO_BROKER_EPOCH, known.epoch):
        why = f"broker {broker} is registered under broker epoch {known.epoch}, not {broker_epoch}."
        return ShutdownOutcome(ErrorCode.STALE_BROKER_EPOCH, why)
    if broker not in context.shutting_down:
        context.begin_shutdown(broker)
        # Said here and not when it has gone: it may take the controller with it.
        last = "" if context.brokers.keys() - context.shutting_down else " as the last broker that was live"
        why = f"it asked for a controlled shutdown{last}"
        term.decisions.note(f"broker {broker}", "live", "shutting down", why)
        term.batch.brokers_changed()
    patience_ms = shutdown_patience_ms(term.settings)
    context.shutdown_ends_ms[broker] = term.clock.monotonic_ms() + patience_ms
    term.queue.put_later(ShutdownsOverdue(term.epoch), patience_ms)
    hosted = [each for each in context.partitions_on([broker]) if _may_move(term, each)]
    led = dict.fromkeys(each for each in hosted if context.leader(each) == broker)
    followed = [PartitionReplica(*each, broker) for each in hosted if each not in led]
    crash_point("controller.shutdown.before_elections")
    term.partitions.handle(led, PartitionState.ONLINE, ElectionKind.CONTROLLED_SHUTDOWN)
    crash_point("controller.shutdown.before_isr_shrinks")
    term.replicas.handle(followed, ReplicaState.OFFLINE)
    return ShutdownOutcome(remaining=tuple(each for each in hosted if context.leader(each) == broker))


def on_shutdowns_overdue(term: Term, _event: ShutdownsOverdue) -> None:
    """Let brokers take part again that asked to leave long ago and are still there."""
    now = term.clock.monotonic_ms()
    staying = sorted(broker for broker, ends_ms in term.context.shutdown_ends_ms.items() if ends_ms <= now)
    if not staying:
        return
    for broker in staying:
        term.context.end_shutdown(broker)
        why = f"it is still registered {shutdown_patience_ms(term.settings)} ms after it asked to leave"
        term.decisions.note(f"broker {broker}", "shutting down", "live", why)
    term.batch.brokers_changed()
    crash_point("controller.shutdown.before_return")
    bring_online(term, staying)
    term.deletions.brokers_started(staying)


def _may_move(term: Term, partition: TopicPartition) -> bool:
    context = term.context
    return (
        len(context.assignment(partition).replicas) > 1
        and context.leadership(partition) is not None
        and not context.is_being_deleted(partition.topic)
    )
