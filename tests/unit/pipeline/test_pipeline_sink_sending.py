"""Rows through a real producer into librdkafka's own small cluster: order, partitions, headers, failures, memory."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from typing import Any, NamedTuple
from uuid import UUID

import confluent_kafka
import msgspec
import pyarrow as pa
import pytest

from regency.clients.cluster_client import ClusterClient
from regency.clients.errors import ClusterUnavailable
from regency.pipeline import sink_producer, sink_tasks
from regency.pipeline.sink_errors import DeliveryFailed, RowRefused, RowsDiffer, SinkStateUnusable
from regency.pipeline.sink_floors import DoneBatch, Floors, TopicFloors, WritePlan
from regency.pipeline.sink_identity import HEADER, WriteId, digest, row_header
from regency.pipeline.sink_options import WriteOptions, write_options
from regency.pipeline.sink_producer import ANY_PARTITION, TopicProducer
from regency.pipeline.sink_rows import rows_of
from regency.pipeline.sink_tail import Tail
from regency.pipeline.sink_tasks import TaskPlace, TaskWrote, write_at_least_once, write_once
from regency.pipeline.sink_written import Written

pytestmark = pytest.mark.timeout(30)  # threads and sockets of a real client, on a machine that has other work

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
WRITE = WriteId(UUID(int=5), 2)
PARTITIONS = 4
_names = count()


class Record(NamedTuple):
    partition: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] | None


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    """Addresses of a cluster inside of this process. It makes any topic, with four partitions."""
    keeper = confluent_kafka.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
    brokers = keeper.list_topics(timeout=5).brokers.values()
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers)
    del keeper


@pytest.fixture
def topic() -> str:
    return f"t{next(_names)}"


def options(servers: str, topic: str | None, **given: str) -> WriteOptions:
    named = {} if topic is None else {"topic": topic}
    return write_options({"kafka.bootstrap.servers": servers, "kafka.linger.ms": "1", **named, **given}, stream=False)


def frame(**columns: pa.Array) -> pa.RecordBatch:
    return pa.record_batch(list(columns.values()), names=list(columns))


def consumed(servers: str, topic: str, expected: int) -> list[Record]:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 10,
            "log_level": 0,
        }
    )
    found: list[Record] = []
    at_end = 0
    with closing(consumer):
        consumer.assign([confluent_kafka.TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        while at_end < PARTITIONS:
            message = consumer.poll(10)
            assert message is not None, f"{len(found)} of {expected} records of {topic} came"
            if message.error() is None:
                found.append(Record(message.partition(), message.key(), message.value(), message.headers()))
            else:
                assert message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF
                at_end += 1
    assert len(found) == expected
    return found


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
    one, other = f"t{next(_names)}", f"t{next(_names)}"
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
    large, small, other = (f"t{next(_names)}" for _ in range(3))
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


class Passing:
    """A cluster of its own that dies when it is told to."""

    def __init__(self) -> None:
        self._keeper: Any = confluent_kafka.Producer(
            {"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0}
        )
        [broker] = self._keeper.list_topics(timeout=5).brokers.values()
        self.servers = f"{broker.host}:{broker.port}"

    def die(self) -> None:
        self._keeper = None

    def dying(self, after: BaseException | None = None) -> Iterator[pa.RecordBatch]:
        """Rows that are written, its death, and more rows."""
        yield frame(value=pa.array(["x"] * 10))
        self.die()
        yield frame(value=pa.array(["y"] * 10))
        if after is not None:
            raise after


def test_rows_nobody_accepts_in_time_fail_the_task_with_the_address(topic):
    cluster = Passing()
    with pytest.raises(DeliveryFailed, match="_MSG_TIMED_OUT") as failed:
        write_at_least_once(cluster.dying(), options(cluster.servers, topic, **{"kafka.delivery.timeout.ms": "300"}))
    assert f"to the cluster at {cluster.servers}" in str(failed.value)


def test_a_broken_task_waits_for_nobody(topic):
    cluster = Passing()
    with pytest.raises(RuntimeError, match="the rows ended badly"):
        write_at_least_once(cluster.dying(RuntimeError("the rows ended badly")), options(cluster.servers, topic))


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


def plan(topic: str, *, begun: bool) -> WritePlan:
    return WritePlan({topic: TopicFloors(UUID(int=1), {0: 0})}, begun, 0)


def named_values(records: list[Record]) -> list[bytes | None]:
    return [record.value for record in records]


def test_first_attempts_name_their_rows_and_read_nothing_back(servers, topic):
    def find(*_: object) -> Tail:
        raise AssertionError("nothing was written before")

    old = [{"key": "a", "value": b"1"}, {"key": HEADER, "value": b"of another write"}]
    batch = frame(
        value=pa.array(["0", "1"]), partition=pa.array([0, 0], pa.int32()), headers=pa.array([old, None], HEADERS)
    )
    settings = options(servers, topic, effectivelyOnce="true")
    wrote = write_once([batch], settings, plan(topic, begun=False), WRITE, TaskPlace(7, 0), find=find)
    assert (wrote.rows, wrote.repeated, wrote.query) == (2, 0, WRITE.query)
    prefix = WRITE.task_prefix(7)
    assert [record.headers for record in consumed(servers, topic, 2)] == [
        [("a", b"1"), (HEADER, row_header(prefix, 0, explicit_partition=True))],
        [(HEADER, row_header(prefix, 1, explicit_partition=True))],
    ]


@pytest.mark.parametrize("attempt", [0, 1])
def test_no_row_is_written_to_a_topic_that_could_not_be_read_back(topic, attempt):
    settings = options("127.0.0.1:1", None, effectivelyOnce="true", effectivelyOnceTopics=f"{topic},other")
    with pytest.raises(SinkStateUnusable, match="does not say where topic other ended"):
        write_once([], settings, plan(topic, begun=False), WRITE, TaskPlace(0, attempt))


def test_a_task_of_a_batch_that_was_done_reads_back_what_is_new_to_it(servers, topic):
    old, batch = topic, frame(value=pa.array(["0"]))
    new = f"t{next(_names)}"
    floors = {old: TopicFloors(UUID(int=1), {0: 5})}, {new: TopicFloors(UUID(int=2), {0: 3})}
    told = WritePlan(floors[1], begun=True, planned_ms=0, done=DoneBatch(WRITE.query, WRITE.batch, floors[0]))
    asked: list[Floors] = []

    def find(settings: object, wanted: Floors, *_: object) -> Tail:
        asked.append(wanted)
        return Tail(Written([digest(new, None, None, b"0", None)]), 0)

    settings = options(servers, new, effectivelyOnce="true")
    wrote = write_once([batch], settings, told, WRITE, TaskPlace(0, 1), wait=lambda *_: None, find=find)
    assert (wrote.repeated, asked) == (1, [floors[1]])


class Repeating:
    """A task that is repeated, and what earlier attempts left of it."""

    def __init__(self, servers: str, topic: str, left: list[bytes], **given: str) -> None:
        self.options = options(servers, topic, effectivelyOnce="true", **given)
        self.topic = topic
        self.found = Tail(Written(digest(topic, None, None, value, None) for value in left), 0)

    def __call__(self, *batches: list[bytes]) -> TaskWrote:
        return write_once(
            [frame(value=pa.array(values)) for values in batches],
            self.options,
            plan(self.topic, begun=True),
            WRITE,
            TaskPlace(0, 0),
            wait=lambda *_: None,
            find=lambda *_: self.found,
        )


def test_a_repeated_task_writes_what_is_missing_whatever_the_order(servers, topic):
    repeat = Repeating(servers, topic, [b"d", b"a", b"a"])
    wrote = repeat([b"a", b"b", b"a"], [b"c", b"a", b"d"])
    assert (wrote.rows, wrote.repeated, wrote.doubled) == (6, 3, 0)
    assert sorted(named_values(consumed(servers, topic, 3))) == [b"a", b"b", b"c"]


def test_a_repeated_task_with_other_rows_writes_none_and_says_so(servers, topic):
    repeat = Repeating(servers, topic, [b"a", b"gone"])
    with pytest.raises(
        RowsDiffer, match=r"Spark partition 0 of batch 2 .* 1 of the 2 records .* none of the 3 rows"
    ) as e:
        repeat([b"a", b"b"], [b"c"])
    assert "failOnChangedRows=false" in e.value.hint
    write_at_least_once([frame(value=pa.array([b"only this"]))], repeat.options)
    assert named_values(consumed(servers, topic, 1)) == [b"only this"]


def test_other_rows_can_be_let_pass(servers, topic):
    wrote = Repeating(servers, topic, [b"a", b"gone"], failOnChangedRows="false")([b"a", b"b"], [b"c"])
    assert (wrote.rows, wrote.repeated, wrote.changed) == (3, 1, 1)
    assert sorted(named_values(consumed(servers, topic, 2))) == [b"b", b"c"]


def test_a_repeated_task_of_many_new_rows_does_not_hold_them_all(servers, topic, monkeypatch):
    monkeypatch.setattr(sink_tasks, "HELD_BYTES", 100)
    with pytest.raises(RowsDiffer):
        Repeating(servers, topic, [b"gone"])(*[[b"%03d" % row] * 20 for row in range(20)])


def test_records_that_two_attempts_wrote_at_once_are_told(servers, topic):
    wrote = Repeating(servers, topic, [b"a", b"a", b"b"])([b"a", b"b", b"c"])
    assert (wrote.rows, wrote.repeated, wrote.doubled) == (3, 2, 1)
    assert named_values(consumed(servers, topic, 1)) == [b"c"]


def test_a_row_for_a_topic_that_was_not_announced_is_refused(servers, topic):
    settings = options(servers, None, effectivelyOnce="true", effectivelyOnceTopics=topic)
    batch = frame(topic=pa.array([topic, "elsewhere"]), value=pa.array(["0", "1"]))
    with pytest.raises(RowRefused, match="goes to topic elsewhere, which option effectivelyOnceTopics does not name"):
        write_once([batch], settings, plan(topic, begun=False), WRITE, TaskPlace(0, 0))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "topic name '' is not allowed: it is empty"),
        ("a b", "topic name 'a b' is not allowed: it contains ' '"),
        ("x" * 300, "it has 300 characters, 249 are allowed"),
    ],
)
def test_a_row_for_a_topic_that_nobody_could_create_is_refused_by_the_rule_of_names(name, words):
    batch = frame(topic=pa.array(["t", name]), value=pa.array(["0", "1"]))
    with pytest.raises(RowRefused, match="A row goes to no topic: ") as refused:
        rows_of(batch, None)
    assert words in refused.value.message
    assert rows_of(batch, "other").topics == "other", "where the column is not asked"


def broken_text() -> pa.Array:
    """A text that is no UTF-8, as CAST(x'fffe' AS STRING) makes it."""
    return pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff\xfe"]).buffers())


def test_what_is_no_utf8_is_refused_by_its_column():
    value = pa.array([b""])
    headers = pa.ListArray.from_arrays(
        pa.array([0, 1], pa.int32()), pa.StructArray.from_arrays([broken_text(), value], names=["key", "value"])
    )
    with pytest.raises(RowRefused, match=r"the column headers a key that is no UTF-8: b'\\xff\\xfe'"):
        rows_of(frame(value=value, headers=headers), "t")
    with pytest.raises(RowRefused, match="the column topic what is no UTF-8"):
        rows_of(frame(value=value, topic=broken_text()), None)
    assert rows_of(frame(value=broken_text()), "t").values == [b"\xff\xfe"]


def test_no_rows_are_a_task_as_any_other(servers, topic):
    assert write_at_least_once([], options(servers, topic)).rows == 0
    assert Repeating(servers, topic, [])().rows == 0
    settings = options(servers, topic, effectivelyOnce="true")
    assert write_once([], settings, plan(topic, begun=False), WRITE, TaskPlace(0, 0)).rows == 0


def test_settings_and_plans_travel_with_the_task(servers, topic):
    settings = options(servers, topic, effectivelyOnce="true")
    assert pickle.loads(pickle.dumps((settings, plan(topic, begun=True)))) == (settings, plan(topic, begun=True))
    assert msgspec.structs.asdict(settings)["once_topics"] == (topic,)
    assert ANY_PARTITION == -1
