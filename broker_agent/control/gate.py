"""Which control requests are taken: the rules of controller epoch, broker epoch and sequence number. Pure.

Source: KIP-380 and KAFKA-9839 for the epochs; the sequence number is ours, and makes a repeated request harmless. That
that none is believed whom ZooKeeper does not know is ours, too: any peer can name any epoch.
"""

from __future__ import annotations

import msgspec

from regency.model import znodes
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2
from regency.runtime.zookeeper.session import ZkSession


class Header(msgspec.Struct, frozen=True):
    """What every control request says about its sender and its receiver."""

    controller_epoch: ControllerEpoch
    broker_epoch: BrokerEpoch
    seq: int
    controller_id: BrokerId


class Office(msgspec.Struct, frozen=True):
    """What ZooKeeper says at one moment: who rules, and as what this process is registered."""

    controller_epoch: ControllerEpoch
    controller_id: BrokerId
    """-1: none."""
    broker_epoch: BrokerEpoch
    """-1 where this process is not registered, whatever registration of its broker id there is."""


class RefusedRequest(msgspec.Struct, frozen=True):
    """The request is not executed."""

    error: ErrorCode
    why: str


class RepeatedRequest(msgspec.Struct, frozen=True):
    """The request was executed before; the same answer again."""

    answer: control_pb2.ControlResponse


class ControlGate:
    """Remembers whom it obeys, the last sequence number and its answer.

    Another controller epoch, and another broker epoch, begin a new sequence: the controller opens a new channel for a
    new incarnation, also where the process is still the same. An epoch that is not known yet, of either kind, counts
    once ZooKeeper has said the same: `is_unheard_of` tells whether to ask, `take_in` takes the answer. So what was true
    before ZooKeeper was restored from a copy, whose epochs are lower, stands in no controller's way.
    """

    def __init__(self) -> None:
        self.controller_epoch = ControllerEpoch(0)
        """Newest obeyed; 0 before the first request."""
        self._controller = NO_LEADER
        self._broker_epoch = NO_BROKER_EPOCH
        """Incarnation of this broker to which the sequence belongs."""
        self._office = Office(ControllerEpoch(0), NO_LEADER, NO_BROKER_EPOCH)
        self._own_then = NO_BROKER_EPOCH
        """Own epoch when ZooKeeper was asked: what it answered of this broker is newer until another one arrives."""
        self._asked = 0
        """Questions to ZooKeeper so far."""
        self._answered = 0
        """The last of those that were answered."""
        self._seq = -1
        self._answer: control_pb2.ControlResponse | None = None

    def is_unheard_of(self, header: Header, own_epoch: BrokerEpoch) -> bool:
        """Whether ZooKeeper must be asked before the request can be judged."""
        another = header.controller_epoch > self.controller_epoch and not self._is_in_office(header)
        return another or header.broker_epoch > self._newest(own_epoch)

    def ask(self) -> int:
        """ZooKeeper is about to be asked. Returns the number of the question, for `take_in`."""
        self._asked += 1
        return self._asked

    def take_in(self, office: Office, own_epoch: BrokerEpoch, question: int) -> None:
        """ZooKeeper has answered, after a sync. An answer to a later question is newer and stays, whichever came first.

        It was true at a moment after the earlier request had come in, too.
        """
        if question > self._answered:
            self._office, self._own_then, self._answered = office, own_epoch, question

    def check_epochs(self, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        """Whether a request may be looked at. Broker epoch -1 is not compared."""
        epoch, sender = header.controller_epoch, header.controller_id
        if epoch < self.controller_epoch:
            why = f"controller epoch {epoch} is over; {self.controller_epoch} rules"
            return RefusedRequest(ErrorCode.STALE_CONTROLLER_EPOCH, why)
        if epoch == self.controller_epoch and sender != self._controller:
            why = f"controller epoch {epoch} belongs to broker {self._controller}"
            return RefusedRequest(ErrorCode.STALE_CONTROLLER_EPOCH, why)
        if epoch > self.controller_epoch and not self._is_in_office(header):
            known = self._office
            ruler = "nobody" if known.controller_id == NO_LEADER else f"broker {known.controller_id}"
            why = f"ZooKeeper says that {ruler} rules, in controller epoch {known.controller_epoch}"
            return RefusedRequest(ErrorCode.STALE_CONTROLLER_EPOCH, f"{why}, not broker {sender} in {epoch}")
        newest = self._newest(own_epoch)
        if header.broker_epoch not in (NO_BROKER_EPOCH, newest):
            why = f"meant for incarnation {header.broker_epoch}; this is {newest}"
            return RefusedRequest(ErrorCode.STALE_BROKER_EPOCH, why)
        return None

    def admit(self, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | RepeatedRequest | bool:
        """Whether to execute a request: refused, repeated, or yes (True: it begins a new sequence)."""
        refused = self.check_epochs(header, own_epoch)
        if refused is not None:
            return refused
        begins = header.controller_epoch > self.controller_epoch or header.broker_epoch not in (
            NO_BROKER_EPOCH,
            self._broker_epoch,
        )
        if begins:
            self.controller_epoch = header.controller_epoch
            self._controller = header.controller_id
            self._broker_epoch = self._newest(own_epoch)
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

    def _is_in_office(self, header: Header) -> bool:
        office = self._office
        named = header.controller_epoch == office.controller_epoch and header.controller_id == office.controller_id
        return named and office.controller_id != NO_LEADER

    def _newest(self, own_epoch: BrokerEpoch) -> BrokerEpoch:
        """This broker's epoch: as registered by its own account, unless ZooKeeper has told of a newer one since."""
        told = self._office.broker_epoch
        return told if own_epoch == self._own_then and told != NO_BROKER_EPOCH else own_epoch


def read_office(session: ZkSession, broker: BrokerId) -> Office:
    """Who rules, and as what the process of this session is registered as `broker`. Raises ZnodeMalformed, too."""
    session.sync(paths.CONTROLLER_EPOCH)
    epoch, ruling, own = session.read_many((paths.CONTROLLER_EPOCH, paths.CONTROLLER, paths.broker(broker)))
    is_ours = own is not None and own.stat.ephemeral_owner == session.session_id
    return Office(
        ControllerEpoch(0) if epoch is None else znodes.decode_controller_epoch(epoch.path, epoch.data),
        NO_LEADER if ruling is None else znodes.decode_controller(ruling.path, ruling.data),
        BrokerEpoch(own.stat.czxid) if own is not None and is_ours else NO_BROKER_EPOCH,
    )


def registered_epoch(session: ZkSession, broker: BrokerId) -> BrokerEpoch:
    """The incarnation of a broker that is registered; -1 where none is."""
    path = paths.broker(broker)
    session.sync(path)
    held = session.read(path)
    return NO_BROKER_EPOCH if held is None else BrokerEpoch(held.stat.czxid)
