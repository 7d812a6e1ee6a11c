"""Batch reads, and what is expected of each."""

from __future__ import annotations

import json
from dataclasses import dataclass

from spark_compared.records import FIRST_MS, FLIGHTS, NOTHING, PLANES
from spark_compared.verdicts import Expected, both


@dataclass(frozen=True, slots=True)
class ReadCase:
    """A frame that is loaded with these options and collected."""

    name: str
    options: dict[str, str]
    expected: Expected


ALL = {"subscribe": FLIGHTS}
MIDDLE_MS = str(FIRST_MS + 1_000_500)
"""Between record 1000 and 1001 of FLIGHTS."""
NEVER_MS = str(FIRST_MS + 10**10)
EMPTY_TASKS = "what holds nothing makes no task here; a Python source without tasks gets one that is empty"
_SOON = {"kafkaConsumer.pollTimeoutMs": "10000"}
"""How long Spark waits for records that are not there: two minutes otherwise."""
IGNORED = "Spark ignores what it does not know; here it is named"


def _offsets(*offsets: int) -> str:
    return json.dumps({FLIGHTS: {str(partition): offset for partition, offset in enumerate(offsets)}})


_TIMES = json.dumps({FLIGHTS: {"0": FIRST_MS + 5, "1": FIRST_MS, "2": FIRST_MS + 2_000_000}})

READING = (
    # what is chosen
    ReadCase("a topic", ALL, both(3000)),
    ReadCase("two topics", {"subscribe": f"{FLIGHTS},{PLANES}"}, both(3500)),
    ReadCase("spaces around names", {"subscribe": f" {FLIGHTS} , {PLANES} "}, both(3500)),
    ReadCase("pattern of whole names", {"subscribePattern": f"{FLIGHTS}|{PLANES}"}, both(3500)),
    ReadCase("pattern of a part of the name", {"subscribePattern": "light"}, both(3000)),
    ReadCase("pattern with anchors", {"subscribePattern": "^p.*s$"}, both(500)),
    ReadCase(
        "pattern that matches nothing",
        {"subscribePattern": "zzz.*"},
        both(0, f"no topic is an empty frame; {EMPTY_TASKS}", tasks=(0, 1)),
    ),
    ReadCase("partitions", {"assign": json.dumps({FLIGHTS: [0, 2]})}, both(2000)),
    ReadCase(
        "partition that is not there",
        {"assign": json.dumps({FLIGHTS: [9]})},
        Expected(0, f"partition {FLIGHTS}-9", "Spark leaves out partitions that are not there; here they are named"),
    ),
    ReadCase("topic without records", {"subscribe": NOTHING}, both(0, "the topic is empty")),
    ReadCase(
        "topic that is not there",
        {"subscribe": "no-such"},
        Expected("UnknownTopicOrPartitionException", "has no topic no-such"),
    ),
    ReadCase(
        "one topic that is not there",
        {"subscribe": f"{FLIGHTS},no-such"},
        Expected("UnknownTopicOrPartitionException", "has no topic no-such"),
    ),
    ReadCase("nothing chosen", {}, Expected("One of the following options must", "no topic is chosen")),
    ReadCase(
        "chosen twice",
        {**ALL, "assign": json.dumps({FLIGHTS: [0]})},
        Expected("Only one of the following options", "has chosen the topics already"),
    ),
    ReadCase("no name", {"subscribe": ""}, Expected("No topics to subscribe to", "Option subscribe: ''")),
    # columns
    ReadCase("headers", {**ALL, "includeHeaders": "true"}, both(3000)),
    ReadCase("headers, in capitals", {**ALL, "INCLUDEHEADERS": "TRUE"}, both(3000)),
    # from and to
    ReadCase("starting offsets", {**ALL, "startingOffsets": _offsets(10, -2, 500)}, both(2490)),
    ReadCase("ending offsets", {**ALL, "endingOffsets": _offsets(10, -1, 100)}, both(1110)),
    ReadCase("to the latest", {**ALL, "endingOffsets": "latest"}, both(3000)),
    ReadCase("word in capitals", {**ALL, "startingOffsets": "EARLIEST"}, both(3000)),
    ReadCase(
        "from the latest",
        {**ALL, "startingOffsets": "latest"},
        Expected("starting offset can't be latest", "Option startingOffsets: latest"),
    ),
    ReadCase(
        "one from the latest",
        {**ALL, "startingOffsets": _offsets(10, -2, -1)},
        Expected("can't be latest for batch", "Option startingOffsets: "),
    ),
    ReadCase(
        "to the earliest",
        {**ALL, "endingOffsets": "earliest"},
        Expected("ending offset can't be earliest", "Option endingOffsets: earliest"),
    ),
    ReadCase("from a time", {**ALL, "startingTimestamp": MIDDLE_MS}, both(1999)),
    ReadCase("to a time", {**ALL, "endingTimestamp": MIDDLE_MS}, both(1001)),
    ReadCase("from a time each", {**ALL, "startingOffsetsByTimestamp": _TIMES}, both(2333)),
    ReadCase("to a time each", {**ALL, "endingOffsetsByTimestamp": _TIMES}, both(667, EMPTY_TASKS, tasks=(3, 2))),
    ReadCase(
        "from a time that never was",
        {**ALL, "startingTimestamp": NEVER_MS},
        Expected("No offset matched from request", "there is no record at or after"),
    ),
    ReadCase(
        "from a time that never was, or the latest",
        {**ALL, "startingTimestamp": NEVER_MS, "startingOffsetsByTimestampStrategy": "latest"},
        both(0, f"nothing is as late; {EMPTY_TASKS}", tasks=(3, 1)),
    ),
    ReadCase("to a time that never was", {**ALL, "endingTimestamp": NEVER_MS}, both(3000)),
    ReadCase(
        "offsets of some partitions",
        {**ALL, "startingOffsets": json.dumps({FLIGHTS: {"0": 10}})},
        Expected("Partitions specified for Kafka start offsets", "it must name every partition that is read"),
    ),
    ReadCase(
        "offsets of more partitions",
        {**ALL, "startingOffsets": _offsets(1, 1, 1, 1)},
        Expected("Partitions specified for Kafka start offsets", "it must name every partition that is read"),
    ),
    ReadCase(
        "start beyond the end",
        {**ALL, "startingOffsets": _offsets(999_999, 0, 0)},
        Expected("resolved start offset 999999 is greater", "999999"),
    ),
    ReadCase(
        "start beyond the end, loss allowed",
        {**ALL, "startingOffsets": _offsets(999_999, 0, 0), "failOnDataLoss": "false"},
        Expected(
            "resolved start offset 999999 is greater",
            2000,
            "loss is allowed: here the others are read, with a warning; Spark fails all the same",
        ),
    ),
    ReadCase(
        "end beyond the end",
        {**ALL, "endingOffsets": _offsets(999_999, 0, 0), **_SOON},
        Expected("Some data may have been lost", "999999"),
    ),
    ReadCase(
        "end beyond the end, loss allowed",
        {**ALL, "endingOffsets": _offsets(999_999, 0, 0), "failOnDataLoss": "false", **_SOON},
        both(1000, EMPTY_TASKS, tasks=(3, 1)),
    ),
    ReadCase(
        "end before the start",
        {**ALL, "startingOffsets": _offsets(50, 0, 0), "endingOffsets": _offsets(20, 5, 5)},
        Expected("start offset 50 is greater than the end offset 20", "would end at 20, before it begins at 50"),
    ),
    ReadCase(
        "broken JSON",
        {**ALL, "startingOffsets": f'{{"{FLIGHTS}":{{'},
        Expected("Expected e.g.", "Option startingOffsets: "),
    ),
    ReadCase(
        "another word", {**ALL, "startingOffsets": "newest"}, Expected("got newest", "Option startingOffsets: 'newest'")
    ),
    ReadCase(
        "offset below -2",
        {**ALL, "startingOffsets": _offsets(-3, 0, 0)},
        Expected("earliest offset -3 does not equal -2", "Option startingOffsets: "),
    ),
    # tasks
    ReadCase("at least so many tasks", {**ALL, "minPartitions": "7"}, both(3000)),
    ReadCase(
        "at most so many records a task",
        {**ALL, "maxRecordsPerPartition": "300"},
        both(3000, "in a batch Spark heeds it only beside minPartitions, here always", tasks=(3, 12)),
    ),
    ReadCase("both of these", {**ALL, "minPartitions": "5", "maxRecordsPerPartition": "300"}, both(3000)),
    ReadCase(
        "at least no task",
        {**ALL, "minPartitions": "0"},
        Expected("minPartitions must be positive", "Option minPartitions: "),
    ),
    ReadCase("no number", {**ALL, "minPartitions": "x"}, Expected('input string: "x"', "Option minPartitions: 'x'")),
    # other options
    ReadCase("no boolean", {**ALL, "failOnDataLoss": "maybe"}, Expected("maybe", "Option failOnDataLoss: 'maybe'")),
    ReadCase("group", {**ALL, "kafka.group.id": "g"}, both(3000)),
    ReadCase(
        "setting that Spark keeps for itself",
        {**ALL, "kafka.auto.offset.reset": "latest"},
        Expected("'auto.offset.reset' is not supported", "Option kafka.auto.offset.reset: "),
    ),
    ReadCase(
        "option of streams",
        {**ALL, "maxOffsetsPerTrigger": "5"},
        Expected(3000, "Option maxOffsetsPerTrigger: ", "Spark warns of an option of the other kind of query"),
    ),
    ReadCase(
        "option that nobody knows",
        {**ALL, "startingOfsets": "latest"},
        Expected(3000, "did you mean startingOffsets?", IGNORED),
    ),
    ReadCase(
        "value that nobody knows",
        {**ALL, "startingOffsetsByTimestampStrategy": "newest"},
        Expected("No value found for 'NEWEST'", "Option startingOffsetsByTimestampStrategy: 'newest'"),
    ),
    ReadCase(
        "client setting that nobody knows",
        {**ALL, "kafka.fetch.max.byte": "5"},
        Expected(3000, "Option kafka.fetch.max.byte: ", IGNORED),
    ),
)
