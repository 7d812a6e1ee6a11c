"""Committing, fetching, deleting and expiring offsets. Scenarios of GroupMetadataManagerTest and GroupMetadataTest."""

from __future__ import annotations

import pytest
from group_lab import DELAY_MS, GROUP, SESSION_MS, TP, Lab, subscription

from regency.kafka.groups.records import OffsetAndMetadata, group_key, offset_key, offset_value
from regency.model.ids import LeaderEpoch, Offset, ProducerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

OTHER = TopicPartition("t", 1)
ELSEWHERE = TopicPartition("u", 0)
DAY_MS = 86_400_000
RETENTION_MS = 7 * DAY_MS
OK = ErrorCode.NONE


def leave_empty(lab: Lab, **kwargs: str) -> None:
    """A group that has had a member, which committed and left."""
    (member,) = lab.stable(**kwargs)
    lab.commit({TP: 5}, member.member_id, 1)
    lab.leave(member.member_id)


# Committing


def test_a_client_without_a_group_commits_and_fetches() -> None:
    lab = Lab()
    committed = OffsetAndMetadata(Offset(5), LeaderEpoch(3), "é", lab.clock.wall_ms())
    assert lab.commit({TP: committed, OTHER: 6}).result == {TP: OK, OTHER: OK}
    assert lab.appended == [
        ((offset_key(GROUP, "t", 0), offset_value(committed)), (offset_key(GROUP, "t", 1), offset_value(lab.offset(6))))
    ]
    assert lab.fetch([TP, ELSEWHERE]) == {TP: committed, ELSEWHERE: None}
    assert lab.fetch() == {TP: committed, OTHER: lab.offset(6)}
    assert (lab.state(), lab.describe().protocol_type) == ("Empty", "")
    assert (lab.shard.offset_count, lab.counters.commits) == (2, 2)


def test_nothing_is_committed_in_a_group_that_is_not_there() -> None:
    lab = Lab()
    assert lab.fetch([TP]) == {TP: None}
    assert lab.fetch() == {}
    assert lab.commit({TP: 1}, "m", 3).result == {TP: ErrorCode.ILLEGAL_GENERATION}
    assert lab.commit({}).result == {}
    assert lab.shard.list_groups() == []


def test_only_members_of_this_generation_commit_in_a_group_with_members() -> None:
    lab = Lab()
    leader, follower = lab.stable(2)
    assert lab.commit({TP: 1}, leader.member_id, 1).result == {TP: OK}
    assert lab.commit({TP: 2}).result == {TP: ErrorCode.UNKNOWN_MEMBER_ID}
    assert lab.commit({TP: 2}, "x", 1).result == {TP: ErrorCode.UNKNOWN_MEMBER_ID}
    assert lab.commit({TP: 2}, leader.member_id, 2).result == {TP: ErrorCode.ILLEGAL_GENERATION}
    assert lab.commit({TP: 2}, leader.member_id, -1).result == {TP: ErrorCode.ILLEGAL_GENERATION}
    assert lab.commit({TP: 2}, "", 1, instance_id="x").result == {TP: ErrorCode.UNKNOWN_MEMBER_ID}
    lab.join(leader.member_id)
    assert lab.commit({TP: 3}, follower.member_id, 1).result == {TP: OK}  # what it read before the rebalance
    lab.join(follower.member_id)
    assert lab.state() == "CompletingRebalance"
    assert lab.commit({TP: 4}, leader.member_id, 2).result == {TP: ErrorCode.REBALANCE_IN_PROGRESS}
    assert lab.committed() == 3


def test_a_static_members_commit_under_a_wrong_id_is_fenced() -> None:
    lab = Lab()
    lab.stable(static=True)
    assert lab.commit({TP: 1}, "x", 1, instance_id="i0").result == {TP: ErrorCode.FENCED_INSTANCE_ID}


def test_tools_commit_in_a_group_whose_members_have_left() -> None:
    lab = Lab()
    leave_empty(lab)
    assert lab.commit({TP: 9}).result == {TP: OK}
    assert lab.committed() == 9


def test_an_empty_group_does_not_ask_who_commits_outside_any_generation() -> None:
    """testManualCommitOffsetShouldNotValidateMemberIdAndInstanceId."""
    lab = Lab()
    assert lab.commit({TP: 1}, "x", -1, instance_id="i").result == {TP: OK}
    assert lab.commit({TP: 2}, "x", -1, instance_id="i").result == {TP: OK}
    assert lab.commit({TP: 3}, "x", 0).result == {TP: ErrorCode.UNKNOWN_MEMBER_ID}
    assert lab.committed() == 2


def test_a_commit_while_members_synchronize_is_refused_first_for_what_is_wrong_with_it() -> None:
    """testCommitOffsetInCompletingRebalanceFromUnknownMemberId, …FromIllegalGeneration."""
    lab = Lab()
    (member,) = lab.joined()
    assert lab.commit({TP: 1}, "x", 1).result == {TP: ErrorCode.UNKNOWN_MEMBER_ID}
    assert lab.commit({TP: 1}, member.member_id, 2).result == {TP: ErrorCode.ILLEGAL_GENERATION}
    assert lab.commit({TP: 1}, member.member_id, 1).result == {TP: ErrorCode.REBALANCE_IN_PROGRESS}
    assert lab.appended == []


def test_a_commit_keeps_a_member_alive() -> None:
    lab = Lab()
    (member,) = lab.stable()
    for offset in range(3):
        lab.pass_time(SESSION_MS - 1)
        lab.commit({TP: offset}, member.member_id, 1)
    assert lab.heartbeat(member.member_id, 1) is OK


@pytest.mark.parametrize(
    ("log_error", "told"),
    [
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT),
        (ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_a_commit_that_cannot_be_stored_does_not_count(log_error: ErrorCode, told: ErrorCode) -> None:
    """testCommitOffsetFailure."""
    lab = Lab()
    lab.commit({TP: 1})
    lab.failing = log_error
    assert lab.commit({TP: 2, OTHER: 3}).result == {TP: told, OTHER: told}
    assert lab.fetch([TP, OTHER], stable=True) == {TP: lab.offset(1), OTHER: None}
    assert lab.shard.offset_count == 1


def test_metadata_that_is_too_long_keeps_the_other_partitions_from_nothing() -> None:
    """testCommitOffsetPartialFailure; KAFKA-16371: nothing of what was refused stays behind."""
    lab = Lab(offset_metadata_max_bytes=4)
    long, just = lab.offset(1, metadata="ééééé"), lab.offset(2, metadata="éééé")
    assert lab.commit({TP: long, OTHER: just}).result == {TP: ErrorCode.OFFSET_METADATA_TOO_LARGE, OTHER: OK}
    assert lab.fetch([TP, OTHER], stable=True) == {TP: None, OTHER: just}
    assert lab.commit({TP: long}, group_id="g2").result == {TP: ErrorCode.OFFSET_METADATA_TOO_LARGE}
    assert len(lab.appended) == 1 and lab.state("g2") == "Dead"


def test_an_offset_is_unstable_until_its_commit_is_decided() -> None:
    lab = Lab()
    lab.commit({TP: 1, OTHER: 1})
    lab.is_holding = True
    calls = [lab.commit({TP: 2}), lab.commit({TP: 3})]
    for left in (2, 1):
        assert lab.fetch([TP, OTHER], stable=True) == {TP: ErrorCode.UNSTABLE_OFFSET_COMMIT, OTHER: lab.offset(1)}
        assert lab.fetch(stable=True)[TP] is ErrorCode.UNSTABLE_OFFSET_COMMIT
        assert len(lab.held) == left
        lab.finish_next()
    assert [call.result for call in calls] == [{TP: OK}] * 2
    assert lab.fetch([TP], stable=True) == {TP: lab.offset(3)}


def test_an_offset_of_an_open_transaction_is_unstable_and_keeps_the_group() -> None:
    lab = Lab()
    lab.commit({TP: 1})
    offsets = lab.shard._groups[GROUP].offsets
    offsets.transactional[ProducerId(5)] = {OTHER: b""}
    assert lab.fetch([TP, OTHER], stable=True) == {TP: lab.offset(1), OTHER: ErrorCode.UNSTABLE_OFFSET_COMMIT}
    lab.pass_time(RETENTION_MS)
    lab.expire()
    assert (lab.committed(), lab.state()) == (None, "Empty")


def test_of_two_commits_the_later_in_the_log_counts_in_whatever_order_they_are_decided() -> None:
    lab = Lab()
    lab.is_holding = True
    lab.commit({TP: 1})
    lab.commit({TP: 2})
    first, second = lab.held
    lab.log += [*first.records, *second.records]
    lab.finish(second, is_kept=False)
    lab.finish(first, is_kept=False)
    assert lab.committed() == 2
    lab.reload()
    assert lab.committed() == 2


def test_a_commit_that_ends_after_the_partition_was_given_up_is_answered_with_its_own_outcome() -> None:
    """testUnloadOffsetsAndGroupIgnoredAfterStopReplica, from the other side: nothing is answered twice, or never."""
    lab = Lab()
    lab.is_holding = True
    calls = [lab.commit({TP: 1}), lab.commit({TP: 2})]
    lab.do(lab.shard.unload())
    assert all(call.is_waiting for call in calls)
    lab.finish_next()
    lab.finish_next(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert [call.result for call in calls] == [{TP: OK}, {TP: ErrorCode.NOT_COORDINATOR}]
    lab.take_over(lab.log)
    assert lab.committed() == 1


# Deleting offsets (KIP-496)


def test_offsets_of_an_empty_group_are_deleted_and_then_the_group() -> None:
    lab = Lab()
    leave_empty(lab)
    lab.commit({OTHER: 1})
    assert lab.delete_offsets(TP, ELSEWHERE).result == (OK, {TP: OK, ELSEWHERE: OK})
    assert lab.appended[-1] == ((offset_key(GROUP, "t", 0), None),)
    assert lab.fetch() == {OTHER: lab.offset(1)}
    assert lab.delete_offsets(OTHER).result == (OK, {OTHER: OK})
    assert lab.appended[-1] == ((offset_key(GROUP, "t", 1), None), (group_key(GROUP), None))
    assert lab.state() == "Dead"
    lab.reload()
    assert lab.state() == "Dead"


def test_offsets_of_topics_that_members_read_are_not_deleted() -> None:
    """testDeleteOffsetOfConsumerGroup…, KAFKA-8954: the subscription decides, not what the group has committed."""
    lab = Lab()
    (member,) = lab.stable()
    lab.commit({TP: 1, ELSEWHERE: 2}, member.member_id, 1)
    expected = {TP: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ELSEWHERE: OK, OTHER: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert lab.delete_offsets(TP, ELSEWHERE, OTHER).result == (OK, expected)
    assert (lab.committed(TP), lab.committed(ELSEWHERE), lab.counters.deletions) == (1, None, 1)


def test_a_member_whose_subscription_cannot_be_read_may_read_any_topic() -> None:
    """testDeleteOffsetOfConsumerGroupWithUnparsableProtocol."""
    lab = Lab()
    lab.stable(protocols=(("range", b"?"),))
    assert lab.delete_offsets(ELSEWHERE).result == (OK, {ELSEWHERE: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC})


def test_offsets_of_other_protocol_types_are_not_deleted_while_there_are_members() -> None:
    lab = Lab()
    (member,) = lab.stable(protocol_type="connect", protocols=(("v1", subscription("t")),))
    assert lab.delete_offsets(ELSEWHERE).result == (ErrorCode.NON_EMPTY_GROUP, {})
    lab.leave(member.member_id)
    assert lab.delete_offsets(ELSEWHERE).result == (OK, {ELSEWHERE: OK})


def test_a_group_that_is_not_there_has_no_offsets_to_delete() -> None:
    assert Lab().delete_offsets(TP).result == (ErrorCode.GROUP_ID_NOT_FOUND, {})


def test_offsets_whose_deletion_cannot_be_stored_stay() -> None:
    lab = Lab()
    lab.commit({TP: 1})
    lab.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    assert lab.delete_offsets(TP, OTHER).result == (OK, {TP: ErrorCode.COORDINATOR_NOT_AVAILABLE, OTHER: OK})
    assert lab.fetch([TP], stable=True) == {TP: lab.offset(1)}


def test_a_deletion_that_a_later_commit_overtakes_takes_only_what_was_before() -> None:
    lab = Lab()
    lab.commit({TP: 1})
    lab.is_holding = True
    deleted = lab.delete_offsets(TP)
    lab.commit({TP: 2})
    lab.finish_next()
    assert deleted.result == (OK, {TP: OK}) and lab.state() == "Empty"
    lab.finish_next()
    assert lab.committed() == 2
    lab.reload()
    assert lab.committed() == 2


def test_a_deletion_takes_also_a_commit_that_was_begun_before() -> None:
    lab = Lab()
    lab.is_holding = True
    commit, deleted = lab.commit({TP: 1}), lab.delete_offsets(TP)
    lab.finish_next()
    lab.finish_next()
    assert (commit.result, deleted.result) == ({TP: OK}, (OK, {TP: OK}))
    assert lab.committed() is None
    lab.reload()
    assert lab.committed() is None


# Deleting groups


def test_an_empty_group_is_deleted_with_its_offsets() -> None:
    lab = Lab()
    leave_empty(lab)
    assert lab.delete().result is OK
    assert lab.appended[-1] == ((offset_key(GROUP, "t", 0), None), (group_key(GROUP), None))
    assert lab.state() == "Dead" and lab.shard.offset_count == 0
    lab.reload()
    assert lab.state() == "Dead" and lab.fetch() == {}


def test_a_group_that_never_had_members_has_no_record_to_delete() -> None:
    lab = Lab()
    lab.commit({TP: 1})
    assert lab.delete().result is OK
    assert lab.appended[-1] == ((offset_key(GROUP, "t", 0), None),)
    assert lab.state() == "Dead"


def test_a_group_with_members_or_without_existence_is_not_deleted() -> None:
    lab = Lab()
    assert lab.delete().result is ErrorCode.GROUP_ID_NOT_FOUND
    member = lab.join()
    assert lab.delete().result is ErrorCode.NON_EMPTY_GROUP
    lab.pass_time(DELAY_MS)
    lab.sync(member.result.member_id, 1, {})
    assert lab.delete().result is ErrorCode.NON_EMPTY_GROUP


def test_a_group_with_more_offsets_than_fit_one_batch_is_deleted_piece_by_piece() -> None:
    lab = Lab()
    leave_empty(lab)
    for first in range(0, 12_000, 4_000):
        lab.commit({TopicPartition("many", first + number): 1 for number in range(4_000)})
    before = len(lab.appended)
    lab.is_holding = True
    call = lab.delete()
    pieces = 0
    while lab.held:
        assert call.is_waiting
        assert sum(len(key) for key, _ in lab.held[0].records) < 512 << 10
        lab.finish_next()
        pieces += 1
    assert call.result is OK and pieces == len(lab.appended) - before > 1
    assert lab.state() == "Dead" and lab.shard.offset_count == 0
    lab.reload()
    assert lab.state() == "Dead" and lab.shard.offset_count == 0


def test_a_deletion_piece_by_piece_ends_where_a_member_joins_or_the_partition_is_given_up() -> None:
    for happens, error in ((Lab.join, ErrorCode.NON_EMPTY_GROUP), (Lab.reload, ErrorCode.NOT_COORDINATOR)):
        lab = Lab()
        lab.commit({TopicPartition("many", number): 1 for number in range(12_000)})
        lab.is_holding = True
        call = lab.delete()
        happens(lab)
        lab.finish_next()
        assert call.result is error and not lab.held


def test_a_group_whose_deletion_cannot_be_stored_stays() -> None:
    lab = Lab()
    leave_empty(lab)
    lab.failing = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert lab.delete().result is ErrorCode.NOT_COORDINATOR
    assert lab.state() == "Empty" and lab.committed() == 5


def test_a_member_that_joins_while_its_group_is_deleted_begins_with_nothing() -> None:
    lab = Lab()
    leave_empty(lab)
    lab.is_holding = True
    call, join = lab.delete(), lab.join()
    lab.finish_next()
    assert call.result is OK and lab.state() == "PreparingRebalance" and lab.fetch() == {}
    lab.pass_time(DELAY_MS)
    assert join.result.error is OK


def test_a_group_that_had_members_again_before_it_was_deleted_is_what_the_log_says() -> None:
    lab = Lab()
    leave_empty(lab)
    lab.is_holding = True
    lab.delete()
    lab.join()
    lab.leave(*lab.member_ids())
    lab.pass_time(DELAY_MS)
    lab.finish_next()
    lab.finish_next()
    assert (lab.state(), lab.fetch()) == ("Empty", {})
    lab.reload()
    assert (lab.state(), lab.fetch()) == ("Empty", {})


# Expiry


def test_offsets_of_an_empty_group_go_when_it_has_been_empty_for_the_retention() -> None:
    """testOffsetExpiration…: from the time it became empty, not from each commit."""
    lab = Lab()
    leave_empty(lab)
    lab.pass_time(DAY_MS)
    lab.commit({OTHER: 1})
    lab.pass_time(RETENTION_MS - DAY_MS - 1)
    lab.expire()
    assert (lab.committed(TP), lab.committed(OTHER)) == (5, 1)
    lab.pass_time(1)
    lab.expire()
    assert lab.state() == "Dead" and lab.counters.expirations == 2
    lab.reload()
    assert lab.state() == "Dead"


def test_offsets_of_a_group_that_only_commits_go_with_the_age_of_each() -> None:
    lab = Lab()
    lab.commit({TP: 1})
    lab.pass_time(DAY_MS)
    lab.commit({OTHER: 1})
    lab.pass_time(RETENTION_MS - DAY_MS)
    lab.expire()
    assert lab.fetch() == {OTHER: lab.fetch()[OTHER]}
    assert lab.appended[-1] == ((offset_key(GROUP, "t", 0), None),)
    lab.pass_time(DAY_MS)
    lab.expire()
    assert lab.state() == "Dead"


def test_offsets_of_an_active_group_go_only_for_topics_that_nobody_reads() -> None:
    """testOffsetExpirationOfActiveGroupSemantics; KAFKA-13636."""
    lab = Lab(group_max_session_timeout_ms=RETENTION_MS * 2)
    kept = {"session_ms": RETENTION_MS * 2}
    (member,) = lab.stable(protocols=(("range", subscription("t")),), **kept)
    lab.commit({TP: 1, ELSEWHERE: 1}, member.member_id, 1)
    lab.pass_time(RETENTION_MS)
    parked = lab.join(**kept)
    lab.expire()  # not while it rebalances
    assert (lab.committed(TP), lab.committed(ELSEWHERE), parked.is_waiting) == (1, 1, True)
    lab.join(member.member_id, **kept)
    lab.expire()
    assert (lab.committed(TP), lab.committed(ELSEWHERE)) == (1, 1)
    lab.sync(member.member_id, 2, {}), lab.sync(parked.result.member_id, 2)
    lab.expire()
    assert (lab.state(), lab.committed(TP), lab.committed(ELSEWHERE)) == ("Stable", 1, None)


@pytest.mark.parametrize(("protocol_type", "metadata"), [("connect", subscription("u")), ("consumer", b"what is this")])
def test_offsets_of_an_active_group_stay_where_it_is_not_known_what_it_reads(
    protocol_type: str, metadata: bytes
) -> None:
    lab = Lab(group_max_session_timeout_ms=RETENTION_MS * 2)
    (member,) = lab.stable(protocol_type=protocol_type, protocols=(("range", metadata),), session_ms=RETENTION_MS * 2)
    lab.commit({TP: 1}, member.member_id, 1)
    lab.pass_time(RETENTION_MS)
    lab.expire()
    assert lab.committed() == 1


def test_an_expiry_that_a_commit_names_counts_alone() -> None:
    lab = Lab()
    wall_ms = lab.clock.wall_ms()
    lab.commit({TP: lab.offset(1, expire_ms=wall_ms + 10), OTHER: lab.offset(1, expire_ms=wall_ms + 2 * RETENTION_MS)})
    lab.commit({ELSEWHERE: 1})
    lab.pass_time(10)
    lab.expire()
    assert set(lab.fetch()) == {OTHER, ELSEWHERE}
    lab.reload()
    lab.pass_time(RETENTION_MS)
    lab.expire()
    assert set(lab.fetch()) == {OTHER}


def test_an_offset_whose_commit_is_not_decided_does_not_expire() -> None:
    lab = Lab()
    lab.commit({TP: 1})
    lab.pass_time(RETENTION_MS)
    lab.is_holding = True
    lab.commit({TP: 2})
    lab.expire()
    assert len(lab.held) == 1
    lab.finish_next()
    assert lab.committed() == 2


def test_offsets_whose_expiry_cannot_be_stored_go_the_next_time() -> None:
    lab = Lab()
    leave_empty(lab)
    lab.pass_time(RETENTION_MS)
    lab.failing = ErrorCode.NOT_ENOUGH_REPLICAS
    lab.expire()
    assert lab.committed() == 5 and lab.state() == "Empty" and lab.counters.expirations == 0
    lab.failing = ErrorCode.NONE
    lab.expire()
    assert lab.state() == "Dead"


def test_an_empty_group_without_offsets_goes_at_once() -> None:
    lab = Lab()
    (member,) = lab.stable()
    lab.leave(member.member_id)
    lab.expire()
    assert lab.appended[-1] == ((group_key(GROUP), None),) and lab.state() == "Dead"
    lab.ask_for_id()
    lab.expire()
    assert lab.appended[-1] == ((group_key(GROUP), None),) and lab.state() == "Dead"


def test_expiry_is_done_in_steps_and_in_batches_that_fit() -> None:
    lab = Lab()
    for number in range(3):
        lab.commit({TopicPartition("t" * 200, first): 1 for first in range(4_000)}, group_id=f"g{number}")
    lab.pass_time(RETENTION_MS)
    before, steps = len(lab.appended), 0
    for effects in lab.shard.expire(lab.clock.wall_ms()):
        steps += 1
        lab.do(effects)
    assert steps > 3
    assert all(sum(len(key) for key, _ in records) < 512 << 10 for records in lab.appended[before:])
    assert lab.shard.offset_count == 0
    lab.expire()
    assert lab.shard.list_groups() == []


# Topics that are gone


def test_offsets_of_a_deleted_topic_go_from_every_group() -> None:
    lab = Lab()
    (member,) = lab.stable()
    lab.commit({TP: 1, ELSEWHERE: 2}, member.member_id, 1)
    lab.commit({TP: 1}, group_id="g2")
    lab.is_holding = True
    pending = lab.commit({OTHER: 1}, member.member_id, 1)
    lab.topics_gone("t", "v")
    while lab.held:
        lab.finish_next()
    assert pending.result == {OTHER: OK}
    assert (set(lab.fetch()), lab.state("g2"), lab.shard.offset_count) == ({ELSEWHERE}, "Dead", 1)
    lab.reload()
    assert (set(lab.fetch()), lab.state("g2"), lab.shard.offset_count) == ({ELSEWHERE}, "Dead", 1)


def test_the_count_of_offsets_is_that_of_all_groups() -> None:
    lab = Lab()
    lab.commit({TP: 1, OTHER: 1})
    lab.commit({TP: 2}, group_id="g2")
    lab.commit({TP: 3}, group_id="g2")
    assert lab.shard.offset_count == 3
    lab.delete("g2")
    assert lab.shard.offset_count == 2
    lab.delete_offsets(TP)
    assert lab.shard.offset_count == 1
    lab.reload()
    assert lab.shard.offset_count == 1


def test_protocols_of_a_group_are_kept_for_expiry_after_its_members_left() -> None:
    lab = Lab()
    leave_empty(lab, protocol_type="connect")
    assert lab.describe().protocol_type == "connect"
