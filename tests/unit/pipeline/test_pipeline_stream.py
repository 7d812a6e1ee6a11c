from __future__ import annotations

import pickle

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from regency.model.ids import TopicPartition
from regency.pipeline.errors import DataLost, OffsetsMalformed, PipelineOptionInvalid, TopicUnknown
from regency.pipeline.reading.planning import source_schema
from regency.pipeline.reading.stream_reader import StreamReader, stream_reader

SERVERS = {"kafka.bootstrap.servers": "localhost:9092", "fetchOffset.retryIntervalMs": "0"}
ALL = ReadAllAvailable()
T0 = TopicPartition("t", 0)


def reader(**options: str) -> StreamReader:
    choice = {} if "subscribePattern" in options or "assign" in options else {"subscribe": "t"}
    made = stream_reader({**SERVERS, **choice, **options}, source_schema(include_headers=False))
    assert isinstance(made, StreamReader)
    return made


def plan(read: StreamReader, start: dict, end: dict) -> list[tuple[str, int, int]]:
    tasks = [each.task for each in read.partitions(start, end)]
    return [(str(task.topic_partition), task.start, task.end) for task in tasks]


def test_a_new_query_begins_at_the_latest_offsets(scripted) -> None:
    scripted.create("t", (5, 20), (0, 7))
    assert reader().initialOffset() == {"t": {"0": 20, "1": 7}}
    assert reader(startingOffsets="earliest").initialOffset() == {"t": {"0": 5, "1": 0}}
    assert reader(startingOffsets='{"t":{"0":6,"1":-1}}').initialOffset() == {"t": {"0": 6, "1": 7}}
    with pytest.raises(TopicUnknown):
        reader(subscribe="u").initialOffset()


def test_batch_after_batch(scripted) -> None:
    scripted.create("t", (0, 20), (0, 7))
    read = reader(startingOffsets="earliest")
    start = read.initialOffset()
    end = read.latestOffset(start, ALL)
    assert end == {"t": {"0": 20, "1": 7}}
    assert plan(read, start, end) == [("t-0", 0, 20), ("t-1", 0, 7)]
    assert read.latestOffset(end, ALL) == end, "nothing new"
    assert read.partitions(end, end) == []


def test_offsets_are_ordered_as_numbers_so_that_equal_ones_are_equal_texts(scripted) -> None:
    scripted.create("t", *[(0, number) for number in range(12)])
    assert list(reader().initialOffset()["t"]) == [str(number) for number in range(12)]


def test_a_limit_of_rows_is_shared_by_the_partitions(scripted) -> None:
    scripted.create("t", (0, 300), (0, 100))
    read = reader(maxOffsetsPerTrigger="100")
    assert read.getDefaultReadLimit() == ReadMaxRows(100)
    start = {"t": {"0": 0, "1": 0}}
    assert read.latestOffset(start, ReadMaxRows(100)) == {"t": {"0": 75, "1": 25}}
    assert read.reportLatestOffset() == {"t": {"0": 300, "1": 100}}
    assert read.latestOffset(start, ALL) == {"t": {"0": 300, "1": 100}}, "Trigger.Once wants all there is"


def test_a_batch_waits_until_there_is_enough(scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("regency.pipeline.reading.stream_reader.time.monotonic", lambda: now[0])
    scripted.create("t", (0, 10))
    read = reader(minOffsetsPerTrigger="100", maxOffsetsPerTrigger="200", maxTriggerDelay="30s")
    assert reader(minOffsetsPerTrigger="100").getDefaultReadLimit() == ReadMinRows(100)
    limit = read.getDefaultReadLimit()
    first = read.latestOffset({"t": {"0": 0}}, limit)
    assert first == {"t": {"0": 10}}, "the first waits for nothing"
    scripted.ends[T0] = 50
    assert read.latestOffset(first, limit) == first
    now[0] += 31
    assert read.latestOffset(first, limit) == {"t": {"0": 50}}
    scripted.ends[T0] = 400
    assert read.latestOffset({"t": {"0": 50}}, limit) == {"t": {"0": 250}}


def test_new_partitions_begin_at_their_earliest(scripted) -> None:
    scripted.create("t", (0, 10))
    read = reader(subscribePattern="t.*", maxOffsetsPerTrigger="10")
    start = read.initialOffset()
    scripted.create("t2", (0, 40))
    end = read.latestOffset(start, ReadMaxRows(10))
    assert end == {"t": {"0": 10}, "t2": {"0": 10}}
    assert plan(read, start, end) == [("t2-0", 0, 10)]


def test_a_new_partition_that_does_not_begin_at_zero_has_lost_records(scripted) -> None:
    scripted.create("t", (0, 10))
    scripted.create("t2", (5, 40))
    end = {"t": {"0": 10}, "t2": {"0": 40}}
    with pytest.raises(DataLost, match="new partition t2-0 begins at 5"):
        plan(reader(subscribePattern="t.*"), {"t": {"0": 10}}, end)
    assert plan(reader(subscribePattern="t.*", failOnDataLoss="false"), {"t": {"0": 10}}, end) == [("t2-0", 5, 40)]


def test_available_now_reads_up_to_what_is_there_at_its_first_look(scripted) -> None:
    scripted.create("t", (0, 10))
    read = reader(startingOffsets="earliest", maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    read.prepareForTriggerAvailableNow()
    start = read.initialOffset()
    ends = [read.latestOffset(start, ReadMaxRows(6))]
    scripted.create("t", (0, 500))
    while len(ends) < 2 or ends[-1] != ends[-2]:
        ends.append(read.latestOffset(ends[-1], ReadMaxRows(6)))
    assert ends == [{"t": {"0": 6}}, {"t": {"0": 10}}, {"t": {"0": 10}}]


def test_a_new_query_at_the_latest_offsets_with_available_now_reads_nothing(scripted) -> None:
    scripted.create("t", (0, 10))
    read = reader()
    read.prepareForTriggerAvailableNow()
    start = read.initialOffset()
    assert read.latestOffset(start, ALL) == start


def test_a_topic_that_vanished_is_data_loss(scripted) -> None:
    scripted.create("t", (0, 10))
    scripted.create("u", (0, 10))
    start = {"t": {"0": 10}, "u": {"0": 4}}
    strict, lenient = reader(subscribe="t,u"), reader(subscribe="t,u", failOnDataLoss="false")
    end = strict.latestOffset(start, ALL)
    scripted.delete("u")
    with pytest.raises(DataLost, match="u-0"):
        strict.latestOffset(start, ALL)
    with pytest.raises(DataLost, match="u-0"):
        strict.partitions(start, end)
    assert lenient.partitions(start, end) == []
    assert lenient.latestOffset(start, ALL) == {"t": {"0": 10}}
    assert lenient.latestOffset({"t": {"0": 10}}, ALL) == {"t": {"0": 10}}, "and it goes on"


def test_a_topic_that_is_not_subscribed_any_more_is_told_as_such_and_once(
    scripted, caplog: pytest.LogCaptureFixture
) -> None:
    scripted.create("old", (0, 10), (0, 10))
    scripted.create("new", (0, 5))
    start = {"old": {"0": 10, "1": 4}}
    with pytest.raises(DataLost) as lost:
        reader(subscribe="new").latestOffset(start, ALL)
    assert "old-0, old-1 are not chosen any more by option subscribe, maybe before all was read" in str(lost.value)
    assert "gone" not in str(lost.value)
    with pytest.raises(DataLost, match="old-1 is not chosen any more by option assign"):
        reader(assign='{"old":[0]}').latestOffset(start, ALL)
    with pytest.raises(DataLost, match="not chosen any more by option subscribePattern"):
        reader(subscribePattern="n.*").latestOffset(start, ALL)

    lenient = reader(subscribe="new", failOnDataLoss="false")
    for _ in range(2):
        end = lenient.latestOffset(start, ALL)
        assert plan(lenient, start, end) == [("new-0", 0, 5)]
    [record] = caplog.records
    assert record.getMessage() == (
        "Records are or may be lost: old-0, old-1 are not chosen any more by option subscribe, maybe before all was"
        " read. failOnDataLoss is false: going on with what is left."
    )


def test_a_topic_that_is_gone_and_one_that_is_not_subscribed_are_told_apart(scripted) -> None:
    scripted.create("t", (0, 10))
    with pytest.raises(DataLost) as lost:
        reader(subscribe="t,gone").latestOffset({"t": {"0": 1}, "gone": {"0": 1}, "other": {"0": 1}}, ALL)
    assert "gone-0 is gone, maybe before all was read: not in the cluster any more; other-0 is not chosen any more" in (
        str(lost.value)
    )


def test_a_topic_that_comes_back_and_goes_again_is_told_again(scripted, caplog: pytest.LogCaptureFixture) -> None:
    scripted.create("t", (0, 10))
    scripted.create("u", (0, 10))
    lenient = reader(subscribe="t,u", failOnDataLoss="false")
    both = lenient.latestOffset({"t": {"0": 0}, "u": {"0": 0}}, ALL)
    for told in (1, 2):
        scripted.delete("u")
        assert lenient.latestOffset(both, ALL) == lenient.latestOffset(both, ALL) == {"t": {"0": 10}}
        assert sum("u-0 is gone" in record.getMessage() for record in caplog.records) == told
        scripted.create("u", (0, 10))
        assert lenient.latestOffset({"t": {"0": 10}}, ALL) == both


def test_a_topic_that_was_never_there_is_no_silence(scripted) -> None:
    scripted.create("t", (0, 10))
    with pytest.raises(TopicUnknown, match="no topic typo"):
        reader(subscribe="t,typo").latestOffset({"t": {"0": 10}}, ALL)


def test_a_log_that_went_back_is_data_loss_after_looking_again(scripted) -> None:
    scripted.create("t", (0, 10))
    with pytest.raises(DataLost, match="log of t-0 ends at 10, but was read up to 12"):
        reader().latestOffset({"t": {"0": 12}}, ALL)
    assert scripted.asked == 6, "three looks, each at topics and offsets"
    lenient = reader(failOnDataLoss="false")
    end = lenient.latestOffset({"t": {"0": 12}}, ALL)
    assert end == {"t": {"0": 10}}
    assert lenient.partitions({"t": {"0": 12}}, end) == []


def test_an_end_from_before_a_restart_that_the_log_does_not_reach(scripted) -> None:
    scripted.create("t", (0, 10))
    start, end = {"t": {"0": 4}}, {"t": {"0": 15}}
    with pytest.raises(DataLost, match="t-0 ends at 10, the records up to 15 are gone"):
        reader().partitions(start, end)
    assert plan(reader(failOnDataLoss="false"), start, end) == [("t-0", 4, 10)]


def test_a_topic_that_was_deleted_and_created_again_is_data_loss(scripted) -> None:
    scripted.create("t", (0, 10))
    read = reader()
    start = read.latestOffset({"t": {"0": 4}}, ALL)
    scripted.delete("t")
    scripted.create("t", (0, 30))
    with pytest.raises(DataLost, match="deleted and created again"):
        read.latestOffset(start, ALL)


def test_what_becomes_of_topics_that_are_not_read_is_no_loss(scripted) -> None:
    scripted.create("t", (0, 10))
    scripted.create("other", (0, 10))
    read = reader(subscribePattern="^t$")
    start = read.latestOffset({"t": {"0": 4}}, ALL)
    scripted.delete("other")
    scripted.create("other", (0, 30))
    assert read.latestOffset(start, ALL) == start


def test_tasks_carry_the_identity_of_the_topic(scripted) -> None:
    scripted.create("t", (0, 10))
    (part,) = reader().partitions({"t": {"0": 4}}, {"t": {"0": 10}})
    assert part.task.topic_id == scripted.ids["t"]


def test_a_malformed_checkpoint_is_told(scripted) -> None:
    scripted.create("t", (0, 10))
    with pytest.raises(OffsetsMalformed, match="checkpoint"):
        reader().latestOffset({"t": 5}, ALL)
    with pytest.raises(OffsetsMalformed, match="checkpoint"):
        reader().partitions({"t": {"0": 4}}, {"t": {"0": "x"}})


def test_a_copy_for_a_task_has_no_connection(scripted) -> None:
    scripted.create("t", (0, 10))
    read = reader(maxOffsetsPerTrigger="3")
    read.latestOffset({"t": {"0": 4}}, ALL)
    copy = pickle.loads(pickle.dumps(read))
    assert copy._plan is None
    assert copy.getDefaultReadLimit() == ReadMaxRows(3)
    read.stop()
    assert scripted.closed


def test_wrong_options_are_told_whatever_spark_asks_first() -> None:
    read = stream_reader({**SERVERS, "subscribe": "t", "subscibe": "u"}, source_schema(include_headers=False))
    for ask in (
        read.getDefaultReadLimit,
        read.initialOffset,
        lambda: read.latestOffset({}, ALL),
        lambda: read.partitions({}, {"t": {"0": 1}}),
    ):
        with pytest.raises(PipelineOptionInvalid, match="Option subscibe"):
            ask()
    read.stop()
