"""Smaller parts: what a context keeps, how brokers are compared, patience, decisions, settings."""

from __future__ import annotations

import logging
import threading

import pytest

from regency.controller.brokers.membership import compare_brokers, find_bounced
from regency.controller.events import BrokersChanged
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog, Outcome
from regency.controller.state.invariants import violations
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.store.access import Retry
from regency.history.files import HistoryWriter, read_history
from regency.model.clock import ManualClock
from regency.model.facts import (
    Broker,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicAssignment,
)
from regency.model.ids import ZERO_TOPIC_ID, PartitionReplica, TopicPartition
from regency.runtime.zookeeper.session import ZkConnectionLost, ZkSessionLost

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def broker(number: int, epoch: int = 1, port: int = 1) -> Broker:
    return Broker(number, epoch, (Endpoint("CONTROL", "h", port),))


def state(leader: int, *isr: int, epoch: int = 0) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, epoch, isr), 1)


# Context


@pytest.fixture
def context() -> ControllerContext:
    context = ControllerContext()
    for number in (1, 2, 3):
        context.add_broker(broker(number))
    context.put_topic(TopicAssignment("t", {0: ReplicaAssignment((1, 2)), 2: ReplicaAssignment((2, 3))}))
    return context


def test_topic_with_gaps_knows_its_partitions(context):
    assert list(context.partitions()) == [T0, TopicPartition("t", 2)]
    assert context.partition_count == 2
    assert context.assignment(T1).replicas == ()
    assert context.partitions_on([3]) == [TopicPartition("t", 2)]


def test_known_assignments_are_not_replaced_by_a_topic_znode(context):
    added = context.put_topic(TopicAssignment("t", {0: ReplicaAssignment((3,)), 1: ReplicaAssignment((1,))}))

    assert added == [T1]
    assert context.assignment(T0).replicas == (1, 2)


def test_unknown_things_are_empty(context):
    unknown = TopicPartition("gone", 7)
    assert context.assignment(unknown).replicas == ()
    assert context.leadership(unknown) is None
    assert context.partition_state(unknown) is PartitionState.NON_EXISTENT
    assert context.replica_state(unknown, 1) is ReplicaState.NON_EXISTENT
    assert context.topic_id("gone") == ZERO_TOPIC_ID
    context.remove_topic("gone")


def test_replica_is_online_only_where_broker_and_directory_work(context):
    context.begin_shutdown(2)
    context.mark_offline(1, [T0])

    assert not context.is_online(1, T0)
    assert context.is_online(1, T1)
    assert not context.is_online(2, T0)
    assert list(context.online(T0)) == [3]
    assert context.offline(T0) == (1, 2)
    context.clear_offline(1)
    assert context.offline(T0) == (2,)


def test_partitions_of_the_same_brokers_begin_each_by_itself(context):
    """A broker that bounced is offline for some of its partitions; the others say nothing about those."""
    pair = ReplicaAssignment((1, 2))
    context.put_topic(TopicAssignment("u", {0: pair, 1: pair, 2: pair}))
    context.mark_offline(2, [TopicPartition("u", 1)])

    assert context.begin_replicas("u") == [PartitionReplica("u", 1, 2)]

    states = [context.replica_state(TopicPartition("u", number), 2) for number in range(3)]
    assert states == [ReplicaState.ONLINE, ReplicaState.DELETION_INELIGIBLE, ReplicaState.ONLINE]
    context.clear_offline(2)
    assert context.begin_replicas("u") == []


def test_dead_broker_takes_its_shutdown_and_failed_directories_along(context):
    context.begin_shutdown(2)
    context.mark_offline(2, [T0])
    context.remove_broker(2)
    context.add_broker(broker(2, epoch=9))

    assert context.is_online(2, T0)


def test_equal_states_and_assignments_are_kept_once(context):
    context.put_topic(TopicAssignment("u", {0: ReplicaAssignment((1, 2)), 1: ReplicaAssignment((1, 2))}))
    for partition in (TopicPartition("u", 0), TopicPartition("u", 1)):
        for number in (2, 1):
            context.set_replica_state(partition, number, ReplicaState.ONLINE)
    entry = context.topics["u"]

    assert entry.assignments[0] is entry.assignments[1]
    assert entry.replica_states[0] is entry.replica_states[1]
    assert context.shared_isr((1, 2)) is context.shared_isr((1, 2))


def test_removed_topic_leaves_nothing_behind(context):
    context.set_partition_state(T0, PartitionState.OFFLINE)
    context.mark_offline(1, [T0])
    context.topics_to_delete.add("t")

    context.remove_topic("t")

    assert (context.partition_count, context.leaderless, context.offline_replicas) == (0, set(), {1: set()})
    assert not context.is_queued_for_deletion("t")


@pytest.mark.parametrize(
    ("leadership", "partition_state", "problem"),
    [
        (state(1, 1, 2), PartitionState.ONLINE, None),
        (state(-1, 2), PartitionState.OFFLINE, None),
        (None, PartitionState.NEW, None),
        (state(1, 2), PartitionState.ONLINE, "t-0 is led by 1, which is not in the ISR [2]"),
        (state(-1), PartitionState.OFFLINE, "t-0 has no ISR"),
        (state(1, 1, 9), PartitionState.ONLINE, "t-0 has [9] in the ISR, which are not assigned ([1, 2])"),
        (state(-1, 1), PartitionState.ONLINE, "t-0 is online without a leader"),
    ],
)
def test_broken_invariants_are_named(context, leadership, partition_state, problem):
    if leadership is not None:
        context.set_leadership(T0, leadership)
    context.set_partition_state(T0, partition_state)

    assert list(violations(context)) == ([] if problem is None else [problem])


# Brokers


def test_brokers_are_compared_by_id_epoch_and_content():
    known = {1: broker(1), 2: broker(2), 3: broker(3), 4: broker(4)}
    registered = {1: broker(1), 2: broker(2, epoch=9), 3: broker(3, port=2), 5: broker(5)}

    changes = compare_brokers(known, registered)

    assert changes.new == (broker(5),)
    assert changes.bounced == (broker(2, epoch=9),)
    assert changes.dead == (4,)
    assert changes.modified == (broker(3, port=2),)
    assert changes.any and not compare_brokers(known, known).any


def test_broker_bounced_where_it_registered_after_the_last_decision_about_it():
    context = ControllerContext()
    for number, epoch in ((1, 100), (2, 50)):
        context.add_broker(broker(number, epoch))
    context.put_topic(TopicAssignment("t", {number: ReplicaAssignment((1, 2, 3)) for number in range(5)}))
    states = [state(1, 1, 2), state(2, 2, 1), state(2, 2), state(-1, 1), state(1, 1)]
    for number, each in enumerate(states):
        context.set_leadership(TopicPartition("t", number), each)
    mzxids = {TopicPartition("t", number): mzxid for number, mzxid in enumerate([60, 40, 60, 60, 100])}

    bounced = find_bounced(context, mzxids)

    assert {number: [each.partition for each in found] for number, found in bounced.items()} == {1: [0, 1, 3], 2: [1]}


# Patience


def test_call_waits_for_contact_and_is_repeated(machines):
    session = machines.session
    patience = Retry(session)
    session.connected = False
    waiting = threading.Event()
    calls = []

    def read():
        calls.append(1)
        if len(calls) == 1:
            waiting.set()
        return session.read("/")

    thread = threading.Thread(target=lambda: (waiting.wait(5), session.reconnect()))
    thread.start()
    found = patience.until_done(read)
    thread.join(5)

    assert found.path == "/"
    assert len(calls) == 2


def test_call_ends_with_its_session(machines):
    session = machines.session
    patience = Retry(session)

    def lose():
        session.expire()
        raise ZkConnectionLost("gone")

    with pytest.raises(ZkSessionLost):
        patience.until_done(lose)


def test_call_that_loses_every_reply_is_given_up(machines):
    def lose():
        raise ZkConnectionLost("gone")

    with pytest.raises(ZkConnectionLost):
        Retry(machines.session).until_done(lose)


def test_abandoned_call_ends_at_once(machines):
    patience = Retry(machines.session)
    machines.session.connected = False
    patience.abandon()

    with pytest.raises(ZkSessionLost):
        patience.until_done(lambda: machines.session.read("/"))


# Decisions


def test_decisions_are_lines_and_records(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    log = DecisionLog(HistoryWriter(tmp_path, "controller"), 5, 1, ManualClock(wall_ms=77))
    log.begin("broker_change")
    before, after = LeaderAndIsr(1, 4, (1, 2, 3)), LeaderAndIsr(2, 5, (2, 3))
    log.leadership(T0, Outcome.ELECTED, before, after, "first live replica of [1, 2, 3] that is in sync")
    log.leadership(T1, Outcome.SHRUNK, before, LeaderAndIsr(1, 5, (1,)), "[2, 3] went offline")

    log.commit()

    assert [record.getMessage() for record in caplog.records] == [
        "elected 2 for t-0 (was 1): first live replica of [1, 2, 3] that is in sync; isr [2, 3], leader epoch 5",
        "shrank the ISR of t-1: [2, 3] went offline; isr [1], leader epoch 5",
    ]
    first, second = read_history([tmp_path])
    assert (first.controller_epoch, first.number, first.event, first.subject) == (5, 1, "broker_change", "t-0")
    assert first.from_ == "leader 1, isr [1, 2, 3], leader epoch 4"
    assert first.to == "leader 2, isr [2, 3], leader epoch 5"
    assert (first.time_ms, first.source, second.number) == (77, 1, 2)


def test_many_decisions_are_one_line_but_all_recorded(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    log = DecisionLog(HistoryWriter(tmp_path, "controller"), 5, 1, ManualClock())
    log.begin("broker_change")
    for number in range(101):
        partition = TopicPartition("t", number)
        outcome = Outcome.ELECTED if number % 2 else Outcome.LEFT_LEADERLESS
        log.leadership(partition, outcome, LeaderAndIsr(1, 4, (1,)), LeaderAndIsr(2, 5, (2,)), "why")

    log.commit()

    (line,) = [record.getMessage() for record in caplog.records]
    assert line == "broker_change decided for 101 partitions: 50 elected, 51 left without a leader"
    assert len(read_history([tmp_path])) == 101


def test_nothing_decided_is_nothing_said(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    DecisionLog(HistoryWriter(tmp_path, "controller"), 5, 1, ManualClock()).commit()

    assert not caplog.records
    assert not list(tmp_path.iterdir())


def test_candidate_records_its_whole_reign(world, tmp_path):
    world.start_broker(1)
    world.candidate(1, HistoryWriter(tmp_path, "controller"))
    world.write_topic("t", {0: [1]})
    world.candidates[0].session.expire()
    world.settle()

    decisions = read_history([tmp_path])
    told = [(each.controller_epoch, each.number, each.subject, each.to) for each in decisions]

    assert told == [
        (1, 1, "controller", "broker 1, epoch 1"),
        (1, 2, "controller", "took over"),
        (1, 3, "t-0", "leader 1, isr [1], leader epoch 0"),
        (1, 4, "controller", "a candidate"),
        (2, 1, "controller", "broker 1, epoch 2"),
        (2, 2, "controller", "took over"),
    ]
    over = [each for each in decisions if each.phases is not None]
    assert [(each.event, each.from_) for each in over] == [
        ("failover", "broker 1, epoch 1"),
        ("failover", "broker 1, epoch 2"),
    ]
    assert over[1].phases == world.candidates[0].controller.failover
    assert [part for part, _ in over[1].phases][-2:] == ["requests", "hand-over"]


@pytest.mark.parametrize(("ends", "why"), [(True, "this process ends"), (False, "the session with ZooKeeper ended")])
def test_why_it_rules_no_more_is_said_also_where_its_session_went_in_the_middle_of_a_decision(
    world, tmp_path, monkeypatch, ends, why
):
    def lost(*_: object) -> None:
        raise ZkSessionLost("This ZooKeeper session has been closed.")

    world.start_broker(1)
    candidate = world.candidate(1, HistoryWriter(tmp_path, "controller"))
    if ends:
        candidate.controller.retry.abandon()
    monkeypatch.setattr(candidate.session, "read_many", lost)

    candidate.controller.process(BrokersChanged())

    last = read_history([tmp_path])[-1]
    assert (last.subject, last.to, last.why) == ("controller", "a candidate", why)
