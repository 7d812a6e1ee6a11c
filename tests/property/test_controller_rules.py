"""Whatever cluster is drawn, elections, ISR removals, placement and slots keep their promises."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regency.controller.channel.messages import LeaderAndIsrRow, Row, StopReplicaRow
from regency.controller.channel.slots import DesiredState
from regency.controller.state.election import (
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_reassigned,
    elect_unclean,
    remove_from_isr,
)
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import NO_LEADER, ZERO_TOPIC_ID, TopicPartition
from regency.planning.placement import place_replicas

brokers = st.integers(0, 6)
assignments = st.lists(brokers, min_size=1, max_size=5, unique=True)
subsets = st.frozensets(brokers)


@st.composite
def partitions(draw):
    """An assignment and an ISR within it, not empty."""
    assignment = draw(assignments)
    isr = draw(st.permutations(assignment))[: draw(st.integers(1, len(assignment)))]
    return tuple(assignment), tuple(isr)


# Elections


@given(partitions(), subsets, st.booleans())
def test_offline_leader_is_live_assigned_and_in_the_new_isr(partition, live, unclean):
    assignment, isr = partition
    elected = elect_offline(assignment, isr, live)
    if unclean and elected.leader is None:
        elected = elect_unclean(assignment, isr, live, {})

    assert elected.why
    if elected.leader is None:
        assert elected.isr == isr
        assert live.isdisjoint(isr)
        assert not unclean or live.isdisjoint(assignment)
        return
    assert elected.leader in live
    assert elected.leader in assignment
    assert elected.leader in elected.isr
    assert set(elected.isr) <= set(assignment) & live
    assert elected.unclean == live.isdisjoint(isr)
    if not elected.unclean:
        assert elected.isr == tuple(replica for replica in isr if replica in live)
        earlier = assignment[: assignment.index(elected.leader)]
        assert not any(replica in live and replica in isr for replica in earlier)


@given(partitions(), subsets)
def test_clean_elections_never_leave_the_isr(partition, live):
    assignment, isr = partition
    for elected in (
        elect_offline(assignment, isr, live),
        elect_reassigned(assignment, isr, live),
        elect_preferred(assignment, isr, live),
    ):
        assert elected.leader is None or elected.leader in isr
        assert not elected.unclean


@given(partitions(), subsets, subsets)
def test_controlled_shutdown_elects_one_that_stays(partition, live, leaving):
    assignment, isr = partition
    elected = elect_for_shutdown(assignment, isr, live, leaving)

    if elected.leader is None:
        assert elected.isr == isr
        assert not set(isr) & live - leaving
    else:
        assert elected.leader in live - leaving
        assert elected.isr == tuple(replica for replica in isr if replica not in leaving)


@given(partitions(), subsets, st.booleans())
def test_isr_never_becomes_empty_and_a_leader_is_always_in_it(partition, offline, has_leader):
    assignment, isr = partition
    leader = isr[-1] if has_leader else NO_LEADER
    removal = remove_from_isr(assignment, leader, isr, offline)

    if removal is None:
        assert leader not in offline
        assert offline.isdisjoint(isr) or len(isr) == 1
        return
    assert removal.isr
    assert set(removal.isr) <= set(isr)
    assert removal.leader == NO_LEADER or removal.leader in removal.isr
    assert removal.leader not in offline
    if set(isr) <= offline:
        assert removal.isr == (leader,) if has_leader else len(removal.isr) == 1
    else:
        assert removal.isr == tuple(replica for replica in isr if replica not in offline)
    assert remove_from_isr(assignment, removal.leader, removal.isr, offline) is None


# Placement


@given(
    st.dictionaries(brokers, st.sampled_from("abc"), min_size=1),
    st.integers(1, 30),
    st.integers(0, 20),
    st.integers(0, 20),
    st.data(),
)
def test_placement_uses_distinct_live_brokers_on_as_many_racks_as_possible(racks, partitions_, start, shift, data):
    factor = data.draw(st.integers(1, len(racks)))
    placed = place_replicas(racks, partitions_, factor, start=start, shift=shift)

    assert sorted(placed) == list(range(partitions_))
    for replicas in placed.values():
        assert len(replicas) == len(set(replicas)) == factor
        assert set(replicas) <= racks.keys()
        assert len({racks[replica] for replica in replicas}) == min(factor, len(set(racks.values())))
    assert placed == place_replicas(racks, partitions_, factor, start=start, shift=shift)


# Slots


def host(epoch: int) -> LeaderAndIsrRow:
    state = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, epoch, (1,)), 1)
    return LeaderAndIsrRow(ZERO_TOPIC_ID, state, ReplicaAssignment((1,)))


wanted_values = st.one_of(
    st.builds(host, st.integers(0, 50)),
    st.builds(StopReplicaRow, st.just(ZERO_TOPIC_ID), st.integers(0, 50), st.booleans()),
)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.integers(0, 2), wanted_values),
        st.tuples(st.just("exchange"), st.booleans(), st.sets(st.integers(0, 2))),
    ),
    max_size=40,
)


@given(steps)
def test_every_broker_ends_with_what_was_wanted_last(script):
    """Whatever fails in between: the last state wanted is acknowledged last, and no deletion is skipped."""
    desired, now = DesiredState(), 0
    acknowledged: dict[TopicPartition, list[object]] = {}
    wanted: dict[TopicPartition, list[object]] = {}

    def exchange(failing: set[int]) -> bool:
        desired.release_due(now)
        topics = desired.take_hosts(1 << 20) if desired.has_hosts else []
        taken: dict[TopicPartition, Row] = dict(each for topic in topics for each in topic.each())
        if not taken and desired.has_stops:
            taken = dict(desired.take_stops(1 << 20))
        failed = [partition for partition in taken if partition.partition in failing]
        for partition in failed:
            del taken[partition]
        desired.settle(failed, (), now)
        for partition, value in taken.items():
            acknowledged.setdefault(partition, []).append(value)
        return bool(taken or failed)

    for step in script:
        if step[0] == "want":
            partition = TopicPartition("t", step[1])
            desired.want(partition, step[2])
            wanted.setdefault(partition, []).append(step[2])
        else:
            exchange(step[2])
    while True:
        now += 10_000
        if not exchange(set()):
            break

    assert desired.unacknowledged == 0
    for partition, values in wanted.items():
        last, told = values[-1], acknowledged[partition]
        if isinstance(last, LeaderAndIsrRow):
            assert told[-1] == last
        else:
            assert isinstance(told[-1], StopReplicaRow)
            assert told[-1].delete or not last.delete
        deletions = [value for value in values if isinstance(value, StopReplicaRow) and value.delete]
        if deletions:
            assert any(isinstance(value, StopReplicaRow) and value.delete for value in told)
