"""Tasks that write each row once: what they name, what they read back, what they refuse."""

from __future__ import annotations

import pickle
from uuid import UUID

import confluent_kafka
import msgspec
import pyarrow as pa
import pytest
from mock_cluster import HEADERS, Record, consumed, create, frame, new_topic, options

from regency.pipeline.errors import DeliveryFailed, RowRefused, RowsDiffer, SinkStateUnusable
from regency.pipeline.sink import tasks as sink_tasks
from regency.pipeline.sink.floors import DoneBatch, Floors, TopicFloors, WritePlan
from regency.pipeline.sink.identity import HEADER, WriteId, digest, row_header
from regency.pipeline.sink.producer import ANY_PARTITION
from regency.pipeline.sink.tail import Tail, Written
from regency.pipeline.sink.tasks import TaskPlace, TaskWrote, write_at_least_once, write_once

pytestmark = pytest.mark.timeout(30)  # threads and sockets of a real client, on a machine that has other work

WRITE = WriteId(UUID(int=5), 2)


@pytest.fixture
def topic(servers: str) -> str:
    """A topic that is there, as the driver has made sure of by now."""
    topic = new_topic()
    create(servers, topic)
    return topic


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
    new = new_topic()
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


def test_a_topic_that_went_away_since_the_batch_began_is_not_made_anew(servers):
    gone = new_topic()
    settings = options(servers, gone, effectivelyOnce="true", **{"kafka.max.block.ms": "300"})
    with pytest.raises(DeliveryFailed, match="UNKNOWN_TOPIC"):
        write_once([frame(value=pa.array(["0"]))], settings, plan(gone, begun=False), WRITE, TaskPlace(0, 0))
    assert gone not in confluent_kafka.Producer({"bootstrap.servers": servers}).list_topics(timeout=5).topics
