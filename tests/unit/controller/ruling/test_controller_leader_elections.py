"""Elections somebody asks for: by request and in ZooKeeper."""

from __future__ import annotations

import pytest

from regency.controller.elections.leader_elections import ElectionOutcome, ElectionType, ElectLeaders
from regency.controller.events import NotController
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def ask(ruled, election, *partitions, of=0):
    event = ElectLeaders(election, partitions or None)
    return ruled.candidates[of].ask(event)


def prefer(ruled, *partitions):
    return ask(ruled, ElectionType.PREFERRED, *partitions)


def write_election(ruled, *partitions) -> None:
    ruled.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election(partitions))
    ruled.settle()


# By znode


def test_preferred_replica_leader_election(ruled):
    """ControllerIntegrationTest.testPreferredReplicaLeaderElection."""
    ruled.write_topic("t", {0: [2, 3]})
    ruled.kill_broker(2)
    assert ruled.state("t") == (3, (3,), 1, 1)
    ruled.start_broker(2)
    ruled.rejoin("t", (2, 3))

    write_election(ruled, T0)

    assert ruled.state("t") == (2, (3, 2), 2, 1)
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


def test_back_to_back_preferred_replica_leader_elections(ruled):
    """ControllerIntegrationTest.testBackToBackPreferredReplicaLeaderElections: the second one is not missed."""
    for epoch in (2, 4):
        if epoch == 2:
            ruled.moved_away()
        else:
            ruled.kill_broker(2)
            ruled.start_broker(2)
            ruled.rejoin("t", (2, 3))
        write_election(ruled, T0)
        assert ruled.state("t") == (2, (3, 2), epoch, 1)
        assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


def test_preferred_replica_leader_election_with_offline_preferred_replica(ruled):
    """ControllerIntegrationTest.testPreferredReplicaLeaderElectionWithOfflinePreferredReplica."""
    ruled.write_topic("t", {0: [2, 3]})
    ruled.kill_broker(2)

    write_election(ruled, T0)

    assert ruled.state("t") == (3, (3,), 1, 1)
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


def test_controller_move_on_preferred_replica_election(ruled):
    """ControllerIntegrationTest.testControllerMoveOnPreferredReplicaElection: the deposed one changes nothing."""
    ruled.moved_away()
    before = ruled.state("t")
    candidate = ruled.candidates[0]
    ruled.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0]))
    ruled.ensemble.put(paths.CONTROLLER_EPOCH, b"2")
    ruled.ensemble.delete(paths.CONTROLLER)
    ruled.ensemble.put(paths.CONTROLLER, znodes.encode_controller(99, timestamp_ms=0))

    ruled.settle()

    assert ruled.state("t") == before
    assert not candidate.rules
    assert paths.PREFERRED_ELECTION in ruled.ensemble.nodes


@pytest.mark.parametrize(
    "content", [b"", b"{", b'{"version":1}', b'{"version":1,"partitions":[{"topic":"t"}]}', b"\xff"]
)
def test_malformed_request_is_reported_and_removed(ruled, caplog, content):
    ruled.ensemble.put(paths.PREFERRED_ELECTION, content)
    ruled.settle()

    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes
    assert caplog.text.count(paths.PREFERRED_ELECTION) == 1


def test_a_request_that_names_nothing_is_reported_and_removed(ruled, caplog):
    ruled.ensemble.put(paths.PREFERRED_ELECTION, b'{"version":1,"partitions":[]}')
    ruled.settle()

    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes
    told = f"{paths.PREFERRED_ELECTION} names no partitions: nothing is elected, and it is removed"
    assert [each.getMessage() for each in caplog.records].count(told) == 1


def test_unknown_partitions_are_reported_and_the_others_elected(ruled, caplog):
    ruled.moved_away()

    write_election(ruled, TopicPartition("gone", 0), TopicPartition("t", 7), T0, T0)

    assert ruled.state("t")[0] == 2
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes
    assert "no preferred election for gone-0: The partition does not exist." in caplog.text
    assert "no preferred election for t-7" in caplog.text


def test_request_written_while_one_is_being_done_is_done_too(ruled):
    """The znode is removed as it was read; what somebody wrote in its place stays, and is looked at."""
    ruled.moved_away("t")
    ruled.moved_away("u")
    ruled.rejoin("t", (2, 3))
    ruled.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0]))
    second = znodes.encode_preferred_election([TopicPartition("u", 0)])
    session = ruled.candidates[0].session
    session.before_write = lambda: ruled.ensemble.put(paths.PREFERRED_ELECTION, second)

    ruled.settle()

    assert [ruled.state(topic)[0] for topic in "tu"] == [2, 2]
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


def test_pending_request_never_makes_a_failover_fail(world):
    """In Kafka a partition that is still New made every controller's failover fail, one after the other."""
    world.start_brokers(1, 2)
    world.ensemble.put(paths.topic("new"), znodes.encode_topic(TopicAssignment("new", {0: ReplicaAssignment((8, 9))})))
    world.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([TopicPartition("new", 0)]))

    candidate = world.candidate(1)

    assert candidate.rules
    assert world.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"1"
    assert paths.PREFERRED_ELECTION not in world.ensemble.nodes


def test_request_of_before_the_failover_is_done_by_it(ruled):
    ruled.moved_away()
    ruled.candidates[0].session.expire()
    ruled.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0]))
    ruled.settle()

    assert ruled.state("t")[0] == 2
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


# By request


def test_elect_preferred_leaders(ruled):
    """PlaintextAdminIntegrationTest.testElectPreferredLeaders, all its steps."""
    ruled.moved_away("t", partitions=2)
    ruled.write_topic("led", {0: [3, 2]})
    led, unknown = TopicPartition("led", 0), TopicPartition("unknown", 0)

    (not_needed,) = prefer(ruled, led)
    assert (not_needed.error, not_needed.leader) == (ErrorCode.ELECTION_NOT_NEEDED, 3)
    assert prefer(ruled, T0) == (ElectionOutcome(T0, leader=2),)
    assert [ruled.state("t", number)[0] for number in (0, 1)] == [2, 3]
    assert prefer(ruled) == (ElectionOutcome(T1, leader=2),)
    assert prefer(ruled) == ()
    (gone,) = prefer(ruled, unknown)
    assert (gone.error, gone.message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
    mixed = prefer(ruled, unknown, T0)
    assert [each.error for each in mixed] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.ELECTION_NOT_NEEDED]

    ruled.kill_broker(2)
    for asked in ((T0,), ()):
        unavailable = prefer(ruled, *asked)
        assert {each.error for each in unavailable} == {ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
        assert unavailable[0].partition == T0 and unavailable[0].leader == 3
        assert unavailable[0].message.startswith("Broker 3 leads on: preferred replica 2 is not live")
    assert ruled.state("t")[0] == 3


def test_partition_that_never_had_a_leader_is_answered(ruled):
    """In Kafka the callback of such a request was never called."""
    ruled.write_topic("new", {0: [8, 9]})
    new = TopicPartition("new", 0)

    for election, error in (
        (ElectionType.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionType.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        assert [each.error for each in ask(ruled, election, new)] == [error]
        assert [each.partition for each in ask(ruled, election)] == [new]


def test_topic_being_deleted_is_not_elected_for(ruled):
    ruled.moved_away()
    ruled.candidates[0].term.context.topics_to_delete.add("t")

    for election in ElectionType:
        assert [each.error for each in ask(ruled, election, T0)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert ask(ruled, election) == ()
    assert ruled.state("t")[0] == 3


def test_new_leader_and_all_assigned_replicas_are_told_in_one_go(ruled):
    ruled.moved_away()
    told = {broker: len(agent.of(pb.LeaderAndIsrRequest)) for broker, agent in ruled.agents.items()}

    prefer(ruled, T0)

    assert {broker: agent.states.get(T0) for broker, agent in ruled.agents.items() if broker != 1} == {
        2: (2, 2, (3, 2)),
        3: (2, 2, (3, 2)),
    }
    now = {broker: len(agent.of(pb.LeaderAndIsrRequest)) for broker, agent in ruled.agents.items()}
    assert now == {1: told[1], 2: told[2] + 1, 3: told[3] + 1}


def test_replication_elections_waiting_at_resignation_are_refused(ruled):
    """ControllerIntegrationTest.testPreemptionWithCallbacks: whoever waits is answered NOT_CONTROLLER."""
    candidate = ruled.candidates[0]
    event = ElectLeaders(ElectionType.PREFERRED, (T0,))
    candidate.queue.put(event)
    candidate.session.expire()
    candidate.settle()

    with pytest.raises(NotController):
        event.reply.result(0)


def test_leader_election_and_epoch(world):
    """LeaderElectionTest.testLeaderElectionAndEpoch; the death of the ruling broker costs one epoch, in Kafka two."""
    world.start_brokers(1, 2)
    for broker in (1, 2):
        world.candidate(broker)
    world.write_topic("t", {0: [1, 2]})
    assert world.state("t") == (1, (1, 2), 0, 1)

    world.candidates.pop(0).session.close()
    world.kill_broker(1)
    assert world.state("t") == (2, (2,), 1, 2)

    world.start_broker(1)
    leader, _, epoch, controller = world.state("t")
    world.write_state("t", 0, leader, (2, 1), epoch=epoch, controller=controller)
    world.notify_isr_change(T0)
    world.candidate(1)
    world.candidates.pop(0).session.close()
    world.kill_broker(2)
    assert world.state("t") == (1, (1,), 2, 3)
