"""Assignments: from the leader through the log to every member; heartbeats and leaving."""

from __future__ import annotations

import pytest
from group_lab import DELAY_MS, REBALANCE_MS, SESSION_MS, Lab

from regency.broker_agent.groups.api import SyncResult
from regency.kafka.groups.records import GroupValue, MemberValue, group_key, read_group_value
from regency.model.kafka_errors import ErrorCode


def test_members_receive_what_the_leader_assigned_once_it_is_stored() -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    lab.is_holding = True
    parked = lab.sync(follower.member_id, 1)
    led = lab.sync(leader.member_id, 1, {leader.member_id: b"one", follower.member_id: b"two"})
    assert parked.is_waiting and led.is_waiting and lab.state() == "CompletingRebalance"
    lab.finish_next()
    assert led.result == SyncResult(ErrorCode.NONE, "consumer", "range", b"one")
    assert parked.result == SyncResult(ErrorCode.NONE, "consumer", "range", b"two")
    assert lab.state() == "Stable"
    assert lab.counters.completed_rebalances == 1


def test_a_group_is_stored_as_one_record_with_all_that_a_successor_needs() -> None:
    lab = Lab()
    (member,) = lab.stable()
    ((key, value),) = lab.log
    assert key == group_key("group") and value is not None
    metadata = member.members[0].metadata
    assert read_group_value(value) == GroupValue(
        "consumer",
        1,
        "range",
        member.member_id,
        lab.clock.wall_ms() - DELAY_MS,
        (
            MemberValue(
                member.member_id, None, "c", "/127.0.0.1", REBALANCE_MS, SESSION_MS, metadata, member.member_id.encode()
            ),
        ),
    )


def test_a_follower_of_a_stable_group_receives_its_assignment_at_once_again_and_again() -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    lab.sync(leader.member_id, 1, {follower.member_id: b"two"})
    for _ in range(2):
        assert lab.sync(follower.member_id, 1).result.assignment == b"two"


def test_members_that_the_leader_left_out_receive_nothing() -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    lab.sync(leader.member_id, 1, {"somebody": b"x"})
    assert lab.sync(follower.member_id, 1).result == SyncResult(ErrorCode.NONE, "consumer", "range", b"")


@pytest.mark.parametrize(
    ("log_error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REBALANCE_IN_PROGRESS),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_if_the_assignment_cannot_be_stored_nobody_receives_it(log_error: ErrorCode, told: ErrorCode) -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    parked = lab.sync(follower.member_id, 1)
    lab.failing = log_error
    led = lab.sync(leader.member_id, 1, {follower.member_id: b"two"})
    assert (led.result, parked.result) == (SyncResult(told), SyncResult(told))
    assert lab.state() == "PreparingRebalance"
    assert lab.heartbeat(follower.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_that_was_overtaken_by_a_rebalance_is_not_given_out_when_it_is_stored() -> None:
    """After the append state and generation are compared again."""
    lab = Lab()
    leader, follower = lab.joined(2)
    lab.is_holding = True
    led = lab.sync(leader.member_id, 1, {leader.member_id: b"old"})
    newcomer = lab.join()
    assert led.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    again = lab.join(leader.member_id)
    lab.join(follower.member_id)
    assert again.result.generation == newcomer.result.generation == 2
    parked = lab.sync(follower.member_id, 2)
    lab.finish_next()
    assert lab.state() == "CompletingRebalance" and parked.is_waiting
    lab.sync(leader.member_id, 2, {follower.member_id: b"new"})
    lab.finish_next()
    assert parked.result.assignment == b"new"


def test_a_failed_append_of_an_earlier_generation_does_not_disturb_this_one() -> None:
    lab = Lab()
    (leader,) = lab.joined()
    lab.is_holding = True
    lab.sync(leader.member_id, 1, {})
    again = lab.join(leader.member_id, protocols=(("range", b"changed"),))
    assert again.result.generation == 2
    led = lab.sync(leader.member_id, 2, {leader.member_id: b"two"})
    lab.finish_next(ErrorCode.REQUEST_TIMED_OUT)
    assert led.is_waiting
    lab.finish_next()
    assert led.result.assignment == b"two"


def test_one_generation_has_one_assignment_though_the_leader_sends_another() -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    lab.is_holding = True
    first = lab.sync(leader.member_id, 1, {follower.member_id: b"first"})
    second = lab.sync(leader.member_id, 1, {follower.member_id: b"second"})
    assert first.result.error is ErrorCode.REBALANCE_IN_PROGRESS and len(lab.held) == 1
    lab.finish_next()
    assert second.result.error is ErrorCode.NONE
    assert lab.sync(follower.member_id, 1).result.assignment == b"first"
    lab.reload()
    assert lab.sync(follower.member_id, 1).result.assignment == b"first"


def test_syncs_are_refused_with_the_reason() -> None:
    lab = Lab()
    assert lab.sync("x", 1).result.error is ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = lab.stable(2)
    assert lab.sync("x", 1).result.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.sync(follower.member_id, 2).result.error is ErrorCode.ILLEGAL_GENERATION
    for given in ({"protocol_type": "connect"}, {"protocol": "roundrobin"}):
        assert lab.sync(follower.member_id, 1, **given).result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    given = {"protocol_type": "consumer", "protocol": "range"}
    assert lab.sync(follower.member_id, 1, **given).result.error is ErrorCode.NONE
    lab.join(leader.member_id)
    assert lab.sync(follower.member_id, 1).result.error is ErrorCode.REBALANCE_IN_PROGRESS


def test_members_that_never_ask_for_their_assignment_are_gone() -> None:
    """KAFKA-12890; testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromFollowers."""
    lab = Lab()
    leader, follower, silent = lab.joined(3, session_ms=REBALANCE_MS * 2)
    lab.sync(leader.member_id, 1, {})
    lab.sync(follower.member_id, 1)
    assert lab.state() == "Stable"
    lab.pass_time(REBALANCE_MS)
    assert lab.state() == "PreparingRebalance"
    assert silent.member_id not in lab.member_ids()
    again = lab.join(leader.member_id)
    lab.join(follower.member_id)
    assert again.result.generation == 2


def test_a_leader_that_never_brings_an_assignment_is_gone() -> None:
    """testRebalanceTimesOutWhenSyncRequestIsNotReceivedFromLeaders."""
    lab = Lab()
    leader, follower = lab.joined(2, session_ms=REBALANCE_MS * 2)
    parked = lab.sync(follower.member_id, 1)
    lab.pass_time(REBALANCE_MS)
    assert parked.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.member_ids() == [follower.member_id]
    assert lab.join(follower.member_id).result.leader == follower.member_id
    assert lab.heartbeat(leader.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_whose_session_ends_before_it_assigns_sends_the_others_into_a_rebalance() -> None:
    """testLeaderFailureInSyncGroup."""
    lab = Lab()
    leader, follower = lab.joined(2)
    parked = lab.sync(follower.member_id, 1)
    lab.pass_time(SESSION_MS)
    assert parked.result == SyncResult(ErrorCode.REBALANCE_IN_PROGRESS)
    assert lab.heartbeat(leader.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.join(follower.member_id).result.leader == follower.member_id


def test_a_member_whose_first_join_was_answered_lives_as_long_as_its_session() -> None:
    """testNewMemberFailureAfterJoinGroupCompletion."""
    lab = Lab()
    (leader,) = lab.stable(session_ms=REBALANCE_MS * 2)
    newcomer = lab.join()
    lab.join(leader.member_id, session_ms=REBALANCE_MS * 2)
    lab.sync(leader.member_id, 2, {})
    lab.pass_time(SESSION_MS)
    assert newcomer.result.member_id not in lab.member_ids() and lab.state() == "PreparingRebalance"


def test_who_owed_a_sync_is_not_asked_for_it_in_the_next_rebalance() -> None:
    lab = Lab()
    leader, follower = lab.joined(2, session_ms=REBALANCE_MS * 3)
    lab.pass_time(SESSION_MS)
    lab.join(session_ms=REBALANCE_MS * 3)
    lab.pass_time(REBALANCE_MS - 1)
    assert lab.state() == "PreparingRebalance" and len(lab.member_ids()) == 3
    lab.join(leader.member_id)
    assert lab.join(follower.member_id).result.generation == 2


def test_nobody_is_gone_where_all_have_asked_for_their_assignment_in_time() -> None:
    lab = Lab()
    (leader,) = lab.stable(session_ms=REBALANCE_MS * 2)
    lab.pass_time(REBALANCE_MS + DELAY_MS)
    assert lab.state() == "Stable" and lab.member_ids() == [leader.member_id]


def test_the_session_of_a_member_that_waits_for_the_leader_begins_anew_with_its_assignment() -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    lab.sync(follower.member_id, 1)
    for _ in range(4):
        lab.pass_time(SESSION_MS // 2)
        lab.heartbeat(leader.member_id, 1)
    lab.sync(leader.member_id, 1, {})
    lab.pass_time(SESSION_MS - 1)
    assert lab.heartbeat(follower.member_id, 1) is ErrorCode.NONE


# Heartbeats


def test_heartbeats_keep_a_member_and_silence_ends_it() -> None:
    lab = Lab()
    leader, follower = lab.stable(2)
    for _ in range(3):
        lab.pass_time(SESSION_MS - 1)
        assert lab.heartbeat(leader.member_id, 1) is ErrorCode.NONE
        assert lab.heartbeat(follower.member_id, 1) is ErrorCode.NONE
    lab.pass_time(SESSION_MS - 1)
    lab.heartbeat(leader.member_id, 1)
    lab.pass_time(1)
    assert lab.member_ids() == [leader.member_id]
    assert lab.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_session_timeout_that_became_shorter_counts_from_the_next_join_on() -> None:
    lab = Lab()
    (leader,) = lab.stable(session_ms=100_000)
    lab.join(leader.member_id, session_ms=SESSION_MS)
    lab.sync(leader.member_id, 2, {})
    lab.pass_time(SESSION_MS)
    assert lab.state() == "Empty"


def test_heartbeats_are_refused_with_the_reason() -> None:
    lab = Lab()
    assert lab.heartbeat("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    pending = lab.ask_for_id()
    assert lab.heartbeat(pending, 0) is ErrorCode.UNKNOWN_MEMBER_ID
    lab.leave(pending)
    (leader,) = lab.joined()
    assert lab.heartbeat("x", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.heartbeat(leader.member_id, 1) is ErrorCode.NONE
    assert lab.heartbeat(leader.member_id, 2) is ErrorCode.ILLEGAL_GENERATION
    lab.leave(leader.member_id)
    assert lab.state() == "Empty"
    assert lab.heartbeat(leader.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


# Leaving


def test_a_member_that_leaves_begins_a_rebalance_of_the_others() -> None:
    lab = Lab()
    leader, follower = lab.stable(2)
    assert lab.leave(leader.member_id) == [ErrorCode.NONE]
    assert lab.heartbeat(follower.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.join(follower.member_id).result.leader == follower.member_id


def test_the_last_member_that_leaves_makes_the_group_empty_and_that_is_stored() -> None:
    lab = Lab()
    members = lab.stable(2)
    assert lab.leave(*[member.member_id for member in members]) == [ErrorCode.NONE] * 2
    assert lab.state() == "Empty"
    value = lab.log[-1][1]
    assert value is not None
    assert read_group_value(value) == GroupValue("consumer", 2, None, None, lab.clock.wall_ms(), ())


def test_a_group_is_empty_also_if_that_cannot_be_stored() -> None:
    lab = Lab()
    (leader,) = lab.stable()
    lab.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    lab.leave(leader.member_id)
    assert lab.state() == "Empty"
    lab.failing = ErrorCode.NONE
    lab.reload()
    assert lab.state() == "Stable"
    lab.pass_time(SESSION_MS)
    assert lab.state() == "Empty"


def test_leaving_is_answered_for_each_member() -> None:
    """testLeaveGroup…: unknown ones do not keep the others."""
    lab = Lab()
    assert lab.leave("x", "y") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    leader, _ = lab.stable(2)
    assert lab.leave("x", leader.member_id, leader.member_id) == [
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]


def test_members_that_were_only_given_ids_can_leave_together_with_others() -> None:
    """testPendingMemberBatchLeaveGroup: the rebalance waits for them no more."""
    lab = Lab()
    (leader,) = lab.stable()
    pending = [lab.ask_for_id() for _ in range(2)]
    again = lab.join(leader.member_id)
    assert again.is_waiting
    assert lab.leave(pending[0], "x", pending[1]) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert again.result.generation == 2
    assert lab.join(pending[0]).result.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_it_waits_is_answered() -> None:
    lab = Lab()
    leader, follower = lab.stable(2)
    again = lab.join(leader.member_id)
    lab.leave(leader.member_id)
    assert again.result.error is ErrorCode.UNKNOWN_MEMBER_ID
    lab.join(follower.member_id)
    parked = lab.join()
    lab.leave(follower.member_id)
    assert (parked.result.error, parked.result.generation) == (ErrorCode.NONE, 3)


def test_a_member_that_is_removed_while_it_waits_for_its_assignment_is_answered() -> None:
    lab = Lab()
    _, follower = lab.joined(2, static=True)
    parked = lab.sync(follower.member_id, 1, instance_id="i1")
    assert lab.leave(("", "i1")) == [ErrorCode.NONE]
    assert parked.result == SyncResult(ErrorCode.UNKNOWN_MEMBER_ID)


def test_a_rebalance_that_nobody_joins_waits_for_the_sessions_to_end() -> None:
    lab = Lab()
    lab.stable(2, static=True, session_ms=REBALANCE_MS * 3)
    lab.join(instance_id="i1", protocols=(("range", b"changed"),), rebalance_ms=SESSION_MS)
    lab.leave(("", "i1"))
    assert lab.state() == "PreparingRebalance"
    lab.pass_time(REBALANCE_MS * 2)
    assert lab.state() == "PreparingRebalance"
    lab.pass_time(REBALANCE_MS)
    assert lab.state() == "Empty"
