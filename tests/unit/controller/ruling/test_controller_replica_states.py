"""ReplicaStateMachine, row by row: broker 5, partition t-0, controller epoch 50."""

from __future__ import annotations

import itertools

import pytest

from regency.controller.state.states import ReplicaState
from regency.model import znodes
from regency.model.errors import ControllerMoved
from regency.model.facts import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from regency.model.ids import PartitionReplica, TopicPartition
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)
REPLICA = PartitionReplica("t", 0, 5)
R = ReplicaState
HOST, STOP, DELETE = "host", "stop", "delete"


class Fixture:
    """Replica 5 of t-0 in a given state."""

    def __init__(self, machines) -> None:
        self.ensemble, self.session, self.term = machines.ensemble, machines.session, machines.term
        self.context, self.machine = machines.term.context, machines.term.replicas
        self.ensemble.put(paths.topic("t"), b"")

    def given(self, state, *, replicas=(5,), live=(5, 6), known=None):
        for broker in live:
            self.context.add_broker(Broker(broker, 1, (Endpoint("CONTROL", "h", 1),)))
        self.context.put_topic(TopicAssignment("t", {0: ReplicaAssignment(replicas)}))
        if known is not None:
            stored = LeaderIsrAndControllerEpoch(known, 50)
            self.ensemble.put(paths.partition_state(T0), znodes.encode_state(stored))
            self.context.set_leadership(T0, stored)
        self.context.set_replica_state(T0, 5, state)

    def move(self, target):
        return self.machine.handle([REPLICA], target)

    @property
    def state(self):
        return self.context.replica_state(T0, 5)

    @property
    def stored(self):
        node = self.ensemble.nodes[paths.partition_state(T0)]
        return znodes.decode_state("", node.data, zk_version=node.version).leader_and_isr

    @property
    def requests(self):
        """What every broker was ordered to do with t-0."""
        ordered = {}
        for broker, orders in self.term.batch._orders.items():
            if T0 in orders.stops:
                ordered[broker] = DELETE if orders.stops[T0] else STOP
            if T0 in orders.hosts:
                ordered[broker] = (HOST, "new") if T0 in orders.new else HOST
        return ordered


@pytest.fixture
def fixture(machines) -> Fixture:
    return Fixture(machines)


@pytest.mark.parametrize(
    ("current", "target"), [pair for pair in itertools.product(R, R) if pair[0] not in pair[1].valid_previous]
)
def test_invalid_transition_leaves_the_state_and_says_what_was_allowed(fixture, current, target):
    fixture.given(current, known=LeaderAndIsr(6, 0, (6, 5)), replicas=(6, 5))

    refused = fixture.move(target)

    assert fixture.state is current
    assert current.value in refused[REPLICA] and target.value in refused[REPLICA]
    assert fixture.requests == {}
    assert fixture.stored == LeaderAndIsr(6, 0, (6, 5))


def test_nonexistent_to_new_only_marks_while_nobody_leads(fixture):
    fixture.given(R.NON_EXISTENT)

    assert fixture.move(R.NEW) == {}

    assert (fixture.state, fixture.requests) == (R.NEW, {})


def test_nonexistent_to_new_follows_the_known_leader(fixture):
    fixture.given(R.NON_EXISTENT, replicas=(6, 5), known=LeaderAndIsr(6, 3, (6,)))

    assert fixture.move(R.NEW) == {}

    assert (fixture.state, fixture.requests) == (R.NEW, {5: (HOST, "new")})


def test_leader_cannot_become_new(fixture):
    fixture.given(R.NON_EXISTENT, known=LeaderAndIsr(5, 3, (5,)))

    assert "it leads" in fixture.move(R.NEW)[REPLICA]
    assert (fixture.state, fixture.requests) == (R.NON_EXISTENT, {})


def test_new_to_online_outside_the_assignment_joins_it_sends_nothing_and_is_an_error(fixture, caplog):
    fixture.given(R.NEW, replicas=(6,), known=LeaderAndIsr(6, 3, (6,)))

    assert fixture.move(R.ONLINE) == {}

    (line,) = [each.getMessage() for each in caplog.records if each.levelname == "ERROR"]
    assert line.startswith("t-0 on broker 5 comes online and is not assigned, only [6] are")

    assert (fixture.state, fixture.requests) == (R.ONLINE, {})
    assert fixture.context.assignment(T0).replicas == (6, 5)


@pytest.mark.parametrize("current", [R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE])
def test_known_replica_that_comes_online_is_told_what_it_hosts(fixture, current):
    fixture.given(current, known=LeaderAndIsr(5, 3, (5,)))

    assert fixture.move(R.ONLINE) == {}

    assert (fixture.state, fixture.requests) == (R.ONLINE, {5: HOST})


def test_replica_without_leadership_comes_online_silently(fixture):
    fixture.given(R.OFFLINE)

    assert fixture.move(R.ONLINE) == {}

    assert (fixture.state, fixture.requests) == (R.ONLINE, {})


@pytest.mark.parametrize("current", [R.NEW, R.ONLINE, R.OFFLINE, R.DELETION_INELIGIBLE])
def test_replica_goes_offline_without_leadership(fixture, current):
    fixture.given(current)

    assert fixture.move(R.OFFLINE) == {}

    assert (fixture.state, fixture.requests) == (R.OFFLINE, {5: STOP})
    assert list(fixture.term.batch._metadata) == [T0]


def test_leader_that_goes_offline_leaves_the_isr_and_the_partition_without_a_leader(fixture):
    fixture.given(R.ONLINE, replicas=(5, 6), known=LeaderAndIsr(5, 0, (5, 6)))

    assert fixture.move(R.OFFLINE) == {}

    assert fixture.state is R.OFFLINE
    assert fixture.stored == LeaderAndIsr(-1, 1, (6,), 1)
    assert fixture.context.leadership(T0).leader_and_isr == fixture.stored
    assert fixture.requests == {5: STOP, 6: HOST}


def test_follower_outside_the_isr_goes_offline_without_a_write(fixture):
    fixture.given(R.ONLINE, replicas=(5, 6), known=LeaderAndIsr(6, 4, (6,)))
    writes = len(fixture.ensemble.writes)

    assert fixture.move(R.OFFLINE) == {}

    assert len(fixture.ensemble.writes) == writes
    assert fixture.requests == {5: STOP}
    assert list(fixture.term.batch._metadata) == [T0]


def test_all_members_that_go_at_once_are_taken_out_in_one_write(fixture):
    fixture.given(R.ONLINE, replicas=(5, 6, 7), live=(5, 6, 7), known=LeaderAndIsr(6, 0, (7, 6, 5)))
    for broker in (6, 7):
        fixture.context.set_replica_state(T0, broker, R.ONLINE)

    fixture.machine.handle([PartitionReplica("t", 0, broker) for broker in (5, 6, 7)], R.OFFLINE)

    assert fixture.stored == LeaderAndIsr(-1, 1, (6,), 1)


def test_isr_of_a_topic_being_deleted_stays_and_the_others_are_not_told(fixture):
    fixture.given(R.ONLINE, replicas=(5, 6), known=LeaderAndIsr(5, 0, (5, 6)))
    fixture.context.topics_deletion_started.add("t")

    fixture.move(R.OFFLINE)

    assert fixture.stored == LeaderAndIsr(5, 0, (5, 6), 0)
    assert fixture.requests == {5: STOP}


def test_missing_state_znode_leaves_the_replica_as_it_is(fixture):
    fixture.given(R.ONLINE, replicas=(5, 6), known=LeaderAndIsr(5, 0, (5, 6)))
    fixture.ensemble.delete(paths.partition_state(T0))

    assert "no_node" in fixture.move(R.OFFLINE)[REPLICA]
    assert fixture.state is R.ONLINE


def test_isr_the_leader_changed_meanwhile_is_kept(fixture):
    fixture.given(R.ONLINE, replicas=(6, 5, 7), known=LeaderAndIsr(6, 0, (6, 5)))
    changed = LeaderIsrAndControllerEpoch(LeaderAndIsr(6, 0, (6, 5, 7)), 50)
    fixture.ensemble.put(paths.partition_state(T0), znodes.encode_state(changed))

    fixture.move(R.OFFLINE)

    assert fixture.stored == LeaderAndIsr(6, 1, (6, 7), 2)


def test_shrink_that_was_written_unnoticed_is_told_to_those_who_stay(fixture):
    fixture.given(R.ONLINE, replicas=(6, 5), known=LeaderAndIsr(6, 0, (6, 5)))
    fixture.session.lose_outcome_of = paths.partition_state(T0)

    assert fixture.move(R.OFFLINE) == {}

    assert fixture.stored == LeaderAndIsr(6, 1, (6,), 1)
    assert fixture.requests == {5: STOP, 6: HOST}


def test_state_that_needs_no_change_any_more_is_told_to_those_who_stay(fixture):
    fixture.given(R.ONLINE, replicas=(6, 5), known=LeaderAndIsr(6, 0, (6, 5)))
    changed = LeaderIsrAndControllerEpoch(LeaderAndIsr(6, 1, (6,)), 50)
    fixture.ensemble.put(paths.partition_state(T0), znodes.encode_state(changed))

    assert fixture.move(R.OFFLINE) == {}

    assert fixture.context.leadership(T0).leader_and_isr == fixture.stored
    assert fixture.requests == {5: STOP, 6: HOST}


def test_stale_controller_takes_nobody_out_of_an_isr(fixture):
    fixture.given(R.ONLINE, replicas=(5, 6), known=LeaderAndIsr(5, 0, (5, 6)))
    fixture.ensemble.put(paths.CONTROLLER_EPOCH, b"51")

    with pytest.raises(ControllerMoved):
        fixture.move(R.OFFLINE)

    assert fixture.stored == LeaderAndIsr(5, 0, (5, 6))


def test_offline_to_deletion_started_asks_for_deletion(fixture):
    fixture.given(R.OFFLINE)

    fixture.move(R.DELETION_STARTED)

    assert (fixture.state, fixture.requests) == (R.DELETION_STARTED, {5: DELETE})


@pytest.mark.parametrize(
    ("current", "target"),
    [
        (R.OFFLINE, R.DELETION_INELIGIBLE),
        (R.DELETION_STARTED, R.DELETION_INELIGIBLE),
        (R.DELETION_STARTED, R.DELETION_SUCCESSFUL),
    ],
)
def test_deletion_step_that_only_marks(fixture, current, target):
    fixture.given(current)

    fixture.move(target)

    assert (fixture.state, fixture.requests) == (target, {})


def test_deleted_replica_leaves_assignment_and_context(fixture):
    fixture.given(R.DELETION_SUCCESSFUL)

    fixture.move(R.NON_EXISTENT)

    assert fixture.state is R.NON_EXISTENT
    assert fixture.context.assignment(T0).replicas == ()


def test_startup_tells_live_replicas_and_returns_the_others(fixture):
    fixture.given(R.NON_EXISTENT, replicas=(5, 100), known=LeaderAndIsr(5, 0, (5,)))

    assert fixture.machine.startup() == [PartitionReplica("t", 0, 100)]

    assert fixture.state is R.ONLINE
    assert fixture.context.replica_state(T0, 100) is R.DELETION_INELIGIBLE
    for broker in (5, 6):
        fixture.term.channels.add(fixture.context.brokers[broker])
    fixture.term.hand_over()
    assert fixture.term.channels.senders[5].desired.owed() == {T0}
    assert fixture.term.channels.senders[6].desired.owed() == set()
