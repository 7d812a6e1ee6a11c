"""LeaderAndIsr and StopReplica: which states are taken, what is answered, and in which order things happen."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from regency.broker_agent.log.errors import LogBusy, LogStorageError
from regency.broker_agent.replication.api import AppliedState, Role, StopPartition
from regency.broker_agent.replication.control import NOT_NOW
from regency.model.ids import LeaderEpoch, TopicId, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
OTHER_ID = TopicId(__import__("uuid").UUID(int=7))


def with_(state, **changes):
    return msgspec.structs.replace(state, **changes)


def stop(state, *, epoch=None, delete=False, topic_id=None):
    return StopPartition(
        state.topic_partition,
        topic_id or state.topic_id,
        state.leader_epoch if epoch is None else LeaderEpoch(epoch),
        delete,
    )


def test_a_state_with_a_lower_leader_epoch_is_fenced_with_the_epoch_held(cluster) -> None:
    cluster.lead(1)
    old = cluster.lead(1)
    cluster.lead(2)
    assert cluster[1].apply(old)[TP] == AppliedState(ErrorCode.FENCED_LEADER_EPOCH, LeaderEpoch(2))
    assert cluster[1].partition().role is Role.FOLLOWER


def test_the_same_state_again_changes_nothing(cluster) -> None:
    state = cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    fetches = cluster[2].links[0].round
    assert cluster.tell() == {number: AppliedState(ErrorCode.NONE, state.leader_epoch) for number in (1, 2, 3)}
    assert cluster[1].partition().remotes[2].log_end_offset == 1
    assert len(cluster[2].links) == 1
    assert cluster[2].links[0].round == fetches


def test_the_same_epoch_with_a_newer_version_takes_assignment_isr_and_version_and_leaves_fetch_state_alone(
    cluster,
) -> None:
    state = cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    link = cluster[2].links[0]
    newer = with_(state, isr=(1, 2), zk_version=ZkVersion(9), replicas=(1, 2))
    for number in (1, 2):
        assert cluster[number].apply(newer)[TP] == AppliedState(ErrorCode.NONE, state.leader_epoch)
    partition = cluster[1].partition()
    assert (partition.isr.committed, partition.zk_version) == ((1, 2), 9)
    assert sorted(partition.remotes) == [2]
    assert partition.remotes[2].log_end_offset == 1
    assert partition.epoch_start == 0
    assert cluster[2].partition().zk_version == 9
    assert not link.closed
    assert cluster[2].fetchers.is_following(TP)


def test_an_older_version_of_the_same_epoch_is_not_taken(cluster) -> None:
    state = cluster.lead(1)
    cluster[1].apply(with_(state, isr=(1, 2), zk_version=ZkVersion(9)))
    assert cluster[1].apply(state)[TP].error is ErrorCode.NONE
    assert cluster[1].partition().isr.committed == (1, 2)


def test_another_topic_id_touches_nothing(cluster) -> None:
    state = cluster.lead(1)
    other = with_(state, topic_id=OTHER_ID, leader=2, leader_epoch=LeaderEpoch(5))
    assert cluster[1].apply(other)[TP] == AppliedState(ErrorCode.INCONSISTENT_TOPIC_ID, state.leader_epoch)
    assert cluster[1].partition().is_leader
    assert cluster[1].manager.stop_replicas([stop(state, delete=True, topic_id=OTHER_ID)])[TP].error is (
        ErrorCode.INCONSISTENT_TOPIC_ID
    )
    assert cluster[1].logs.get(TP) is not None


def test_a_log_of_another_topic_id_is_not_taken_into_use(cluster) -> None:
    state = cluster.lead(1)
    cluster.crash(2, clean=True)
    cluster.restart(2)
    assert cluster[2].apply(with_(state, topic_id=OTHER_ID))[TP].error is ErrorCode.INCONSISTENT_TOPIC_ID
    assert TP not in cluster[2].manager.partitions


def test_a_broker_that_is_not_assigned_answers_unknown_partition(cluster) -> None:
    state = cluster.decide(1, (1, 2), replicas=(1, 2))
    assert cluster[3].apply(state)[TP].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster[3].logs.get(TP) is None


def test_a_partition_without_leader_is_hosted_and_waits(cluster) -> None:
    state = cluster.decide(-1)
    assert cluster[1].apply(state)[TP] == AppliedState(ErrorCode.NONE, state.leader_epoch)
    assert cluster[1].partition().role is Role.FOLLOWER
    assert cluster[1].logs.get(TP) is not None
    assert not cluster[1].fetchers.is_following(TP)


def test_a_leader_without_address_is_answered_with_an_error_until_the_address_comes(cluster) -> None:
    state = cluster.decide(1)
    assert cluster[2].apply(state, addresses=False)[TP] == AppliedState(
        ErrorCode.LEADER_NOT_AVAILABLE, state.leader_epoch
    )
    assert cluster[2].apply(state)[TP].error is ErrorCode.NONE
    assert cluster[2].fetchers.is_following(TP)


def busy(*_: object, **__: object) -> None:
    raise LogBusy(None, "too many open files")


def test_what_lacks_a_descriptor_is_not_done_yet_and_done_when_the_controller_repeats_itself(cluster) -> None:
    cluster.lead(1)
    to_lead, new = cluster.decide(2), cluster.decide(2, partition=TopicPartition("flights", 1))
    to_delete = cluster.lead(1, partition=TopicPartition("flights", 2))
    broker = cluster[2]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(broker.log(), "assign_epoch", busy)
        patch.setattr(broker.logs, "create", busy)
        patch.setattr(broker.logs, "delete_async", busy)
        assert broker.apply(to_lead)[TP] == AppliedState(NOT_NOW, LeaderEpoch(0))
        assert broker.apply(new)[new.topic_partition] == AppliedState(NOT_NOW, LeaderEpoch(-1))
        deleted = broker.manager.stop_replicas([stop(to_delete, delete=True)])
        assert deleted[to_delete.topic_partition].error is NOT_NOW
        assert broker.partition().role is Role.FOLLOWER
        assert broker.produce("a")[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert broker.apply(to_lead)[TP].error is ErrorCode.NONE
    assert broker.partition().role is Role.LEADER
    assert broker.apply(new)[new.topic_partition].error is ErrorCode.NONE
    deleted = broker.manager.stop_replicas([stop(to_delete, delete=True)])
    assert deleted[to_delete.topic_partition].error is ErrorCode.NONE
    assert broker.logs.get(to_delete.topic_partition) is None


def test_what_a_fetcher_gave_up_is_followed_again_when_the_controller_repeats_itself(cluster) -> None:
    state = cluster.lead(1)
    cluster.decide(1)
    cluster.tell(1)
    cluster.advance(1_000)
    assert list(cluster[2].fetchers.failed) == [TP]
    assert cluster[2].apply(state)[TP].error is ErrorCode.NONE
    assert cluster[2].fetchers.failed == {}
    assert cluster[2].fetchers.is_following(TP)


def test_the_epoch_is_not_published_when_becoming_leader_fails_on_disk(cluster, monkeypatch) -> None:
    cluster.lead(1)
    log = cluster[2].log()

    def fail(*_: object) -> None:
        raise LogStorageError(cluster[2].dir, "disk full")

    monkeypatch.setattr(log, "assign_epoch", fail)
    state = cluster.decide(2)
    assert cluster[2].apply(state)[TP] == AppliedState(ErrorCode.KAFKA_STORAGE_ERROR, LeaderEpoch(0))
    assert cluster[2].partition().role is Role.OFFLINE
    assert cluster[2].apply(state)[TP].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_new_leader_notes_its_epoch_even_without_a_record(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.run()
    cluster.lead(2)
    assert cluster[2].log().epoch_entries == ((0, 0), (1, 2))
    assert cluster[2].partition().epoch_start == 2


def test_stopping_without_deleting_ends_the_fetcher_and_keeps_the_log(cluster) -> None:
    state = cluster.lead(1)
    assert cluster[2].manager.stop_replicas([stop(state)])[TP] == AppliedState(ErrorCode.NONE, state.leader_epoch)
    assert not cluster[2].fetchers.is_following(TP)
    assert len(cluster[2].fetchers) == 0
    assert cluster[2].logs.get(TP) is not None
    assert cluster[2].apply(state)[TP].error is ErrorCode.NONE
    assert cluster[2].fetchers.is_following(TP)


def test_a_stopped_leader_leads_again_in_the_same_epoch_when_told_so(cluster) -> None:
    state = cluster.lead(1)
    cluster[1].manager.stop_replicas([stop(state)])
    assert [result.error for result in cluster[1].produce("a")] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    cluster[1].apply(state)
    results = cluster[1].produce("a")
    cluster.advance(1_000)
    assert [result.error for result in results] == [ErrorCode.NONE]


@pytest.mark.parametrize("epoch", [-1, -2, 2, 7])
def test_deletion_is_taken_without_an_epoch_or_with_one_not_below_ours(cluster, epoch) -> None:
    cluster.lead(1)
    cluster.lead(1)
    state = cluster.lead(1)
    assert cluster[2].manager.stop_replicas([stop(state, epoch=epoch, delete=True)])[TP].error is ErrorCode.NONE
    assert TP not in cluster[2].manager.partitions
    assert cluster[2].logs.get(TP) is None
    assert cluster[2].manager.topic_name(state.topic_id) is None
    assert cluster[2].manager.stop_replicas([stop(state, epoch=epoch, delete=True)])[TP].error is ErrorCode.NONE


def test_a_log_is_not_deleted_while_an_isr_of_its_partition_may_still_be_written(cluster) -> None:
    state = cluster.lead(1)
    cluster[1].isr_store.held = True
    cluster.sever(1, 2)
    cluster[1].produce("a")
    cluster.advance(cluster.settings.replica_lag_time_max_ms * 2)
    assert cluster[1].isr_store.waiting

    answer = cluster[1].manager.stop_replicas([stop(state, delete=True)])[TP]
    assert (answer.error, cluster[1].logs.get(TP) is None) == (NOT_NOW, False)

    cluster[1].isr_store.held = False
    cluster.run()
    answer = cluster[1].manager.stop_replicas([stop(state, delete=True)])[TP]
    assert (answer.error, cluster[1].logs.get(TP)) == (ErrorCode.NONE, None)


def test_deletion_with_a_lower_epoch_is_fenced(cluster) -> None:
    cluster.lead(1)
    state = cluster.lead(1)
    answer = cluster[2].manager.stop_replicas([stop(state, epoch=0, delete=True)])[TP]
    assert answer == AppliedState(ErrorCode.FENCED_LEADER_EPOCH, LeaderEpoch(1))
    assert cluster[2].fetchers.is_following(TP)


def test_a_log_that_nothing_hosts_is_deleted_all_the_same(cluster) -> None:
    state = cluster.lead(1)
    cluster.crash(2, clean=True)
    cluster.restart(2)
    assert cluster[2].manager.stop_replicas([stop(state, delete=True)])[TP].error is ErrorCode.NONE
    assert cluster[2].logs.get(TP) is None


def test_deletion_answers_who_waits(cluster) -> None:
    state = cluster.lead(1)
    cluster.sever(1, 2)
    produced = cluster[1].produce("a")
    fetched = cluster[1].consume(1, max_wait_ms=5_000)
    cluster[1].manager.stop_replicas([stop(state, delete=True)])
    assert [result.error for result in produced] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [result.error for result in fetched] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_a_failed_directory_takes_its_partitions_offline_and_answers_who_waits(cluster) -> None:
    state = cluster.lead(1)
    other = TopicPartition("flights", 1)
    cluster.lead(2, partition=other)
    produced = cluster[1].produce("a")
    cluster[1].manager.handle_dir_failure(cluster[1].dir, "it was pulled out")
    assert [result.error for result in produced] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not cluster[1].fetchers.is_following(other)
    assert cluster[1].consume(0)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].apply(state)[TP].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].manager.stop_replicas([stop(state, delete=True)])[TP].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_partition_that_finds_no_directory_is_refused_and_not_deleted(cluster, monkeypatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise LogStorageError(None, "all are offline")

    monkeypatch.setattr(cluster[1].logs, "create", fail)
    state = cluster.decide(1)
    assert cluster[1].apply(state)[TP] == AppliedState(ErrorCode.KAFKA_STORAGE_ERROR, LeaderEpoch(-1))
    assert cluster[1].manager.stop_replicas([stop(state, delete=True)])[TP].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[1].produce("a")[0].error is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_log_that_may_be_in_a_failed_directory_is_not_called_deleted_or_absent(cluster, monkeypatch) -> None:
    # StopReplicaRequestTest: what was deleted before is answered NONE again.
    state = cluster.lead(1)
    elsewhere = cluster.decide(1, partition=TopicPartition("flights", 1))
    assert cluster[1].manager.describe_logs([elsewhere.topic_partition]) == {}
    monkeypatch.setattr(type(cluster[1].logs), "offline_dirs", property(lambda _: (Path("/failed"),)))
    assert cluster[1].manager.describe_logs([elsewhere.topic_partition]) == {elsewhere.topic_partition: None}
    for _ in range(2):
        answers = cluster[1].manager.stop_replicas([stop(state, delete=True), stop(elsewhere, delete=True)])
        errors = [answers[each.topic_partition].error for each in (state, elsewhere)]
        assert errors == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_topic_created_again_is_hosted_anew_once_the_old_one_is_forgotten(cluster) -> None:
    old = cluster.lead(1)
    cluster[1].produce("old")
    cluster.run()
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    produced = cluster[1].produce("never")
    new = with_(old, topic_id=OTHER_ID, zk_version=ZkVersion(0), is_new=True)
    cluster.states[TP] = new
    assert cluster[1].apply(new)[TP].error is ErrorCode.INCONSISTENT_TOPIC_ID

    for number in (1, 2, 3):
        cluster[number].manager.forget([TP, TopicPartition("none", 0)])
        cluster[number].logs.mark_stray([TP])
    assert [result.error for result in produced] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert [len(cluster[number].fetchers) for number in (1, 2, 3)] == [0, 0, 0]

    cluster.heal()
    assert [told.error for told in cluster.tell().values()] == [ErrorCode.NONE] * 3
    again = cluster[1].produce("new")
    cluster.advance(1_000)
    assert [result.error for result in again] == [ErrorCode.NONE]
    assert [cluster[number].values() for number in (1, 2, 3)] == [["new"]] * 3


def test_high_watermarks_are_checkpointed_only_after_the_first_full_request_and_survive_a_restart(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.advance(6_000)
    assert cluster[2].logs.high_watermark_checkpoint(TP) == 0
    cluster[2].manager.first_full_request_done()
    cluster.advance(6_000)
    assert cluster[2].logs.high_watermark_checkpoint(TP) == 2
    cluster.crash(2)
    cluster.restart(2)
    cluster[2].apply(cluster.decide(-1))
    assert cluster[2].log().high_watermark == 2


def test_a_partition_without_leader_keeps_its_checkpointed_high_watermark(cluster) -> None:
    """KAFKA-1647: whoever is hosted is in the checkpoint, also while nobody leads."""
    other = TopicPartition("flights", 1)
    for partition in (TP, other):
        cluster.lead(1, partition=partition)
        cluster[1].produce("a", "b", partition=partition)
    cluster[2].manager.first_full_request_done()
    cluster.advance(6_000)
    cluster.crash(2)
    cluster.restart(2)
    cluster[2].apply(cluster.decide(-1), cluster.states[other])
    cluster[2].manager.first_full_request_done()
    cluster[1].produce("c", partition=other)
    cluster.advance(6_000)
    assert [cluster[2].logs.high_watermark_checkpoint(partition) for partition in (TP, other)] == [2, 3]


def test_shutting_down_checkpoints_and_answers_everybody(cluster) -> None:
    cluster.lead(1)
    cluster[1].manager.first_full_request_done()
    cluster[1].produce("a")
    cluster.run()
    cluster.sever(1, 2)
    produced = cluster[1].produce("b")
    fetched = cluster[1].consume(1, max_wait_ms=60_000)
    cluster[1].manager.shutdown()
    assert [result.error for result in produced] == [ErrorCode.REQUEST_TIMED_OUT]
    assert [result.error for result in fetched] == [ErrorCode.NONE]
    assert cluster[1].logs.high_watermark_checkpoint(TP) == 1
    assert len(cluster[1].fetchers) == 0


def test_descriptions_tell_what_reports_need(cluster) -> None:
    state = cluster.lead(1)
    cluster[1].produce("a")
    cluster.advance(600)
    (leading,) = cluster[1].manager.describe()
    (following,) = cluster[2].manager.describe([TP, TopicPartition("none", 0)])
    assert (leading.leader, leading.leader_epoch, leading.isr) == (1, 0, (1, 2, 3))
    assert (leading.high_watermark, leading.log_end_offset, leading.last_batch_epoch) == (1, 1, 0)
    assert (following.topic_id, following.isr, following.broker_epoch_of_leader) == (
        state.topic_id,
        (),
        cluster[1].epoch,
    )
    assert following.directory == str(cluster[2].dir)
