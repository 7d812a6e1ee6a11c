"""Joining a group: first members, the initial delay, ids, protocols, size. Scenarios of GroupCoordinatorTest."""

from __future__ import annotations

import pytest
from group_lab import DELAY_MS, GROUP, RANGE, REBALANCE_MS, ROUND, SESSION_MS, Lab

from regency.broker_agent.groups.api import JoinedMember, JoinResult
from regency.model.kafka_errors import ErrorCode

JOIN_TIMEOUT_MS = 300_000


def test_a_group_of_one_waits_for_the_initial_delay_and_then_leads_itself() -> None:
    lab = Lab()
    call = lab.join()
    lab.pass_time(DELAY_MS - 1)
    assert call.is_waiting and lab.state() == "PreparingRebalance"
    lab.pass_time(1)
    member_id = call.result.member_id
    assert member_id == "c-00000000-0000-0000-0000-000000000001"
    assert call.result == JoinResult(
        ErrorCode.NONE,
        member_id,
        1,
        "consumer",
        "range",
        member_id,
        (JoinedMember(member_id, None, RANGE[0][1]),),
    )
    assert lab.state() == "CompletingRebalance"


def test_without_an_initial_delay_a_group_of_one_need_not_wait() -> None:
    lab = Lab()
    lab.settings = lab.settings.__class__(group_initial_rebalance_delay_ms=0)
    lab.shard = lab.new_shard()
    call = lab.join()
    lab.pass_time(0)
    assert call.result.generation == 1


def test_only_the_leader_receives_the_members() -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    assert leader.leader == follower.leader == leader.member_id
    assert [member.member_id for member in leader.members] == [leader.member_id, follower.member_id]
    assert follower.members == ()


def test_members_that_come_while_a_new_group_waits_extend_the_wait() -> None:
    """shouldDelayInitialRebalanceByGroupInitialRebalanceDelayOnEmptyGroup and its siblings."""
    lab = Lab()
    first = lab.join()
    lab.pass_time(DELAY_MS - 1)
    second = lab.join()
    lab.pass_time(2)
    assert first.is_waiting and second.is_waiting
    lab.pass_time(DELAY_MS)
    assert first.result.generation == second.result.generation == 1


def test_a_new_group_waits_no_longer_than_its_rebalance_timeout() -> None:
    """shouldDelayRebalanceUptoRebalanceTimeout."""
    lab = Lab()
    calls = [lab.join(rebalance_ms=DELAY_MS * 2)]
    lab.pass_time(DELAY_MS - 1)
    calls.append(lab.join(rebalance_ms=DELAY_MS * 2))
    lab.pass_time(DELAY_MS)
    calls.append(lab.join(rebalance_ms=DELAY_MS * 2))
    assert all(call.is_waiting for call in calls)
    lab.pass_time(1)
    assert [call.result.generation for call in calls] == [1, 1, 1]


def test_a_group_that_was_stable_waits_for_nobody_but_its_members() -> None:
    lab = Lab()
    (leader,) = lab.stable()
    newcomer = lab.join()
    assert newcomer.is_waiting and lab.heartbeat(leader.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = lab.join(leader.member_id)
    assert again.result.generation == newcomer.result.generation == 2
    assert again.result.leader == leader.member_id and len(again.result.members) == 2


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_a_session_timeout_outside_the_limits_is_refused_and_makes_no_group(session_ms: int) -> None:
    lab = Lab()
    assert lab.join(session_ms=session_ms).result.error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert lab.state() == "Dead"


@pytest.mark.parametrize("session_ms", [6_000, 1_800_000])
def test_the_limits_of_the_session_timeout_are_allowed(session_ms: int) -> None:
    lab = Lab()
    assert lab.joined(session_ms=session_ms)[0].error is ErrorCode.NONE


def test_an_unknown_member_cannot_make_a_group() -> None:
    lab = Lab()
    assert lab.join("somebody").result == JoinResult(ErrorCode.UNKNOWN_MEMBER_ID, "somebody")
    assert lab.shard.list_groups() == []


def test_an_unknown_member_is_refused_by_a_group_that_is_there() -> None:
    lab = Lab()
    lab.stable()
    assert lab.join("somebody").result.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.state() == "Stable"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", RANGE), ("consumer", ())])
def test_an_empty_group_wants_a_protocol_type_and_protocols(protocol_type: str, protocols: tuple) -> None:
    lab = Lab()
    result = lab.join(protocol_type=protocol_type, protocols=protocols).result
    assert result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert lab.state() == "Empty"


@pytest.mark.parametrize(("protocol_type", "protocols"), [("connect", RANGE), ("consumer", ROUND), ("consumer", ())])
def test_a_member_that_has_no_protocol_in_common_with_all_others_is_refused(
    protocol_type: str, protocols: tuple
) -> None:
    lab = Lab()
    lab.stable()
    result = lab.join(protocol_type=protocol_type, protocols=protocols).result
    assert result.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert lab.state() == "Stable"


def test_the_protocol_is_the_one_that_most_members_like_best_among_those_of_all() -> None:
    lab = Lab()
    first, second = RANGE[0], ROUND[0]
    calls = [
        lab.join(protocols=(("mine", b""), first, second)),
        lab.join(protocols=(second, first)),
        lab.join(protocols=(second, first)),
    ]
    lab.pass_time(DELAY_MS * 2)
    assert [call.result.protocol for call in calls] == ["roundrobin"] * 3


def test_a_protocol_named_twice_counts_once() -> None:
    lab = Lab()
    assert lab.joined(2, protocols=RANGE + RANGE)[1].protocol == "range"


# Member ids (KIP-394)


def test_a_new_dynamic_member_is_given_an_id_and_comes_back_with_it() -> None:
    lab = Lab()
    member_id = lab.ask_for_id()
    assert (lab.state(), lab.member_ids()) == ("Empty", [])
    call = lab.join(member_id)
    lab.pass_time(DELAY_MS)
    assert call.result.member_id == member_id and call.result.error is ErrorCode.NONE


def test_an_id_that_was_given_out_is_forgotten_with_its_session_timeout() -> None:
    """testNewMemberTimeoutAfterJoin of pending members: the id is unknown afterwards."""
    lab = Lab()
    member_id = lab.ask_for_id()
    lab.pass_time(SESSION_MS - 1)
    lab.join(lab.ask_for_id())
    lab.pass_time(1)
    assert lab.join(member_id).result.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_members_that_were_given_an_id_until_they_time_out() -> None:
    """testJoinGroupCompletionWhenPendingMemberTimesOut."""
    lab = Lab()
    (leader,) = lab.stable(session_ms=60_000)
    lab.ask_for_id()
    again = lab.join(leader.member_id)
    assert again.is_waiting
    lab.pass_time(SESSION_MS - 1)
    assert again.is_waiting
    lab.pass_time(1)
    assert again.result.generation == 2 and len(again.result.members) == 1


def test_a_rebalance_is_complete_when_the_last_member_that_was_given_an_id_joins() -> None:
    """testJoinGroupCompletionWhenPendingMemberJoins."""
    lab = Lab()
    (leader,) = lab.stable()
    member_id = lab.ask_for_id()
    again = lab.join(leader.member_id)
    newcomer = lab.join(member_id)
    assert again.result.generation == newcomer.result.generation == 2


def test_an_id_that_was_given_out_cannot_become_that_of_a_static_member() -> None:
    lab = Lab()
    assert lab.join(lab.ask_for_id(), "i0").result.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_client_name_of_any_length_makes_an_id_that_fits_a_text_of_the_protocol() -> None:
    lab = Lab()
    (member,) = lab.stable(client_id="\U0001f600" * 8_100)
    assert len(member.member_id.encode()) < 32_767
    lab.reload()
    assert lab.heartbeat(member.member_id, 1) is ErrorCode.NONE


# Joining again


def test_while_members_synchronize_a_join_with_the_same_metadata_is_answered_again() -> None:
    """testJoinGroupWhenPreparingRebalance…: an answer that got lost is given again, to the leader with all members."""
    lab = Lab()
    leader, follower = lab.joined(2)
    assert lab.join(leader.member_id).result == leader
    assert lab.join(follower.member_id).result == follower
    assert lab.state() == "CompletingRebalance"


def test_while_members_synchronize_a_join_with_other_metadata_begins_a_rebalance() -> None:
    lab = Lab()
    leader, follower = lab.joined(2)
    parked = lab.sync(follower.member_id, 1)
    lab.join(follower.member_id, protocols=(("range", b"other"),))
    assert parked.result.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert lab.state() == "PreparingRebalance"
    assert lab.join(leader.member_id).result.generation == 2


def test_a_follower_of_a_stable_group_that_joins_unchanged_stays_in_its_generation() -> None:
    lab = Lab()
    _, follower = lab.stable(2)
    assert lab.join(follower.member_id).result == follower
    assert lab.state() == "Stable"


@pytest.mark.parametrize("who", [0, 1])
def test_a_leader_or_a_changed_follower_of_a_stable_group_begins_a_rebalance(who: int) -> None:
    lab = Lab()
    members = lab.stable(2)
    protocols = RANGE if who == 0 else (("range", b"changed"),)
    again = lab.join(members[who].member_id, protocols=protocols)
    assert again.is_waiting and lab.state() == "PreparingRebalance"
    lab.join(members[1 - who].member_id)
    assert again.result.generation == 2


def test_a_join_that_is_repeated_while_it_is_parked_is_answered_for_itself() -> None:
    """Kafka forgets the first one; its client has given it up, but it may stand before others on its connection."""
    lab = Lab()
    leader, follower = lab.stable(2)
    first = lab.join(leader.member_id)
    second = lab.join(leader.member_id)
    assert first.result.error is ErrorCode.REBALANCE_IN_PROGRESS and second.is_waiting
    lab.join(follower.member_id)
    assert second.result.generation == 2


def test_a_member_that_does_not_join_in_time_is_gone() -> None:
    lab = Lab()
    leader, _ = lab.stable(2, session_ms=REBALANCE_MS * 2)
    again = lab.join(leader.member_id)
    lab.pass_time(REBALANCE_MS - 1)
    assert again.is_waiting
    lab.pass_time(1)
    assert [member.member_id for member in again.result.members] == [leader.member_id]


def test_a_leader_that_does_not_join_in_time_is_followed_by_one_that_did() -> None:
    """testLeaderFailToRejoinBeforeFinalRebalanceTimeoutWithLongSessionTimeout."""
    lab = Lab()
    leader, follower = lab.stable(2, session_ms=REBALANCE_MS * 2)
    newcomer = lab.join(session_ms=REBALANCE_MS * 2)
    again = lab.join(follower.member_id)
    lab.pass_time(REBALANCE_MS)
    assert again.result.leader == newcomer.result.leader == follower.member_id
    assert leader.member_id not in lab.member_ids()
    assert lab.heartbeat(leader.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_new_member_whose_client_is_gone_does_not_hold_up_the_rebalance_for_ever() -> None:
    """KAFKA-9752: testNewMemberJoinExpiration."""
    lab = Lab()
    (leader,) = lab.stable(session_ms=JOIN_TIMEOUT_MS * 2, rebalance_ms=JOIN_TIMEOUT_MS * 2)
    newcomer = lab.join(session_ms=SESSION_MS, rebalance_ms=REBALANCE_MS)
    lab.pass_time(JOIN_TIMEOUT_MS - 1)
    assert newcomer.is_waiting
    lab.pass_time(1)
    assert newcomer.result.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.member_ids() == [leader.member_id]
    assert lab.join(leader.member_id).result.generation == 2


def test_the_expiry_of_a_new_member_completes_the_join_of_the_others() -> None:
    """KAFKA-9752: the one that is left need not join again."""
    lab = Lab()
    (leader,) = lab.stable(session_ms=JOIN_TIMEOUT_MS * 2, rebalance_ms=JOIN_TIMEOUT_MS * 2)
    member_id = lab.ask_for_id(session_ms=JOIN_TIMEOUT_MS + 10)
    newcomer = lab.join()
    again = lab.join(leader.member_id)
    lab.pass_time(JOIN_TIMEOUT_MS)
    assert newcomer.result.error is ErrorCode.UNKNOWN_MEMBER_ID and again.is_waiting
    lab.leave(member_id)
    assert again.result.generation == 2


def test_the_session_of_a_member_that_waits_for_others_does_not_end() -> None:
    lab = Lab()
    leader, follower = lab.stable(2, rebalance_ms=JOIN_TIMEOUT_MS)
    again = lab.join(leader.member_id, rebalance_ms=JOIN_TIMEOUT_MS)
    for _ in range(5):
        lab.pass_time(SESSION_MS - 1)
        assert lab.heartbeat(follower.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    assert again.is_waiting
    lab.join(follower.member_id)
    assert len(again.result.members) == 2
    lab.pass_time(SESSION_MS - 1)
    assert lab.heartbeat(leader.member_id, 2) is ErrorCode.NONE


def test_a_member_that_is_silent_during_a_rebalance_is_gone_with_its_session() -> None:
    lab = Lab()
    leader, _ = lab.stable(2)
    again = lab.join(leader.member_id)
    lab.pass_time(SESSION_MS)
    assert again.result.generation == 2 and len(again.result.members) == 1


def test_a_group_whose_members_all_left_while_it_waited_becomes_empty_and_that_is_stored() -> None:
    lab = Lab()
    call = lab.join()
    lab.leave(lab.member_ids()[0])
    assert call.result.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert lab.state() == "PreparingRebalance"
    lab.pass_time(DELAY_MS)
    assert (lab.state(), len(lab.log)) == ("Empty", 1)
    lab.reload()
    assert lab.state() == "Empty"


# group.max.size (KAFKA-9844)


def test_a_group_takes_no_more_members_than_it_may() -> None:
    lab = Lab(group_max_size=2)
    calls = [lab.join() for _ in range(3)]
    assert calls[2].result == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    lab.pass_time(DELAY_MS * 2)
    assert [len(call.result.members) for call in calls[:2]] == [2, 0]


def test_members_that_were_given_ids_are_not_let_in_beyond_the_size() -> None:
    """testDynamicMembersJoinGroupWithMaxSizeAndRequiredKnownMember."""
    lab = Lab(group_max_size=2)
    ids = [lab.ask_for_id() for _ in range(3)]
    calls = [lab.join(member_id) for member_id in ids]
    assert calls[2].result == JoinResult(ErrorCode.GROUP_MAX_SIZE_REACHED)
    lab.pass_time(DELAY_MS * 2)
    assert [call.result.error for call in calls[:2]] == [ErrorCode.NONE] * 2
    again = [lab.join(member_id).result.error for member_id in ids]
    assert again == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


def test_members_of_a_full_group_can_join_again_while_it_rebalances() -> None:
    """testDynamicMembersCanReJoinGroupWithMaxSizeWhileRebalancing."""
    lab = Lab(group_max_size=2)
    ids = [lab.ask_for_id() for _ in range(2)]
    for member_id in ids:
        lab.join(member_id)
    repeated = [lab.join(member_id) for member_id in ids]
    assert lab.join().result.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    lab.pass_time(DELAY_MS * 2)
    assert [call.result.error for call in repeated] == [ErrorCode.NONE] * 2


def test_of_a_group_that_was_loaded_too_large_the_last_to_join_again_has_to_go() -> None:
    """testLastJoiningMembersAreKickedOutWhenRejoiningGroupWithMaxSize."""
    lab = Lab()
    members = lab.stable(3)
    lab.settings = lab.settings.__class__(group_max_size=2)
    lab.reload()
    assert lab.state() == "PreparingRebalance"
    calls = [lab.join(member.member_id) for member in members]
    assert [call.result.error for call in calls] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ]
    assert lab.member_ids() == [member.member_id for member in members[:2]]


def test_a_static_member_takes_its_own_place_in_a_full_group() -> None:
    """Kafka refuses it, although the group would not grow."""
    lab = Lab(group_max_size=2)
    lab.stable(2, static=True)
    assert lab.join(instance_id="i1").result.error is ErrorCode.NONE
    assert lab.join(instance_id="i2").result.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert lab.describe(GROUP).state == "Stable"
