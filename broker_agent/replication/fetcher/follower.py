"""The local replica of a followed partition, as a fetcher sees it, and where it cuts its log."""

from __future__ import annotations

from typing import Protocol

from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition
from regency.model.ids import NO_LEADER_EPOCH, UNKNOWN_OFFSET, LeaderEpoch, Offset, TopicId, TopicPartition


class Follower(Protocol):
    """A replica that fetches. Passive."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Its name."""
        ...

    @property
    def topic_id(self) -> TopicId:
        """The topic's identity, by which the leader is asked."""
        ...

    @property
    def is_adding(self) -> bool:
        """Whether a reassignment that goes on has brought the partition to this broker."""
        ...

    @property
    def log_start_offset(self) -> Offset:
        """The first offset that can be read."""
        ...

    @property
    def log_end_offset(self) -> Offset:
        """Where the next record will be written."""
        ...

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """Newest epoch of its epoch cache; -1 for none."""
        ...

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEndOffset:
        """Largest epoch not above `epoch` in this log, and where it ends; (-1, -1) where that is not known."""
        ...

    def append_fetched(self, fetched: FetchedPartition) -> None:
        """Append, then take high watermark and log start. Raises RecordsRejected, LogStorageError."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether the disk knows of every cut what it must before anything is appended."""
        ...

    def truncate_to(self, offset: Offset) -> None:
        """Drop every record from `offset` on, and every epoch that starts there. It may not be settled then.

        Raises LogStorageError, and CutNotPrepared where it has to be settled first.
        """
        ...

    def truncate_fully_and_start_at(self, offset: Offset, producers: bytes) -> None:
        """Drop everything and begin again at `offset`, with the leader's producers below it (`ListedOffset.producers`).

        It may not be settled then. Raises RecordsRejected, LogStorageError.
        """
        ...


class EpochLog(Protocol):
    """A log whose epochs are compared with those of another."""

    @property
    def log_end_offset(self) -> Offset:
        """Where the next record will be written."""
        ...

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> EpochEndOffset:
        """As a Follower's."""
        ...


def truncation_point(replica: EpochLog, leader: EpochEndOffset) -> Offset | None:
    """Where a replica cuts its log, given the leader's greatest epoch not above its own and where that ends (KIP-279).

    None: the leader cannot say. A replica that does not know the leader's epoch cuts to the end of the greatest one it
    knows below it, and asks again.
    """
    end = replica.log_end_offset
    if leader.end_offset == UNKNOWN_OFFSET:
        return None
    if leader.leader_epoch == NO_LEADER_EPOCH:
        return min(leader.end_offset, end)
    own = replica.end_offset_for_epoch(leader.leader_epoch)
    if own.end_offset == UNKNOWN_OFFSET:
        return min(leader.end_offset, end)
    if own.leader_epoch != leader.leader_epoch:
        return min(own.end_offset, end)
    return min(own.end_offset, leader.end_offset, end)
