"""Identity of topics: how it is derived, and how Kafka spells it (URL-safe base64 of 16 bytes, 22 characters)."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from uuid import UUID, uuid5

from regency.model.ids import TopicId

_NAMESPACE: Final = UUID("5f0c3f6e-8d0c-5b1a-9b5e-6a1f3c2d7e40")
"""Never changes: every controller of every release must derive the same id."""


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
    try:
        raw = base64.b64decode(text.encode("ascii") + b"==", altchars=b"-_", validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if len(text) != 22 or len(raw) != 16 or not any(raw):
        raise ValueError(f"{text[:40]!r} is not the URL-safe base64 (22 characters) of a topic id")
    return TopicId(UUID(bytes=raw))


def encode_uuid(value: UUID) -> str:
    """Kafka's spelling of any uuid: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).decode("ascii").rstrip("=")
