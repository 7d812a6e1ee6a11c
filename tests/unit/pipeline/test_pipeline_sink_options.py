"""Options, settings and columns of a write: what is taken, and what is refused before a row is written."""

from __future__ import annotations

import msgspec
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from regency.pipeline.errors import PipelineOptionInvalid, SinkColumnsInvalid, SinkModeRefused
from regency.pipeline.reading.planning import source_schema
from regency.pipeline.sink.options import write_options
from regency.pipeline.sink.producer import check_settings
from regency.pipeline.sink.rows import check_columns
from regency.pipeline.sink.settings import RANGES
from regency.pipeline.sink.writer import batch_writer, stream_writer

SERVERS = {"kafka.bootstrap.servers": "localhost:9092"}
ONCE = {"effectivelyOnce": "true", "topic": "t"}


def options(stream: bool = False, **given: str):
    return write_options({**SERVERS, **{name.replace("__", "."): text for name, text in given.items()}}, stream=stream)


def test_options_are_those_of_the_kafka_sink_in_any_case():
    written = write_options(
        {"KAFKA.Bootstrap.Servers": "a:1", "TOPIC": " t ", "includeheaders": "TRUE", "kafka.ACKS": "1"}, stream=False
    )
    assert (written.topic, written.once, written.checkpoint) == ("t", False, None)
    assert written.producer.librdkafka["bootstrap.servers"] == "a:1"
    assert (written.producer.librdkafka["acks"], written.producer.librdkafka["enable.idempotence"]) == ("1", "false")


def test_a_write_is_idempotent_and_acknowledged_by_all_unless_told_otherwise():
    conf = options().producer.librdkafka
    assert options().producer.max_block_ms == 60_000
    assert (conf["acks"], conf["enable.idempotence"], conf["delivery.timeout.ms"]) == ("all", "true", "120000")


def test_settings_of_the_java_producer_are_translated():
    producer = write_options(
        {
            **SERVERS,
            "kafka.max.request.size": "2000000",
            "kafka.max.block.ms": "700",
            "kafka.buffer.memory": "2097152",
            "kafka.compression.type": "zstd",
            "kafka.metric.reporters": "x",
        },
        stream=False,
    ).producer
    assert producer.librdkafka["message.max.bytes"] == "2000000"
    assert (producer.max_block_ms, producer.librdkafka["topic.metadata.propagation.max.ms"]) == (700, "700")
    assert producer.librdkafka["compression.type"] == "zstd"
    assert producer.buffer_bytes == 2 << 20
    assert producer.warnings == ("Options without effect here: kafka.metric.reporters.",)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"kafka.key.serializer": "x"}, "Option kafka.key.serializer: keys are always written as the bytes they are"),
        ({"kafka.value.serializer": "x"}, "Option kafka.value.serializer: values are always written"),
        ({"kafka.transactional.id": "x"}, "brokers offer no transactions. Option effectivelyOnce"),
        ({"kafka.partitioner.class": "x"}, "choose partitions with a column partition"),
        ({"kafka.partitioner.ignore.keys": "true"}, "Choose partitions with a column partition"),
        ({"kafka.interceptor.classes": "x"}, "no Java client"),
        ({"kafka.lingr.ms": "1"}, "Option kafka.lingr.ms: the producer has no such setting; did you mean linger.ms?"),
        ({"kafka.ssl.truststore.location": "x"}, "TLS and SASL are not offered"),
        ({"kafka.security.protocol": "SSL"}, "only PLAINTEXT"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "kafka.acks: '1' contradicts enable.idempotence"),
        ({"kafka.enable.idempotence": "maybe"}, "neither true nor false"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "'6' is not 1 to 5, as enable.idempotence, which is"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "or set kafka.enable.idempotence to false and have"),
        ({**ONCE, "kafka.max.in.flight.requests.per.connection": "6"}, "as effectivelyOnce needs. Remove it: it is 5."),
        ({"kafka.buffer.memory": "1k"}, "'1k' is no value it can have: a whole number from 0 to 9223372036854775807"),
        ({"kafka.max.request.size": "2147483648"}, "'2147483648' is no value it can have: a whole number from 0 to 21"),
        ({"kafka.send.buffer.bytes": "-2"}, "Option kafka.send.buffer.bytes: '-2' is no value it can have: a whole"),
        ({"kafka.compression.zstd.level": "23"}, "a whole number from -131072 to 22 is expected"),
        ({"kafka.retries": "-1"}, "a whole number from 0 to 2147483647 is expected"),
        ({"kafka.retries": "0"}, "Option kafka.retries: '0' contradicts enable.idempotence, which is true: a request"),
        ({"kafka.retries": "0"}, "Remove it, or set kafka.enable.idempotence to false and lose records; how long"),
        ({**ONCE, "kafka.retries": "0"}, "Option kafka.retries: '0' contradicts effectivelyOnce"),
        ({"kafka.delivery.timeout.ms": "1"}, "Option kafka.delivery.timeout.ms: '1' is not more than kafka.linger.ms"),
        ({"kafka.delivery.timeout.ms": "0"}, "Option kafka.delivery.timeout.ms: '0' is no value it can have"),
        ({"kafka.delivery.timeout.ms": "5", "kafka.linger.ms": "900001"}, "which is 900000: a record would be given"),
        ({"kafka.linger.ms": "1.5"}, "Option kafka.linger.ms: '1.5' is no value it can have: a whole number"),
        ({"kafka.linger.ms": "1e3"}, "Option kafka.linger.ms: '1e3' is no value it can have: a whole number"),
        ({"kafka.delivery.timeout.ms": "0x10"}, "Option kafka.delivery.timeout.ms: '0x10' is no value it can have"),
        ({"kafka.acks": "2"}, "Option kafka.acks: '2' is none of all, -1, 0, 1. Remove it: it is all."),
        (
            {"kafka.max.block.ms": "-1"},
            "Option kafka.max.block.ms: '-1' is no value it can have: a whole number from 0",
        ),
        ({"kafka.bootstrap.servers": "nowhere"}, "'nowhere' is not HOST:PORT"),
        ({"subscribe": "t"}, "Option subscribe: it belongs to reading"),
        ({"startingOffsets": "latest"}, "Option startingOffsets: it belongs to reading"),
        ({"path": "t"}, "rows go to a topic, not to a path"),
        ({"topik": "t"}, "Option topik: there is none of that name; did you mean topic?"),
        ({"topic": "a b"}, "Option topic: 'a b' cannot be a topic's name"),
        ({"includeHeaders": "yes"}, "Option includeHeaders: 'yes': expected true or false"),
        ({"checkpointLocation": "/c"}, "it has no meaning in a batch write"),
        ({"effectivelyOnce": "true"}, "must know every topic before the first row. Set topic, or name all topics"),
        ({"effectivelyOnceTopics": "a"}, "Option effectivelyOnceTopics: it needs effectivelyOnce"),
        ({**ONCE, "effectivelyOnceTopics": "a"}, "it contradicts topic"),
        ({"failOnChangedRows": "false"}, "it needs effectivelyOnce"),
        ({**ONCE, "kafka.acks": "1"}, "kafka.acks: '1' contradicts effectivelyOnce"),
        ({**ONCE, "kafka.enable.idempotence": "false"}, "'false' contradicts effectivelyOnce"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(given: dict[str, str], words: str):
    with pytest.raises(PipelineOptionInvalid) as refused:
        write_options({**SERVERS, **given}, stream=False)
    assert words in str(refused.value)


def test_brokers_must_be_named():
    with pytest.raises(PipelineOptionInvalid, match=r"Option kafka\.bootstrap.servers: it is missing"):
        write_options({"topic": "t"}, stream=False)


def test_a_stream_that_is_effectively_once_says_where_its_checkpoint_is():
    with pytest.raises(PipelineOptionInvalid, match="Option checkpointLocation: it is missing"):
        write_options({**SERVERS, **ONCE}, stream=True)
    written = write_options({**SERVERS, **ONCE, "checkpointLocation": "/c", "queryName": "q"}, stream=True)
    assert (written.once_topics, written.checkpoint) == (("t",), "/c")


def test_topics_of_a_column_are_named_for_effectively_once():
    written = write_options({**SERVERS, "effectivelyOnce": "true", "effectivelyOnceTopics": "a, b,a"}, stream=False)
    assert written.once_topics == ("a", "b")


def test_a_value_the_client_refuses_is_refused_at_planning():
    with pytest.raises(PipelineOptionInvalid, match=r"Option kafka\.linger\.ms: 'soon' is no value it can have"):
        batch_writer({**SERVERS, "topic": "t", "kafka.linger.ms": "soon"}, schema(value=BinaryType()), False)


def test_values_that_contradict_each_other_are_refused_by_name_and_nothing_is_said_beside(capfd):
    producer = options().producer
    backoff = {"reconnect.backoff.ms": "20000", "reconnect.backoff.max.ms": "15000"}
    with pytest.raises(PipelineOptionInvalid) as refused:
        check_settings(msgspec.structs.replace(producer, librdkafka={**producer.librdkafka, **backoff}))
    assert ": `reconnect.backoff.max.ms` must be >= `reconnect.backoff.ms`." in str(refused.value)
    assert "Option kafka.reconnect.backoff." in str(refused.value)
    for wrong in ({"kafka.linger.ms": "soon"}, {"kafka.retries": "-1"}, {"kafka.retries": "0"}):
        with pytest.raises(PipelineOptionInvalid, match=next(iter(wrong))):
            batch_writer({**SERVERS, "topic": "t", **wrong}, schema(value=BinaryType()), False)
    batch_writer({**SERVERS, "topic": "t", "kafka.retries": "0", "kafka.acks": "1"}, schema(value=BinaryType()), False)
    assert capfd.readouterr() == ("", "")


TAKEN = [
    ("acks", "-1", {"acks": "-1"}),
    ("batch.size", "0", {"batch.size": "1"}),
    ("connections.max.idle.ms", "-1", {"connections.max.idle.ms": "0"}),
    ("delivery.timeout.ms", "2147483647", {"delivery.timeout.ms": "2147483647"}),
    ("interceptor.classes", "", {}),
    ("partitioner.ignore.keys", "false", {}),
    ("receive.buffer.bytes", "-1", {"socket.receive.buffer.bytes": "0"}),
    ("linger.ms", "120000", {"linger.ms": "120000", "delivery.timeout.ms": "150000"}),
    ("reconnect.backoff.max.ms", "0", {"reconnect.backoff.ms": "0", "reconnect.backoff.max.ms": "0"}),
    ("reconnect.backoff.max.ms", "7", {"reconnect.backoff.ms": "7", "reconnect.backoff.max.ms": "7"}),
    ("reconnect.backoff.ms", "0", {"reconnect.backoff.ms": "0", "reconnect.backoff.max.ms": "10000"}),
    ("reconnect.backoff.ms", "20000", {"reconnect.backoff.ms": "20000", "reconnect.backoff.max.ms": "20000"}),
    ("request.timeout.ms", "5000", {"request.timeout.ms": "5000", "socket.timeout.ms": "5000"}),
    ("retries", "2147483647", {"retries": "2147483647"}),
    ("send.buffer.bytes", "-1", {"socket.send.buffer.bytes": "0"}),
]
"""Values Kafka's producer takes, and what is said to the client here."""
CLAMPED = [
    ("buffer.memory", "0", {}, "1048576"),
    ("buffer.memory", "2147483648", {}, "1073741824"),
    ("linger.ms", "900001", {"linger.ms": "900000"}, "900000"),
    ("max.block.ms", "0", {"topic.metadata.propagation.max.ms": "1"}, "1"),
    ("max.block.ms", "9223372036854775807", {"topic.metadata.propagation.max.ms": "3600000"}, "3600000"),
    ("max.request.size", "0", {"message.max.bytes": "1000"}, "1000"),
    ("max.request.size", "2147483647", {"message.max.bytes": "1000000000"}, "1000000000"),
    ("metadata.max.age.ms", "0", {"metadata.max.age.ms": "1"}, "1"),
    ("request.timeout.ms", "0", {"socket.timeout.ms": "10"}, "10"),
    ("request.timeout.ms", "3600000", {"request.timeout.ms": "300000", "socket.timeout.ms": "300000"}, "300000"),
    ("retry.backoff.ms", "0", {"retry.backoff.ms": "1"}, "1"),
    ("retry.backoff.ms", "600000", {"retry.backoff.ms": "300000"}, "300000"),
    ("socket.connection.setup.timeout.ms", "1", {"socket.connection.setup.timeout.ms": "1000"}, "1000"),
]
"""Values Kafka's producer takes and the client here does not."""


@pytest.mark.parametrize(("name", "text", "conf"), TAKEN)
def test_what_kafkas_producer_takes_is_taken_and_means_the_same(name: str, text: str, conf: dict[str, str]):
    producer = write_options({**SERVERS, f"kafka.{name}": text}, stream=False).producer
    assert producer.librdkafka | conf == producer.librdkafka
    assert producer.warnings == ()
    check_settings(producer)


@pytest.mark.parametrize(("name", "text", "conf", "counts"), CLAMPED)
def test_what_the_client_cannot_do_comes_as_near_as_it_can_with_a_warning(name, text, conf, counts):
    room = {"kafka.delivery.timeout.ms": "1000000"}
    producer = write_options({**SERVERS, **room, f"kafka.{name}": text}, stream=False).producer
    assert producer.librdkafka | conf == producer.librdkafka
    assert producer.warnings == (
        f"Options beyond what the client here can do: kafka.{name}={text} counts as {counts}.",
    )
    check_settings(producer)


@pytest.mark.parametrize("value", range(2))
@pytest.mark.parametrize("name", sorted(RANGES))
def test_the_client_takes_the_ends_of_every_range(name: str, value: int):
    end = (RANGES[name].lowest, RANGES[name].highest)[value]
    given = {"kafka.linger.ms": "0", "kafka.acks": "1", f"kafka.{name}": str(end)}
    for codec in ("gzip", "lz4", "zstd"):
        check_settings(write_options({**SERVERS, "kafka.compression.type": codec, **given}, stream=False).producer)


def test_the_longest_pause_counts_where_the_first_is_longer():
    given = {"kafka.reconnect.backoff.ms": "5000", "kafka.reconnect.backoff.max.ms": "1"}
    producer = write_options({**SERVERS, **given}, stream=False).producer
    assert producer.librdkafka["reconnect.backoff.ms"] == producer.librdkafka["reconnect.backoff.max.ms"] == "1"
    check_settings(producer)


def test_levels_of_compression_count_for_the_codec_that_is_chosen():
    levels = {"kafka.compression.gzip.level": "9", "kafka.compression.lz4.level": "17"}
    conf = {codec: options(**levels, kafka__compression__type=codec).producer for codec in ("gzip", "lz4", "none")}
    assert [conf[codec].librdkafka.get("compression.level") for codec in conf] == ["9", "12", None]
    idle = "Options without effect here: kafka.compression"
    clamped = "Options beyond what the client here can do: kafka.compression.lz4.level=17 counts as 12."
    assert [conf[codec].warnings for codec in conf] == [
        (f"{idle}.lz4.level.", clamped),
        (f"{idle}.gzip.level.", clamped),
        (f"{idle}.gzip.level, kafka.compression.lz4.level.", clamped),
    ]


def test_what_is_waited_for_an_answer_is_request_timeout_ms_for_writing_and_for_reading_back():
    assert options().producer.librdkafka["socket.timeout.ms"] == "30000"
    given = options(kafka__request__timeout__ms="3600000").producer
    assert given.client.request_timeout_ms == 300_000


@pytest.mark.parametrize(
    "name",
    [
        "auto.include.jmx.reporter",
        "config.providers",
        "config.providers.file.class",
        "metadata.recovery.strategy",
        "security.providers",
        "transaction.timeout.ms",
    ],
)
def test_what_changes_no_record_is_taken_with_a_warning(name: str):
    producer = write_options({**SERVERS, f"kafka.{name}": "x"}, stream=False).producer
    assert producer.warnings == (f"Options without effect here: kafka.{name}.",)


def test_overwriting_a_topic_is_refused_and_the_output_mode_complete_is_not():
    with pytest.raises(SinkModeRefused, match=r'Use mode\("append"\)'):
        batch_writer({**SERVERS, "topic": "t"}, schema(value=BinaryType()), True)
    stream_writer({**SERVERS, "topic": "t", "checkpointLocation": "/c"}, schema(value=BinaryType()), True)


def schema(**columns) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


HEADERS = ArrayType(StructType([StructField("key", StringType(), False), StructField("value", BinaryType())]), False)


@pytest.mark.parametrize(
    "columns",
    [
        {"value": StringType()},
        {"value": BinaryType(), "key": StringType(), "partition": IntegerType(), "headers": HEADERS},
    ],
)
def test_columns_of_a_record_are_taken_with_a_topic(columns):
    check_columns(schema(**columns), "t")
    check_columns(schema(topic=StringType(), **columns), None)


def test_a_frame_can_be_written_as_it_was_read():
    check_columns(source_schema(True), None)


@pytest.mark.parametrize(
    ("columns", "topic", "words"),
    [
        ({"key": BinaryType()}, "t", "Required column 'value' not found among 'key'."),
        ({"value": BinaryType()}, None, "Option topic is required where there is no column 'topic'"),
        ({"value": LongType()}, "t", "Column 'value' has the unsupported type bigint; it must be string or binary."),
        ({"value": BinaryType(), "key": DoubleType()}, "t", "Column 'key' has the unsupported type double"),
        (
            {"value": BinaryType(), "topic": BinaryType()},
            "t",
            "'topic' has the unsupported type binary; it must be string",
        ),
        (
            {"value": BinaryType(), "partition": LongType()},
            "t",
            "'partition' has the unsupported type bigint; it must be int",
        ),
        (
            {"value": BinaryType(), "headers": ArrayType(StringType())},
            "t",
            "'headers' has the unsupported type array<string>",
        ),
        ({"value": BinaryType(), "at": TimestampType()}, "t", "Columns 'at' are no part of a record."),
    ],
)
def test_columns_that_make_no_record_are_refused(columns, topic, words):
    with pytest.raises(SinkColumnsInvalid) as refused:
        check_columns(schema(**columns), topic)
    assert words in str(refused.value)
    assert refused.value.hint


def test_a_column_that_is_there_twice_is_refused():
    twice = StructType([StructField("value", BinaryType()), StructField("value", BinaryType())])
    with pytest.raises(SinkColumnsInvalid, match="Column 'value' is there twice"):
        check_columns(twice, "t")
