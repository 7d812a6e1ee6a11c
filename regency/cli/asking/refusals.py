"""What the cluster refused, as an error of the command."""

from __future__ import annotations

from collections.abc import Collection

from regency.cli.exits import CommandFailed, Exit
from regency.model.kafka_errors import ErrorCode

_LIST = "`regency topics list` shows what there is."
_HINTS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _LIST,
    ErrorCode.TOPIC_ALREADY_EXISTS: "Choose another name, or say --if-not-exists.",
}
_NAMES = "A name has 1 to 249 ASCII letters, digits, '.', '_' and '-'."


class TopicMissing(CommandFailed):
    """There is no topic of the name, in the words that all commands have. `missing.explained` knows more."""

    def __init__(self, topic: str, *, hint: str = _LIST) -> None:
        super().__init__(f"There is no topic {topic}.", hint=hint)
        self.topic = topic


def refusal(subject: str, code: int, message: str | None = None) -> CommandFailed:
    """The error for an answer of the cluster: its own words where it gave some, else Kafka's name for the code."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return CommandFailed(f"{subject}: {message or f'error {code}'}.")
    kind, _, name = subject.partition(" ")
    if known is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and kind == "topic" and name:
        return TopicMissing(name)
    status = Exit.TIMED_OUT if known is ErrorCode.REQUEST_TIMED_OUT else Exit.FAILED
    if message:
        return CommandFailed(message, hint=_HINTS.get(known, ""), status=status)
    if known is ErrorCode.INVALID_TOPIC_EXCEPTION:  # with words it may mean something else, such as a deletion
        return CommandFailed(f"{subject}: no topic may have this name.", hint=_NAMES)
    hint = _HINTS.get(known, "Try again." if known.retriable else "")
    return CommandFailed(f"{subject}: {known.name}.", hint=hint, status=status)


def check_partition(topic: str, there: Collection[int], partition: int) -> None:
    """Raises CommandFailed when the partition is not among those of the topic; `there` has at least one."""
    if partition not in there:
        raise CommandFailed(f"Topic {topic} has no partition {partition}.", hint=f"It has 0 to {max(there)}.")
