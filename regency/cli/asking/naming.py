"""Topics and partitions as users name them: `flights`, and `flights-3` for one of its partitions."""

from __future__ import annotations

from regency.cli.asking.refusals import TopicMissing, check_partition, refusal
from regency.cli.asking.wire import ClusterWire, TopicFacts
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
