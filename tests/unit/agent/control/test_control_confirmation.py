"""Epochs that an agent has not heard of: ZooKeeper says whether they are true, and nobody else waits for it."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from regency.broker_agent.control.metadata_cache import RulingController
from regency.broker_agent.control.service import MOST_ASKING
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2

LAST = 2**31 - 1


def test_a_new_controller_is_confirmed_once(agent) -> None:
    for _ in range(3):
        assert agent.lead().error_code == ErrorCode.NONE
    assert agent.asked == 1
    agent.ruling = 4
    assert agent.lead(controller_epoch=4).error_code == ErrorCode.NONE
    assert (agent.asked, agent.metadata.ruling.epoch) == (2, 4)


def test_a_forged_controller_epoch_is_refused_in_every_kind_of_request_and_changes_nothing(agent) -> None:
    agent.lead()
    followed = RulingController(BrokerId(9), ControllerEpoch(3), "nine:9093")
    header = agent.header(controller_epoch=LAST)
    service = agent.service
    answers = [
        service.leader_and_isr(control_pb2.LeaderAndIsrRequest(header=header, topics=[agent.states([1])])),
        service.update_metadata(control_pb2.UpdateMetadataRequest(header=header)),
        service.stop_replica(control_pb2.StopReplicaRequest(header=header)),
        service.shut_down(control_pb2.ShutDownRequest(header=header)),
        service.describe_replicas(control_pb2.DescribeReplicasRequest(header=header)),
    ]
    assert {answer.error_code for answer in answers} == {ErrorCode.STALE_CONTROLLER_EPOCH}
    why = "ZooKeeper says that broker 9 rules, in controller epoch 3, not broker 9 in 2147483647"
    assert {answer.message for answer in answers} == {why}
    assert (len(agent.hosted.states), agent.hosted.stops, agent.left) == (1, [], 0)
    assert (service.controller_epoch, agent.metadata.ruling) == (3, followed)
    assert agent.lead().error_code == ErrorCode.NONE


def test_a_forged_incarnation_locks_nobody_out(agent) -> None:
    agent.lead()
    assert agent.lead(broker_epoch=2**62).error_code == ErrorCode.STALE_BROKER_EPOCH
    assert agent.lead().error_code == ErrorCode.NONE


def test_a_registration_below_the_last_one_is_obeyed_as_zookeeper_may_have_been_restored(agent) -> None:
    agent.lead()
    agent.epoch = BrokerEpoch(7)
    assert agent.lead(broker_epoch=7).error_code == ErrorCode.NONE
    assert agent.lead(broker_epoch=50).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_what_cannot_be_confirmed_is_refused_until_it_can(agent) -> None:
    agent.lead()
    agent.ruling, agent.zookeeper_away = 4, True
    refused = agent.lead(controller_epoch=4)
    assert refused.error_code == ErrorCode.NETWORK_EXCEPTION
    assert "controller epoch 4 of broker 9" in refused.message and "no contact" in refused.message
    assert agent.lead().error_code == ErrorCode.NONE, "the one that is known is obeyed meanwhile"
    agent.zookeeper_away = False
    assert agent.lead(controller_epoch=4).error_code == ErrorCode.NONE


def test_the_present_controller_is_served_while_a_few_others_wait_for_zookeeper(agent) -> None:
    agent.lead()
    waiting, go_on = threading.Semaphore(0), threading.Event()
    ask = agent.service._office

    def slowly():
        waiting.release()
        assert go_on.wait(60)
        return ask()

    agent.service._office = slowly
    with ThreadPoolExecutor() as pool:
        forged = [pool.submit(agent.lead, controller_epoch=LAST) for _ in range(MOST_ASKING)]
        assert all(waiting.acquire(timeout=60) for _ in forged)
        assert agent.lead().error_code == ErrorCode.NONE
        assert agent.lead(controller_epoch=LAST).error_code == ErrorCode.NETWORK_EXCEPTION
        go_on.set()
        assert {each.result(60).error_code for each in forged} == {ErrorCode.STALE_CONTROLLER_EPOCH}
    assert agent.lead(controller_epoch=LAST).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
