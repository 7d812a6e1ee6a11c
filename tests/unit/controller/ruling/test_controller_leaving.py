"""Brokers that leave in order, and those that do not leave after all."""

from __future__ import annotations

import pytest

from regency.controller.elections.controlled_shutdown import ControlledShutdown, shutdown_patience_ms
from regency.controller.state.states import ReplicaState
from regency.model.ids import NO_BROKER_EPOCH, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)
PATIENCE_MS = shutdown_patience_ms(BrokerSettings(broker_id=1))


def leave(world, broker, *, epoch=None):
    known = world.candidates[0].term.context.brokers.get(broker)
    if epoch is None:
        epoch = NO_BROKER_EPOCH if known is None else known.epoch
    return world.candidates[0].ask(ControlledShutdown(broker, epoch))


def wait(world, ms) -> None:
    world.clock.advance(ms)
    world.settle()


def test_controlled_shutdown(world):
    """ControllerIntegrationTest.testControlledShutdown."""
    world.start_brokers(10, 11, 12)
    world.candidate(10)
    world.write_topic("t", {0: [10, 11, 12]})

    assert leave(world, 12).remaining == ()
    assert world.state("t")[:2] == (10, (10, 11))
    assert leave(world, 11).remaining == ()
    assert world.state("t")[:2] == (10, (10,))
    assert leave(world, 10).remaining == (T0,)
    assert world.state("t")[:2] == (10, (10,))


def test_partition_with_a_single_replica_goes_with_its_broker(ruled):
    ruled.write_topic("t", {0: [2]})

    assert leave(ruled, 2).remaining == ()
    assert ruled.state("t")[:2] == (2, (2,)), "it leads until it is gone"
    ruled.kill_broker(2)
    assert ruled.state("t")[:2] == (-1, (2,))
    ruled.start_broker(2)
    assert ruled.state("t")[:2] == (2, (2,))


@pytest.mark.parametrize("order", [(2, 3), (3, 2)])
def test_whole_isr_leaves_and_the_last_one_keeps_leading(ruled, order):
    """Whoever asks last has nobody to hand over to, and is told so; nothing it has is lost."""
    ruled.write_topic("t", {0: [2, 3]})
    first, last = order

    assert leave(ruled, first).remaining == ()
    assert leave(ruled, last).remaining == (T0,)
    assert ruled.state("t")[:2] == (last, (last,))
    ruled.kill_broker(first)
    ruled.kill_broker(last)
    assert ruled.state("t")[:2] == (-1, (last,))
    ruled.start_broker(first)
    assert ruled.state("t")[:2] == (-1, (last,))
    ruled.start_broker(last)
    assert ruled.state("t")[:2] == (last, (last,))


def test_controller_rejects_controlled_shutdown_request_with_stale_broker_epoch(ruled):
    """ControllerIntegrationTest.testControllerRejectControlledShutdownRequestWithStaleBrokerEpoch."""
    epoch = ruled.candidates[0].term.context.brokers[2].epoch

    assert leave(ruled, 2, epoch=epoch - 1).error is ErrorCode.STALE_BROKER_EPOCH
    assert not ruled.candidates[0].term.context.shutting_down


def test_unknown_broker_is_answered(ruled):
    """In Kafka it raised, and whoever asked was never told why."""
    assert leave(ruled, 77).error is ErrorCode.BROKER_NOT_AVAILABLE


# One that stays


def aborted(ruled):
    """Broker 2 has asked to leave, handed everything over, and is still there."""
    ruled.write_topic("t", {0: [2, 3]})
    leave(ruled, 2)
    assert ruled.state("t")[:2] == (3, (3,))
    return ruled.candidates[0].term.context


def test_broker_that_is_still_there_after_the_longest_leave_takes_part_again(ruled):
    """In Kafka it was left out of leadership until it restarted, or another controller came."""
    context = aborted(ruled)
    wait(ruled, PATIENCE_MS - 1)
    assert context.shutting_down == {2}

    wait(ruled, 1)

    assert context.shutting_down == set()
    assert context.replica_state(T0, 2) is ReplicaState.ONLINE
    assert ruled.agents[2].states[T0][0] == 3, "it follows again"
    ruled.write_state("t", 0, 3, (3, 2), epoch=ruled.state("t")[2])
    ruled.notify_isr_change(T0)
    assert ruled.state("t")[1] == (3, 2), "and may be in sync"
    ruled.kill_broker(3)
    assert ruled.state("t")[0] == 2, "and lead"


def test_every_request_to_leave_begins_the_time_anew(ruled):
    context = aborted(ruled)
    wait(ruled, PATIENCE_MS - 1)
    leave(ruled, 2)
    wait(ruled, PATIENCE_MS - 1)
    assert context.shutting_down == {2}

    wait(ruled, 1)

    assert context.shutting_down == set()


def test_metadata_tells_leaders_that_it_stays(ruled):
    context = aborted(ruled)
    log = ruled.candidates[0].channels.metadata
    before = log.last

    wait(ruled, PATIENCE_MS)

    assert not context.shutting_down
    assert log.last > before


def test_broker_that_registers_again_takes_part_at_once(ruled):
    context = aborted(ruled)
    ruled.kill_broker(2)
    ruled.start_broker(2)

    assert context.shutting_down == set()
    assert context.shutdown_ends_ms == {}
    wait(ruled, PATIENCE_MS)
    assert context.replica_state(T0, 2) is ReplicaState.ONLINE


def test_other_controller_takes_it_for_staying_until_it_asks_again(ruled):
    aborted(ruled)
    ruled.candidates[0].session.expire()
    ruled.settle()

    assert not ruled.candidates[0].term.context.shutting_down


def test_replica_on_a_failed_directory_does_not_come_back_with_its_broker(ruled):
    ruled.write_topic("f", {0: [3, 2], 1: [3, 2]})
    context = aborted(ruled)
    lost, kept = TopicPartition("f", 0), TopicPartition("f", 1)
    context.mark_offline(2, [lost])

    wait(ruled, PATIENCE_MS)

    assert context.replica_state(lost, 2) is ReplicaState.OFFLINE
    assert context.replica_state(kept, 2) is ReplicaState.ONLINE


def test_broker_that_left_is_not_taken_back_by_the_timer(ruled):
    aborted(ruled)
    ruled.kill_broker(2)

    wait(ruled, PATIENCE_MS)

    assert paths.broker(2) not in ruled.ensemble.nodes
    assert ruled.state("t")[:2] == (3, (3,))
