"""How long requests take, by kind and by part, and which errors they are answered. Data loop only.

A request has four moments: it is begun, its handler returns, its answer is there, the answer is written. The handler
may return before the answer is there (it waits in the purgatory, or for ZooKeeper) or after. There is no request queue:
a connection's next request waits in its buffer.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from regency.kafka.apis import ApiKey
from regency.runtime.metrics.recent import RecentTimes

FETCH_CONSUMER: Final = "FetchConsumer"
FETCH_FOLLOWER: Final = "FetchFollower"
KINDS: Final = {
    **{key: "".join(word.capitalize() for word in key.name.split("_")) for key in ApiKey},
    ApiKey.FETCH: FETCH_CONSUMER,
}
"""Kafka's names of the APIs, such as ListOffsets; a fetch is a consumer's until its handler has looked."""


class RequestTimes:
    """Requests of one kind."""

    __slots__ = ("erred", "errors", "local", "queue", "remote", "send", "total", "versions")

    def __init__(self) -> None:
        self.versions: Counter[int] = Counter()
        self.errors: Counter[int] = Counter()
        """By Kafka's error code, one for each partition that has it."""
        self.erred = 0
        """Answers with any."""
        self.total = RecentTimes()
        self.local = RecentTimes()
        self.remote = RecentTimes()
        self.queue = RecentTimes()
        self.send = RecentTimes()

    def record(self, version: int, began: int, handled: int, done: int, turn: int, written: int) -> None:
        """A request was answered. Moments in nanoseconds of one clock; `handled` 0: the answer came before that."""
        self.versions[version] += 1
        now_ms = written // 1_000_000
        worked = handled if 0 < handled < done else done
        self.total.record((written - began) // 1000, now_ms)
        self.local.record((worked - began) // 1000, now_ms)
        self.remote.record((done - worked) // 1000, now_ms)
        self.queue.record((turn - done) // 1000, now_ms)
        self.send.record((written - turn) // 1000, now_ms)


class Timing:
    """All requests, by kind: an API's name, or FetchConsumer and FetchFollower."""

    def __init__(self) -> None:
        self.kinds: dict[str, RequestTimes] = {}

    def of(self, kind: str) -> RequestTimes:
        """Requests of one kind."""
        found = self.kinds.get(kind)
        if found is None:
            found = self.kinds[kind] = RequestTimes()
        return found
