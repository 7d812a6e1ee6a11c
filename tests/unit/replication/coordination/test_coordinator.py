"""Who answers for a group: led, loading, not here; appends, moves, ends."""

from __future__ import annotations

import msgspec

from regency.broker_agent.groups.api import Caller, SyncRequest
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.kafka.record_batch import iter_batches
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

HOME = TopicPartition(OFFSETS_TOPIC, 0)
READ = TopicPartition("read", 0)


def test_a_commit_is_answered_when_every_replica_has_it(cluster, coordination) -> None:
    cluster.sever(1, 3)
    answers = coordination.commit()
    coordination.settle()
    assert answers == []
    assert coordination.committed() is None, "not before it is certain"
    cluster[1].consume(1, partition=HOME, replica=3, epoch=0)
    assert answers == [{READ: ErrorCode.NONE}]
    assert coordination.committed() == 5


def test_a_commit_that_the_replicas_do_not_take_in_time_is_answered_so(cluster, coordination) -> None:
    cluster.sever(1, 3)
    answers = coordination.commit()
    coordination.advance(6_000)
    assert answers == [{READ: ErrorCode.REQUEST_TIMED_OUT}]


def test_commits_of_one_turn_are_one_batch_in_their_order(cluster, coordination) -> None:
    answers = [coordination.commit({READ: offset}, group_id=group) for offset, group in ((1, "a"), (2, "b"), (3, "a"))]
    coordination.settle()
    assert answers == [[{READ: ErrorCode.NONE}]] * 3
    assert (coordination.committed(group_id="a"), coordination.committed(group_id="b")) == (3, 2)
    read = cluster[1].manager.read_led(HOME, 0, 10_000)
    assert [header.record_count for _, header in iter_batches(read.records)] == [3]


def test_commits_that_do_not_fit_together_are_written_one_by_one(cluster, coordination) -> None:
    log = cluster[1].logs.get(HOME)
    log.config = msgspec.structs.replace(log.config, max_message_bytes=300)
    answers = [coordination.commit({READ: offset}, group_id=f"group {offset}") for offset in range(9)]
    coordination.settle()
    assert answers == [[{READ: ErrorCode.NONE}]] * 9
    assert [coordination.committed(group_id=f"group {offset}") for offset in range(9)] == list(range(9))


def test_what_is_still_to_be_written_when_the_leadership_ends_is_told_so(cluster, coordination) -> None:
    answers = coordination.commit()
    cluster.lead(2, partition=HOME)
    coordination.settle()
    assert answers == [{READ: ErrorCode.NOT_COORDINATOR}]


def test_groups_move_with_their_partition(cluster, coordination, coordinate) -> None:
    other = coordinate(2)
    assert other.committed() is ErrorCode.NOT_COORDINATOR
    coordination.commit()
    coordination.settle()
    cluster.lead(2, partition=HOME)
    coordination.settle()
    other.settle()
    assert coordination.committed() is ErrorCode.NOT_COORDINATOR
    assert other.committed() == 5


def test_nothing_is_told_of_a_commit_that_the_next_leader_may_not_have(cluster, coordination, coordinate) -> None:
    cluster.sever(1, 3)
    answers = coordination.commit()
    coordination.settle()
    other = coordinate(2)
    cluster.sever(2, 3)
    cluster.lead(2, partition=HOME)
    other.advance(1_000)
    assert answers == [{READ: ErrorCode.NOT_COORDINATOR}]
    assert other.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "broker 3 is in sync, and does not have it"
    cluster.lead(3, partition=HOME)
    assert other.committed() is ErrorCode.NOT_COORDINATOR


def test_what_replicas_have_at_last_is_served(cluster, coordination, coordinate) -> None:
    cluster.sever(1, 3)
    coordination.commit()
    coordination.settle()
    other = coordinate(2)
    cluster.sever(2, 3)
    cluster.lead(2, partition=HOME)
    other.advance(1_000)
    cluster.heal()
    other.advance(1_000)
    assert other.committed() == 5


def test_a_join_that_waits_is_told_once_that_the_group_has_moved(cluster, coordinate) -> None:
    coordination = coordinate(1, group_initial_rebalance_delay_ms=3_000)
    cluster.lead(1, partition=HOME)
    coordination.settle()
    answers = coordination.join()
    coordination.settle()
    assert answers == []
    cluster.lead(2, partition=HOME)
    assert [answer.error for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    coordination.advance(10_000)
    assert len(answers) == 1


def test_a_commit_under_way_when_the_leadership_ends_is_told_so(cluster, coordination) -> None:
    cluster.sever(1, 3)
    answers = coordination.commit()
    cluster.lead(2, partition=HOME)
    assert answers == [{READ: ErrorCode.NOT_COORDINATOR}]


def test_a_later_epoch_of_the_same_leader_changes_nothing(cluster, coordination) -> None:
    coordination.commit()
    cluster.lead(1, partition=HOME)
    coordination.settle()
    assert coordination.committed() == 5
    answers = coordination.commit({READ: 6})
    coordination.settle()
    assert answers == [{READ: ErrorCode.NONE}]


def test_a_log_directory_that_fails_ends_it(cluster, coordination) -> None:
    cluster[1].manager.handle_dir_failure(cluster[1].dir, "broken")
    assert coordination.committed() is ErrorCode.NOT_COORDINATOR


def test_while_a_partition_is_loaded_members_are_kept(cluster, coordinate) -> None:
    coordination = coordinate(1)
    cluster.lead(1, partition=HOME)
    groups = coordination.coordinator
    heard, synced, left = [], [], []
    groups.heartbeat("g", Caller("m", None, 1), heard.append)
    groups.sync(SyncRequest("g", "m", None, 1, None, None, {}), synced.append)
    groups.leave("g", [], lambda error, _: left.append(error))
    assert heard == [ErrorCode.NONE]
    assert [answer.error for answer in synced] == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert left == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert coordination.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert groups.describe("g").error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert groups.list_groups(()) == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, [])
    coordination.settle()
    assert coordination.committed() is None
    assert groups.list_groups(()) == (ErrorCode.NONE, [])


def test_before_the_partitions_are_known_nobody_coordinates(cluster, coordinate) -> None:
    coordination = coordinate(1, READ.topic)
    assert coordination.committed() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordination.coordinator.partition_of("g") is None


def test_partitions_are_counted_in_zookeeper_and_asked_for_again(cluster, coordinate) -> None:
    coordination = coordinate(1, READ.topic)
    coordination.publish(OFFSETS_TOPIC, READ.topic, partitions=4)
    assert coordination.coordinator.partition_of("group1") == 1237460590 % 4
    coordination.publish(READ.topic)
    coordination.session.znode = None
    coordination.publish(OFFSETS_TOPIC, READ.topic, in_zookeeper=False)
    assert coordination.coordinator.partition_of("group1") is None
    coordination.place(50)
    coordination.advance(1_100)
    assert coordination.coordinator.partition_of("group1") == 40


def test_an_empty_group_id_only_commits_and_is_looked_at(cluster, coordination) -> None:
    assert [answer.error for answer in coordination.join(group_id="")] == [ErrorCode.INVALID_GROUP_ID]
    answers = coordination.commit(group_id="")
    coordination.settle()
    assert answers == [{READ: ErrorCode.NONE}]
    assert coordination.committed(group_id="") == 5
    assert coordination.coordinator.describe("").state == "Empty"


def test_a_session_ends_without_anybody_asking(cluster, coordination) -> None:
    answers = coordination.join()
    coordination.settle()
    (joined,) = answers
    assert joined.error is ErrorCode.NONE
    assert len(coordination.coordinator.describe("g").members) == 1
    coordination.advance(200_000)
    assert coordination.coordinator.describe("g").members == ()
    assert coordination.coordinator.describe("g").state == "Empty"


def test_though_the_call_for_it_comes_too_early(coordination) -> None:
    coordination.too_early_ms = 30
    coordination.join()
    coordination.advance(11_000, step=10)
    assert coordination.coordinator.describe("g").state == "Empty"


def test_offsets_of_a_deleted_topic_go(cluster, coordination) -> None:
    coordination.commit({READ: 5, TopicPartition("other", 0): 7})
    coordination.settle()
    coordination.publish(OFFSETS_TOPIC, "other")
    coordination.settle()
    assert coordination.committed() is None
    assert coordination.committed(TopicPartition("other", 0)) == 7


def test_offsets_of_a_topic_that_was_deleted_during_the_load_go(cluster, coordination, coordinate) -> None:
    coordination.commit()
    coordination.settle()
    other = coordinate(2)
    cluster.lead(2, partition=HOME)
    other.publish(OFFSETS_TOPIC)
    assert other.committed() is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    other.settle()
    assert other.committed() is None


def test_old_offsets_go_when_it_is_time_to_look(cluster, coordinate) -> None:
    coordination = coordinate(1, offsets_retention_minutes=1, offsets_retention_check_interval_ms=30_000)
    cluster.lead(1, partition=HOME)
    coordination.settle()
    coordination.commit()
    coordination.advance(45_000, step=5_000)
    assert coordination.committed() == 5
    coordination.advance(60_000, step=5_000)
    assert coordination.committed() is None
    assert coordination.coordinator.counters.expirations == 1


def test_a_broker_that_stops_tells_everybody_to_look_elsewhere(cluster, coordinate) -> None:
    coordination = coordinate(1, group_initial_rebalance_delay_ms=3_000)
    cluster.lead(1, partition=HOME)
    coordination.settle()
    answers = coordination.join()
    coordination.coordinator.close()
    assert [answer.error for answer in answers] == [ErrorCode.NOT_COORDINATOR]
    assert coordination.committed() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert coordination.coordinator.list_groups(()) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, ())
    coordination.advance(5_000)


def test_groups_and_offsets_are_counted(cluster, coordination) -> None:
    coordination.join("joined")
    coordination.commit(group_id="committed")
    coordination.settle()
    states = {state.value: count for state, count in coordination.coordinator.groups_by_state.items() if count}
    assert states == {"CompletingRebalance": 1, "Empty": 1}
    assert coordination.coordinator.offset_count == 1
    assert coordination.coordinator.loads.count == 1
