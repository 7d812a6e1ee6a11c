"""Taking a partition over from its log, and giving it up. Scenarios of GroupMetadataManagerTest."""

from __future__ import annotations

import struct

import pytest
from group_lab import DELAY_MS, GROUP, SESSION_MS, TP, Lab

from regency.broker_agent.groups.api import JoinResult, SyncResult
from regency.broker_agent.groups.context import GroupState
from regency.kafka.groups.records import (
    GroupRecordMalformed,
    GroupValue,
    MemberValue,
    group_key,
    group_value,
    offset_key,
    offset_value,
)
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

OTHER = TopicPartition("t", 1)


def test_a_stable_group_goes_on_under_its_next_coordinator() -> None:
    lab = Lab()
    leader, follower = lab.stable(2, static=True)
    lab.commit({TP: 5}, leader.member_id, 1, instance_id="i0")
    before = lab.describe()
    lab.reload()
    assert lab.describe() == before and lab.state() == "Stable"
    assert lab.committed() == 5
    assert lab.heartbeat(follower.member_id, 1, instance_id="i1") is ErrorCode.NONE
    assert lab.sync(follower.member_id, 1, instance_id="i1").result.assignment == follower.member_id.encode()
    assert lab.join(leader.member_id, "i0").is_waiting  # the leader is the same one


def test_sessions_begin_anew_when_a_group_is_loaded() -> None:
    lab = Lab()
    (member,) = lab.stable()
    lab.pass_time(SESSION_MS - 1)
    lab.do(lab.shard.unload())
    lab.clock.advance(SESSION_MS * 3)
    lab.take_over(lab.log)
    lab.pass_time(SESSION_MS - 1)
    assert lab.state() == "Stable"
    lab.pass_time(1)
    assert lab.state() == "Empty" and lab.heartbeat(member.member_id, 1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_nothing_is_due_in_a_shard_until_all_of_it_is_loaded() -> None:
    """Else its coordinator, which lets nothing happen before, would be woken at once again and again."""
    lab = Lab()
    lab.stable(2, static=True)
    lab.commit({TP: 5})
    lab.shard = lab.new_shard()
    for key, value in [*lab.log, (group_key(GROUP), None), *lab.log, (offset_key(GROUP, "t", 0), None)]:
        lab.shard.load(key, value)
        assert lab.shard.next_deadline_ms is None
    lab.do(lab.shard.loaded(lab.now_ms))
    assert lab.shard.next_deadline_ms == lab.now_ms + SESSION_MS


def test_of_several_records_the_last_counts() -> None:
    lab = Lab()
    (first,) = lab.stable()
    lab.join(first.member_id, protocols=(("range", b"changed"),))
    lab.sync(first.member_id, 2, {first.member_id: b"two"})
    lab.commit({TP: 1, OTHER: 7}, first.member_id, 2)
    lab.commit({TP: 2}, first.member_id, 2)
    lab.reload()
    assert lab.sync(first.member_id, 2).result.assignment == b"two"
    assert (lab.committed(TP), lab.committed(OTHER)) == (2, 7)
    assert lab.shard.offset_count == 2 and lab.shard.states[GroupState.STABLE] == 1


def test_offsets_without_a_group_make_one_that_only_commits() -> None:
    """testLoadOffsetsWithoutGroup."""
    lab = Lab()
    lab.take_over([(offset_key(GROUP, "t", 0), offset_value(lab.offset(3)))])
    assert (lab.state(), lab.describe().protocol_type, lab.committed()) == ("Empty", "", 3)


def test_tombstones_take_offsets_and_groups_away() -> None:
    """testLoadOffsetsWithTombstones, testLoadGroupWithTombstone."""
    lab = Lab()
    lab.stable()
    offset = (offset_key(GROUP, "t", 0), offset_value(lab.offset(3)))
    lab.take_over([*lab.log, offset, (offset[0], None)])
    assert (lab.state(), lab.fetch()) == ("Stable", {})
    lab.take_over([*lab.log, (group_key(GROUP), None)])
    assert lab.state() == "Dead"
    lab.take_over([*lab.log, offset, (group_key(GROUP), None)])
    assert (lab.state(), lab.describe().protocol_type, lab.committed()) == ("Empty", "", 3)
    lab.take_over([offset, (offset[0], None), (offset_key("x", "t", 0), None), (group_key("y"), None)])
    assert lab.shard.list_groups() == [] and not any(lab.shard.states.values())


def test_a_group_that_comes_back_after_its_tombstone_begins_with_what_came_then() -> None:
    """testLoadOffsetsAndGroup…: tombstone and new life of a group in one log."""
    lab = Lab()
    lab.stable()
    lab.log.append((group_key(GROUP), None))
    lab.take_over(lab.log)
    (again,) = lab.stable()
    lab.reload()
    assert again.generation == 1 and lab.member_ids() == [again.member_id]


def test_kinds_of_records_that_are_not_known_are_skipped() -> None:
    """KAFKA-14869, KIP-915."""
    lab = Lab()
    lab.commit({TP: 1})
    lab.take_over([(struct.pack(">h", 3) + b"?", b"?"), (struct.pack(">h", 8), None), *lab.log])
    assert lab.committed() == 1


def test_a_malformed_record_is_refused_and_nothing_of_it_taken_in() -> None:
    lab = Lab()
    shard = lab.new_shard()
    for key, value in (
        (b"\0", b""),
        (offset_key(GROUP, "t", 0), b"\0\3"),
        (offset_key(GROUP, "t", 0), struct.pack(">h", 9)),
        (group_key(GROUP), b"\0\3"),
    ):
        with pytest.raises(GroupRecordMalformed):
            shard.load(key, value)
    assert shard.list_groups() == [] and shard.offset_count == 0


def test_a_group_that_was_stored_without_a_leader_that_is_a_member_has_one() -> None:
    lab = Lab()
    member = MemberValue("m", None, "c", "/h", 1_000, SESSION_MS, b"", b"x")
    value = GroupValue("consumer", 3, "range", "gone", -1, (member,))
    lab.take_over([(group_key(GROUP), group_value(value))])
    assert len(lab.join("m").result.members) == 1


def test_an_empty_group_that_was_stored_without_a_time_expires_with_its_commits() -> None:
    """testExpireGroupWithOffsetsOnly… with records of before 2.1."""
    lab = Lab()
    day_ms = 86_400_000
    value = GroupValue("consumer", 3, None, None, -1, ())
    offset = (offset_key(GROUP, "t", 0), offset_value(lab.offset(3)))
    lab.clock.advance(6 * day_ms)
    lab.take_over([(group_key(GROUP), group_value(value)), offset])
    lab.expire()
    assert lab.committed() == 3
    lab.clock.advance(day_ms)
    lab.expire()
    assert lab.state() == "Dead"


# Giving up


def test_parked_joins_and_syncs_are_answered_when_the_partition_is_given_up() -> None:
    lab = Lab()
    _, follower = lab.joined(2, group_id="g2")
    join = lab.join()
    member_id = lab.member_ids()[0]
    sync = lab.sync(follower.member_id, 1, group_id="g2")
    lab.do(lab.shard.unload())
    assert join.result == JoinResult(ErrorCode.NOT_COORDINATOR, member_id)
    assert sync.result == SyncResult(ErrorCode.NOT_COORDINATOR)
    assert lab.shard.next_deadline_ms is None


def test_a_parked_join_of_a_stable_group_is_answered_too() -> None:
    lab = Lab()
    lab.stable(2, static=True)
    lab.is_holding = True
    call = lab.join(instance_id="i1")
    lab.do(lab.shard.unload())
    assert call.result.error is ErrorCode.NOT_COORDINATOR
    lab.finish_next()


def test_an_assignment_that_is_stored_after_the_partition_was_given_up_changes_nothing() -> None:
    lab = Lab()
    (leader,) = lab.joined()
    lab.is_holding = True
    call = lab.sync(leader.member_id, 1, {leader.member_id: b"x"})
    lab.do(lab.shard.unload())
    assert call.result.error is ErrorCode.NOT_COORDINATOR
    old = lab.shard
    lab.finish_next()
    assert old.describe(GROUP).state == "Dead"
    lab.take_over(lab.log)
    assert lab.sync(leader.member_id, 1).result.assignment == b"x"


def test_memory_is_given_back_in_steps() -> None:
    lab = Lab()
    for number in range(5):
        lab.commit({TopicPartition(f"t{place % 3}", place): 1 for place in range(1_500)}, group_id=f"g{number}")
    lab.do(lab.shard.unload())
    assert sum(1 for _ in lab.shard.release()) > 2
    assert lab.shard.list_groups() == []


# What is shown


def test_groups_are_listed_by_state_in_any_case() -> None:
    lab = Lab()
    lab.stable(group_id="one")
    lab.commit({TP: 1}, group_id="two")
    lab.join(group_id="three", protocol_type="sr")
    rows = {(each.group_id, each.protocol_type, each.state) for each in lab.shard.list_groups()}
    assert rows == {("one", "consumer", "Stable"), ("two", "", "Empty"), ("three", "sr", "PreparingRebalance")}
    assert [each.group_id for each in lab.shard.list_groups(["STABLE", "preparingrebalance"])] == ["one", "three"]
    assert lab.shard.list_groups(["?"]) == []
    assert lab.shard.states == {
        GroupState.STABLE: 1,
        GroupState.EMPTY: 1,
        GroupState.PREPARING_REBALANCE: 1,
        GroupState.COMPLETING_REBALANCE: 0,
    }


def test_protocol_metadata_and_assignments_are_shown_while_a_group_is_stable() -> None:
    lab = Lab()
    assert (lab.state(), lab.describe().error) == ("Dead", ErrorCode.NONE)
    call = lab.join()
    for _ in range(2):
        described = lab.describe()
        assert (described.protocol_type, described.protocol) == ("consumer", "")
        assert [(each.metadata, each.assignment) for each in described.members] == [(b"", b"")]
        lab.pass_time(DELAY_MS)
    lab.sync(call.result.member_id, 1, {call.result.member_id: b"x"})
    described = lab.describe()
    assert described.protocol == "range"
    (member,) = described.members
    assert (member.client_id, member.client_host, member.assignment) == ("c", "/127.0.0.1", b"x")
    assert member.metadata == call.result.members[0].metadata


def test_a_state_that_may_not_follow_is_refused() -> None:
    lab = Lab()
    lab.commit({TP: 1})
    group = lab.shard._groups[GROUP]
    with pytest.raises(AssertionError, match=f"group {GROUP} cannot go from Empty to Stable, only from Completing"):
        group._enter(GroupState.STABLE)
