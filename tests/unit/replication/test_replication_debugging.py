"""The debugging consumer (replica id -2): reads every replica up to that one's high watermark, and proves nothing."""

from __future__ import annotations

import pytest

from regency.kafka.fetching.values import DEBUGGING, ListedOffset
from regency.model.ids import LeaderEpoch, Offset
from regency.model.kafka_errors import ErrorCode

LATEST, EARLIEST = -1, -2


def replicated(cluster, *values: str) -> None:
    """Records that every replica has, and knows to be committed."""
    cluster.lead(1)
    for value in values:
        cluster[1].produce(value)
        cluster.run()
    cluster.advance(1_000)


def test_every_replica_is_read_and_has_the_same_bytes(cluster) -> None:
    replicated(cluster, "a", "b")
    read = [cluster[number].consume(0, replica=DEBUGGING)[0] for number in (1, 2, 3)]
    assert [each.error for each in read] == [ErrorCode.NONE] * 3
    assert bytes(read[0].records) == bytes(read[1].records) == bytes(read[2].records) != b""
    assert [each.high_watermark for each in read] == [2, 2, 2]
    assert [cluster[number].latest(replica=DEBUGGING).offset for number in (1, 2, 3)] == [2, 2, 2]


def test_a_follower_shows_no_more_than_its_own_high_watermark_and_tells_its_own_end(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    cluster.advance(1_000)
    cluster.cut.add((cluster[2].id, cluster[1].id))
    cluster[1].produce("b", acks=1)
    cluster.cut.clear()
    cluster.run(rounds=1_000)
    follower = cluster[3]
    follower.log().set_high_watermark(Offset(1))
    read = follower.consume(1, replica=DEBUGGING)[0]
    assert (read.error, bytes(read.records), read.high_watermark) == (ErrorCode.NONE, b"", 1)
    assert follower.latest(replica=DEBUGGING) == ListedOffset(ErrorCode.NONE, -1, Offset(2), LeaderEpoch(0))
    assert follower.latest(replica=DEBUGGING, timestamp=EARLIEST).offset == 0


def test_a_reader_that_names_no_replica_or_a_follower_is_still_sent_to_the_leader(cluster) -> None:
    replicated(cluster, "a")
    refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
    for replica in (-1, -3, 3):
        assert cluster[2].consume(0, replica=replica)[0].error is refused
        assert cluster[2].latest(replica=replica).error is refused


def test_the_epoch_and_the_topic_id_are_checked_on_followers_too(cluster) -> None:
    cluster.lead(1)
    cluster.lead(1)
    for epoch, expected in (
        (0, ErrorCode.FENCED_LEADER_EPOCH),
        (1, ErrorCode.NONE),
        (2, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ):
        assert cluster[2].consume(0, replica=DEBUGGING, epoch=epoch)[0].error is expected
        assert cluster[2].latest(replica=DEBUGGING, epoch=epoch).error is expected
    other = cluster.states[("flights", 0)].topic_id.__class__(int=5)
    assert cluster[2].consume(0, replica=DEBUGGING, topic_id=other)[0].error is ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_read_moves_no_high_watermark_no_follower_and_no_isr(cluster) -> None:
    """As the fetch of a follower it would prove that all below its offset is there."""
    cluster.decide(1, (1, 2), replicas=(1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    leader = cluster[1].partition()
    remote = leader.remotes[cluster[2].id]
    before = (remote.log_end_offset, remote.last_fetch_ms, remote.broker_epoch, leader.isr, leader.log.high_watermark)
    cluster.clock.advance(100)
    for offset, epoch in ((1, 0), (1, -1), (0, 0)):
        cluster[1].consume(offset, replica=DEBUGGING, epoch=epoch, replica_epoch=cluster[2].epoch)
    after = (remote.log_end_offset, remote.last_fetch_ms, remote.broker_epoch, leader.isr, leader.log.high_watermark)
    assert before == after
    assert leader.log.high_watermark == 0
    assert cluster[1].isr_store.submitted == []


def test_a_stopped_replica_is_not_read(cluster) -> None:
    replicated(cluster, "a")
    cluster[2].partition().stop()
    assert cluster[2].consume(0, replica=DEBUGGING)[0].error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[2].latest(replica=DEBUGGING).error is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_replica_in_a_failed_directory_is_a_storage_error(cluster) -> None:
    replicated(cluster, "a")
    cluster[2].manager.handle_dir_failure(cluster[2].dir, "no space")
    assert cluster[2].consume(0, replica=DEBUGGING)[0].error is ErrorCode.KAFKA_STORAGE_ERROR
    assert cluster[2].latest(replica=DEBUGGING).error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("number", [1, 2])
def test_a_long_poll_ends_with_what_came_meanwhile(cluster, number) -> None:
    replicated(cluster, "a")
    waiting = cluster[number].consume(1, replica=DEBUGGING, max_wait_ms=2_000)
    assert waiting == []
    cluster[1].produce("b")
    cluster.advance(2_000)
    [answer] = waiting
    assert (answer.error, answer.high_watermark) == (ErrorCode.NONE, 2)
    assert bytes(answer.records) != b""


def test_below_the_log_start_and_beyond_the_end_are_out_of_range(cluster) -> None:
    replicated(cluster, "a", "b")
    cluster[2].log().maybe_increment_log_start(Offset(1))
    assert cluster[2].consume(0, replica=DEBUGGING)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster[2].consume(3, replica=DEBUGGING)[0].error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert cluster[2].consume(2, replica=DEBUGGING)[0].error is ErrorCode.NONE
