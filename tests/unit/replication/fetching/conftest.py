"""A fetcher's logic, a follower in memory, and the leader's part of their exchanges."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest

from regency.broker_agent.replication.fetcher.fetcher_logic import FetcherLogic
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetcherLimits, FetchPlan, FetchReply
from regency.model.clock import ManualClock
from regency.model.ids import BrokerEpoch, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID = TopicId(UUID(int=3))
BACKOFF_MS = 1_000


class Replica:
    """A follower whose log is a list of epochs, one record each."""

    def __init__(self, name: TopicPartition, *epochs: int) -> None:
        self.topic_partition = name
        self.topic_id = ID
        self.is_adding = False
        self.is_settled = True
        self.epochs = list(epochs)
        self.log_start_offset = 0
        self.high_watermark = 0
        self.producers = b""
        """Those that are known of below the log start."""
        self.fails: Exception | None = None

    @property
    def log(self) -> Replica:
        return self

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.epochs)

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1] if self.epochs else -1

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        if not self.epochs or epoch > self.epochs[-1]:
            return EpochEndOffset()
        if epoch < self.epochs[0]:
            return EpochEndOffset(LeaderEpoch(epoch), Offset(self.log_start_offset))
        below = [known for known in self.epochs if known <= epoch]
        return EpochEndOffset(LeaderEpoch(below[-1]), Offset(self.log_start_offset + len(below)))

    def append_fetched(self, fetched: FetchedPartition, offset: int) -> None:
        if self.fails is not None:
            raise self.fails
        self.epochs.extend(fetched.records)
        self.high_watermark = min(fetched.high_watermark, self.log_end_offset)
        self.log_start_offset = max(self.log_start_offset, fetched.log_start_offset)

    def truncate_to(self, offset: int) -> None:
        if self.fails is not None:
            raise self.fails
        del self.epochs[offset - self.log_start_offset :]

    def truncate_fully_and_start_at(self, offset: int, producers: bytes) -> None:
        self.epochs = []
        self.log_start_offset = offset
        self.producers = producers


@pytest.fixture
def logic() -> FetcherLogic:
    limits = FetcherLimits(10_000, 1_000, 1, 500, BACKOFF_MS)
    return FetcherLogic("fetcher", limits, lambda: BrokerEpoch(77), ManualClock(), lambda _, then: then())


@pytest.fixture
def make_replica() -> type[Replica]:
    """make_replica(name, *epochs): a follower of the partition with a record of each epoch."""
    return Replica


@pytest.fixture
def answer() -> Callable[..., FetchPlan]:
    """answer(logic, now, **results): have the next fetch answered; keys are `a` and `b`."""

    def answer(
        logic: FetcherLogic,
        now: int,
        error: ErrorCode = ErrorCode.NONE,
        session: int = 5,
        **results: FetchedPartition,
    ) -> FetchPlan:
        plan = logic.next(now)
        assert isinstance(plan, FetchPlan), plan
        names = {"a": A, "b": B}
        logic.on_reply(plan, FetchReply(error, session, [(names[key], value) for key, value in results.items()]), now)
        return plan

    return answer


@pytest.fixture
def asked() -> Callable[[FetchPlan], dict[TopicPartition, tuple[int, int, int]]]:
    """asked(plan): the offset, epoch and last fetched epoch that every partition is asked for with."""

    def asked(plan: FetchPlan) -> dict[TopicPartition, tuple[int, int, int]]:
        return {
            entry.topic_partition: (entry.fetch_offset, entry.current_leader_epoch, entry.last_fetched_epoch)
            for entry in plan.partitions
        }

    return asked
