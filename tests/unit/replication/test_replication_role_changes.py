"""What a change of roles does in which order, and what becomes of fetchers and of those who wait."""

from __future__ import annotations

import logging

import msgspec
import pytest

from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.replication.api import AppliedState, Role, StopPartition
from regency.broker_agent.replication.partition import Partition
from regency.model.ids import BrokerId, LeaderEpoch, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)
THIRD = TopicPartition("flights", 2)
LAG_MS = 10_000


def stop(state, *, delete):
    return StopPartition(state.topic_partition, state.topic_id, state.leader_epoch, delete)


@pytest.fixture
def steps(monkeypatch, cluster):
    """What broker 1 does, in order: (step, partition) for every fetcher stopped or started, role and epoch taken."""
    done = []
    fetchers = cluster[1].fetchers
    stopped, started = fetchers.remove, fetchers.follow
    lead, follow = Partition.become_leader, Partition.become_follower

    def remove(names):
        listed = list(names)
        done.extend(("stops fetching", name.partition) for name in listed)
        stopped(listed)

    def begin(address, tasks):
        done.extend(("fetches from its end", task.replica.topic_partition.partition) for task in tasks)
        assert all(task.leader_epoch == task.replica.leader_epoch for task in tasks)
        started(address, tasks)

    def become_leader(replica, state, now_ms):
        done.append(("leads", replica.topic_partition.partition))
        lead(replica, state, now_ms)

    def become_follower(replica, state):
        done.append(("follows", replica.topic_partition.partition))
        follow(replica, state)

    monkeypatch.setattr(fetchers, "remove", remove)
    monkeypatch.setattr(fetchers, "follow", begin)
    monkeypatch.setattr(Partition, "become_leader", become_leader)
    monkeypatch.setattr(Partition, "become_follower", become_follower)
    return done


def test_fetchers_stop_before_any_role_changes_and_start_when_all_have(cluster, steps) -> None:
    """KAFKA-10371, KAFKA-13266: nothing is fetched into a replica whose role or log is being changed."""
    cluster.lead(2)
    cluster.lead(1, partition=OTHER)
    cluster.lead(2, partition=THIRD)
    states = [
        cluster.decide(1),
        cluster.decide(2, partition=OTHER),
        cluster.decide(3, partition=THIRD),
    ]
    steps.clear()
    answers = cluster[1].apply(*states)
    assert {answer.error for answer in answers.values()} == {ErrorCode.NONE}
    assert steps == [
        ("stops fetching", 0),
        ("stops fetching", 1),
        ("stops fetching", 2),
        ("leads", 0),
        ("follows", 1),
        ("follows", 2),
        ("fetches from its end", 1),
        ("fetches from its end", 2),
    ]


def test_who_leads_and_follows_from_now_on_is_in_the_log_of_state_changes(request, caplog) -> None:
    with caplog.at_level(logging.DEBUG, "state.change.logger"):
        cluster = request.getfixturevalue("cluster")
        cluster.lead(2)
        cluster.lead(1)
        traced = [each.getMessage() for each in caplog.records if each.name == "state.change.logger"]
    changed, end = (
        "[Broker id=1 controller epoch=1] Changed flights-0 from ",
        ", offset 0, high watermark 0, isr [1, 2, 3]",
    )
    assert [line for line in traced if "id=1 " in line] == [
        f"{changed}none in leader epoch -1 to follower of 2 in leader epoch 0{end}",
        f"{changed}follower of 2 in leader epoch 0 to leader in leader epoch 1{end}",
    ]


def test_one_that_fails_on_disk_keeps_nobody_else_of_the_request_from_its_role(cluster, steps, monkeypatch) -> None:
    def fail(*_: object) -> None:
        raise LogStorageError(cluster[1].dir, "input/output error")

    cluster.lead(2)
    monkeypatch.setattr(cluster[1].log(), "assign_epoch", fail)
    answers = cluster[1].apply(
        cluster.decide(1), cluster.decide(1, partition=OTHER), cluster.decide(2, partition=THIRD)
    )
    assert [answers[name].error for name in (TP, OTHER, THIRD)] == [
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NONE,
        ErrorCode.NONE,
    ]
    assert [cluster[1].partition(name).role for name in (TP, OTHER, THIRD)] == [
        Role.OFFLINE,
        Role.LEADER,
        Role.FOLLOWER,
    ]
    assert not cluster[1].fetchers.is_following(TP)
    assert cluster[1].fetchers.is_following(THIRD)


def test_who_becomes_leader_of_all_it_followed_ends_the_fetcher(cluster) -> None:
    cluster.lead(2)
    assert len(cluster[1].fetchers) == 1
    cluster[1].apply(cluster.decide(1))
    assert len(cluster[1].fetchers) == 0
    assert cluster[1].links[0].closed


def test_the_fetcher_goes_on_where_the_log_ends_by_then(cluster) -> None:
    """KAFKA-13266: the offset to go on from is read when the old fetcher has been stopped."""
    cluster.lead(2)
    cluster.lead(1)
    cluster[1].produce("a", "b", acks=1)
    cluster.decide(3)
    cluster.tell(1)
    (wanted,) = next(link for link in cluster[1].links if not link.closed).outbox.partitions
    assert (wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch) == (2, 2, 1)


def test_a_new_epoch_of_the_same_leader_begins_the_fetching_anew_and_compares_the_logs_once(cluster) -> None:
    """The leader changed to another and back before this broker was told."""
    cluster.lead(1)
    cluster[1].produce("a")
    cluster.advance(600)
    cluster.sever(1, 3)
    cluster[1].produce("gone", acks=1)
    cluster.run()
    assert cluster[2].values() == ["a", "gone"]
    cluster[1].log().truncate_to(1)
    cluster[1].apply(cluster.decide(1, epoch=2))
    cluster[1].produce("kept", acks=1)
    before = cluster[2].fetchers.is_following(TP)
    truncations = []
    log = cluster[2].log()
    cut = log.truncate_to
    log.truncate_to = lambda offset: truncations.append(offset) or cut(offset)
    cluster.tell(2)
    cluster.advance(1_000)
    assert (before, truncations, cluster[2].values()) == (True, [1], ["a", "kept"])
    assert cluster[2].partition().leader_epoch == 2


def test_a_state_of_the_held_epoch_that_names_another_leader_is_refused(cluster) -> None:
    state = cluster.lead(1)
    other = msgspec.structs.replace(state, leader=BrokerId(2), zk_version=state.zk_version + 1)
    for number, role in ((1, Role.LEADER), (2, Role.FOLLOWER)):
        assert cluster[number].apply(other)[TP] == AppliedState(ErrorCode.FENCED_LEADER_EPOCH, LeaderEpoch(0))
        assert (cluster[number].partition().role, cluster[number].partition().leader) == (role, 1)


def test_a_state_that_leaves_this_broker_out_changes_nothing_here(cluster) -> None:
    cluster.lead(1)
    elsewhere = cluster.decide(2, (2, 3), replicas=(2, 3))
    assert cluster[1].apply(elsewhere)[TP] == AppliedState(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, LeaderEpoch(0))
    assert cluster[1].partition().is_leader


def test_a_member_of_the_isr_has_the_lag_time_to_fetch_from_a_new_leader(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster.clock.advance(3 * LAG_MS)
    cluster[1].apply(cluster.decide(1, (1, 2)))
    cluster.advance(LAG_MS)
    assert cluster.states[TP].isr == (1, 2)
    cluster.advance(LAG_MS)
    assert cluster.states[TP].isr == (1,)


@pytest.mark.parametrize(
    ("delete", "known", "error"),
    [
        (False, True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (False, False, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (True, True, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (True, False, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_who_waits_where_a_replica_is_stopped_is_sent_elsewhere_unless_there_is_no_such_partition(
    cluster, delete, known, error
) -> None:
    """KAFKA-9198: nobody waits for a timeout."""
    state = cluster.lead(1)
    cluster.sever(1, 2)
    if known:
        cluster.peers.known.add(TP)
    produced = cluster[1].produce("a")
    fetched = cluster[1].consume(1, max_wait_ms=60_000)
    followed = cluster[1].consume(1, max_wait_ms=60_000, replica=3, epoch=0)
    assert (produced, fetched, followed) == ([], [], [])
    cluster[1].manager.stop_replicas([stop(state, delete=delete)])
    assert [result.error for result in (*produced, *fetched, *followed)] == [error] * 3


def test_an_offline_replica_is_refused_whatever_it_is_told(cluster) -> None:
    state = cluster.lead(1)
    cluster[1].manager.handle_dir_failure(cluster[1].dir, "it was pulled out")
    for told in (state, cluster.decide(1), cluster.decide(2)):
        assert cluster[1].apply(told)[TP] == AppliedState(ErrorCode.KAFKA_STORAGE_ERROR, LeaderEpoch(0))
    assert cluster[1].latest().error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].manager.end_offset_for_epoch(TP, LeaderEpoch(0), LeaderEpoch(0))[0] is (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    assert cluster[1].manager.stop_replicas([stop(state, delete=False)])[TP].error is ErrorCode.NONE
    assert cluster[1].partition().role is Role.OFFLINE
