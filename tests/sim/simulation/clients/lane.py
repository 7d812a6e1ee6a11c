"""A producer's books about one partition: what waits, what is under way, under which sequence numbers. Passive.

And how a producer is configured.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

import msgspec

from regency.judge.operations import ALL
from regency.kafka.record_batch import MAX_SEQUENCE
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

MOST_UNANSWERED = 5
"""Batches without an outcome: as many as a leader remembers."""

REFUSED_BEFORE_APPEND = frozenset(
    {
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)
"""Answers that say this attempt has written nothing and will not."""


class Session:
    """A producer session: its number in the history, and the producer id and epoch once they are known."""

    __slots__ = ("number", "producer_epoch", "producer_id", "ready")

    def __init__(self, number: int) -> None:
        self.number = number
        self.producer_id = -1
        self.producer_epoch = -1
        self.ready = False


class Handed(NamedTuple):
    """A record that was handed to the producer. Times in milliseconds: of the history, and of the process's clock."""

    value: int
    invoked_ms: int
    expires_ms: int


class BatchState(Enum):
    """Where a batch is."""

    WAITING = "waiting"
    """To be sent, not before `not_before_ms`."""
    IN_FLIGHT = "in flight"


class Batch:
    """Records that are sent together, always as the same bytes."""

    __slots__ = (
        "attempt",
        "first_number",
        "handed",
        "maybe_written",
        "not_before_ms",
        "records",
        "sequence",
        "session",
        "state",
    )

    def __init__(self, handed: tuple[Handed, ...], session: Session, first_number: int) -> None:
        self.handed = handed
        self.session = session
        self.first_number = first_number
        self.sequence = -1
        self.records = b""
        self.state = BatchState.WAITING
        self.not_before_ms = 0
        self.attempt = 0
        self.maybe_written = False
        """Whether an attempt may have been appended, or may yet be."""


class Lane:
    """One partition's records, first those without an outcome in order of their sequence numbers, then the queue."""

    __slots__ = ("batches", "next_number", "next_sequence", "partition", "queue", "session")

    def __init__(self, partition: TopicPartition, session: Session) -> None:
        self.partition = partition
        self.session = session
        self.next_sequence = 0
        self.next_number = 0
        self.batches: list[Batch] = []
        self.queue: deque[Handed] = deque()

    @property
    def empty(self) -> bool:
        return not (self.batches or self.queue)

    def begin(self, session: Session) -> None:
        """Go on in a new session: numbers and sequence numbers start again."""
        self.session = session
        self.next_sequence = 0
        self.next_number = 0

    def take(self, most: int) -> Batch:
        """A new batch of up to `most` records of the queue; they get their numbers."""
        handed = tuple(self.queue.popleft() for _ in range(min(most, len(self.queue))))
        batch = Batch(handed, self.session, self.next_number)
        self.next_number += len(handed)
        self.batches.append(batch)
        return batch

    def assign_sequence(self, batch: Batch) -> None:
        """Give a batch its place in the order of the session."""
        batch.sequence = self.next_sequence
        self.next_sequence = (self.next_sequence + len(batch.handed)) & MAX_SEQUENCE

    def due(self, now_ms: int, *, ordered: bool, pipelined: bool) -> list[Batch]:
        """Batches to be sent again now.

        Ordered as Java does: only the first one without an outcome, so that retries go one by one; pipelined as
        librdkafka does: all of them, in order, behind none that has to wait. Not ordered: whatever has waited enough.
        """
        if ordered and not pipelined:
            first = self.batches[:1]
            return first if first and first[0].state is BatchState.WAITING and first[0].not_before_ms <= now_ms else []
        due: list[Batch] = []
        for batch in self.batches:
            if batch.state is BatchState.IN_FLIGHT:
                continue
            if batch.not_before_ms <= now_ms:
                due.append(batch)
            elif ordered:
                break
        return due

    @property
    def may_take(self) -> bool:
        """Whether there is something new to send, and room for it behind nothing that has to be sent again."""
        return bool(
            self.queue
            and len(self.batches) < MOST_UNANSWERED
            and all(batch.state is BatchState.IN_FLIGHT for batch in self.batches)
        )


class ProducerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a producer behaves; times in milliseconds of its own clock."""

    acks: int = ALL
    idempotent: bool = True
    like_librdkafka: bool = False
    """Bump the epoch of the whole producer on OUT_OF_ORDER_SEQUENCE_NUMBER and send all that has no outcome again."""
    records_per_s: float = 4.0
    """Over all partitions; in bursts, with pauses."""
    request_timeout_ms: int = 4_000
    """The client gives an attempt up; the broker does at three quarters of it."""
    delivery_timeout_ms: int = 20_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
