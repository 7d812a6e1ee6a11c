"""Keeps encoded answers for as long as the metadata snapshot they were made from is the current one."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable


class AnswerCache:
    """At most `limit` bytes of encoded bodies of one snapshot version; the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._version = -1
        self._size = 0
        self._bodies: OrderedDict[Hashable, bytes | bytearray] = OrderedDict()

    def get(self, version: int, key: Hashable) -> bytes | bytearray | None:
        """What was kept under `key` from the snapshot of this version."""
        if version != self._version:
            return None
        body = self._bodies.get(key)
        if body is not None:
            self._bodies.move_to_end(key)
        return body

    def put(self, version: int, key: Hashable, body: bytes | bytearray) -> None:
        """Keep a body; a newer version drops everything of the older one."""
        if version != self._version:
            self._version = version
            self._bodies.clear()
            self._size = 0
        if len(body) > self._limit:
            return
        self._size += len(body) - len(self._bodies.pop(key, b""))
        self._bodies[key] = body
        while self._size > self._limit:
            _, dropped = self._bodies.popitem(last=False)
            self._size -= len(dropped)
