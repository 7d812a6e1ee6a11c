from __future__ import annotations

from regency.broker_agent.control_gate import ControlGate, Header, RefusedRequest, RepeatedRequest
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2

OWN = BrokerEpoch(50)


def header(seq: int, epoch: int = 3, broker: int = 50) -> Header:
    return Header(ControllerEpoch(epoch), BrokerEpoch(broker), seq)


def gate_at(seq: int, epoch: int = 3) -> ControlGate:
    gate = ControlGate()
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
    gate = ControlGate()
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
    gate = gate_at(400, epoch=3)
    assert gate.admit(header(0, epoch=4), OWN) is True
    assert gate.controller_epoch == 4


def test_a_request_for_an_earlier_incarnation_is_refused() -> None:
    refused = gate_at(4).admit(header(5, broker=49), OWN)
    assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_BROKER_EPOCH


def test_a_request_for_a_later_incarnation_is_taken_and_begins_a_new_sequence() -> None:
    gate = gate_at(400)
    assert gate.admit(header(1, broker=60), OWN) is True
    refused = gate.admit(header(2, broker=50), OWN)
    assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_BROKER_EPOCH


def test_a_request_that_names_no_incarnation_is_taken() -> None:
    assert gate_at(4).admit(header(5, broker=-1), OWN) is False


def test_a_request_before_the_first_registration_is_taken() -> None:
    assert ControlGate().admit(header(1, broker=50), BrokerEpoch(-1)) is True


def test_what_was_meant_for_a_process_before_this_one_is_refused_also_before_it_is_registered() -> None:
    gate = ControlGate(earlier=BrokerEpoch(60))
    for seq, epoch in ((1, 50), (2, 60)):
        refused = gate.admit(header(seq, broker=epoch), NO_BROKER_EPOCH)
        assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_BROKER_EPOCH
    assert gate.admit(header(1, broker=61), NO_BROKER_EPOCH) is True


def test_an_epoch_is_of_one_controller_only() -> None:
    gate = gate_at(4, epoch=3)
    refused = gate.admit(Header(ControllerEpoch(3), OWN, 5, BrokerId(7)), OWN)
    assert isinstance(refused, RefusedRequest) and refused.error is ErrorCode.STALE_CONTROLLER_EPOCH
    assert gate.admit(Header(ControllerEpoch(4), OWN, 1, BrokerId(7)), OWN) is True
