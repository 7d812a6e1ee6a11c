"""What a reader asks a cluster: which topics there are, and which offsets. Any broker, then the leaders.

For one thread at a time. Every question ends within `api_timeout_ms`, whoever is dead or being elected.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Final, Self

import msgspec

from regency.clients.settings import ClientSettings
from regency.model.errors import RegencyError
from regency.model.ids import Offset, TopicId, TopicPartition

LATEST: Final = -1
"""Timestamp that stands for the end: the high watermark."""
EARLIEST: Final = -2
"""Timestamp that stands for where the log begins."""


class ClusterUnavailable(RegencyError):
    """No broker, or not every leader that is needed, has answered in time. Says who was asked and why it failed."""

    code = "cluster_unavailable"
    retriable = True


class TopicGone(RegencyError):
    """A topic or a partition of it does not exist, or not any more under the id it had. `topic` is its name."""

    code = "topic_gone"

    def __init__(self, message: str, topic: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic


class TopicFacts(msgspec.Struct, frozen=True):
    """A topic as metadata tells it; `partitions` rise."""

    topic_id: TopicId
    partitions: tuple[int, ...]


class ClusterClient:
    """Connects with the first question, and again to whoever leads by then."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topics(self, names: Collection[str] | None) -> dict[str, TopicFacts]:
        """Topics of these names, those that do not exist left out; None: all there are, internal ones too.

        Never creates a topic. Raises ClusterUnavailable.
        """
        raise NotImplementedError

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, Offset | None]:
        """For each partition the first offset whose record has that timestamp (wall milliseconds) or a later one.

        None where no record has. LATEST and EARLIEST are timestamps too. Raises TopicGone for a partition that does not
        exist, ClusterUnavailable where a leader does not answer in time.
        """
        raise NotImplementedError

    def close(self) -> None:
        """Close all connections."""
