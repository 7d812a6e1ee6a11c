"""Which control requests are taken: the rules of controller epoch, broker epoch and sequence number. Pure.

Source: KIP-380 and KAFKA-9839 for the epochs; the sequence number is ours, and makes a repeated request harmless.
"""

from __future__ import annotations

import msgspec

from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2


class Header(msgspec.Struct, frozen=True):
    """What every control request says about its sender and its receiver."""

    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    seq: int
    controller_id: BrokerId = NO_LEADER


class RefusedRequest(msgspec.Struct, frozen=True):
    """The request is not executed."""

    error: ErrorCode
    why: str


class RepeatedRequest(msgspec.Struct, frozen=True):
    """The request was executed before; the same answer again."""

    answer: control_pb2.ControlResponse


class ControlGate:
    """Remembers the newest controller epoch, the last sequence number and its answer.

    A higher controller epoch begins a new sequence, and so does a higher broker epoch: the controller opens a new
    channel for a new incarnation, also where the process is still the same. Broker epochs up to `earlier` are of
    processes before this one: until the new registration is known, too, nothing that was meant for them is taken.
    """

    def __init__(self, earlier: BrokerEpoch = NO_BROKER_EPOCH) -> None:
        self.controller_epoch = ControllerEpoch(0)
        """Newest seen; 0 before the first request."""
        self._controller = NO_LEADER
        self._earlier = earlier
        self._broker_epoch = NO_BROKER_EPOCH
        self._seq = -1
        self._answer: control_pb2.ControlResponse | None = None

    def check_epochs(self, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        """Whether a request may be looked at. Broker epoch -1 is not compared; one higher than known is taken."""
        if header.controller_epoch < self.controller_epoch:
            return RefusedRequest(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {header.controller_epoch} is over; {self.controller_epoch} rules",
            )
        if header.controller_epoch == self.controller_epoch and header.controller_id != self._controller:
            return RefusedRequest(
                ErrorCode.STALE_CONTROLLER_EPOCH,
                f"controller epoch {header.controller_epoch} belongs to broker {self._controller}",
            )
        if header.broker_epoch == NO_BROKER_EPOCH:
            return None
        newest = max(own_epoch, self._broker_epoch)
        if header.broker_epoch < newest:
            return RefusedRequest(
                ErrorCode.STALE_BROKER_EPOCH, f"meant for incarnation {header.broker_epoch}; this is {newest}"
            )
        if header.broker_epoch <= self._earlier:
            return RefusedRequest(
                ErrorCode.STALE_BROKER_EPOCH, f"meant for incarnation {header.broker_epoch}; this process came later"
            )
        return None

    def admit(self, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | RepeatedRequest | bool:
        """Whether to execute a request: refused, repeated, or yes (True: it begins a new sequence)."""
        refused = self.check_epochs(header, own_epoch)
        if refused is not None:
            return refused
        begins = header.controller_epoch > self.controller_epoch or header.broker_epoch > self._broker_epoch
        if begins:
            self.controller_epoch = header.controller_epoch
            self._controller = header.controller_id
            self._broker_epoch = max(header.broker_epoch, self._broker_epoch)
        elif header.seq == self._seq and self._answer is not None:
            return RepeatedRequest(self._answer)
        elif header.seq < self._seq:
            return RefusedRequest(ErrorCode.INVALID_REQUEST, f"request {header.seq} came after request {self._seq}")
        self._seq = header.seq
        self._answer = None
        return begins

    def answered(self, header: Header, answer: control_pb2.ControlResponse) -> None:
        """Remember the answer to the request just executed."""
        if header.controller_epoch == self.controller_epoch and header.seq == self._seq:
            self._answer = answer
