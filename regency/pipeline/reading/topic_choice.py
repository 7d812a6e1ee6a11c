"""Which topics and partitions a query reads: subscribe, subscribePattern or assign. Pure."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import TypeAlias

import msgspec

from regency.model.ids import TopicPartition
from regency.pipeline.errors import PipelineOptionInvalid
from regency.pipeline.reading.offsets import parse_partitions

CHOICES = ("subscribe", "subscribePattern", "assign")
INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that no pattern matches, as in Kafka's clients; they can be named."""
_EXAMPLE = 'Expected partitions by topic, such as {"a":[0,1],"b":[2]}.'


class Subscribed(msgspec.Struct, frozen=True):
    """All partitions of topics by name."""

    topics: tuple[str, ...]


class Matching(msgspec.Struct, frozen=True):
    """All partitions of the topics in whose name a regular expression is found; there may be none.

    Found anywhere, as Spark's Kafka source does it: `light` chooses flights, `^light` does not.
    """

    pattern: str


class Assigned(msgspec.Struct, frozen=True):
    """Partitions one by one."""

    partitions: tuple[TopicPartition, ...]


TopicChoice: TypeAlias = Subscribed | Matching | Assigned


def topic_choice(given: Mapping[str, str]) -> TopicChoice:
    """The choice in options by their names. Raises PipelineOptionInvalid unless exactly one was made."""
    made = [name for name in CHOICES if name in given]
    if not made:
        raise PipelineOptionInvalid(
            CHOICES[0], "no topic is chosen", hint=f"Give one of {', '.join(CHOICES)}, such as subscribe=flights."
        )
    if len(made) > 1:
        raise PipelineOptionInvalid(
            made[1], f"{made[0]} has chosen the topics already", hint=f"Give only one of {', '.join(CHOICES)}."
        )
    text = given[made[0]].strip()
    if made[0] == "subscribe":
        return _subscribed(text)
    if made[0] == "subscribePattern":
        return _matching(text)
    try:
        return Assigned(parse_partitions(text))
    except ValueError as error:
        raise PipelineOptionInvalid("assign", f"{text[:200]!r}: {error}", hint=_EXAMPLE) from error


def topics_named(choice: TopicChoice) -> tuple[str, ...] | None:
    """The topics a choice names, sorted; None where it matches them."""
    if isinstance(choice, Matching):
        return None
    if isinstance(choice, Subscribed):
        return choice.topics
    return tuple(sorted({name.topic for name in choice.partitions}))


def option_of(choice: TopicChoice) -> str:
    """The option a choice was made by."""
    if isinstance(choice, Assigned):
        return "assign"
    return "subscribe" if isinstance(choice, Subscribed) else "subscribePattern"


def chooses(choice: TopicChoice, name: TopicPartition) -> bool:
    """Whether a partition is of a choice, were it there."""
    if isinstance(choice, Assigned):
        return name in choice.partitions
    if isinstance(choice, Subscribed):
        return name.topic in choice.topics
    return name.topic not in INTERNAL and re.search(choice.pattern, name.topic) is not None


def chosen_of(choice: TopicChoice, found: Mapping[str, tuple[int, ...]]) -> set[TopicPartition]:
    """The partitions of a choice among those of the topics that were found."""
    if isinstance(choice, Assigned):
        return {name for name in choice.partitions if name.partition in found.get(name.topic, ())}
    if isinstance(choice, Subscribed):
        chosen = [topic for topic in choice.topics if topic in found]
    else:
        pattern = re.compile(choice.pattern)
        chosen = [topic for topic in found if topic not in INTERNAL and pattern.search(topic)]
    return {TopicPartition(topic, partition) for topic in chosen for partition in found[topic]}


def absent_of(choice: TopicChoice, found: Mapping[str, tuple[int, ...]]) -> list[str]:
    """What a choice names and is not there, in words: topics, and partitions of topics that are."""
    if isinstance(choice, Matching):
        return []
    absent = [f"topic {topic}" for topic in topics_named(choice) or () if topic not in found]
    if isinstance(choice, Assigned):
        absent += [
            f"partition {name}"
            for name in choice.partitions
            if name.topic in found and name.partition not in found[name.topic]
        ]
    return absent


def _subscribed(text: str) -> Subscribed:
    topics = sorted({topic.strip() for topic in text.split(",")} - {""})
    if not topics:
        raise PipelineOptionInvalid("subscribe", "it names no topic", hint="Give topics separated by commas.")
    return Subscribed(tuple(topics))


def _matching(text: str) -> Matching:
    if not text:
        raise PipelineOptionInvalid("subscribePattern", "it is empty", hint="Give a pattern such as flights-.*")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", FutureWarning)
            re.compile(text)
    except FutureWarning as error:
        # Java has sets of sets, such as [a-z&&[^g]]; Python only warns that it may have them one day, and finds nothing
        raise PipelineOptionInvalid(
            "subscribePattern",
            f"{text[:200]!r} has sets of sets, which Python's re does not know ({error})",
            hint="Write it without, such as (?![g])[a-z]; a backslash makes [, &, -, | and ~ plain.",
        ) from error
    except (re.error, RecursionError, OverflowError) as error:
        raise PipelineOptionInvalid(
            "subscribePattern",
            f"{text[:200]!r} is no regular expression: {error}",
            hint="It is read as Python's re does.",
        ) from error
    return Matching(text)
