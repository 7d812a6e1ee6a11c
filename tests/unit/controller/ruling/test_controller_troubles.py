"""What agents answer, and what the controller makes of it."""

from __future__ import annotations

import pytest

from regency.controller.channel.sender import Trouble
from regency.controller.events import AgentTroubled
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import SetData

T0 = TopicPartition("t", 0)


def refused(code: ErrorCode) -> pb.ControlResponse:
    return pb.ControlResponse(topics=[pb.PartitionErrors(topic="t", partition=[0], error_code=[code])])


def answer_next(world, broker: int, *answers: pb.ControlResponse) -> None:
    world.agents[broker].answers.extend(answers)


def test_failed_directory_moves_the_leader_and_shrinks_the_isr(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    answer_next(ruled, 3, refused(ErrorCode.KAFKA_STORAGE_ERROR))
    ruled.candidates[0].term.batch.host((3,), T0)

    ruled.candidates[0].term.hand_over()
    ruled.settle()

    assert ruled.state("t") == (2, (2,), 1, 1)
    assert ruled.candidates[0].term.context.offline(T0) == (3,)
    assert sorted(ruled.candidates[0].controller.view.brokers) == [1, 2, 3]


def test_restart_repairs_a_failed_directory(ruled):
    test_failed_directory_moves_the_leader_and_shrinks_the_isr(ruled)
    ruled.kill_broker(3)

    ruled.start_broker(3)

    assert ruled.candidates[0].term.context.offline(T0) == ()
    assert ruled.agents[3].states[T0] == (2, 1, (2,))


def test_fenced_leader_epoch_makes_it_read_the_state_again(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    ruled.write_state("t", 0, 3, [3], epoch=0)
    answer_next(ruled, 2, refused(ErrorCode.FENCED_LEADER_EPOCH))
    ruled.candidates[0].term.batch.host((2,), T0)

    ruled.candidates[0].term.hand_over()
    ruled.settle()

    assert ruled.agents[2].states[T0] == (3, 0, (3,))
    assert ruled.candidates[0].term.channels.unacknowledged == 0


def test_fenced_partition_without_news_is_retried_later_only(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    answer_next(ruled, 2, refused(ErrorCode.FENCED_LEADER_EPOCH))
    ruled.candidates[0].term.batch.host((2,), T0)
    ruled.candidates[0].term.hand_over()
    ruled.settle()
    assert ruled.candidates[0].term.channels.unacknowledged == 1

    ruled.clock.advance(100)
    ruled.settle()

    assert ruled.candidates[0].term.channels.unacknowledged == 0


def test_unknown_partition_makes_it_read_the_topic_again(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    watches, ruled.candidates[0].session._watches = ruled.candidates[0].session._watches, {}
    ruled.write_topic("t", {0: [3, 2], 1: [2]})
    ruled.candidates[0].session._watches = watches
    answer_next(ruled, 2, refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    ruled.candidates[0].term.batch.host((2,), T0)

    ruled.candidates[0].term.hand_over()
    ruled.settle()

    assert ruled.state("t", 1) == (2, (2,), 0, 1)


def test_stale_broker_epoch_makes_it_read_the_brokers_again(ruled):
    candidate = ruled.candidates[0]
    watches, candidate.session._watches = candidate.session._watches, {}
    ruled.kill_broker(3)
    candidate.session._watches = watches
    epoch = candidate.term.context.brokers[3].epoch

    candidate.queue.put(AgentTroubled(Trouble(3, epoch, stale_broker=True), 1))
    ruled.settle()

    assert sorted(candidate.controller.view.brokers) == [1, 2]


@pytest.mark.parametrize("moved", [True, False])
def test_stale_controller_epoch_ends_the_term_only_if_zookeeper_agrees(ruled, moved):
    candidate = ruled.candidates[0]
    epoch = candidate.term.context.brokers[3].epoch
    candidate.session._watches.clear()
    if moved:
        node = ruled.ensemble.nodes[paths.CONTROLLER_EPOCH]
        ruled.ensemble.multi(0, [SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(2), node.version)])

    candidate.queue.put(AgentTroubled(Trouble(3, epoch, stale_controller=True), 1))
    ruled.settle()

    assert candidate.rules != moved


@pytest.mark.parametrize(("broker_epoch_off", "controller_epoch"), [(-1, 1), (0, 7)])
def test_word_of_an_incarnation_or_epoch_that_is_over_is_dropped(ruled, broker_epoch_off, controller_epoch):
    ruled.write_topic("t", {0: [3, 2]})
    candidate = ruled.candidates[0]
    epoch = candidate.term.context.brokers[3].epoch + broker_epoch_off

    candidate.queue.put(AgentTroubled(Trouble(3, epoch, failed_storage=(T0,)), controller_epoch))
    ruled.settle()

    assert ruled.state("t") == (3, (3, 2), 0, 1)


def test_broker_without_a_usable_snapshot_gets_one(ruled):
    answer_next(ruled, 3, pb.ControlResponse(error_code=ErrorCode.INVALID_REQUEST))
    metadata = ruled.candidates[0].term.channels.metadata
    ruled.candidates[0].term.batch.brokers_changed()
    metadata.append([b""] * 3)
    metadata._snapshot = None
    ruled.candidates[0].term.hand_over()
    ruled.settle()

    ruled.clock.advance(100)
    ruled.settle()

    assert ruled.agents[3].of(pb.UpdateMetadataRequest)[-1].snapshot


def test_leader_epochs_that_zookeeper_lost_are_overtaken(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    answer = refused(ErrorCode.FENCED_LEADER_EPOCH)
    answer.topics[0].leader_epoch.append(8)
    answer_next(ruled, 2, answer)
    ruled.candidates[0].term.batch.host((2,), T0)

    ruled.candidates[0].term.hand_over()
    ruled.settle()

    assert ruled.state("t") == (3, (3, 2), 9, 1)
    assert ruled.agents[3].states[T0] == ruled.agents[2].states[T0] == (3, 9, (3, 2))
    assert ruled.candidates[0].term.channels.unacknowledged == 0


@pytest.mark.parametrize("held", [-1, 0, 1_000_001, 2**31 - 1_001, 2**31 - 1])
def test_a_leader_epoch_that_is_not_ahead_or_beyond_all_sense_changes_nothing(ruled, held, caplog):
    ruled.write_topic("t", {0: [3, 2]})
    answer = refused(ErrorCode.FENCED_LEADER_EPOCH)
    answer.topics[0].leader_epoch.append(held)
    answer_next(ruled, 2, answer)
    ruled.candidates[0].term.batch.host((2,), T0)

    ruled.candidates[0].term.hand_over()
    ruled.settle()

    assert ruled.state("t") == (3, (3, 2), 0, 1)
    told = f"broker 2 holds leader epoch {held} of t-0, too far beyond its state znode to be believed"
    assert (told in caplog.text) == (held > 0)
