from __future__ import annotations

import pytest

from regency.model.ids import TopicPartition
from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.reading.offsets import EARLIEST, LATEST, ByPartition, ByTimestamp, Everywhere
from regency.pipeline.reading.options import include_headers, read_options
from regency.pipeline.reading.topic_choice import Assigned, Matching, Subscribed

BASE = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "t"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(**options: str):
    return read_options({**BASE, **options}, stream=False)


def stream(**options: str):
    return read_options({**BASE, **options}, stream=True)


def refused(options: dict[str, str], *, stream: bool = False) -> PipelineOptionInvalid:
    with pytest.raises(PipelineOptionInvalid) as caught:
        read_options(options, stream=stream)
    assert caught.value.hint, "says what to do"
    return caught.value


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    read = batch()
    assert (read.starting, read.ending) == (Everywhere(EARLIEST), Everywhere(LATEST))
    assert read.fail_on_data_loss
    assert not read.include_headers
    assert (read.max_offsets, read.min_offsets, read.min_partitions, read.max_records) == (None, None, None, None)
    assert (read.max_delay_ms, read.poll_timeout_ms, read.retries, read.retry_interval_ms) == (
        900_000,
        120_000,
        3,
        1000,
    )
    assert read.client.client_id == "spark-kafka-source"
    assert read.warnings == ()
    assert stream().starting == Everywhere(LATEST)


def test_names_are_compared_without_regard_to_case() -> None:
    read = read_options(
        {
            "KAFKA.Bootstrap.Servers": "localhost:9092",
            "SUBSCRIBE": "t",
            "failondataloss": "FALSE",
            "MinPartitions": "8",
        },
        stream=False,
    )
    assert not read.fail_on_data_loss
    assert read.min_partitions == 8


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets"])
def test_what_is_expected_of_offsets_comes_first_and_what_is_wrong_in_the_json_only_where_it_is_to_be_some(
    option: str,
) -> None:
    said = str(refused({**BASE, option: "newest"}))
    assert said.startswith(f"Option {option}: 'newest': it must be earliest, latest or a JSON object. By partition")
    assert "no JSON" not in said
    said = str(refused({**BASE, option: '{"t":{"0":}}'}))
    assert "it must be earliest, latest or a JSON object; it is no JSON (Expecting value: line 1 column 11" in said
    said = str(refused({**BASE, option: '{"t":[0]}'}))
    assert "it must be earliest, latest or a JSON object; topic t is no JSON object" in said
    said = str(refused({**BASE, f"{option}ByTimestamp": "newest"}))
    assert said.startswith(f"Option {option}ByTimestamp: 'newest': it must be a JSON object. Expected wall")


def test_exactly_one_choice_of_topics() -> None:
    servers = {"kafka.bootstrap.servers": "localhost:9092"}
    assert read_options({**servers, "subscribe": " b, a,,a "}, stream=False).topics == Subscribed(("a", "b"))
    assert read_options({**servers, "subscribePattern": "a.*"}, stream=False).topics == Matching("a.*")
    assert read_options({**servers, "assign": '{"t":[1,0]}'}, stream=False).topics == Assigned((T0, T1))
    assert refused(servers).option == "subscribe"
    assert refused({**BASE, "assign": '{"t":[0]}'}).option == "assign"
    assert refused({**servers, "subscribe": " , "}).option == "subscribe"
    assert refused({**servers, "subscribePattern": "a("}).option == "subscribePattern"
    for text in ("t", "[]", "{}", '{"t":[]}', '{"t":0}', '{"t":[0,0]}', '{"t":[-1]}', '{"t":["x"]}', '{"t":[true]}'):
        assert refused({**servers, "assign": text}).option == "assign", text


@pytest.mark.parametrize("pattern", ["[a-z&&[^g]]", "[[:alpha:]]", "[a--b]", "[a||b]"])
def test_a_pattern_that_means_another_thing_in_java_is_refused(pattern: str) -> None:
    error = refused({"kafka.bootstrap.servers": "localhost:9092", "subscribePattern": pattern})
    assert error.option == "subscribePattern"
    assert f"{pattern!r} has sets of sets, which Python's re does not know" in str(error)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("path", "Option path: what is read are topics, not a path. Name topics with option subscribe"),
        (
            "checkpointLocation",
            "Option checkpointLocation: it belongs to the query, not to its source. Set it on write",
        ),
        ("queryName", "Option queryName: it belongs to the query"),
        ("topic", "Option topic: it belongs to writing. Choose what is read with subscribe"),
    ],
)
def test_options_that_belong_elsewhere_are_told_where(name: str, words: str) -> None:
    assert words in str(refused({**BASE, name.upper(): "x"}))
    with pytest.raises(PipelineOptionInvalid) as error:
        read_options({**BASE, name: "x"}, stream=True)
    assert words in str(error.value)


def test_a_time_for_all_comes_before_one_for_each_before_offsets() -> None:
    offsets, times = '{"t":{"0":7,"1":-2}}', '{"t":{"0":1000,"1":2000}}'
    assert batch(startingOffsets=offsets).starting == ByPartition({T0: 7, T1: -2})
    both = batch(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    assert both.starting == ByTimestamp({T0: 1000, T1: 2000}, latest_if_none=False)
    assert both.warnings == ("Option startingOffsetsByTimestamp takes the place of startingOffsets.",)
    all_three = stream(
        startingOffsets=offsets,
        startingOffsetsByTimestamp=times,
        startingTimestamp="1500",
        startingOffsetsByTimestampStrategy="LATEST",
    )
    assert all_three.starting == ByTimestamp(1500, latest_if_none=True)
    assert batch(endingTimestamp="9").ending == ByTimestamp(9, latest_if_none=True)
    assert batch(endingOffsets="LATEST").ending == Everywhere(LATEST)


@pytest.mark.parametrize(
    ("stream", "name", "text"),
    [
        (False, "startingOffsets", "latest"),
        (False, "startingOffsets", '{"t":{"0":-1}}'),
        (False, "startingOffsets", "first"),
        (False, "startingOffsets", '{"t":{"0":-3}}'),
        (False, "startingOffsets", '{"t":{"0":1.5}}'),
        (False, "startingOffsets", '{"t":{"0":1,"0":2}}'),
        (False, "startingOffsets", '{"t":{"0":1,"00":2}}'),
        (False, "startingOffsets", '{"t":{"a":1}}'),
        (False, "startingOffsets", '{"t":[1]}'),
        (False, "startingOffsets", ""),
        (False, "startingTimestamp", "-5"),
        (False, "startingTimestamp", "yesterday"),
        (False, "startingOffsetsByTimestamp", '{"t":{"0":-1}}'),
        (False, "startingOffsetsByTimestampStrategy", "earliest"),
        (False, "endingOffsets", "earliest"),
        (False, "endingOffsets", '{"t":{"0":-2}}'),
        (False, "maxOffsetsPerTrigger", "10"),
        (False, "minOffsetsPerTrigger", "10"),
        (False, "maxTriggerDelay", "1m"),
        (True, "endingOffsets", "latest"),
        (True, "endingTimestamp", "10"),
        (True, "endingOffsetsByTimestamp", '{"t":{"0":1}}'),
        (True, "maxOffsetsPerTrigger", "0"),
        (True, "maxTriggerDelay", "1m"),
        (True, "failOnDataLoss", "yes"),
        (True, "minPartitions", "0"),
        (True, "maxRecordsPerPartition", "-1"),
        (True, "fetchOffset.numRetries", "0"),
        (True, "kafkaConsumer.pollTimeoutMs", "1s"),
        (True, "topic", "t"),
        (True, "path", "/tmp/x"),
    ],
)
def test_what_cannot_be_is_refused_by_name(stream: bool, name: str, text: str) -> None:
    assert refused({**BASE, name: text}, stream=stream).option == name


def test_contradictions_are_refused() -> None:
    small = refused({**BASE, "minOffsetsPerTrigger": "20", "maxOffsetsPerTrigger": "10"}, stream=True)
    assert small.option == "minOffsetsPerTrigger"
    for start, end in (('{"t":{"0":5}}', '{"t":{"0":4}}'), ('{"t":{"0":5}}', '{"t":{"1":6}}')):
        assert refused({**BASE, "startingOffsets": start, "endingOffsets": end}).option == "endingOffsets"
    by_time = {"startingOffsetsByTimestamp": '{"t":{"0":5}}', "endingOffsetsByTimestamp": '{"t":{"0":4}}'}
    assert refused({**BASE, **by_time}).option == "endingOffsetsByTimestamp"
    assert refused({**BASE, "startingTimestamp": "5", "endingTimestamp": "4"}).option == "endingTimestamp"
    batch(startingOffsets='{"t":{"0":-2}}', endingOffsets='{"t":{"0":-1}}')
    batch(startingOffsets='{"t":{"0":5}}', endingOffsets='{"t":{"0":-1}}')


def test_an_unknown_option_is_told_with_the_nearest() -> None:
    error = refused({**BASE, "startingoffset": "earliest"})
    assert error.option == "startingoffset"
    assert "did you mean startingOffsets?" in str(error)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("kafka.auto.offset.reset", "earliest", "startingOffsets"),
        ("kafka.key.deserializer", "x", "CAST"),
        ("kafka.value.deserializer", "x", "CAST"),
        ("kafka.enable.auto.commit", "false", "checkpoint"),
        ("kafka.interceptor.classes", "x", "interceptors"),
        ("kafka.security.protocol", "SSL", "PLAINTEXT"),
        ("kafka.sasl.mechanism", "PLAIN", "network"),
        ("kafka.fetch.min.bites", "1", "fetch.min.bites"),
        ("kafka.fetch.min.bytes", "many", "whole number"),
        ("kafka.bootstrap.servers", "localhost", "HOST:PORT"),
    ],
)
def test_settings_of_the_client_that_are_refused(name: str, text: str, words: str) -> None:
    error = refused({**BASE, name: text})
    assert error.option == name
    assert words in str(error)


def test_bootstrap_servers_must_be_given() -> None:
    assert refused({"subscribe": "t"}).option == "kafka.bootstrap.servers"


def test_settings_without_effect_are_told_of() -> None:
    read = batch(**{"kafka.max.poll.records": "5", "kafka.group.id": "g", "kafka.client.id": "mine"})
    assert read.client.client_id == "mine"
    assert [warning.split(":")[0].split(" has")[0] for warning in read.warnings] == [
        "Options without effect here",
        "Option kafka.group.id",
    ]


def test_options_that_want_another_are_told_of() -> None:
    read = batch(startingOffsetsByTimestampStrategy="latest", groupIdPrefix="a", **{"kafka.client.id": "b"})
    assert read.warnings == (
        "Option startingOffsetsByTimestampStrategy has no effect without a time to begin at.",
        "Option kafka.client.id takes the place of groupIdPrefix.",
    )


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500", 500), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 min", 120_000), ("1H", 3_600_000)],
)
def test_durations_as_spark_writes_them(text: str, ms: int) -> None:
    assert stream(minOffsetsPerTrigger="1", maxTriggerDelay=text).max_delay_ms == ms


def test_headers_are_asked_for_by_option() -> None:
    assert not include_headers({})
    assert include_headers({"IncludeHeaders": "True"})
    with pytest.raises(PipelineOptionInvalid, match="includeHeaders"):
        include_headers({"includeHeaders": "1"})
