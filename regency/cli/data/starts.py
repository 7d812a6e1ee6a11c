"""Where `regency consume` begins: an offset, the last records of each partition, or a moment."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import click
import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaException, TopicPartition

from regency.cli.asking.wire import ANSWER_TIMEOUT_S
from regency.cli.context import INT64_MAX
from regency.cli.exits import CommandFailed
from regency.cli.moments import Moment
from regency.clients.topic_ends import ends_of

_NUMBER = re.compile(r"[+-]?\d{1,19}")
_NAMED = {"beginning": OFFSET_BEGINNING, "end": OFFSET_END}


class Start(NamedTuple):
    """One of: `offset` in one partition, or librdkafka's beginning or end; the `last` so many; since `moment_ms`."""

    offset: int = OFFSET_END
    last: int | None = None
    moment_ms: int | None = None

    @property
    def of_one(self) -> bool:
        """Whether it is a place in one partition alone."""
        return self.last is None and self.moment_ms is None and self.offset >= 0


class Offset(click.ParamType[Start]):
    """`17`, `-10`, `@14:30`, `@10m`, `beginning` or `end`."""

    name = "offset"

    def get_metavar(self, param: click.Parameter, ctx: click.Context | None = None) -> str:  # noqa: ARG002
        """What help shows in the place of the value."""
        return "N|-N|@TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        """Where that is. Fails for what is none of these."""
        text = str(value)
        if text.startswith("@"):
            return Start(moment_ms=Moment().convert(text[1:], param, ctx))
        if text in _NAMED:
            return Start(_NAMED[text])
        if not _NUMBER.fullmatch(text) or abs(int(text)) > INT64_MAX:
            self.fail(f"{text!r} is none of N, -N (the last N), @TIME, beginning, end.", param, ctx)
        return Start(last=-int(text)) if text.startswith("-") else Start(int(text))


def places(
    consumer: confluent_kafka.Consumer, topic: str, partitions: Sequence[int], start: Start
) -> list[TopicPartition]:
    """Where to begin in each partition. Raises CommandFailed, EndsUnknown."""
    if start.last is not None:
        found = []
        for number in partitions:
            low, high = ends_of(consumer, TopicPartition(topic, number), ANSWER_TIMEOUT_S)
            found.append(TopicPartition(topic, number, max(low, high - start.last)))
        return found
    if start.moment_ms is None:
        return [TopicPartition(topic, number, start.offset) for number in partitions]
    asked = [TopicPartition(topic, number, start.moment_ms) for number in partitions]
    try:
        found = consumer.offsets_for_times(asked, timeout=ANSWER_TIMEOUT_S)
    except KafkaException as error:
        raise CommandFailed(
            f"The offsets of that time cannot be found: {error.args[0].str()}.",
            hint=f"`regency topics describe {topic}` shows who leads.",
        ) from error
    for each in found:
        if each.error is not None:
            raise CommandFailed(f"{topic}-{each.partition}: {each.error.str()}.")
    return found  # -1, which is librdkafka's end, where nothing is as new as that
