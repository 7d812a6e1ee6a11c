"""Elections somebody asks for: by request and in ZooKeeper (reference 10.1, 10.13), and the automatic balance."""

from __future__ import annotations

import pytest

from regency.controller.events import NotController
from regency.controller.leader_balance import FIRST_CHECK_MS, imbalances, to_give_back
from regency.controller.leader_elections import ElectionOutcome, ElectionType, ElectLeaders
from regency.model import znode_paths as paths
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
INTERVAL_MS = 300_000


def ask(ruled, election, *partitions, of=0):
    event = ElectLeaders(election, partitions or None)
    return ruled.candidates[of].ask(event)


def prefer(ruled, *partitions):
    return ask(ruled, ElectionType.PREFERRED, *partitions)


def write_election(ruled, *partitions) -> None:
    ruled.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election(partitions))
    ruled.settle()


def moved_away(ruled, topic="t", replicas=(2, 3), partitions=1) -> None:
    """A topic that its preferred replica does not lead, and is in sync again."""
    ruled.write_topic(topic, dict.fromkeys(range(partitions), replicas))
    ruled.kill_broker(replicas[0])
    ruled.start_broker(replicas[0])
    rejoin(ruled, topic, replicas, partitions)


def rejoin(ruled, topic, replicas, partitions=1) -> None:
    for number in range(partitions):
        leader, isr, epoch, controller = ruled.state(topic, number)
        whole = (*isr, *(each for each in replicas if each not in isr))
        ruled.write_state(topic, number, leader, whole, epoch=epoch, controller=controller)
        ruled.notify_isr_change(TopicPartition(topic, number))


# By znode


def test_preferred_replica_leader_election(ruled):
    """ControllerIntegrationTest.testPreferredReplicaLeaderElection."""
    ruled.write_topic("t", {0: [2, 3]})
    ruled.kill_broker(2)
    assert ruled.state("t") == (3, (3,), 1, 1)
    ruled.start_broker(2)
    rejoin(ruled, "t", (2, 3))

    write_election(ruled, T0)

    assert ruled.state("t") == (2, (3, 2), 2, 1)
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


def test_back_to_back_preferred_replica_leader_elections(ruled):
    """ControllerIntegrationTest.testBackToBackPreferredReplicaLeaderElections: the second one is not missed."""
    for epoch in (2, 4):
        if epoch == 2:
            moved_away(ruled)
        else:
            ruled.kill_broker(2)
            ruled.start_broker(2)
            rejoin(ruled, "t", (2, 3))
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
    moved_away(ruled)
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


def test_unknown_partitions_are_reported_and_the_others_elected(ruled, caplog):
    moved_away(ruled)

    write_election(ruled, TopicPartition("gone", 0), TopicPartition("t", 7), T0, T0)

    assert ruled.state("t")[0] == 2
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes
    assert "no preferred election for gone-0: The partition does not exist." in caplog.text
    assert "no preferred election for t-7" in caplog.text


def test_request_written_while_one_is_being_done_is_done_too(ruled):
    """The znode is removed as it was read; what somebody wrote in its place stays, and is looked at."""
    moved_away(ruled, "t")
    moved_away(ruled, "u")
    rejoin(ruled, "t", (2, 3))
    ruled.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0]))
    second = znodes.encode_preferred_election([TopicPartition("u", 0)])
    session = ruled.candidates[0].session
    session.before_write = lambda: ruled.ensemble.put(paths.PREFERRED_ELECTION, second)

    ruled.settle()

    assert [ruled.state(topic)[0] for topic in "tu"] == [2, 2]
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


def test_pending_request_never_makes_a_failover_fail(world):
    """Reference 11.3: a partition that is still New made every controller's failover fail, one after the other."""
    world.start_brokers(1, 2)
    world.ensemble.put(paths.topic("new"), znodes.encode_topic(TopicAssignment("new", {0: ReplicaAssignment((8, 9))})))
    world.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([TopicPartition("new", 0)]))

    candidate = world.candidate(1)

    assert candidate.rules
    assert world.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"1"
    assert paths.PREFERRED_ELECTION not in world.ensemble.nodes


def test_request_of_before_the_failover_is_done_by_it(ruled):
    moved_away(ruled)
    ruled.candidates[0].session.expire()
    ruled.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0]))
    ruled.settle()

    assert ruled.state("t")[0] == 2
    assert paths.PREFERRED_ELECTION not in ruled.ensemble.nodes


# By request


def test_elect_preferred_leaders(ruled):
    """PlaintextAdminIntegrationTest.testElectPreferredLeaders, all its steps."""
    moved_away(ruled, "t", partitions=2)
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
    assert ruled.state("t")[0] == 3


def test_partition_that_never_had_a_leader_is_answered(ruled):
    """Reference 11.3: the callback of such a request was never called."""
    ruled.write_topic("new", {0: [8, 9]})
    new = TopicPartition("new", 0)

    for election, error in (
        (ElectionType.PREFERRED, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE),
        (ElectionType.UNCLEAN, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ):
        assert [each.error for each in ask(ruled, election, new)] == [error]
        assert [each.partition for each in ask(ruled, election)] == [new]


def test_topic_being_deleted_is_not_elected_for(ruled):
    moved_away(ruled)
    ruled.candidates[0].term.context.topics_to_delete.add("t")

    for election in ElectionType:
        assert [each.error for each in ask(ruled, election, T0)] == [ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert ask(ruled, election) == ()
    assert ruled.state("t")[0] == 3


def test_new_leader_and_all_assigned_replicas_are_told_in_one_go(ruled):
    moved_away(ruled)
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


# Automatic balance


def balanced(world, **settings) -> None:
    """Brokers 2 and 3, and a controller of broker 2 under these settings."""
    world.start_brokers(2, 3)
    world.candidate(2, **settings)


def pass_time(world, ms) -> None:
    world.clock.advance(ms)
    world.settle()


def test_auto_preferred_replica_leader_election(world):
    """ControllerIntegrationTest.testAutoPreferredReplicaLeaderElection."""
    balanced(world)
    moved_away(world)
    assert world.state("t")[0] == 3

    pass_time(world, FIRST_CHECK_MS)
    assert world.state("t") == (2, (3, 2), 2, 1)

    world.kill_broker(2)
    world.start_broker(2)
    pass_time(world, INTERVAL_MS)
    assert world.state("t")[:2] == (3, (3,)), "the preferred replica is not in sync (KAFKA-9866)"
    rejoin(world, "t", (2, 3))
    pass_time(world, INTERVAL_MS - 1)
    assert world.state("t")[0] == 3
    pass_time(world, 1)
    assert world.state("t") == (2, (3, 2), 4, 1)


def test_nothing_is_given_back_where_the_settings_do_not_want_it(world):
    balanced(world, auto_leader_rebalance=False)
    moved_away(world)
    before = world.state("t")
    pass_time(world, 10 * INTERVAL_MS)

    assert world.state("t") == before


def test_timer_dies_with_the_term(ruled):
    """Otherwise every failover would leave one more behind."""
    candidate = ruled.candidates[0]
    for _ in range(3):
        candidate.session.expire()
        candidate.settle()
    ruled.clock.advance(INTERVAL_MS)
    ruled.settle()
    later = [event for _, event in candidate.queue._later if type(event).__name__ == "LeaderBalanceDue"]

    assert [event.epoch for event in later] == [candidate.term.epoch]


@pytest.mark.parametrize(("elsewhere", "percentage", "given"), [(1, 10, 0), (2, 10, 2), (1, 0, 1), (10, 100, 0)])
def test_share_must_be_above_the_setting(ruled, elsewhere, percentage, given):
    """Reference 8.1: strictly above."""
    ruled.write_topic("t", {number: [2, 3] for number in range(10)})
    for number in range(elsewhere):
        ruled.write_state("t", number, 3, (2, 3), epoch=1)
        ruled.notify_isr_change(TopicPartition("t", number))

    assert len(to_give_back(ruled.candidates[0].term.context, percentage=percentage)) == given


def test_only_what_the_preferred_replica_can_lead_at_once_is_given_back(ruled):
    """Not what is being reassigned or deleted, and not what is out of sync or on a failed directory.

    A reassignment of another partition does not matter (KAFKA-10149).
    """
    ruled.write_topic("t", {number: [2, 3] for number in range(5)})
    ruled.write_topic("deleted", {0: [2, 3]})
    context = ruled.candidates[0].term.context
    for number in range(5):
        ruled.write_state("t", number, 3, (3,) if number == 1 else (2, 3), epoch=1)
        ruled.notify_isr_change(TopicPartition("t", number))
    ruled.write_state("deleted", 0, 3, (2, 3), epoch=1)
    ruled.notify_isr_change(TopicPartition("deleted", 0))
    context.topics_to_delete.add("deleted")
    context.set_assignment(TopicPartition("t", 2), ReplicaAssignment((2, 3, 1), adding=(1,)))
    context.mark_offline(2, [TopicPartition("t", 3)])

    assert to_give_back(context, percentage=10) == [T0, TopicPartition("t", 4)]


def test_preferred_replica_imbalance(ruled):
    """ControllerContextTest.testPreferredReplicaImbalanceMetric, counted when asked: it cannot go negative."""
    ruled.write_topic("t", {0: [1, 2, 3], 1: [1, 2, 3], 2: [1, 2, 3]})
    context = ruled.candidates[0].term.context

    def count() -> int:
        return sum(len(each.led_elsewhere) for each in imbalances(context).values())

    assert count() == 0
    for number, expected in ((1, 1), (2, 2)):
        ruled.write_state("t", number, number + 1, (1, 2, 3), epoch=1)
        ruled.notify_isr_change(TopicPartition("t", number))
        assert count() == expected
    context.topics_to_delete.add("t")
    assert count() == 0
