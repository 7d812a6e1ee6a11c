"""The options of reading: name, type, default and where they count. docs/reference/spark-options.md shows them."""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

import msgspec

from regency.model.settings.values import Boolean, Kind, Number, Text, long

_DURATION: Final = re.compile(r"([0-9]{1,18})\s*([a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class Duration(msgspec.Struct, frozen=True):
    """A time as Spark writes it, in milliseconds: 500, 500ms, 30s, 15m, 1h, 1d."""

    @property
    def type_name(self) -> str:
        """`duration`."""
        return "duration"

    @property
    def allowed(self) -> str:
        """The form."""
        return "a number with ms, s, m, h or d behind it, such as 15m; milliseconds without"

    def parse(self, text: str) -> int:
        """Milliseconds. Raises ValueError."""
        match = _DURATION.fullmatch(text.lower())
        if match is None or match[2] not in _UNITS_MS:
            raise ValueError(f"expected {self.allowed}")
        return int(match[1]) * _UNITS_MS[match[2]]


class Use(Enum):
    """The queries an option counts in."""

    BOTH = "batch, stream"
    BATCH = "batch"
    STREAM = "stream"


class ReadOption(msgspec.Struct, frozen=True):
    """An option by the name Spark's Kafka source gives it, where it has it; `default` is its text, empty for none."""

    name: str
    kind: Kind
    default: str = ""
    use: Use = Use.BOTH


_JSON: Final = Text()
_COUNT: Final = long(1)

READ_OPTIONS: Final = (
    ReadOption("subscribe", Text()),
    ReadOption("subscribePattern", Text()),
    ReadOption("assign", _JSON),
    ReadOption("startingOffsets", _JSON),
    ReadOption("startingOffsetsByTimestamp", _JSON),
    ReadOption("startingTimestamp", long()),
    ReadOption("startingOffsetsByTimestampStrategy", Text(), "error"),
    ReadOption("endingOffsets", _JSON, "latest", Use.BATCH),
    ReadOption("endingOffsetsByTimestamp", _JSON, "", Use.BATCH),
    ReadOption("endingTimestamp", long(), "", Use.BATCH),
    ReadOption("failOnDataLoss", Boolean(), "true"),
    ReadOption("includeHeaders", Boolean(), "false"),
    ReadOption("maxOffsetsPerTrigger", _COUNT, "", Use.STREAM),
    ReadOption("minOffsetsPerTrigger", _COUNT, "", Use.STREAM),
    ReadOption("maxTriggerDelay", Duration(), "15m", Use.STREAM),
    ReadOption("minPartitions", Number(1)),
    ReadOption("maxRecordsPerPartition", _COUNT),
    ReadOption("kafkaConsumer.pollTimeoutMs", _COUNT, "120000"),
    ReadOption("fetchOffset.numRetries", Number(1), "3"),
    ReadOption("fetchOffset.retryIntervalMs", long(), "1000"),
    ReadOption("groupIdPrefix", Text(), "spark-kafka-source"),
    ReadOption("filterPushdown", Boolean(), "false", Use.BATCH),
)
"""Every option of reading but kafka.*, in the order of the documentation."""

BY_LOWER_NAME: Final = {option.name.lower(): option for option in READ_OPTIONS}

_OF_THE_QUERY: Final = "it belongs to the query, not to its source"

OF_ELSEWHERE: Final = {
    "topic": ("topic", "it belongs to writing", "Choose what is read with subscribe."),
    "path": ("path", "what is read are topics, not a path", "Name topics with option subscribe, and call load() bare."),
    "checkpointlocation": ("checkpointLocation", _OF_THE_QUERY, "Set it on writeStream."),
    "queryname": ("queryName", _OF_THE_QUERY, "Set it on writeStream, with queryName(...)."),
}
"""Options that users of Spark look for here in vain, by name in lower case: name, why not, and what to do."""
