from __future__ import annotations

import logging
import pickle
from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual, InputPartition
from pyspark.sql.types import StructType

from regency.clients.cluster_client import ClusterUnavailable
from regency.model.ids import TopicPartition
from regency.pipeline.errors import DataLost, PipelineOptionInvalid, TopicUnknown
from regency.pipeline.reading.batch_reader import BatchReader, FilteringBatchReader, batch_reader
from regency.pipeline.reading.cluster_view import ClusterView
from regency.pipeline.reading.options import read_options
from regency.pipeline.reading.planning import source_schema
from regency.pipeline.source import RegencyDataSource

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "fetchOffset.retryIntervalMs": "0"}


def reader(**options: str) -> BatchReader:
    chosen = {
        **SERVERS,
        **({} if "assign" in options or "subscribePattern" in options else {"subscribe": "t"}),
        **options,
    }
    return batch_reader(chosen, source_schema("includeHeaders" in options))


def plan(read: BatchReader) -> list[tuple[str, int, int]]:
    return [(str(each.task.topic_partition), each.task.start, each.task.end) for each in read.partitions()]


def test_a_batch_reads_all_there_is(scripted) -> None:
    scripted.create("t", (5, 20), (0, 7), (3, 3))
    read = reader(includeHeaders="true")
    assert plan(read) == [("t-0", 5, 20), ("t-1", 0, 7)]
    task = read.partitions()[0].task
    assert (task.topic_id, task.include_headers, task.fail_on_data_loss) == (scripted.ids["t"], True, True)
    assert scripted.closed


def test_what_is_planned_can_be_pickled(scripted) -> None:
    scripted.create("t", (5, 20))
    read = reader()
    (part,) = read.partitions()
    assert pickle.loads(pickle.dumps(part)).task == part.task
    assert plan(pickle.loads(pickle.dumps(read))) == plan(read)


def test_nothing_to_read_reads_nothing(scripted) -> None:
    scripted.create("t", (3, 3))
    read = reader()
    assert read.partitions() == []
    assert list(read.read(InputPartition(None))) == []


def test_a_pattern_is_found_anywhere_in_a_name_but_for_internal_topics(scripted) -> None:
    scripted.create("t-1", (0, 2))
    scripted.create("at-1", (0, 2))
    scripted.create("__consumer_offsets", (0, 2))
    assert plan(reader(subscribePattern="^t.*")) == [("t-1-0", 0, 2)]
    assert plan(reader(subscribePattern="t")) == [("at-1-0", 0, 2), ("t-1-0", 0, 2)]
    assert plan(reader(subscribePattern="t$")) == []
    assert len(plan(reader(subscribePattern=".*"))) == 2


def test_topics_and_partitions_that_are_not_there_are_named(scripted) -> None:
    scripted.create("t", (0, 1))
    with pytest.raises(TopicUnknown, match=r"no topic missing\. Check the spelling"):
        reader(subscribe="t,missing").partitions()
    with pytest.raises(TopicUnknown, match="no topic u, no partition t-4"):
        reader(assign='{"t":[0,4],"u":[0]}').partitions()


def test_offsets_by_partition(scripted) -> None:
    scripted.create("t", (5, 20), (0, 7))
    read = reader(startingOffsets='{"t":{"0":6,"1":-2}}', endingOffsets='{"t":{"0":-1,"1":4}}')
    assert plan(read) == [("t-0", 6, 20), ("t-1", 0, 4)]


def test_offsets_must_name_every_partition(scripted) -> None:
    scripted.create("t", (5, 20), (0, 7))
    with pytest.raises(PipelineOptionInvalid, match=r"startingOffsets: .*t-1 is missing; u-0 is not read") as caught:
        reader(startingOffsets='{"t":{"0":6},"u":{"0":1}}').partitions()
    assert "-2 for the earliest" in caught.value.hint
    with pytest.raises(PipelineOptionInvalid, match="endingOffsetsByTimestamp"):
        reader(endingOffsetsByTimestamp='{"t":{"0":6}}').partitions()


@pytest.mark.parametrize(
    ("options", "there"),
    [
        ({"startingOffsets": '{"t":{"0":3,"1":0}}'}, [("t-0", 5, 20), ("t-1", 0, 7)]),
        ({"startingOffsets": '{"t":{"0":5,"1":9}}'}, [("t-0", 5, 20)]),
        ({"endingOffsets": '{"t":{"0":25,"1":7}}'}, [("t-0", 5, 20), ("t-1", 0, 7)]),
    ],
)
def test_offsets_outside_the_log_are_lost_records(scripted, options: dict[str, str], there: list, caplog) -> None:
    scripted.create("t", (5, 20), (0, 7))
    with pytest.raises(DataLost, match="failOnDataLoss"):
        reader(**options).partitions()
    with caplog.at_level(logging.WARNING):
        assert plan(reader(**options, failOnDataLoss="false")) == there
    assert "going on with what is left" in caplog.text


def test_times_become_offsets(scripted) -> None:
    scripted.create("t", (0, 20), (0, 7))
    scripted.times = {T0: [(1000, 4), (2000, 9)], T1: [(1500, 2)]}
    assert plan(reader(startingTimestamp="1500")) == [("t-0", 9, 20), ("t-1", 2, 7)]
    assert plan(reader(endingTimestamp="1800")) == [("t-0", 0, 9), ("t-1", 0, 7)]
    assert plan(reader(startingOffsetsByTimestamp='{"t":{"0":1,"1":1500}}')) == [("t-0", 4, 20), ("t-1", 2, 7)]


def test_a_time_behind_all_records_is_an_error_or_the_end(scripted) -> None:
    scripted.create("t", (0, 20), (0, 7))
    scripted.times = {T0: [(2000, 9)], T1: [(1500, 2)]}
    with pytest.raises(PipelineOptionInvalid, match="startingTimestamp: there is no record at or after 1800 in t-1"):
        reader(startingTimestamp="1800").partitions()
    latest = reader(startingTimestamp="1800", startingOffsetsByTimestampStrategy="latest")
    assert plan(latest) == [("t-0", 9, 20)]


def test_large_partitions_are_cut(scripted) -> None:
    scripted.create("t", (0, 20), (0, 2))
    assert plan(reader(minPartitions="3")) == [("t-0", 0, 10), ("t-0", 10, 20), ("t-1", 0, 2)]
    assert plan(reader(maxRecordsPerPartition="10")) == [("t-0", 0, 10), ("t-0", 10, 20), ("t-1", 0, 2)]


def test_filters_narrow_the_plan_and_stay_with_spark(scripted) -> None:
    scripted.create("t", (0, 20), (0, 7))
    read = reader(filterPushdown="true")
    filters = [EqualTo(("partition",), 0), GreaterThanOrEqual(("offset",), 15), EqualTo(("value",), b"x")]
    assert list(read.pushFilters(filters)) == filters
    assert plan(read) == [("t-0", 15, 20)]


def test_a_filter_on_time_begins_at_the_first_record_that_is_new_enough(scripted) -> None:
    scripted.create("t", (0, 20), (0, 7), (4, 4))
    scripted.times = {T0: [(1000, 4), (3000, 6), (2000, 9)], T1: [(1500, 2)]}
    read = reader(filterPushdown="true")
    read.pushFilters([GreaterThanOrEqual(("timestamp",), datetime.fromtimestamp(2, UTC))])
    assert plan(read) == [("t-0", 6, 20)]


def test_filters_are_taken_only_where_the_options_ask_for_it() -> None:
    assert type(reader()) is BatchReader
    assert type(reader(filterPushdown="true")) is FilteringBatchReader


def test_a_cluster_that_does_not_answer_is_asked_again(scripted) -> None:
    scripted.create("t", (0, 20))
    scripted.failures = 2
    assert plan(reader()) == [("t-0", 0, 20)]
    scripted.failures = 3
    with pytest.raises(ClusterUnavailable):
        reader().partitions()


def test_a_cluster_that_was_never_heard_of_is_not_asked_anew(scripted) -> None:
    scripted.create("t", (0, 20))
    scripted.failures, scripted.silent = 1, True
    with pytest.raises(ClusterUnavailable):
        reader().partitions()
    assert scripted.asked == 1
    view = ClusterView(read_options({**SERVERS, "subscribe": "t"}, stream=True))
    view.partitions()
    scripted.failures = 2
    assert view.partitions() == {TopicPartition("t", 0)}, "it has answered before: it may well come back"


def test_a_cluster_that_is_silent_is_told_by_its_address_within_seconds(caplog: pytest.LogCaptureFixture) -> None:
    view = ClusterView(read_options({**SERVERS, "subscribe": "t"}, stream=True))
    view._silence(ClusterUnavailable("No broker of the cluster at localhost:9092 answers."))
    assert [record.getMessage() for record in caplog.records] == [
        "No broker of the cluster at localhost:9092 answers. Asking for 60000 ms in all (kafka.default.api.timeout.ms)."
    ]


def test_a_schema_of_ones_own_is_refused() -> None:
    with pytest.raises(PipelineOptionInvalid, match="columns of a read are fixed"):
        batch_reader({**SERVERS, "subscribe": "t"}, StructType())


def test_warnings_are_told_when_the_read_is_planned(scripted, caplog) -> None:
    scripted.create("t", (0, 20))
    reader(**{"kafka.max.poll.records": "5"}).partitions()
    assert "without effect here: kafka.max.poll.records" in caplog.text


def test_the_source_has_the_columns_of_sparks_kafka_source() -> None:
    assert RegencyDataSource.name() == "regency"
    names = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    assert RegencyDataSource({}).schema().fieldNames() == names
    assert RegencyDataSource({"includeHeaders": "true"}).schema().simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,"
        "timestampType:int,headers:array<struct<key:string,value:binary>>>"
    )
