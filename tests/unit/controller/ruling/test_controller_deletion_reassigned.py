"""Topics that are deleted while their partitions move, and moves of topics that are to be deleted."""

from __future__ import annotations

import pytest

from regency.controller.machines.topic_deletion import REASSIGNED_FIRST
from regency.controller.reassignment.requests import AlterReassignments, ListReassignments
from regency.controller.topics.deletion_requests import ListDeletions
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)


@pytest.fixture
def moving(world):
    """Topic t on brokers 1 and 2, of which a partition moves to 1 and 3; broker 3 is not in sync yet."""
    world.start_brokers(1, 2, 3)
    world.candidate(1)
    world.write_topic("t", {0: [1, 2], 1: [2, 1]})
    ask(world, (1, 3))
    return world


def ask(world, replicas):
    ruling = next(each for each in world.candidates if each.rules)
    (outcome,) = ruling.ask(AlterReassignments(((T0, replicas),)))
    return outcome


def sync(world, *isr):
    """The leader takes these into the ISR, and says so."""
    leader, _, epoch, controller = world.state("t")
    world.write_state("t", 0, leader, isr, epoch=epoch, controller=controller)
    world.notify_isr_change(T0)


def test_deletion_begins_when_the_reassignment_is_over(moving):
    moving.mark("t")
    assert [each.waits_for for each in moving.candidates[0].ask(ListDeletions())] == [REASSIGNED_FIRST]
    assert moving.agents[1].deletes() == []

    sync(moving, 1, 2, 3)

    assert moving.is_gone()
    assert T0 in moving.agents[3].deletes()


def test_a_cancelled_reassignment_is_over(moving):
    moving.mark("t")

    ask(moving, None)

    assert moving.is_gone()


def test_a_new_controller_ends_the_reassignment_first(moving):
    moving.mark("t")
    moving.candidate(2)
    moving.candidates.pop(0).session.close()
    moving.settle()
    assert moving.term.context.topics_ineligible == {"t": REASSIGNED_FIRST}

    sync(moving, 1, 2, 3)

    assert moving.is_gone()


def test_a_target_that_returns_catches_up_although_the_topic_is_to_be_deleted(moving):
    moving.mark("t")
    moving.kill_broker(3)

    moving.start_broker(3)

    assert moving.agents[3].topics() == {"t"}
    sync(moving, 1, 2, 3)
    assert moving.is_gone()


def test_partition_reassignment_during_delete_topic(moving):
    # DeleteTopicTest.testPartitionReassignmentDuringDeleteTopic
    sync(moving, 1, 2, 3)
    moving.kill_broker(2)
    moving.mark("t")

    by_request = ask(moving, (2, 3))
    moving.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (2, 3))]))
    moving.settle()

    assert by_request.error
    assert moving.candidates[0].ask(ListReassignments(None)) == ()
    assert paths.REASSIGN_PARTITIONS not in moving.ensemble.nodes
    moving.start_broker(2)
    assert moving.is_gone()


@pytest.mark.parametrize("failover", [False, True])
def test_former_replicas_are_deleted_with_the_topic(moving, failover):
    moving.kill_broker(2)
    sync(moving, 1, 3)
    assert not moving.term.context.reassigning

    moving.mark("t")
    if failover:
        moving.candidate(3)
        moving.candidates.pop(0).session.close()
        moving.settle()

    assert not moving.is_gone()
    why = "broker 2 holds replicas and is not live (gone for good? `regency brokers forget 2`)"
    assert moving.term.context.topics_ineligible == {"t": why}
    moving.start_broker(2)
    assert moving.is_gone()
    assert T0 in moving.agents[2].deletes()
    assert moving.agents[2].topics() == set()
