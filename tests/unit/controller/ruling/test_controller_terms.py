"""Terms of office: their epochs, what a deposed controller leaves undone, and who is answered when one ends."""

from __future__ import annotations

import logging

import pytest

from regency.controller.brokers.leaving import SteerBroker
from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.controller.elections.leader_elections import ElectionType, ElectLeaders
from regency.controller.events import NotController
from regency.controller.reassignment.requests import AlterReassignments, ListReassignments
from regency.controller.term import REPORTED
from regency.controller.topics.config_changes import AlterConfigs
from regency.controller.topics.creation import CreateTopics
from regency.controller.topics.deletion_requests import DeleteTopics, ListDeletions
from regency.controller.topics.partition_creation import CreatePartitions
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete, SetData

T0 = TopicPartition("t", 0)


def test_controller_epoch_persists_when_all_brokers_down(world):
    # ControllerIntegrationTest.testControllerEpochPersistsWhenAllBrokersDown,
    # …testControllerMoveIncrementsControllerEpoch
    world.start_brokers(1)
    world.candidate(1)

    world.candidates.pop().session.close()
    world.kill_broker(1)

    assert paths.CONTROLLER not in world.ensemble.nodes
    assert world.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"1"

    world.start_broker(1)
    assert world.candidate(1).term.epoch == 2
    assert world.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"2"


def another_wins(world) -> None:
    """Broker 99 rules, as if somebody had deleted /controller; nobody here has noticed yet."""
    world.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
    node = world.ensemble.nodes[paths.CONTROLLER_EPOCH]
    create = Create(paths.CONTROLLER, znodes.encode_controller(99, timestamp_ms=0), ephemeral=True)
    world.ensemble.multi(4242, [create, SetData(paths.CONTROLLER_EPOCH, b"2", node.version)])


@pytest.mark.parametrize("what", ["creation", "deletion", "reassignment", "election", "broker"])
def test_controller_move_on(ruled, caplog, what):
    # ControllerIntegrationTest.testControllerMoveOnTopicCreation, …OnTopicDeletion, …OnPartitionReassignment,
    # …OnPreferredReplicaElection: the work waits in the queue when another wins
    caplog.set_level(logging.INFO)
    ruled.moved_away()
    candidate = ruled.candidates[0]
    new = znodes.encode_topic(TopicAssignment("new", {0: ReplicaAssignment((1,))}))
    written = {
        "creation": (paths.topic("new"), new),
        "deletion": (paths.delete_topic("t"), b""),
        "reassignment": (paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (1,))])),
        "election": (paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0])),
    }
    if what == "broker":
        ruled.ensemble.delete(paths.broker(3))
    else:
        ruled.ensemble.put(*written[what])
    another_wins(ruled)
    before = {path: node.data for path, node in ruled.ensemble.nodes.items()}

    candidate.settle()

    assert {path: node.data for path, node in ruled.ensemble.nodes.items()} == before
    assert not candidate.rules
    assert any("no longer" in each.getMessage() for each in caplog.records)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def requests():
    """One of everything that can be asked of a controller and is answered by whoever rules alone."""
    return [
        CreateTopics((), validate_only=False),
        CreatePartitions((), validate_only=False),
        DeleteTopics(()),
        ListDeletions(),
        AlterConfigs((), incremental=True, validate_only=False),
        ElectLeaders(ElectionType.PREFERRED, None),
        ControlledShutdown(2, -1),
        SteerBroker(2, -1),
        AlterReassignments(((T0, (2,)),)),
        ListReassignments(None),
    ]


def test_preemption_with_callbacks(ruled):
    # ControllerIntegrationTest.testPreemptionWithCallbacks: whoever waits is answered, whatever was asked (KAFKA-10193)
    candidate, waiting = ruled.candidates[0], requests()
    for event in waiting:
        candidate.queue.put(event)

    candidate.queue.close()

    assert [type(event.reply.exception(0)) for event in waiting] == [NotController] * len(waiting)


def test_whoever_asks_when_another_has_won_is_answered(ruled):
    candidate, waiting = ruled.candidates[0], requests()
    another_wins(ruled)
    candidate.settle()

    for event in waiting:
        with pytest.raises(NotController):
            candidate.ask(event)


def test_what_was_reported_is_kept_within_bounds(ruled):
    term = ruled.term
    assert all(term.report_once(f"topic {number}") for number in range(3 * REPORTED))
    assert len(term._reported) == REPORTED
    assert not term.report_once(f"topic {2 * REPORTED}")
