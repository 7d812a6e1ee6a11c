"""Static members (KIP-345): they keep their place, and the one that comes back fences the one that was there."""

from __future__ import annotations

from group_lab import DELAY_MS, RANGE, REBALANCE_MS, ROUND, SESSION_MS, TP, Lab

from regency.broker_agent.groups.api import JoinResult, SyncResult
from regency.model.kafka_errors import ErrorCode

BOTH = (RANGE[0], ROUND[0])


def test_a_static_member_need_not_ask_for_an_id() -> None:
    lab = Lab()
    (member,) = lab.joined(static=True)
    assert member.member_id.startswith("i0-") and member.members[0].instance_id == "i0"


def test_a_static_follower_that_comes_back_changes_nothing_but_its_id() -> None:
    """KAFKA-10284: the new id is stored, so that the old one stays fenced over a change of the coordinator."""
    lab = Lab()
    leader, follower = lab.stable(2, static=True)
    again = lab.join(instance_id="i1")
    new_id = again.result.member_id
    assert again.result == JoinResult(
        ErrorCode.NONE, new_id, 1, "consumer", "range", leader.member_id, (), skip_assignment=False
    )
    assert new_id != follower.member_id and lab.state() == "Stable"
    for _ in range(2):
        assert lab.sync(new_id, 1, instance_id="i1").result.assignment == follower.member_id.encode()
        assert lab.heartbeat(follower.member_id, 1, instance_id="i1") is ErrorCode.FENCED_INSTANCE_ID
        assert lab.heartbeat(leader.member_id, 1, instance_id="i0") is ErrorCode.NONE
        lab.reload()


def test_a_static_leader_that_comes_back_need_not_assign_again() -> None:
    """KAFKA-13435, KIP-814."""
    lab = Lab()
    lab.stable(2, static=True)
    result = lab.join(instance_id="i0").result
    assert result.skip_assignment and result.leader == result.member_id
    assert {member.instance_id for member in result.members} == {"i0", "i1"}


def test_a_static_leader_of_an_older_client_is_told_that_it_does_not_lead() -> None:
    lab = Lab()
    leader, _ = lab.stable(2, static=True)
    result = lab.join(instance_id="i0", supports_skipping_assignment=False).result
    assert (result.leader, result.members, result.skip_assignment) == (leader.member_id, (), False)
    assert result.member_id != leader.member_id


def test_a_new_id_that_cannot_be_stored_is_taken_back() -> None:
    """staticMemberRejoinWithUnknownMemberIdAndChangeOfProtocolWhileSelectProtocolUnchangedPersistenceFailure."""
    lab = Lab()
    leader, follower = lab.stable(2, static=True, protocols=BOTH)
    lab.failing = ErrorCode.MESSAGE_TOO_LARGE
    result = lab.join(instance_id="i1", protocols=RANGE, session_ms=SESSION_MS * 2).result
    assert result == JoinResult(ErrorCode.UNKNOWN_SERVER_ERROR)
    assert lab.state() == "Stable"
    assert lab.heartbeat(follower.member_id, 1, instance_id="i1") is ErrorCode.NONE
    lab.failing = ErrorCode.NONE
    # The protocols are what they were, too: all members still support the other one.
    lab.join(leader.member_id, "i0", protocols=ROUND)
    assert lab.join(follower.member_id, "i1", protocols=ROUND).result.protocol == "roundrobin"


def test_a_static_follower_that_joins_again_under_its_id_stays_in_its_generation() -> None:
    """staticMemberRejoinAsFollowerWithKnownMemberIdAndNoProtocolChange, …WithLeaderIdAndKnownMemberId."""
    lab = Lab()
    leader, follower = lab.stable(2, static=True)
    assert lab.join(follower.member_id, "i1").result == follower
    assert lab.join(leader.member_id, "i0").is_waiting and lab.state() == "PreparingRebalance"


def test_a_static_member_receives_another_id_each_time_it_starts() -> None:
    """shouldGetDifferentStaticMemberIdAfterEachRejoin."""
    lab = Lab()
    _, follower = lab.stable(2, static=True)
    ids = [follower.member_id, *(lab.join(instance_id="i1").result.member_id for _ in range(5))]
    assert len(set(ids)) == 6
    assert [lab.heartbeat(each, 1, instance_id="i1") for each in ids] == [ErrorCode.FENCED_INSTANCE_ID] * 5 + [
        ErrorCode.NONE
    ]


def test_a_static_leader_that_does_not_join_in_time_keeps_its_place_and_another_one_leads() -> None:
    """testStaticMemberLeaderFailToRejoinBeforeRebalanceTimeout."""
    lab = Lab()
    long = {"session_ms": REBALANCE_MS * 3}
    leader, follower = lab.stable(2, static=True, **long)
    again = lab.join(follower.member_id, "i1", protocols=(("range", b"changed"),), **long)
    lab.pass_time(REBALANCE_MS)
    assert again.result.leader == follower.member_id
    assert {member.member_id for member in again.result.members} == {leader.member_id, follower.member_id}
    assert lab.heartbeat(leader.member_id, 2, instance_id="i0") is ErrorCode.NONE


def test_a_group_does_not_wait_for_a_static_member_that_stays_away() -> None:
    """groupStuckInRebalanceTimeoutDueToNonjoinedStaticMember."""
    lab = Lab()
    leader, away = lab.stable(2, static=True)
    parked = lab.join(leader.member_id, "i0")
    lab.pass_time(SESSION_MS)
    assert parked.result.generation == 2 and away.member_id not in lab.member_ids()


def test_a_rebalance_that_nobody_joined_in_time_is_looked_at_again() -> None:
    lab = Lab()
    long = {"session_ms": REBALANCE_MS * 5}
    first, _, _ = lab.stable(3, static=True, **long)
    lab.leave(("", "i2"))
    lab.pass_time(REBALANCE_MS)
    again = lab.join(first.member_id, "i0", **long)
    lab.pass_time(REBALANCE_MS - 1)
    assert again.is_waiting
    lab.pass_time(1)
    assert again.result.generation == 2


def test_a_static_member_that_came_back_lives_as_long_as_its_session() -> None:
    lab = Lab()
    leader, _ = lab.stable(2, static=True)
    lab.is_holding = True
    again = lab.join(instance_id="i1")
    for _ in range(3):
        lab.pass_time(SESSION_MS // 2)
        lab.heartbeat(leader.member_id, 1)
    lab.finish_next()
    assert again.result.error is ErrorCode.NONE
    lab.pass_time(SESSION_MS - 1)
    lab.heartbeat(leader.member_id, 1)
    assert len(lab.member_ids()) == 2
    lab.pass_time(1)
    assert lab.member_ids() == [leader.member_id]


def test_a_static_member_whose_return_changes_the_protocol_begins_a_rebalance() -> None:
    """staticMemberRejoinWithUnknownMemberIdAndChangeOfProtocol."""
    lab = Lab()
    leader, _ = lab.stable(2, static=True, protocols=BOTH)
    again = lab.join(instance_id="i1", protocols=ROUND)
    assert again.is_waiting and lab.state() == "PreparingRebalance"
    lab.join(leader.member_id, "i0", protocols=BOTH)
    assert (again.result.generation, again.result.protocol) == (2, "roundrobin")


def test_a_static_member_that_comes_back_while_members_synchronize_begins_a_rebalance() -> None:
    """KAFKA-9801."""
    lab = Lab()
    leader, follower = lab.joined(2, static=True)
    parked = lab.sync(follower.member_id, 1)
    again = lab.join(instance_id="i0")
    assert again.is_waiting and lab.state() == "PreparingRebalance"
    assert parked.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    lab.join(follower.member_id, "i1")
    assert again.result.generation == 2 and again.result.leader == again.result.member_id
    assert lab.heartbeat(leader.member_id, 1, instance_id="i0") is ErrorCode.FENCED_INSTANCE_ID


def test_a_parked_join_of_the_one_that_was_there_is_fenced() -> None:
    """staticMemberFenceDuplicateRejoinedFollower."""
    lab = Lab()
    leader, follower = lab.stable(2, static=True)
    lab.join(instance_id="i2")
    old = lab.join(follower.member_id, "i1")
    again = lab.join(instance_id="i1")
    assert old.result == JoinResult(ErrorCode.FENCED_INSTANCE_ID, follower.member_id)
    lab.join(leader.member_id, "i0")
    assert again.result.generation == 2


def test_a_parked_sync_of_the_one_that_was_there_is_fenced() -> None:
    """staticMemberFenceDuplicateSyncingFollowerAfterMemberIdChanged."""
    lab = Lab()
    _, follower = lab.joined(2, static=True)
    parked = lab.sync(follower.member_id, 1, instance_id="i1")
    lab.join(instance_id="i1")
    assert parked.result == SyncResult(ErrorCode.FENCED_INSTANCE_ID)


def test_of_two_with_one_instance_id_that_come_back_together_the_later_one_stays() -> None:
    lab = Lab()
    lab.stable(2, static=True)
    lab.is_holding = True
    first, second = lab.join(instance_id="i1"), lab.join(instance_id="i1")
    assert first.result.error is ErrorCode.FENCED_INSTANCE_ID
    lab.finish_next()
    assert second.is_waiting
    lab.finish_next()
    assert second.result.error is ErrorCode.NONE
    assert lab.heartbeat(first.result.member_id, 1, instance_id="i1") is ErrorCode.FENCED_INSTANCE_ID


def test_a_rebalance_that_overtakes_the_storing_of_a_new_id_answers_the_join() -> None:
    lab = Lab()
    leader, _ = lab.stable(2, static=True)
    lab.is_holding = True
    again = lab.join(instance_id="i1")
    lab.join(leader.member_id, "i0")
    assert again.result.generation == 2
    lab.finish_next(ErrorCode.REQUEST_TIMED_OUT)
    assert lab.heartbeat(again.result.member_id, 2, instance_id="i1") is ErrorCode.NONE


def test_a_new_id_is_not_taken_back_while_the_group_rebalances() -> None:
    lab = Lab()
    leader, _, other = lab.stable(3, static=True)
    lab.is_holding = True
    again = lab.join(instance_id="i1")
    lab.join(leader.member_id, "i0")
    lab.finish_next(ErrorCode.REQUEST_TIMED_OUT)
    assert again.is_waiting and lab.state() == "PreparingRebalance"
    lab.join(other.member_id, "i2")
    assert again.result.generation == 2


def test_a_new_id_is_not_taken_back_in_a_later_generation() -> None:
    lab = Lab()
    leader, _ = lab.stable(2, static=True)
    lab.is_holding = True
    again = lab.join(instance_id="i1")
    lab.join(leader.member_id, "i0")
    lab.sync(leader.member_id, 2, {}, instance_id="i0")
    lab.finish(lab.held.pop())
    assert lab.state() == "Stable"
    lab.finish_next(ErrorCode.REQUEST_TIMED_OUT)
    assert lab.heartbeat(again.result.member_id, 2, instance_id="i1") is ErrorCode.NONE


def test_calls_under_a_wrong_id_are_fenced_and_unknown_instances_are_unknown() -> None:
    lab = Lab()
    (member,) = lab.stable(static=True)
    for instance_id, error in (("i0", ErrorCode.FENCED_INSTANCE_ID), ("x", ErrorCode.UNKNOWN_MEMBER_ID)):
        assert lab.join("wrong", instance_id).result.error is error
        assert lab.sync("wrong", 1, instance_id=instance_id).result.error is error
        assert lab.heartbeat("wrong", 1, instance_id=instance_id) is error
        assert lab.leave(("wrong", instance_id)) == [error]
        assert lab.commit({TP: 1}, "wrong", 1, instance_id=instance_id).result == {TP: error}
    assert lab.heartbeat(member.member_id, 1, instance_id="i0") is ErrorCode.NONE


def test_an_administrator_removes_a_static_member_by_its_instance_id() -> None:
    lab = Lab()
    _, follower = lab.stable(2, static=True)
    assert lab.leave(("", "i0"), ("", "x")) == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert lab.member_ids() == [follower.member_id] and lab.state() == "PreparingRebalance"


def test_a_static_member_that_does_not_join_in_time_keeps_its_place() -> None:
    lab = Lab()
    leader, away = lab.stable(2, static=True, session_ms=REBALANCE_MS * 3)
    again = lab.join(leader.member_id, "i0", session_ms=REBALANCE_MS * 3)
    lab.pass_time(REBALANCE_MS)
    assert [member.instance_id for member in again.result.members] == ["i0", "i1"]
    lab.sync(leader.member_id, 2, {away.member_id: b"kept"}, instance_id="i0")
    back = lab.join(instance_id="i1").result
    assert lab.sync(back.member_id, 2, instance_id="i1").result.assignment == b"kept"


def test_a_static_member_keeps_its_place_until_its_session_ends() -> None:
    lab = Lab()
    leader, _ = lab.stable(2, static=True)
    lab.pass_time(SESSION_MS - 1)
    lab.heartbeat(leader.member_id, 1)
    assert len(lab.member_ids()) == 2
    lab.pass_time(1)
    assert lab.member_ids() == [leader.member_id] and lab.state() == "PreparingRebalance"


def test_a_new_static_member_that_starts_again_while_it_waits_is_still_new() -> None:
    """It cannot send heartbeats yet, so its session timeout must not count (Kafka lets it count)."""
    lab = Lab()
    (leader,) = lab.stable(static=True, session_ms=REBALANCE_MS)
    first = lab.join(instance_id="i1")
    second = lab.join(instance_id="i1")
    assert first.result.error is ErrorCode.FENCED_INSTANCE_ID
    lab.pass_time(SESSION_MS + DELAY_MS)
    assert second.is_waiting
    lab.join(leader.member_id, "i0")
    assert second.result.generation == 2


def test_who_owed_a_sync_owes_it_under_the_new_id_too() -> None:
    lab = Lab()
    leader, _ = lab.joined(2, static=True, session_ms=REBALANCE_MS * 3)
    lab.sync(leader.member_id, 1, {}, instance_id="i0")
    back = lab.join(instance_id="i1", session_ms=REBALANCE_MS * 3).result
    assert lab.state() == "Stable"
    lab.pass_time(REBALANCE_MS)
    assert back.member_id not in lab.member_ids() and lab.state() == "PreparingRebalance"
