"""Streams that read to the end there is (Trigger.AvailableNow), and what is expected of each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import StrEnum

from spark_compared.cases_reading import ALL, IGNORED, MIDDLE_MS
from spark_compared.records import FLIGHTS, LATER, PLANES, ROWS_LATER
from spark_compared.verdicts import Expected, both


class Look(StrEnum):
    """What of a stream is compared."""

    RECORDS = "records and the offsets of every batch"
    OFFSET_LOG = "the offsets' text in the checkpoint"
    METRICS = "names of the source's metrics in the last progress"


@dataclass(frozen=True, slots=True)
class StreamCase:
    """A stream with these options. With `checkpoint_of`, the checkpoint was begun by that connector on LATER."""

    name: str
    options: dict[str, str]
    expected: Expected
    look: Look = Look.RECORDS
    checkpoint_of: str | None = None


_LIMITED = {**ALL, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "700"}
_BOTH_TOPICS = json.dumps({FLIGHTS: {"0": 100, "1": -1, "2": -2}, PLANES: {"0": -2, "1": 3}})
_LATER = {"subscribe": LATER, "startingOffsets": "earliest"}

STREAMING = (
    StreamCase("stream in five batches", _LIMITED, both(3000)),
    StreamCase(
        "stream's checkpoint",
        _LIMITED,
        Expected(5, 5, "the Python API writes its JSON with spaces; either reads the other's", alike=False),
        Look.OFFSET_LOG,
    ),
    StreamCase(
        "stream's metrics",
        _LIMITED,
        Expected(3, 0, "the Python API has none: subtract endOffset from latestOffset"),
        Look.METRICS,
    ),
    StreamCase(
        "stream of two topics from offsets",
        {"subscribe": f"{FLIGHTS},{PLANES}", "startingOffsets": _BOTH_TOPICS},
        both(2397),
    ),
    StreamCase("stream from a time", {**ALL, "startingTimestamp": MIDDLE_MS}, both(1999)),
    StreamCase("stream of a pattern", {"subscribePattern": "plane", "startingOffsets": "earliest"}, both(500)),
    StreamCase("Kafka's checkpoint taken over", _LATER, both(ROWS_LATER), checkpoint_of="kafka"),
    StreamCase("Regency's checkpoint taken over", _LATER, both(ROWS_LATER), checkpoint_of="regency"),
    StreamCase(
        "stream with an end",
        {**ALL, "endingOffsets": "latest"},
        Expected("ending offset not valid in streaming queries", "Option endingOffsets: "),
    ),
    StreamCase(
        "stream with an option that nobody knows",
        {**ALL, "startingOffsets": "earliest", "maxOffsetPerTrigger": "5"},
        Expected(3000, "did you mean maxOffsetsPerTrigger?", IGNORED),
    ),
    StreamCase(
        "stream of a topic that is not there",
        {"subscribe": "no-such"},
        Expected("UnknownTopicOrPartitionException", "has no topic no-such"),
    ),
)
