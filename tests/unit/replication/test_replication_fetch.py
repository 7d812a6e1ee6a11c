"""Reads of consumers and followers: admission, bounds and limits."""

from __future__ import annotations

import msgspec
import pytest

from regency.kafka.fetching.values import FetchParams, FetchPartition
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)


# Admission


@pytest.mark.parametrize(
    ("epoch", "on_leader", "on_follower"),
    [
        (-1, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (2, ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_LEADER_EPOCH),
        (3, ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_the_epoch_is_checked_before_the_leadership(cluster, epoch, on_leader, on_follower) -> None:
    cluster.lead(1)
    cluster.lead(1)
    cluster.lead(1)
    assert cluster[1].consume(0, epoch=epoch)[0].error is on_leader
    assert cluster[2].consume(0, epoch=epoch)[0].error is on_follower
    assert cluster[1].latest(epoch=epoch).error is on_leader
    assert cluster[2].latest(epoch=epoch).error is on_follower
    for number, expected in ((1, on_leader), (2, on_follower)):
        error, _ = cluster[number].manager.end_offset_for_epoch(TP, LeaderEpoch(epoch), LeaderEpoch(0))
        assert error is expected


def test_who_does_not_lead_says_who_does(cluster) -> None:
    cluster.lead(1)
    cluster.lead(1)
    refused = cluster[2].consume(0)[0]
    assert (refused.error, refused.leader, refused.leader_epoch) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 1, 1)
    fenced = cluster[1].consume(0, epoch=0)[0]
    assert (fenced.error, fenced.leader, fenced.leader_epoch) == (ErrorCode.FENCED_LEADER_EPOCH, 1, 1)


def test_a_partition_that_others_host_is_not_unknown(cluster) -> None:
    cluster.decide(2, (2, 3), replicas=(2, 3))
    cluster.tell(2, 3)
    cluster.peers.known.add(TP)
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[1].produce("a")[0].error is refused
    assert cluster[1].consume(0)[0].error is refused
    assert cluster[1].consume(0, replica=3, epoch=0)[0].error is refused
    assert cluster[1].latest().error is refused
    assert cluster[1].manager.end_offset_for_epoch(TP, LeaderEpoch(0), LeaderEpoch(0))[0] is refused


def test_topic_ids_must_fit(cluster) -> None:
    state = cluster.lead(1)
    assert cluster[1].consume(0, topic_id=state.topic_id)[0].error is ErrorCode.NONE
    other = TopicId(__import__("uuid").UUID(int=5))
    assert cluster[1].consume(0, topic_id=other)[0].error is ErrorCode.INCONSISTENT_TOPIC_ID
    assert cluster[1].consume(0, partition=OTHER)[0].error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert cluster[1].manager.topic_name(state.topic_id) == "flights"


def test_a_follower_that_is_not_assigned_is_told_so(cluster) -> None:
    cluster.lead_alone()
    assert cluster[1].consume(0, replica=3, epoch=0)[0].error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert cluster[1].consume(0, replica=3)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_follower_of_one_partition_that_asks_for_two_gets_the_one(cluster) -> None:
    cluster.lead_alone(OTHER)
    cluster.decide(1, (1, 2), replicas=(1, 2))
    cluster.tell(1)
    for partition in (TP, OTHER):
        cluster[1].produce("a", acks=1, partition=partition)
    params = FetchParams(BrokerId(2), cluster.peers.epochs[2], 0, 1, 1 << 20)
    answers = []
    for offset in (0, 1):
        wanted = [
            FetchPartition(name, None, Offset(offset), 1 << 20, LeaderEpoch(0), LeaderEpoch(-1), Offset(0))
            for name in (TP, OTHER)
        ]
        cluster[1].manager.fetch(params, wanted, answers.append)
    first, second = answers
    assert (cluster.values_of(first[TP]), first[TP].high_watermark) == (["a"], 0)
    assert second[TP].error is ErrorCode.NONE
    assert cluster[1].log().high_watermark == 1
    assert {each[OTHER].error for each in answers} == {ErrorCode.UNKNOWN_LEADER_EPOCH}
    assert (bytes(first[OTHER].records), sorted(cluster[1].partition(OTHER).remotes)) == (b"", [])


# Bounds


def test_consumers_read_up_to_the_high_watermark_and_followers_to_the_end(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster[1].consume(1, replica=2, epoch=0)
    cluster[1].produce("b", acks=1)
    consumed = cluster[1].consume(0)[0]
    followed = cluster[1].consume(0, replica=3, epoch=0)[0]
    assert (cluster.values_of(consumed), consumed.high_watermark) == (["a"], 1)
    assert cluster.values_of(followed) == ["a", "b"]


def test_a_consumer_beyond_the_high_watermark_but_not_the_end_gets_nothing_and_no_error(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", "b", acks=1)
    answer = cluster[1].consume(1)[0]
    assert (answer.error, bytes(answer.records), answer.high_watermark) == (ErrorCode.NONE, b"", 0)


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_offsets_outside_the_log_are_out_of_range(cluster, offset) -> None:
    cluster.lead_alone()
    cluster[1].produce("a", "b")
    answer = cluster[1].consume(offset)[0]
    assert (answer.error, answer.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)


def test_below_the_log_start_is_out_of_range_whatever_the_epochs_say(cluster) -> None:
    cluster.lead_alone()
    cluster[1].produce("a")
    cluster[1].produce("b")
    cluster[1].log().maybe_increment_log_start(Offset(1))
    cluster.decide(1, (1,), replicas=(1,))
    cluster.tell(1)
    assert cluster[1].consume(0, epoch=1, last_epoch=0)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    cluster.decide(1, (1,), replicas=(1,), epoch=3)
    cluster.tell(1)
    (above,), (below,) = (cluster[1].consume(offset, epoch=3, last_epoch=2) for offset in (1, 0))
    assert (above.error, above.diverging.leader_epoch) == (ErrorCode.NONE, 0)
    assert (below.error, below.diverging) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)


def test_an_epoch_the_leader_does_not_know_is_out_of_range(cluster) -> None:
    cluster.lead_alone()
    cluster[1].produce("a")
    assert cluster[1].consume(0, last_epoch=9)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_end_that_differs_is_told_even_beyond_our_end(cluster) -> None:
    cluster.lead_alone()
    cluster[1].produce("a")
    answer = cluster[1].consume(5, epoch=0, last_epoch=0)[0]
    assert (answer.error, answer.diverging.leader_epoch, answer.diverging.end_offset) == (ErrorCode.NONE, 0, 1)


@pytest.mark.parametrize(
    ("offset", "last_epoch", "answer"),
    [
        pytest.param(0, 0, None, id="within the first epoch"),
        pytest.param(2, 0, None, id="at the end of an epoch"),
        pytest.param(3, 0, (0, 2), id="beyond the end of an epoch"),
        pytest.param(2, 1, (0, 2), id="an epoch between two known ones"),
        pytest.param(2, 2, (0, 2), id="another epoch between two known ones"),
        pytest.param(2, 3, None, id="where an epoch begins, by its own number"),
        pytest.param(4, 3, None, id="at the end of the second epoch"),
        pytest.param(5, 3, (3, 4), id="beyond the end of the second epoch"),
        pytest.param(4, 4, None, id="where the third begins"),
        pytest.param(6, 5, (4, 5), id="an epoch between the third and the newest"),
        pytest.param(5, 7, None, id="at the end, by the newest epoch"),
        pytest.param(7, 7, (7, 6), id="beyond the end, by the newest epoch"),
        pytest.param(0, 8, ErrorCode.OFFSET_OUT_OF_RANGE, id="an epoch newer than all known ones"),
        pytest.param(7, -1, ErrorCode.OFFSET_OUT_OF_RANGE, id="no epoch: only the offset counts"),
        pytest.param(5, -1, None, id="no epoch, within the log"),
    ],
)
def test_a_last_fetched_epoch_is_compared_with_what_the_leader_has(cluster, offset, last_epoch, answer) -> None:
    """The log: two records of epoch 0, two of 3, one of 4, one of 7."""
    for epoch, count in ((0, 2), (3, 2), (4, 1), (7, 1)):
        cluster.decide(1, (1,), replicas=(1,), epoch=epoch)
        cluster.tell(1)
        for _ in range(count):
            cluster[1].produce("v")
    (result,) = cluster[1].consume(offset, epoch=7, last_epoch=last_epoch)
    if isinstance(answer, ErrorCode):
        assert (result.error, result.diverging) == (answer, None)
        return
    told = result.diverging
    assert result.error is ErrorCode.NONE
    assert (None if told is None else (told.leader_epoch, told.end_offset)) == answer
    assert bool(result.records) is (answer is None)


# Limits


def test_the_first_batch_is_answered_whatever_the_limits_and_the_others_only_within(cluster) -> None:
    cluster.lead_alone(TP, OTHER)
    for partition in (TP, OTHER):
        cluster[1].produce("x" * 500, partition=partition)
        cluster[1].produce("y" * 500, partition=partition)
    (answer,), _ = cluster[1].fetch([(TP, 0), (OTHER, 0)], max_bytes=100)
    assert [len(cluster.values_of(result)) for result in answer.values()] == [1, 0]
    (answer,), _ = cluster[1].fetch([(TP, 2), (OTHER, 0)], max_bytes=100)
    assert [len(cluster.values_of(result)) for result in answer.values()] == [0, 1]
    (answer,), _ = cluster[1].fetch([(TP, 0), (OTHER, 0)], partition_bytes=700)
    assert [len(cluster.values_of(result)) for result in answer.values()] == [1, 1]
    (answer,), _ = cluster[1].fetch([(TP, 0), (OTHER, 0)], max_bytes=1_800)
    assert [len(cluster.values_of(result)) for result in answer.values()] == [2, 1]


def test_settings_of_replication_reach_the_fetchers(cluster) -> None:
    cluster.settings = msgspec.structs.replace(cluster.settings, replica_fetch_wait_max_ms=123, num_replica_fetchers=2)
    cluster.crash(2)
    cluster.restart(2)
    cluster.decide(1)
    for number in (1, 2):
        cluster.tell(number)
    (link,) = cluster[2].links
    assert (link.outbox.limits.max_wait_ms, link.outbox.limits.max_bytes) == (123, 10_485_760)


def test_a_fetch_that_repeats_itself_at_the_end_counts_until_anything_changes(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    replica = cluster[1].partition().remotes[2]
    params = FetchParams(BrokerId(2), cluster.peers.epochs[2], 0, 1, 1 << 20)
    wanted = FetchPartition(TP, None, Offset(1), 1 << 20, LeaderEpoch(0), LeaderEpoch(0), Offset(0))

    def again():
        cluster.clock.advance(100)
        answers = []
        cluster[1].manager.fetch(params, [wanted], answers.append)
        return answers[0][TP]

    first = again()
    assert (first.high_watermark, again().high_watermark, replica.last_caught_up_ms) == (0, 1, 200)
    assert again() is again()
    assert replica.last_caught_up_ms == 400
    cluster[1].produce("b", acks=1)
    assert cluster.values_of(again()) == ["b"]
    assert replica.last_caught_up_ms == 400
    cluster[1].consume(2, replica=2, epoch=0)
    cluster.peers.epochs[2] = BrokerEpoch(999)
    assert again().error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    assert again().error is ErrorCode.FENCED_LEADER_EPOCH
