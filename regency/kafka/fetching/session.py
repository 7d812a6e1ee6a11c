"""A follower's side of an incremental fetch session (KIP-227): what the leader remembers, and what it must be told.

Pure bookkeeping for one fetcher, whose requests follow each other one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from regency.kafka.fetching.values import FetchPartition
from regency.model.ids import TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

NO_SESSION = 0
"""Session id of a fetch outside any session."""
INITIAL_EPOCH = 0
"""Session epoch of a full fetch that asks for a session."""
FINAL_EPOCH = -1
"""Session epoch of a full fetch without one, which closes the session it names."""

_MAX_EPOCH = 2**31 - 1


class ClientFetchSession:
    """Session id and epoch, the partitions the leader holds in the session, and what changed since the last request."""

    def __init__(self) -> None:
        self._id = 0
        self._epoch = 0
        self._held: dict[TopicPartition, TopicId] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._leaving: dict[TopicPartition, None] = {}
        self.names: dict[tuple[TopicId, int], TopicPartition] = {}
        """Partitions of the last request, session included, by what a reply calls them."""

    @property
    def is_full(self) -> bool:
        """Whether the next request names everything."""
        return self._epoch == 0

    # What changed here

    def changed(self, topic_partition: TopicPartition) -> None:
        """The next request must name it."""
        self._leaving.pop(topic_partition, None)
        self._changed[topic_partition] = None

    def left(self, topic_partition: TopicPartition) -> None:
        """The leader shall not answer for it any more."""
        self._changed.pop(topic_partition, None)
        if topic_partition in self._held:
            self._leaving[topic_partition] = None

    # Requests

    def candidates(self, everything: Iterable[TopicPartition]) -> Sequence[TopicPartition]:
        """What to consider for the next request: everything, or what changed."""
        return list(everything) if self.is_full else list(self._changed)

    def would_be_empty(self, wanted: Sequence[FetchPartition]) -> bool:
        """Whether the leader would have nothing to answer for."""
        if wanted:
            return False
        return self.is_full or len(self._leaving) == len(self._held)

    def build(self, wanted: Sequence[FetchPartition]) -> tuple[int, int, list[tuple[TopicPartition, TopicId]]]:
        """Session id, session epoch and forgotten partitions of a request that names `wanted`."""
        forgotten: list[tuple[TopicPartition, TopicId]] = []
        if self.is_full:
            self._held = {}
            self.names = {}
        else:
            for name in self._leaving:
                topic_id = self._held.pop(name)
                self.names.pop((topic_id, name.partition), None)
                forgotten.append((name, topic_id))
        for entry in wanted:
            name, asked_id = entry.topic_partition, entry.topic_id
            assert asked_id is not None
            self._held[name] = asked_id
            self.names[asked_id, name.partition] = name
        self._changed.clear()
        self._leaving.clear()
        return self._id, self._epoch, forgotten

    # Answers

    def answered(self, session_id: int) -> None:
        """The request succeeded. Id 0: the leader keeps no session for us."""
        if session_id == 0:
            self.reset()
        elif self.is_full:
            self._id, self._epoch = session_id, 1
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1

    def refused(self, error: ErrorCode) -> None:
        """The leader refused the session: begin a new one, closing what it may hold."""
        self._epoch = 0
        if error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id = 0

    def failed(self) -> None:
        """It is not known what became of the request: begin a new session, closing the one there may be."""
        self._epoch = 0

    def reset(self) -> None:
        """Begin a new session, of which the leader knows nothing."""
        self._id = 0
        self._epoch = 0


def grouped(entries: Iterable[tuple[TopicPartition, TopicId]]) -> Mapping[TopicId, list[int]]:
    """Partition numbers by topic id, in order of first appearance: how the wire wants them."""
    by_topic: dict[TopicId, list[int]] = {}
    for name, topic_id in entries:
        by_topic.setdefault(topic_id, []).append(name.partition)
    return by_topic
