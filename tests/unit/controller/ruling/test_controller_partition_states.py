"""PartitionStateMachine, row by row: broker 5, partition t-0, controller epoch 50."""

from __future__ import annotations

import itertools

import pytest

from regency.controller.state.election import ElectionKind
from regency.controller.state.states import PartitionState
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
from regency.model.ids import TopicPartition
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)
P = PartitionState


class Fixture:
    """t-0 in a given state, stored and cached as told."""

    def __init__(self, machines) -> None:
        self.ensemble, self.session, self.term = machines.ensemble, machines.session, machines.term
        self.context, self.machine = machines.term.context, machines.term.partitions
        self.ensemble.put(paths.topic("t"), b"")

    def given(self, state, *, replicas=(5,), live=(5,), stored=None, cached=None, controller=50):
        for broker in live:
            self.context.add_broker(Broker(broker, 1, (Endpoint("CONTROL", "h", 1),)))
        self.context.put_topic(TopicAssignment("t", {0: ReplicaAssignment(replicas)}))
        if stored is not None:
            state_now = LeaderIsrAndControllerEpoch(stored, controller)
            self.ensemble.put(paths.partition_state(T0), znodes.encode_state(state_now))
        if cached is not None or stored is not None:
            known = LeaderIsrAndControllerEpoch(cached or stored, min(controller, 50))
            self.context.set_leadership(T0, known)
        self.context.set_partition_state(T0, state)

    def move(self, target, kind=ElectionKind.OFFLINE, **options):
        return self.machine.handle([T0], target, kind, **options)

    @property
    def state(self):
        return self.context.partition_state(T0)

    @property
    def stored(self):
        node = self.ensemble.nodes.get(paths.partition_state(T0))
        return None if node is None else znodes.decode_state("", node.data, zk_version=node.version)

    @property
    def requests(self):
        """Broker and whether new, of the LeaderAndIsr content gathered for t-0."""
        orders = self.term.batch._orders
        return {broker: T0 in those.new for broker, those in orders.items() if T0 in those.hosts}


@pytest.fixture
def fixture(machines) -> Fixture:
    return Fixture(machines)


@pytest.mark.parametrize(
    ("current", "target"), [pair for pair in itertools.product(P, P) if pair[0] not in pair[1].valid_previous]
)
def test_invalid_transition_leaves_the_state_and_says_what_was_allowed(fixture, current, target):
    fixture.given(current, stored=LeaderAndIsr(5, 0, (5,)))
    before = fixture.stored

    refused = fixture.move(target)

    assert fixture.state is current
    assert fixture.stored == before
    assert current.value in refused[T0] and target.value in refused[T0]
    assert fixture.requests == {}


@pytest.mark.parametrize(
    ("current", "target"),
    [(P.NON_EXISTENT, P.NEW), (P.NEW, P.OFFLINE), (P.ONLINE, P.OFFLINE), (P.OFFLINE, P.NON_EXISTENT)],
)
def test_transition_that_only_marks(fixture, current, target):
    fixture.given(current, cached=LeaderAndIsr(5, 0, (5,)))
    writes = len(fixture.ensemble.writes)

    assert fixture.move(target) == {}

    assert fixture.state is target
    assert len(fixture.ensemble.writes) == writes
    assert fixture.requests == {}


def test_new_to_online_creates_the_state_and_tells_the_isr_it_is_new(fixture):
    fixture.given(P.NEW, replicas=(6, 5), live=(5,))

    assert fixture.move(P.ONLINE) == {}

    assert fixture.state is P.ONLINE
    assert fixture.stored == LeaderIsrAndControllerEpoch(LeaderAndIsr(5, 0, (5,)), 50)
    assert fixture.requests == {5: True}


def test_new_to_online_waits_while_no_replica_is_live(fixture):
    fixture.given(P.NEW, live=())

    assert "no replica of [5] is live" in fixture.move(P.ONLINE)[T0]
    assert fixture.state is P.NEW
    assert fixture.stored is None


def test_new_to_online_adopts_a_state_that_is_there(fixture):
    fixture.given(P.NEW)
    there = LeaderIsrAndControllerEpoch(LeaderAndIsr(5, 7, (5,)), 49)
    fixture.ensemble.put(paths.partition_state(T0), znodes.encode_state(there))

    assert fixture.move(P.ONLINE) == {}

    assert fixture.state is P.ONLINE
    assert fixture.stored == there
    assert fixture.requests == {5: False}


def test_new_to_online_elects_when_the_state_that_is_there_names_a_dead_leader(fixture):
    fixture.given(P.NEW, replicas=(6, 5))
    there = LeaderIsrAndControllerEpoch(LeaderAndIsr(6, 7, (6, 5)), 49)
    fixture.ensemble.put(paths.partition_state(T0), znodes.encode_state(there))

    assert fixture.move(P.ONLINE) == {}

    assert fixture.stored.leader_and_isr == LeaderAndIsr(5, 8, (5,), 1)
    assert fixture.state is P.ONLINE


def test_new_to_online_stays_new_when_the_topic_is_gone(fixture):
    fixture.given(P.NEW)
    fixture.ensemble.delete(paths.topic("t"))

    assert "no_node" in fixture.move(P.ONLINE)[T0]
    assert fixture.state is P.NEW


def test_online_to_online_elects_again_even_the_same_leader(fixture):
    fixture.given(P.ONLINE, stored=LeaderAndIsr(5, 0, (5,)))

    assert fixture.move(P.ONLINE, ElectionKind.PREFERRED) == {}

    assert fixture.stored == LeaderIsrAndControllerEpoch(LeaderAndIsr(5, 1, (5,), 1), 50)
    assert fixture.context.leadership(T0) == fixture.stored
    assert fixture.requests == {5: False}


def test_online_to_online_for_controlled_shutdown_tells_the_leaving_one_too(fixture):
    fixture.given(P.ONLINE, replicas=(5, 6), live=(5, 6), stored=LeaderAndIsr(5, 0, (5, 6)))
    fixture.context.begin_shutdown(5)

    assert fixture.move(P.ONLINE, ElectionKind.CONTROLLED_SHUTDOWN) == {}

    assert fixture.stored.leader_and_isr == LeaderAndIsr(6, 1, (6,), 1)
    assert fixture.requests == {5: False, 6: False}


def test_offline_to_online_elects_a_live_member(fixture):
    fixture.given(P.OFFLINE, stored=LeaderAndIsr(-1, 0, (5,)))

    assert fixture.move(P.ONLINE) == {}

    assert fixture.stored.leader_and_isr == LeaderAndIsr(5, 1, (5,), 1)


def test_offline_to_online_fails_without_a_live_member(fixture):
    fixture.given(P.OFFLINE, replicas=(6, 5), stored=LeaderAndIsr(6, 0, (6,)))

    assert fixture.move(P.ONLINE)[T0] == "no member of the ISR [6] is live"

    assert fixture.state is P.OFFLINE
    assert fixture.stored.leader_and_isr.leader == 6


def test_offline_to_online_unclean_when_forced(fixture):
    fixture.given(P.OFFLINE, replicas=(6, 5), stored=LeaderAndIsr(6, 0, (6,)))

    assert fixture.move(P.ONLINE, unclean=True) == {}

    assert fixture.stored.leader_and_isr == LeaderAndIsr(5, 1, (5,), 1)
    assert fixture.requests == {5: False}


def test_unreadable_topic_settings_allow_no_unclean_election(fixture):
    fixture.given(P.OFFLINE, replicas=(6, 5), stored=LeaderAndIsr(6, 0, (6,)))
    fixture.ensemble.put(paths.topic_config("t"), b"{")

    assert T0 in fixture.move(P.ONLINE)
    assert fixture.state is P.OFFLINE


def test_election_decides_again_on_what_the_leader_wrote_meanwhile(fixture):
    fixture.given(P.OFFLINE, replicas=(4, 5, 6), live=(5, 6), stored=LeaderAndIsr(4, 3, (4, 5, 6)))
    changed = LeaderIsrAndControllerEpoch(LeaderAndIsr(4, 3, (4, 6)), 50)
    fixture.session.before_write = lambda: fixture.ensemble.put(paths.partition_state(T0), znodes.encode_state(changed))

    assert fixture.move(P.ONLINE) == {}

    assert fixture.stored.leader_and_isr == LeaderAndIsr(6, 4, (6,), 2)


def test_election_whose_reply_is_lost_is_written_once(fixture):
    fixture.given(P.OFFLINE, stored=LeaderAndIsr(-1, 0, (5,)))
    fixture.session.lose_replies = 1

    assert fixture.move(P.ONLINE) == {}

    assert fixture.context.leadership(T0).leader_and_isr == LeaderAndIsr(5, 1, (5,), 1)
    assert fixture.stored == fixture.context.leadership(T0)


def test_election_that_was_written_unnoticed_is_not_made_again(fixture):
    fixture.given(P.OFFLINE, stored=LeaderAndIsr(-1, 0, (5,)))
    fixture.session.lose_outcome_of = paths.partition_state(T0)

    assert fixture.move(P.ONLINE) == {}

    assert fixture.stored.leader_and_isr == LeaderAndIsr(5, 1, (5,), 1)
    assert (fixture.state, fixture.requests) == (P.ONLINE, {5: False})


def test_state_found_during_an_election_that_fails_is_told_all_the_same(fixture):
    fixture.given(P.OFFLINE, replicas=(4, 5), live=(5,), stored=LeaderAndIsr(4, 3, (4, 5)))
    changed = LeaderIsrAndControllerEpoch(LeaderAndIsr(4, 3, (4,)), 50)
    fixture.session.before_write = lambda: fixture.ensemble.put(paths.partition_state(T0), znodes.encode_state(changed))

    assert T0 in fixture.move(P.ONLINE)

    assert fixture.stored == fixture.context.leadership(T0)
    assert fixture.requests == {5: False}


def test_partition_that_was_created_unnoticed_is_new_to_its_replicas(fixture):
    fixture.given(P.NEW)
    fixture.session.lose_outcome_of = paths.partition_state(T0)

    assert fixture.move(P.ONLINE) == {}

    assert fixture.stored.leader_and_isr == LeaderAndIsr(5, 0, (5,), 0)
    assert (fixture.state, fixture.requests) == (P.ONLINE, {5: True})


def test_missing_state_znode_fails_the_election(fixture):
    fixture.given(P.OFFLINE, cached=LeaderAndIsr(-1, 0, (5,)))

    assert "no_node" in fixture.move(P.ONLINE)[T0]
    assert fixture.state is P.OFFLINE


def test_state_of_a_newer_controller_means_we_have_moved(fixture):
    fixture.given(P.OFFLINE, stored=LeaderAndIsr(-1, 0, (5,)), cached=LeaderAndIsr(-1, 0, (5,), 9), controller=51)

    with pytest.raises(ControllerMoved, match="controller epoch 51, ours is 50"):
        fixture.move(P.ONLINE)


def test_stale_controller_writes_nothing(fixture):
    fixture.given(P.OFFLINE, stored=LeaderAndIsr(-1, 0, (5,)))
    fixture.ensemble.put(paths.CONTROLLER_EPOCH, b"51")

    with pytest.raises(ControllerMoved):
        fixture.move(P.ONLINE)

    assert fixture.stored.leader_and_isr == LeaderAndIsr(-1, 0, (5,))
    assert fixture.context.leadership(T0).leader_and_isr.leader == -1


def test_offline_partitions_are_counted_until_they_are_elected_for(fixture):
    partitions = [TopicPartition("t", number) for number in range(4)]
    fixture.context.add_broker(Broker(5, 1, (Endpoint("CONTROL", "h", 1),)))
    fixture.context.put_topic(TopicAssignment("t", {number: ReplicaAssignment((5,)) for number in range(4)}))
    for partition in partitions:
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(-1, 0, (5,)), 50)
        fixture.ensemble.put(paths.partition_state(partition), znodes.encode_state(state))
        fixture.context.set_leadership(partition, state)
        fixture.context.set_partition_state(partition, P.NEW)

    fixture.machine.handle(partitions, P.OFFLINE)
    assert fixture.context.offline_partitions() == 4
    assert fixture.machine.trigger_online() == {}

    assert fixture.context.offline_partitions() == 0


def test_partition_that_never_had_a_leader_counts_as_offline(fixture):
    fixture.given(P.NON_EXISTENT)

    fixture.move(P.NEW)

    assert fixture.context.offline_partitions() == 1


def test_partitions_of_a_topic_being_deleted_are_neither_counted_nor_elected_for(fixture):
    fixture.given(P.NEW, cached=LeaderAndIsr(-1, 0, (5,)))
    fixture.context.topics_to_delete.add("t")
    fixture.move(P.OFFLINE)
    assert fixture.context.offline_partitions() == 1
    fixture.context.topics_deletion_started.add("t")

    fixture.machine.trigger_online()

    assert fixture.context.offline_partitions() == 0
    assert fixture.state is P.OFFLINE
