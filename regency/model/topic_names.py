"""Which names a topic may have: Kafka's rules. The name becomes part of znode paths, directories and metric names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import ClassVar, Final

from regency.model.errors import RegencyError

MAX_TOPIC_NAME_LENGTH: Final = 249
"""Characters; a partition's directory, with number and suffix for deletion, then fits into 255."""

INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
"""Topics that brokers keep for themselves."""

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class InvalidTopicName(RegencyError):
    """A topic may not have this name."""

    code: ClassVar[str] = "invalid_topic_name"


def is_valid_topic_name(name: str) -> bool:
    """Whether a topic may have this name: 1 to 249 of ASCII letters, digits, `.`, `_`, `-`; neither `.` nor `..`."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def validate_topic_name(name: str) -> None:
    """Raise InvalidTopicName, saying which rule is broken, unless a topic may have this name."""
    if is_valid_topic_name(name):
        return
    if not name:
        reason = "it is empty"
    elif name in (".", ".."):
        reason = "'.' and '..' are folders"
    elif len(name) > MAX_TOPIC_NAME_LENGTH:
        reason = f"it has {len(name)} characters, {MAX_TOPIC_NAME_LENGTH} are allowed"
    else:
        illegal = next(character for character in name if not _LEGAL.fullmatch(character))
        reason = f"it contains {illegal!r}"
    raise InvalidTopicName(
        f"topic name {name[:MAX_TOPIC_NAME_LENGTH]!r} is not allowed: {reason}.",
        hint="Use ASCII letters, digits, '.', '_' and '-'.",
    )


def is_internal(name: str) -> bool:
    """Whether brokers keep this topic for themselves."""
    return name in INTERNAL_TOPICS


def metric_name(name: str) -> str:
    """The topic's name in metrics, where `.` becomes `_`: no two topics of a cluster may share one."""
    return name.replace(".", "_")


def metric_names(topics: Iterable[str]) -> dict[str, str]:
    """Those of the topics that another's name could collide with, by their names in metrics."""
    return {metric_name(topic): topic for topic in topics if "_" in topic or "." in topic}
