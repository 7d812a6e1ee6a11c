"""What a coordinator of the broker itself appends, reads, and hears of the partitions that the broker leads."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from regency.broker_agent.replication.api import StopPartition
from regency.kafka.record_batch import iter_batches
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
TIMEOUT_MS = 5_000
TRANSACTIONAL, CONTROL = 0x10, 0x20


def append_own(broker, batch: bytes, epoch: int, timeout_ms: int = TIMEOUT_MS):
    results = []
    broker.manager.append_own(TP, LeaderEpoch(epoch), timeout_ms, batch, results.append)
    return results


def errors(results):
    return [result.error for result in results]


def with_attributes(batch: bytes, attributes: int) -> bytes:
    data = bytearray(batch)
    struct.pack_into(">h", data, 21, attributes)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def watch(broker):
    told = []
    broker.manager.watch_leading("flights", lambda tp, epoch: told.append((tp.partition, epoch)))
    return told


def test_an_own_append_is_answered_when_every_replica_has_it(cluster, batch) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    results = append_own(cluster[1], batch("a", "b"), epoch=0)
    cluster.run()
    assert results == []
    cluster[1].consume(2, replica=3, epoch=0)
    assert errors(results) == [ErrorCode.NONE]
    assert cluster[1].values() == ["a", "b"]


def test_an_own_append_of_another_leader_epoch_writes_nothing(cluster, batch) -> None:
    cluster.lead(1)
    cluster.lead(1)
    assert errors(append_own(cluster[1], batch("a"), epoch=0)) == [ErrorCode.FENCED_LEADER_EPOCH]
    assert errors(append_own(cluster[1], batch("a"), epoch=2)) == [ErrorCode.UNKNOWN_LEADER_EPOCH]
    assert errors(append_own(cluster[2], batch("a"), epoch=1)) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert cluster[1].log().log_end_offset == 0


def test_an_own_append_fails_when_the_leadership_ends_although_it_comes_back_at_once(cluster, batch) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    results = append_own(cluster[1], batch("a"), epoch=0)
    cluster.decide(2)
    cluster.tell(1)
    cluster.decide(1)
    cluster.tell(1)
    assert errors(results) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_an_own_append_that_the_replicas_do_not_take_in_time_is_answered_so(cluster, batch) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    results = append_own(cluster[1], batch("a"), epoch=0)
    cluster.advance(TIMEOUT_MS - 100)
    assert results == []
    cluster.advance(200)
    assert errors(results) == [ErrorCode.REQUEST_TIMED_OUT]


def test_an_own_append_needs_min_insync_replicas(make_cluster, batch) -> None:
    cluster = make_cluster(min_insync_replicas=2)
    cluster.decide(1, (1,))
    cluster.tell(1)
    assert errors(append_own(cluster[1], batch("a"), epoch=0)) == [ErrorCode.NOT_ENOUGH_REPLICAS]


@pytest.mark.parametrize(
    ("attributes", "refusal"), [(TRANSACTIONAL, ErrorCode.UNSUPPORTED_VERSION), (CONTROL, ErrorCode.INVALID_RECORD)]
)
def test_only_the_broker_itself_writes_transactional_and_control_batches(cluster, batch, attributes, refusal) -> None:
    cluster.lead_alone()
    records = with_attributes(batch("a", producer=(7, 0, 0)), attributes)
    results = []
    cluster[1].manager.append(-1, 0, {TP: records}, lambda answered: results.append(answered[TP]))
    assert errors(results) == [refusal]
    assert errors(append_own(cluster[1], records, epoch=0)) == [ErrorCode.NONE]


def test_a_transactional_batch_of_the_broker_begins_at_sequence_0_each_time(cluster, batch) -> None:
    cluster.lead_alone()
    records = with_attributes(batch("a", producer=(7, 0, 0)), TRANSACTIONAL)
    for _ in range(2):
        assert errors(append_own(cluster[1], records, epoch=0)) == [ErrorCode.NONE]
    assert cluster[1].log().log_end_offset == 2


def test_a_watcher_hears_of_a_partition_that_is_led_followed_led_again_and_stopped(cluster) -> None:
    told = watch(cluster[1])
    cluster.lead(1)
    cluster.lead(1)
    cluster.lead(2)
    cluster.lead(1)
    cluster[1].manager.forget([TP])
    assert told == [(0, 0), (0, 1), (0, None), (0, 3), (0, None)]


@pytest.mark.parametrize("delete", [True, False])
def test_a_watcher_hears_of_a_partition_that_the_controller_stops(cluster, delete) -> None:
    told = watch(cluster[1])
    cluster.lead_alone()
    topic_id = cluster[1].partition().topic_id
    cluster[1].manager.stop_replicas([StopPartition(TP, topic_id, LeaderEpoch(0), delete)])
    assert told == [(0, 0), (0, None)]


def test_a_watcher_hears_of_a_directory_that_fails(cluster) -> None:
    told = watch(cluster[1])
    cluster.lead(1)
    cluster[1].manager.handle_dir_failure(cluster[1].dir, "broken")
    assert told == [(0, 0), (0, None)]


def test_a_watcher_of_one_topic_hears_nothing_of_another(cluster) -> None:
    told = []
    cluster[1].manager.watch_leading("others", lambda *each: told.append(each))
    cluster.lead(1)
    assert told == []


def test_what_is_led_is_read_to_the_log_end_also_above_the_high_watermark(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    for value in "abc":
        cluster[1].produce(value, acks=1)
    assert cluster[1].log().high_watermark == 0
    read = cluster[1].manager.read_led(TP, Offset(1), 1)
    assert [header.base_offset for _, header in iter_batches(read.records)] == [1], "one batch, whatever its size"
    assert read.log_end == 3
    assert not cluster[1].manager.read_led(TP, Offset(3), 1).records


def test_only_what_is_led_is_read(cluster) -> None:
    cluster.lead(1)
    assert cluster[2].manager.read_led(TP, Offset(0), 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
