"""Rows through a real producer into librdkafka's own small cluster: order, partitions, headers, failures, memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from mock_cluster import HEADERS, PARTITIONS, MockCluster, consumed, frame, new_topic, options

from regency.clients.cluster_client import ClusterClient
from regency.clients.errors import ClusterUnavailable
from regency.pipeline.errors import DeliveryFailed
from regency.pipeline.sink import producer as sink_producer
from regency.pipeline.sink.producer import TopicProducer
from regency.pipeline.sink.tasks import write_at_least_once

pytestmark = pytest.mark.timeout(30)  # threads and sockets of a real client, on a machine that has other work


def test_keys_go_where_the_java_producer_sends_them(servers, topic):
    hashes = {
        b"21": -973932308,
        b"foobar": -790332482,
        b"a-little-bit-long-string": -985981536,
        b"a-little-bit-longer-string": -1486304829,
        b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        b"abc": 479470107,
        b"": 275646681,
    }
    batch = frame(key=pa.array(list(hashes)), value=pa.array([b""] * len(hashes)))
    assert write_at_least_once([batch], options(servers, topic)).rows == len(hashes)
    found = {record.key: record.partition for record in consumed(servers, topic, len(hashes))}
    assert found == {key: (number & 0x7FFFFFFF) % PARTITIONS for key, number in hashes.items()}


def test_null_keys_and_null_values_stay_null(servers, topic):
    values = [b"%d" % number for number in range(500)]
    batches = [frame(value=pa.array([*values[start : start + 10], None])) for start in range(0, 500, 10)]
    write_at_least_once(batches, options(servers, topic))
    found = consumed(servers, topic, 550)
    assert sorted(record.value for record in found if record.value is not None) == sorted(values)
    assert sum(record.value is None for record in found) == 50
    assert {record.key for record in found} == {None}


def test_partitions_of_a_column_are_kept_and_rows_of_one_stay_in_order(servers, topic):
    numbers = [0, 3, 3, 1, 0]
    batch = frame(
        value=pa.array([b"%d" % row for row in range(5)]),
        partition=pa.array(numbers, pa.int32()),
        key=pa.array(["k"] * 5),
    )
    write_at_least_once([batch], options(servers, topic))
    found = consumed(servers, topic, 5)
    assert {number: [record.value for record in found if record.partition == number] for number in range(4)} == {
        0: [b"0", b"4"],
        1: [b"3"],
        2: [],
        3: [b"1", b"2"],
    }


def test_rows_that_name_a_partition_and_rows_whose_key_leads_there_stay_in_order(servers, topic):
    there = (479470107 & 0x7FFFFFFF) % PARTITIONS
    batch = frame(
        key=pa.array([b"abc"] * 100),
        value=pa.array([b"%d" % row for row in range(100)]),
        partition=pa.array([there if row % 3 else None for row in range(100)], pa.int32()),
    )
    write_at_least_once([batch], options(servers, topic))
    assert [record.value for record in consumed(servers, topic, 100)] == [b"%d" % row for row in range(100)]


def test_rows_go_to_the_topics_they_name(servers):
    one, other = new_topic(), new_topic()
    batch = frame(topic=pa.array([one, other, one]), value=pa.array(["a", "b", "c"]))
    write_at_least_once([batch], options(servers, None))
    assert sorted(record.value for record in consumed(servers, one, 2)) == [b"a", b"c"]
    assert [record.value for record in consumed(servers, other, 1)] == [b"b"]


def test_headers_are_written_in_their_order_and_repeatedly(servers, topic):
    headers = [[("a", b"1"), ("a", None), ("b", b"")], None, []]
    told = pa.array([None if each is None else [{"key": k, "value": v} for k, v in each] for each in headers], HEADERS)
    batch = frame(value=pa.array(["0", "1", "2"]), partition=pa.array([0] * 3, pa.int32()), headers=told)
    write_at_least_once([batch], options(servers, topic))
    assert [record.headers for record in consumed(servers, topic, 3)] == [headers[0], None, None]


def test_memory_is_bounded_by_emptying_the_queue(servers, topic, monkeypatch):
    lengths: list[int] = []
    emptied: list[int] = []
    finish = TopicProducer.finish

    def counting(producer: TopicProducer) -> None:
        emptied.append(len(producer._producer))
        finish(producer)

    monkeypatch.setattr(TopicProducer, "finish", counting)
    monkeypatch.setattr(sink_producer, "RECORDS_AT_ONCE", 300)
    looked = TopicProducer._look
    monkeypatch.setattr(TopicProducer, "_look", lambda self: (lengths.append(len(self._producer)), looked(self))[1])
    batches = [frame(value=pa.array([b"x" * 50] * 100))] * 20
    assert write_at_least_once(batches, options(servers, topic)).rows == 2000
    assert max(lengths) <= 300
    assert len(emptied) == 7
    consumed(servers, topic, 2000)


def test_bytes_bound_the_queue_as_records_do(servers, topic, monkeypatch):
    emptied: list[int] = []
    finish = TopicProducer.finish
    monkeypatch.setattr(TopicProducer, "finish", lambda self: (emptied.append(self._bytes), finish(self))[1])
    limit = 1 << 20
    write_at_least_once(
        [frame(value=pa.array([bytes(100_000)] * 30))], options(servers, topic, **{"kafka.buffer.memory": str(limit)})
    )
    batches = [frame(value=pa.array([bytes(100_000)] * 3))] * 10
    emptied.clear()
    write_at_least_once(batches, options(servers, topic, **{"kafka.buffer.memory": str(limit)}))
    assert len(emptied) == 4
    assert max(emptied) <= limit


@pytest.mark.parametrize("headers", [False, True])
def test_a_record_that_is_too_large_fails_the_task_by_topic_and_cause(servers, topic, headers):
    columns: dict[str, Any] = {"value": pa.array([b"x", bytes(2_000)])}
    if headers:
        columns["headers"] = pa.array([None, [{"key": "a", "value": b""}]], HEADERS)
    settings = options(servers, topic, **{"kafka.max.request.size": "1000"})
    with pytest.raises(DeliveryFailed) as failed:
        write_at_least_once([frame(**columns)], settings)
    assert f"Topic {topic}: a record was not written to the cluster at {servers}:" in str(failed.value)
    assert "MSG_SIZE_TOO_LARGE" in str(failed.value)
    assert "kafka.max.request.size" in failed.value.hint
    assert "kafka.batch.size" in failed.value.hint


@pytest.mark.parametrize("headers", [False, True])
def test_no_batch_is_larger_than_the_smallest_topic_so_far_takes(servers, monkeypatch, headers):
    large, small, other = (new_topic() for _ in range(3))
    takes = {large: 1_048_588, small: 2_000, other: 90_000}
    sizes: list[str] = []
    batches: list[str] = []

    def largest(client: ClusterClient, topics: tuple[str, ...]) -> dict[str, int]:
        batches.extend(topics)
        return {topic: takes[topic] for topic in topics}

    finish = TopicProducer.finish
    monkeypatch.setattr(ClusterClient, "largest_batches", largest)
    monkeypatch.setattr(TopicProducer, "finish", lambda self: (sizes.append(self._conf["batch.size"]), finish(self))[1])
    topics = [large] * 10 + [small] * 10 + [other] * 10 + [large] * 10
    columns: dict[str, Any] = {
        "topic": pa.array(topics),
        "value": pa.array([b"%d" % row for row in range(40)]),
        "partition": pa.array([0] * 40, pa.int32()),
    }
    if headers:
        columns["headers"] = pa.array([[{"key": "a", "value": b""}]] * 40, HEADERS)
    write_at_least_once([frame(**columns)] * 2, options(servers, None))
    assert batches == [large, small, other]
    assert sizes == ["1048576", "2000"], "what is queued is sent before batches become smaller"
    rows = [b"%d" % row for row in [*range(10), *range(30, 40)]]
    assert [record.value for record in consumed(servers, large, 40)] == rows * 2
    assert [record.value for record in consumed(servers, small, 20)] == [b"%d" % row for row in range(10, 20)] * 2


@pytest.mark.parametrize("headers", [False, True])
def test_a_partition_that_does_not_exist_fails_the_task_by_its_number(servers, topic, headers):
    write_at_least_once([frame(value=pa.array(["x"]))], options(servers, topic))
    columns: dict[str, Any] = {"value": pa.array(["x"]), "partition": pa.array([9], pa.int32())}
    if headers:
        columns["headers"] = pa.array([[{"key": "a", "value": b""}]], HEADERS)
    with pytest.raises(DeliveryFailed, match=rf"{topic}-9: .*_UNKNOWN_PARTITION") as failed:
        write_at_least_once([frame(**columns)], options(servers, topic))
    assert "column partition" in failed.value.hint


def dying(cluster: MockCluster, after: BaseException | None = None) -> Iterator[pa.RecordBatch]:
    """Rows that are written, the cluster's death, and more rows."""
    yield frame(value=pa.array(["x"] * 10))
    cluster.die()
    yield frame(value=pa.array(["y"] * 10))
    if after is not None:
        raise after


def test_rows_nobody_accepts_in_time_fail_the_task_with_the_address(topic):
    cluster = MockCluster()
    with pytest.raises(DeliveryFailed, match="_MSG_TIMED_OUT") as failed:
        write_at_least_once(dying(cluster), options(cluster.servers, topic, **{"kafka.delivery.timeout.ms": "300"}))
    assert f"to the cluster at {cluster.servers}" in str(failed.value)


def test_a_broken_task_waits_for_nobody(topic):
    cluster = MockCluster()
    with pytest.raises(RuntimeError, match="the rows ended badly"):
        write_at_least_once(dying(cluster, RuntimeError("the rows ended badly")), options(cluster.servers, topic))


@pytest.mark.parametrize("headers", [False, True])
def test_a_cluster_nothing_can_be_learned_of_fails_the_task_after_max_block_ms_with_address_and_cause(
    topic, headers, capfd, monkeypatch
):
    monkeypatch.setattr(sink_producer, "TOLD_AFTER_S", 0.1)
    monkeypatch.setattr(sink_producer, "FIRST_PATIENCE_S", 0.2)
    columns: dict[str, Any] = {"value": pa.array(["x"] * 10)}
    if headers:
        columns["headers"] = pa.array([[{"key": "a", "value": b""}]] * 10, HEADERS)
    began = time.monotonic()
    with pytest.raises(ClusterUnavailable) as failed:
        write_at_least_once([frame(**columns)], options("127.0.0.1:1", topic, **{"kafka.max.block.ms": "1000"}))
    assert 1.0 <= time.monotonic() - began < 15
    said = str(failed.value)
    assert "No broker of the cluster at 127.0.0.1:1 has answered for " in said
    assert "Connection refused" in said
    assert "kafka.max.block.ms" in said
    assert "Check kafka.bootstrap.servers" in failed.value.hint
    [line] = capfd.readouterr().err.splitlines()
    assert line.startswith("regency sink: No broker of the cluster at 127.0.0.1:1 has answered for 0.")
    assert line.endswith("Waiting for 1000 ms in all.")


def test_a_task_without_rows_needs_no_cluster(topic):
    assert write_at_least_once([], options("127.0.0.1:1", topic)).rows == 0
