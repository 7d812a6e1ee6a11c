"""Identity of topics: how it is derived, and how Kafka spells it (URL-safe base64 of 16 bytes, 22 characters)."""

from __future__ import annotations

import base64
import re
from typing import Final
from uuid import UUID, uuid5

from regency.model.ids import TopicId

_NAMESPACE: Final = UUID("5f0c3f6e-8d0c-5b1a-9b5e-6a1f3c2d7e40")
"""Never changes: every controller of every release must derive the same id."""

_SPELLING: Final = re.compile(r"[A-Za-z0-9_-]{22}")

_MOST_DAMAGED: Final = 2


def derive_topic_id(cluster_id: str, topic: str, czxid: int) -> TopicId:
    """Id of the topic whose znode was created by transaction `czxid`.

    Every controller computes the same; a topic deleted and created again under its name gets another.
    """
    return TopicId(uuid5(_NAMESPACE, f"{cluster_id}/{topic}/{czxid}"))


def encode_topic_id(topic_id: TopicId) -> str:
    """The 22 characters that stand in znodes, files and command output."""
    return encode_uuid(topic_id)


def decode_topic_id(text: str) -> TopicId:
    """The id that these 22 characters spell. Raises ValueError where they spell none, or the all-zero one."""
    if _SPELLING.fullmatch(text):
        value = UUID(bytes=base64.urlsafe_b64decode(text + "=="))
        if value.int and encode_uuid(value) == text:
            return TopicId(value)
    raise ValueError(f"{text[:40]!r} is not the URL-safe base64 (22 characters) of a topic id")


def is_misspelt(found: TopicId, topic_id: TopicId) -> bool:
    """Whether `found` is `topic_id` with one or two damaged characters: ids made apart share few of the 22."""
    pairs = zip(encode_topic_id(found), encode_topic_id(topic_id), strict=True)
    return 0 < sum(one != other for one, other in pairs) <= _MOST_DAMAGED


def encode_uuid(value: UUID) -> str:
    """Kafka's spelling of any uuid: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")
