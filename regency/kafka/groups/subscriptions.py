"""Which topics the member of a consumer group wants, from the metadata of its protocol.

Only of groups with the protocol type `consumer`: those of others (schema registries, Connect) put there what they like.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

CONSUMER: Final = "consumer"
"""Protocol type of groups whose members consume topics."""

_PREFIX = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(metadata: bytes) -> list[str] | None:
    """Topics that the metadata names; None where it is no subscription.

    Only what version 0 has is looked at, whatever the version says: later ones only append. Source: ConsumerProtocol.
    """
    try:
        version, count = _PREFIX.unpack_from(metadata)
        if version < 0 or not 0 <= count <= len(metadata):
            return None
        position = _PREFIX.size
        topics: list[str] = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(str(metadata[position : position + length], "utf-8"))
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return topics


def topics_of_all(metadata: Iterable[bytes]) -> frozenset[str] | None:
    """Topics that any of these subscriptions names; None if one cannot be read, as it may want any topic."""
    topics: set[str] = set()
    for each in metadata:
        named = subscribed_topics(each)
        if named is None:
            return None
        topics.update(named)
    return frozenset(topics)
