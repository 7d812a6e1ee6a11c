"""An operator wants a broker to leave: which incarnation is meant, and under which epochs it gets the order.

The controller's thread says no more. The agent then leaves as at SIGTERM, by asking for a controlled shutdown.
"""

from __future__ import annotations

import msgspec

from regency.controller.events import ControllerState, Request
from regency.controller.term import Term
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode


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


class SteerBroker(Request[SteeredBroker]):
    """A broker is to be told to leave. `broker_epoch` -1: whichever incarnation lives."""

    state = ControllerState.CONTROLLED_SHUTDOWN
    cause = "broker_shutdown_request"

    def __init__(self, broker: BrokerId, broker_epoch: BrokerEpoch) -> None:
        super().__init__()
        self.broker = broker
        self.broker_epoch = broker_epoch


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
    endpoint = known.endpoint(term.config.control_listener)
    assert endpoint is not None, "brokers without it are left out"
    term.decisions.note(f"broker {event.broker}", "live", "told to leave", "an operator asked for it")
    return SteeredBroker(
        event.broker,
        target=f"{endpoint.host}:{endpoint.port}",
        broker_epoch=known.epoch,
        controller_id=term.config.broker_id,
        controller_epoch=term.epoch,
        controller_endpoint=term.config.endpoint,
    )
