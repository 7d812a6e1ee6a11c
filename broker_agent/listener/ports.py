"""What the listener asks of the rest of the agent. Everything is called, and calls back, on the data loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from regency.broker_agent.control.metadata import MetadataSnapshot
from regency.broker_agent.control.metadata_cache import RulingController
from regency.broker_agent.replication.api import LogDirDescription, ProduceResult
from regency.broker_agent.steps import Steps
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetchParams, FetchPartition, ListedOffset
from regency.model.ids import BrokerId, LeaderEpoch, ProducerId, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Envelope, EnvelopeReply


class Replicas(Protocol):
    """The ReplicaManager, as far as clients and followers reach it."""

    def append(
        self,
        acks: int,
        timeout_ms: int,
        batches: Mapping[TopicPartition, memoryview],
        respond: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        """Append at once and in order; `respond`, now or later, when `acks` are there or `timeout_ms` has passed."""
        ...

    def fetch(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[dict[TopicPartition, FetchedPartition]], None],
    ) -> Callable[[], None]:
        """Read; `respond` now, or when enough is there or the wait is over. The result cancels a fetch that waits."""
        ...

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: LeaderEpoch,
        replica_id: BrokerId,
    ) -> Steps[ListedOffset]:
        """The offset for a timestamp, or for -1 latest, -2 earliest, -3 the one with the largest timestamp."""
        ...

    def end_offset_for_epoch(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: LeaderEpoch,
        leader_epoch: LeaderEpoch,
    ) -> tuple[ErrorCode, EpochEndOffset]:
        """Where the largest epoch not above `leader_epoch` ends."""
        ...

    def alter_log_dirs(self, targets: Mapping[TopicPartition, Path]) -> dict[TopicPartition, ErrorCode]:
        """Begin to move replicas to other log directories of this broker, absolute paths."""
        ...

    def describe_log_dirs(
        self, wanted: Callable[[TopicPartition], bool], respond: Callable[[list[LogDirDescription]], None]
    ) -> None:
        """Every log directory, and in it the logs that are `wanted`; `respond`, now or later."""
        ...

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Name of a topic with a partition hosted here, often known before metadata has it."""
        ...


class FetchContext(Protocol):
    """One fetch within its session, or without one."""

    @property
    def partitions(self) -> Sequence[FetchPartition]:
        """Everything to fetch: those of the request and those the session remembers."""
        ...

    @property
    def finish(
        self,
    ) -> Callable[
        [Mapping[TopicPartition, FetchedPartition]], Steps[tuple[int, dict[TopicPartition, FetchedPartition]]]
    ]:
        """The session id to answer with, 0 for none, and the results that are news to the client."""
        ...


class FetchSessions(Protocol):
    """Incremental fetch sessions (KIP-227)."""

    def resolve(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Sequence[FetchPartition],
        forgotten: Sequence[TopicPartition],
        privileged: bool,
        now: int,
    ) -> FetchContext | ErrorCode:
        """What a request means in its session, or the error that answers it. `now`: monotonic milliseconds."""
        ...


class Metadata(Protocol):
    """The agent's metadata cache."""

    @property
    def current(self) -> MetadataSnapshot:
        """The newest view."""
        ...

    @property
    def ruling(self) -> RulingController | None:
        """The controller of the newest epoch that was heard of."""
        ...

    async def wait_for(self, predicate: Callable[[MetadataSnapshot], bool], timeout_ms: int) -> bool:
        """Whether a view satisfies the predicate within `timeout_ms` milliseconds."""
        ...


class Admin(Protocol):
    """The way to the ruling controller."""

    async def forward(
        self, envelope: Envelope, *, timeout_ms: int, require_local: bool = True, repeatable: bool = False
    ) -> EnvelopeReply:
        """The controller's answer to a request, which may run twice if it is `repeatable`.

        Raises NotController, RpcFailed.
        """
        ...


class ConfigSource(Protocol):
    """Settings in ZooKeeper."""

    async def read(self, entities: Sequence[str], /) -> dict[str, Mapping[str, str] | None]:
        """What of these stands there, such as `topics/t`; None where it cannot be read. Raises ZkError."""
        ...


class ProducerIdSource(Protocol):
    """Producer ids that no other agent gets."""

    async def allocate(self) -> ProducerId:
        """The next one. Raises a RegencyError, retriable when ZooKeeper cannot be asked now."""
        ...
