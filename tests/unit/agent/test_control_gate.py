from __future__ import annotations

from regency.broker_agent.control.gate import ControlGate, Header, Office, RefusedRequest, RepeatedRequest
from regency.model.ids import NO_BROKER_EPOCH, NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2

OWN = BrokerEpoch(50)
RULER = BrokerId(9)


def header(seq: int, epoch: int = 3, broker: int = 50) -> Header:
    return Header(ControllerEpoch(epoch), BrokerEpoch(broker), seq, RULER)


def confirmed(gate: ControlGate, epoch: int = 3, broker: int = 50, own: BrokerEpoch = OWN) -> ControlGate:
    """ZooKeeper says that the ruler rules in this epoch, and that this process has this registration."""
    gate.take_in(Office(ControllerEpoch(epoch), RULER, BrokerEpoch(broker)), own, gate.ask())
    return gate


def gate_at(seq: int, epoch: int = 3) -> ControlGate:
    gate = confirmed(ControlGate(), epoch)
    assert gate.admit(header(seq, epoch), OWN) is True
    gate.answered(header(seq, epoch), control_pb2.ControlResponse(message=f"answer {seq}"))
    return gate


def test_the_next_request_is_executed() -> None:
    assert gate_at(4).admit(header(5), OWN) is False


def test_a_repeated_request_gets_the_same_answer_from_memory() -> None:
    repeated = gate_at(4).admit(header(4), OWN)
    assert isinstance(repeated, RepeatedRequest)
    assert repeated.answer.message == "answer 4"


def test_a_repeated_request_that_was_never_answered_is_executed() -> None:
    gate = confirmed(ControlGate())
    gate.admit(header(4), OWN)
    assert gate.admit(header(4), OWN) is False


def test_an_earlier_request_is_refused() -> None:
    refused = gate_at(4).admit(header(3), OWN)
    assert refused == RefusedRequest(ErrorCode.INVALID_REQUEST, "request 3 came after request 4")


def test_a_deposed_controller_is_refused_whatever_it_asks() -> None:
    gate = gate_at(4, epoch=3)
    for seq in (4, 5):
        refused = gate.admit(header(seq, epoch=2), OWN)
        assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_CONTROLLER_EPOCH


def test_a_new_controller_begins_a_new_sequence() -> None:
    gate = confirmed(gate_at(400, epoch=3), epoch=4)
    assert gate.admit(header(0, epoch=4), OWN) is True
    assert gate.controller_epoch == 4


def test_a_controller_that_zookeeper_does_not_know_is_not_obeyed_and_changes_nothing() -> None:
    gate = gate_at(4, epoch=3)
    forged = header(1, epoch=2**31 - 1)
    assert gate.is_unheard_of(forged, OWN)
    gate.take_in(Office(ControllerEpoch(3), RULER, OWN), OWN, gate.ask())
    refused = gate.admit(forged, OWN)
    why = "ZooKeeper says that broker 9 rules, in controller epoch 3, not broker 9 in 2147483647"
    assert refused == RefusedRequest(ErrorCode.STALE_CONTROLLER_EPOCH, why)
    assert (gate.controller_epoch, gate.admit(header(5), OWN)) == (3, False)


def test_nobody_is_obeyed_while_nobody_rules() -> None:
    gate = gate_at(4, epoch=3)
    gate.take_in(Office(ControllerEpoch(4), NO_LEADER, OWN), OWN, gate.ask())
    for sender in (RULER, NO_LEADER):
        refused = gate.admit(Header(ControllerEpoch(4), OWN, 1, sender), OWN)
        assert isinstance(refused, RefusedRequest) and "nobody rules" in refused.why


def test_known_epochs_are_not_asked_about() -> None:
    gate = gate_at(4)
    assert not gate.is_unheard_of(header(5), OWN)
    assert not gate.is_unheard_of(header(5, epoch=2, broker=49), OWN)
    assert not confirmed(gate, epoch=4).is_unheard_of(header(1, epoch=4), OWN)


def test_a_request_for_an_earlier_incarnation_is_refused() -> None:
    refused = gate_at(4).admit(header(5, broker=49), OWN)
    assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_BROKER_EPOCH


def test_a_request_for_a_later_incarnation_is_taken_and_begins_a_new_sequence() -> None:
    gate = gate_at(400)
    assert gate.is_unheard_of(header(1, broker=60), OWN)
    assert isinstance(gate.admit(header(1, broker=60), OWN), RefusedRequest)
    assert confirmed(gate, broker=60).admit(header(1, broker=60), OWN) is True
    for own in (OWN, BrokerEpoch(60)):
        refused = gate.admit(header(2, broker=50), own)
        assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_BROKER_EPOCH
        assert gate.admit(header(2, broker=60), own) is False


def test_a_lower_registration_counts_where_zookeeper_went_back() -> None:
    gate = confirmed(gate_at(400), broker=60)
    assert gate.admit(header(1, broker=60), OWN) is True
    lower = BrokerEpoch(7)
    assert not gate.is_unheard_of(header(1, broker=7), lower)
    assert gate.admit(header(1, broker=7), lower) is True
    assert isinstance(gate.admit(header(2, broker=60), lower), RefusedRequest)


def test_a_request_that_names_no_incarnation_is_taken() -> None:
    assert gate_at(4).admit(header(5, broker=-1), OWN) is False


def test_before_the_registration_is_known_only_what_zookeeper_says_is_meant_for_this_process_is_taken() -> None:
    gate, unregistered = ControlGate(), NO_BROKER_EPOCH
    assert gate.is_unheard_of(header(1), unregistered)
    refused = confirmed(gate, broker=-1, own=unregistered).admit(header(1), unregistered)
    assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_BROKER_EPOCH
    assert confirmed(gate, own=unregistered).admit(header(1), unregistered) is True


def test_an_epoch_is_of_one_controller_only() -> None:
    gate = gate_at(4, epoch=3)
    refused = gate.admit(Header(ControllerEpoch(3), OWN, 5, BrokerId(7)), OWN)
    assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_CONTROLLER_EPOCH
    gate.take_in(Office(ControllerEpoch(4), BrokerId(7), OWN), OWN, gate.ask())
    assert gate.admit(Header(ControllerEpoch(4), OWN, 1, BrokerId(7)), OWN) is True


def test_an_answer_that_comes_late_does_not_replace_that_of_a_later_question() -> None:
    gate = gate_at(4, epoch=3)
    early, late = gate.ask(), gate.ask()
    gate.take_in(Office(ControllerEpoch(5), RULER, OWN), OWN, late)
    gate.take_in(Office(ControllerEpoch(4), BrokerId(7), OWN), OWN, early)
    assert gate.admit(header(1, epoch=5), OWN) is True
