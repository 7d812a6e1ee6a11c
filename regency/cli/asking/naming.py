"""Topics and partitions as users name them: `flights`, and `flights-3` for one of its partitions."""

from __future__ import annotations

from collections.abc import Sequence

from regency.cli.asking.refusals import TopicMissing, check_partition, refusal
from regency.cli.asking.wire import ClusterWire, TopicFacts
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

_THERE = (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE)


def existing(wire: ClusterWire, topic: str) -> TopicFacts:
    """The topic. Raises TopicMissing, and CommandFailed for any other error."""
    [found] = wire.topics([topic])
    if found.error_code not in _THERE:
        raise refusal(f"topic {topic}", found.error_code)
    return found


def is_perhaps_a_partition(text: str) -> bool:
    """Whether the text may be TOPIC-N."""
    name, _, number = text.rpartition("-")
    return bool(name) and number.isdecimal() and len(number) < 10


def named(wire: ClusterWire, text: str) -> tuple[TopicFacts, int | None]:
    """The topic of that name, and None; or where there is none and the text is TOPIC-N, that topic and N.

    Raises CommandFailed where neither is there.
    """
    try:
        return existing(wire, text), None
    except TopicMissing:
        if not is_perhaps_a_partition(text):
            raise
        name, _, number = text.rpartition("-")
        try:
            found = existing(wire, name)
        except TopicMissing:
            found = None
        if found is None:
            raise
    check_partition(name, [each.partition_index for each in found.partitions], int(number))
    return found, int(number)


def partition_meant(wire: ClusterWire, text: str) -> TopicPartition | None:
    """The partition that is there under the name TOPIC-N where no topic has it; else None. Raises CommandFailed."""
    name, _, number = text.rpartition("-")
    if not is_perhaps_a_partition(text):
        return None
    whole, parent = wire.topics([text])[0], wire.topics([name])[0]
    there = [each.partition_index for each in parent.partitions]
    if whole.error_code in _THERE or parent.error_code not in _THERE or int(number) not in there:
        return None
    return TopicPartition(name, int(number))


def with_numbers(wire: ClusterWire, words: Sequence[str]) -> tuple[list[str], dict[str, set[int]]]:
    """Names out of `flights 0 3 hotels`, and by topic the partitions that numbers behind its name say.

    A number that is a topic's name is that. Raises CommandFailed.
    """
    numbers = [word for word in words[1:] if word.isdecimal() and len(word) < 10]
    topics = {each.name for each in wire.topics(numbers) if each.error_code in _THERE} if numbers else set()
    names: list[str] = []
    chosen: dict[str, set[int]] = {}
    for word in words:
        if names and word in numbers and word not in topics:
            chosen.setdefault(names[-1], set()).add(int(word))
        else:
            names.append(word)
    return names, chosen
