"""Batch and streaming writes, and what is expected of each: the records that a plain consumer finds."""

from __future__ import annotations

from dataclasses import dataclass, field

from spark_compared.cases_reading import IGNORED
from spark_compared.verdicts import Expected, both

ROWS = 100
"""Of a batch: `id` from 0 on, of which the columns are made."""
STREAMED = 500
"""Of a stream: all that is in PLANES."""


@dataclass(frozen=True, slots=True)
class WriteCase:
    """A frame of these columns (SQL over `id`, or over the source's columns in a stream) that is written."""

    name: str
    columns: tuple[str, ...]
    expected: Expected
    options: dict[str, str] = field(default_factory=dict)
    mode: str | None = "append"
    """Save mode, or output mode of a stream; None: none is said."""
    topic: bool = True
    """Whether the option topic is given."""
    placed: bool = False
    """Whether the partition of every record counts, not only of those with a key."""
    stream: bool = False
    counted: bool = False
    """A stream that counts rows by partition: columns are made of `partition` and `count`."""


KEY = "IF(id % 3 = 0, null, CAST(CAST(id AS STRING) AS BINARY)) AS key"
KEY_TEXT = "IF(id % 3 = 0, null, CAST(id AS STRING)) AS key"
VALUE = "IF(id % 7 = 0, null, concat('v', id)) AS value"
HEADERS = "array(named_struct('key', concat('h', id), 'value', CAST('z' AS BINARY))) AS headers"
COUNTS = ("CAST(partition AS STRING) AS key", "CAST(count AS STRING) AS value")
QUICK = {"kafka.max.block.ms": "10000"}
"""How long the Java producer waits for a partition that is not there: a minute otherwise."""
MODE_SAID = 'Spark gives Python sources append and overwrite alone: .mode("append") must be said'

WRITING = (
    # columns
    WriteCase("keys and values", (KEY, VALUE), both(ROWS)),
    WriteCase("keys that are strings", (KEY_TEXT, VALUE), both(ROWS)),
    WriteCase("values alone", (VALUE,), both(ROWS)),
    WriteCase("headers written", (KEY, VALUE, HEADERS), both(ROWS), {"includeHeaders": "true"}),
    WriteCase("headers written, not asked for", (KEY, VALUE, HEADERS), both(ROWS)),
    WriteCase("partition chosen", (VALUE, "CAST(1 AS INT) AS partition"), both(ROWS), placed=True),
    WriteCase("partition null", (KEY, VALUE, "CAST(null AS INT) AS partition"), both(ROWS)),
    WriteCase("option before a null column topic", (VALUE, "CAST(null AS STRING) AS topic"), both(ROWS)),
    WriteCase(
        "column that nobody reads",
        (VALUE, "1 AS other"),
        Expected(ROWS, "other", "Spark passes over columns it does not know; here they are named"),
    ),
    WriteCase("no value", (KEY,), Expected("Required attribute 'value' not found", "value")),
    WriteCase("value that is a number", ("id AS value",), Expected("unsupported type bigint", "value")),
    WriteCase("no topic", (VALUE,), Expected("topic option required", "topic"), topic=False),
    WriteCase(
        "null for a topic",
        (VALUE, "CAST(null AS STRING) AS topic"),
        Expected("contains a null topic", "topic"),
        topic=False,
    ),
    WriteCase(
        "partition chosen that is not there",
        (VALUE, "CAST(9 AS INT) AS partition"),
        Expected("Partition 9 of topic", "partition"),
        QUICK,
    ),
    WriteCase(
        "partition below 0", (VALUE, "CAST(-1 AS INT) AS partition"), Expected("Invalid partition", "partition"), QUICK
    ),
    # save modes
    WriteCase("no mode", (VALUE,), Expected(ROWS, "ErrorIfExists", MODE_SAID), mode=None),
    WriteCase("mode errorifexists", (VALUE,), Expected(ROWS, "ErrorIfExists", MODE_SAID), mode="errorifexists"),
    WriteCase(
        "mode overwrite", (VALUE,), Expected("Save mode Overwrite not allowed", "Save mode overwrite"), mode="overwrite"
    ),
    WriteCase("mode ignore", (VALUE,), Expected("Save mode Ignore not allowed", '"Ignore"'), mode="ignore"),
    # options
    WriteCase("acks of the leader alone", (VALUE,), both(ROWS), {"kafka.acks": "1"}),
    WriteCase(
        "serializer",
        (VALUE,),
        Expected("'key.serializer' is not supported", "Option kafka.key.serializer: "),
        {"kafka.key.serializer": "x"},
    ),
    WriteCase(
        "partitioner of Java",
        (VALUE,),
        Expected(ROWS, "Option kafka.partitioner.class: ", "there is no Java client that could call it"),
        {"kafka.partitioner.class": "org.apache.kafka.clients.producer.RoundRobinPartitioner"},
    ),
    WriteCase("option that nobody knows in a write", (VALUE,), Expected(ROWS, "Option tpic: ", IGNORED), {"tpic": "x"}),
    # streams
    WriteCase("stream's keys and values", ("key", "value"), both(STREAMED), stream=True),
    WriteCase("stream's counts, all each time", COUNTS, both(2), mode="complete", stream=True, counted=True),
    WriteCase(
        "stream's counts, those that change",
        COUNTS,
        Expected(2, "Update", "Spark refuses the output mode update for Python sinks"),
        mode="update",
        stream=True,
        counted=True,
    ),
)
