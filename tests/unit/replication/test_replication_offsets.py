"""ListOffsets and OffsetsForLeaderEpoch."""

from __future__ import annotations

import msgspec
import pytest

from regency.broker_agent.steps import at_once
from regency.kafka.fetching.values import CONSUMER, EpochEndOffset, ListedOffset
from regency.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
LATEST, EARLIEST, GREATEST = -1, -2, -3


def test_latest_is_the_high_watermark_for_consumers_and_the_end_for_replicas(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", "b", acks=1)
    cluster[1].consume(2, replica=2, epoch=0)
    cluster[1].produce("c", acks=1)
    assert cluster[1].latest() == ListedOffset(ErrorCode.NONE, -1, Offset(2), LeaderEpoch(0))
    assert cluster[1].latest(replica=2) == ListedOffset(ErrorCode.NONE, -1, Offset(3), LeaderEpoch(0))


def test_latest_carries_the_epoch_of_a_leader_that_has_written_nothing(cluster) -> None:
    cluster.lead(1)
    cluster.lead(1)
    assert cluster[1].latest().leader_epoch == 1


def test_earliest_is_the_log_start_with_its_epoch(cluster) -> None:
    cluster.lead(1, (1,), replicas=(1,))
    cluster[1].produce("a")
    cluster[1].produce("b", producer=(9, 0, 0))
    cluster.lead(1, (1,), replicas=(1,))
    cluster[1].produce("c")
    cluster[1].log().maybe_increment_log_start(Offset(1))
    assert cluster[1].latest(timestamp=EARLIEST, replica=2) == ListedOffset(
        ErrorCode.NONE, -1, Offset(1), LeaderEpoch(0)
    )
    cluster[1].log().maybe_increment_log_start(Offset(2))
    begins = ListedOffset(ErrorCode.NONE, -1, Offset(2), LeaderEpoch(1))
    assert cluster[1].latest(timestamp=EARLIEST) == begins
    told = cluster[1].latest(timestamp=EARLIEST, replica=2)
    assert told == msgspec.structs.replace(begins, producers=cluster[1].log().producers_below_start())
    assert told.producers, "who wrote what is below"


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [
        (0, ListedOffset(ErrorCode.NONE, 1_000, Offset(0), LeaderEpoch(0))),
        (1_001, ListedOffset(ErrorCode.NONE, 1_001, Offset(1), LeaderEpoch(0))),
        (1_002, ListedOffset(ErrorCode.NONE)),
        (GREATEST, ListedOffset(ErrorCode.NONE, 1_001, Offset(1), LeaderEpoch(0))),
        (-4, ListedOffset(ErrorCode.UNSUPPORTED_VERSION)),
    ],
)
def test_timestamps_find_the_first_record_not_older(cluster, timestamp, expected) -> None:
    cluster.lead(1, (1,), replicas=(1,))
    cluster[1].produce("a", "b")
    assert cluster[1].latest(timestamp=timestamp) == expected


def test_records_above_the_high_watermark_are_not_found_by_timestamp(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    assert cluster[1].latest(timestamp=1_000) == ListedOffset(ErrorCode.NONE)


def test_offsets_do_not_go_back_when_a_new_leader_does_not_know_yet_what_is_committed(cluster) -> None:
    """KIP-207."""
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster[1].consume(1, replica=2, epoch=0)
    cluster[1].produce("b", "c", acks=1)
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    assert (cluster[1].log().high_watermark, cluster[1].partition().epoch_start) == (1, 3)
    assert cluster[1].latest() == ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
    assert cluster[1].latest(replica=2).offset == 3
    assert cluster[1].latest(timestamp=EARLIEST).offset == 0
    assert cluster[1].latest(timestamp=1_000).offset == 0
    assert cluster[1].latest(timestamp=1_001) == ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
    assert cluster[1].latest(timestamp=9_999) == ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
    cluster[1].consume(3, replica=2, epoch=1)
    assert cluster[1].latest().offset == 3
    assert cluster[1].latest(timestamp=9_999) == ListedOffset(ErrorCode.NONE)


@pytest.mark.parametrize(
    ("leader", "answer"),
    [
        (1, ListedOffset(ErrorCode.NONE, 3_999, Offset(2_999), LeaderEpoch(0))),
        (2, ListedOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
    ],
)
def test_a_search_by_timestamp_begins_again_in_another_epoch(cluster, leader, answer) -> None:
    cluster.lead(1, (1,), replicas=(1, 2))
    cluster[1].produce(*["a"] * 3_000)
    search = cluster[1].manager.list_offset(TP, 3_999, NO_LEADER_EPOCH, CONSUMER)
    next(search)
    cluster.lead(leader, (leader,), replicas=(1, 2))
    assert at_once(search) == answer


def test_epochs_end_where_the_next_one_begins(cluster) -> None:
    cluster.lead(1, (1,), replicas=(1,))
    cluster[1].produce("a", "b")
    cluster.lead(1, (1,), replicas=(1,))
    cluster[1].produce("c")

    def ask(epoch):
        return cluster[1].manager.end_offset_for_epoch(TP, LeaderEpoch(1), LeaderEpoch(epoch))

    assert ask(0) == (ErrorCode.NONE, EpochEndOffset(LeaderEpoch(0), Offset(2)))
    assert ask(1) == (ErrorCode.NONE, EpochEndOffset(LeaderEpoch(1), Offset(3)))
    assert ask(2) == (ErrorCode.NONE, EpochEndOffset())


@pytest.mark.parametrize("timestamp", [LATEST, EARLIEST, GREATEST, 1_000])
def test_a_partition_that_nobody_has_has_no_offsets(cluster, timestamp) -> None:
    assert cluster[1].latest(timestamp=timestamp) == ListedOffset(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    cluster.peers.known.add(TP)
    assert cluster[1].latest(timestamp=timestamp) == ListedOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
