"""Fakes of what a listener talks to: logs, fetch sessions, the controller and the source of producer ids."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from regency.broker_agent.control.admin_forwarder import NotController
from regency.broker_agent.replication.api import ActiveProducer, DeletedRecords, LogDirDescription, ProduceResult
from regency.broker_agent.replication.offsets import LedRead
from regency.broker_agent.steps import Steps
from regency.kafka.admin_answers import Row, answer
from regency.kafka.apis import ApiKey
from regency.kafka.codec import encode_body, parse_forwarded
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetchParams, FetchPartition, ListedOffset
from regency.kafka.groups.placement import OFFSETS_TOPIC
from regency.kafka.record_batch import HEADER_BYTES
from regency.model import znodes
from regency.model.errors import RegencyError
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerId, LeaderEpoch, Offset, ProducerId, TopicId, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Envelope, EnvelopeReply
from regency.runtime.zookeeper.session import Stat, Znode


def topic_id(name: str) -> TopicId:
    return TopicId(UUID(bytes=name.encode().ljust(16, b"-")[:16]))


class FakeReplicas:
    """Logs in memory, every batch one offset per record; acks=all waits while `hold` is set."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, list[tuple[int, bytes]]] = {}
        self.hold = False
        self.held: list[Callable[[], None]] = []
        self.appended: list[tuple[TopicPartition, bytes]] = []
        self.fetches: list[tuple[FetchParams, list[FetchPartition]]] = []
        self.waiting: list[Callable[[], None]] = []
        self.cancelled = 0
        self.fail: Exception | None = None
        self.errors: dict[TopicPartition, FetchedPartition] = {}
        self.names: dict[TopicId, str] = {}
        self.produce_errors: dict[TopicPartition, ProduceResult] = {}
        self.dirs: list[LogDirDescription] = []
        self.altered: list[dict[TopicPartition, Path]] = []
        self.alter_errors: dict[TopicPartition, ErrorCode] = {}
        self.deleted: dict[TopicPartition, DeletedRecords] = {}
        self.deletions: list[tuple[int, dict[TopicPartition, Offset]]] = []
        self.compacted: set[str] = set()
        self.producers: dict[TopicPartition, list[ActiveProducer]] = {}
        self.leading: Callable[[TopicPartition, LeaderEpoch | None], None] = lambda _tp, _epoch: None
        self.own: list[bytes] = []
        """Batches of coordinators, in order."""
        self.own_error = ErrorCode.NONE

    def watch_leading(self, topic: str, watcher: Callable[[TopicPartition, LeaderEpoch | None], None]) -> None:
        self.leading = watcher

    def read_led(self, tp: TopicPartition, offset: Offset, max_bytes: int) -> LedRead:
        return LedRead(b"", Offset(0), Offset(0), Offset(0))

    def append_own(
        self,
        tp: TopicPartition,
        leader_epoch: LeaderEpoch,
        timeout_ms: int,
        batch: bytes,
        respond: Callable[[ProduceResult], None],
    ) -> None:
        self.own.append(bytes(batch))
        respond(ProduceResult(self.own_error))

    def active_producers(self, tp: TopicPartition) -> list[ActiveProducer] | ErrorCode:
        return self.producers.get(tp, ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def is_compacted(self, topic: str) -> bool:
        return topic in self.compacted

    def end(self, key: TopicPartition) -> int:
        return sum(count for count, _ in self.logs[key])

    def append(
        self,
        acks: int,
        timeout_ms: int,
        batches: Mapping[TopicPartition, memoryview],
        respond: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        if self.fail is not None:
            raise self.fail
        results = {}
        for key, batch in batches.items():
            if key in self.produce_errors:
                results[key] = self.produce_errors[key]
            elif key not in self.logs:
                results[key] = ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif len(batch) < HEADER_BYTES:
                results[key] = ProduceResult(ErrorCode.INVALID_RECORD)
            else:
                base = self.end(key)
                (last_delta,) = struct.unpack_from(">i", batch, 23)
                self.logs[key].append((last_delta + 1, struct.pack(">q", base) + batch[8:]))
                self.appended.append((key, bytes(batch)))
                results[key] = ProduceResult(ErrorCode.NONE, Offset(base), -1, Offset(0))
        if acks == -1 and self.hold:
            self.held.append(lambda: respond(results))
        else:
            respond(results)
        waiting, self.waiting = self.waiting, []
        for look in waiting:
            look()

    def delete_records(
        self,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, Offset],
        respond: Callable[[dict[TopicPartition, DeletedRecords]], None],
    ) -> None:
        if self.fail is not None:
            raise self.fail
        self.deletions.append((timeout_ms, dict(offsets)))
        unknown = DeletedRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        respond({name: self.deleted.get(name, unknown) for name in offsets})

    def fetch(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[dict[TopicPartition, FetchedPartition]], None],
    ) -> Callable[[], None]:
        self.fetches.append((params, list(partitions)))
        if self.fail is not None:
            raise self.fail
        loop = asyncio.get_running_loop()
        over = False

        def look(last: bool = False) -> None:
            nonlocal over
            if over:
                return
            results = {wanted.topic_partition: self._read(wanted) for wanted in partitions}
            ready = not results or any(
                len(result.records) or result.error is not ErrorCode.NONE for result in results.values()
            )
            if ready or last or params.max_wait_ms <= 0:
                over = True
                respond(results)
            else:
                self.waiting.append(look)

        def cancel() -> None:
            nonlocal over
            over = True
            self.cancelled += 1

        look()
        if not over:
            loop.call_later(params.max_wait_ms / 1000, look, True)
        return cancel

    def _read(self, wanted: FetchPartition) -> FetchedPartition:
        key = wanted.topic_partition
        if key in self.errors:
            return self.errors[key]
        if key not in self.logs:
            return FetchedPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        base, records = 0, b""
        for count, batch in self.logs[key]:
            if base + count > wanted.fetch_offset:
                records += batch
            base += count
        return FetchedPartition(ErrorCode.NONE, Offset(base), Offset(0), records)

    def topic_name(self, topic_id: TopicId) -> str | None:
        return self.names.get(topic_id)

    def alter_log_dirs(self, targets: Mapping[TopicPartition, Path]) -> dict[TopicPartition, ErrorCode]:
        if self.fail is not None:
            raise self.fail
        self.altered.append(dict(targets))
        return {name: self.alter_errors.get(name, ErrorCode.NONE) for name in targets}

    def describe_log_dirs(
        self, wanted: Callable[[TopicPartition], bool], respond: Callable[[list[LogDirDescription]], None]
    ) -> None:
        if self.fail is not None:
            raise self.fail
        found = [
            msgspec.structs.replace(each, logs=tuple(log for log in each.logs if wanted(log.topic_partition)))
            for each in self.dirs
        ]
        asyncio.get_running_loop().call_soon(respond, found)

    def list_offset(
        self,
        topic_partition: TopicPartition,
        timestamp: int,
        current_leader_epoch: LeaderEpoch,
        replica_id: BrokerId,
    ) -> Steps[ListedOffset]:
        yield
        if topic_partition not in self.logs:
            return ListedOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if timestamp >= 0:
            return ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        offset = {-1: self.end(topic_partition), -2: 0, -3: 0}[timestamp]
        return ListedOffset(ErrorCode.NONE, -1, Offset(offset), LeaderEpoch(7))

    def end_offset_for_epoch(
        self,
        topic_partition: TopicPartition,
        current_leader_epoch: LeaderEpoch,
        leader_epoch: LeaderEpoch,
    ) -> tuple[ErrorCode, EpochEndOffset]:
        if topic_partition not in self.logs:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER, EpochEndOffset()
        return ErrorCode.NONE, EpochEndOffset(leader_epoch, Offset(self.end(topic_partition)))


@dataclass
class FakeContext:
    partitions: Sequence[FetchPartition]
    session_id: int = 0

    def finish(
        self, results: Mapping[TopicPartition, FetchedPartition]
    ) -> Steps[tuple[int, dict[TopicPartition, FetchedPartition]]]:
        yield from ()
        return self.session_id, dict(results)


@dataclass
class FakeSessions:
    """Remembers what it was asked; answers a sessionless context, or `error`."""

    asked: list[tuple[int, int, list[FetchPartition], list[TopicPartition], bool]] = field(default_factory=list)
    error: ErrorCode | None = None
    session_id: int = 0

    def resolve(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Sequence[FetchPartition],
        forgotten: Sequence[TopicPartition],
        privileged: bool,
        now: int,
    ) -> FakeContext | ErrorCode:
        self.asked.append((session_id, session_epoch, list(partitions), list(forgotten), privileged))
        return self.error if self.error is not None else FakeContext(partitions, self.session_id)


class FakeAdmin:
    """Answers with `reply`, or creates topics by telling the harness; `fail` is raised, `hold` waited for."""

    def __init__(self) -> None:
        self.forwarded: list[tuple[Envelope, dict[str, Any]]] = []
        self.fail: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.reply: EnvelopeReply | None = None
        self.refuse = ErrorCode.NONE
        self.created: Callable[[str, int], None] = lambda name, partitions: None

    async def forward(self, envelope: Envelope, **options: Any) -> EnvelopeReply:
        self.forwarded.append((envelope, options))
        if self.hold is not None:
            await self.hold.wait()
        if self.fail is not None:
            raise self.fail
        if self.reply is not None:
            return self.reply
        if envelope.api_key != ApiKey.CREATE_TOPICS:
            raise NotController("No controller is known yet.")
        request = parse_forwarded(envelope.api_key, envelope.api_version, envelope.client_id, envelope.request)
        for topic in request.message.topics:
            self.created(topic.name, topic.num_partitions)
        rows = [Row(topic.name, error=self.refuse, topic_id=topic_id(topic.name)) for topic in request.message.topics]
        return EnvelopeReply(response=bytes(encode_body(request.version, answer(request, rows))))


class FakeZooKeeper:
    """The znode of the topic of offsets, with one partition."""

    def read(self, path: str) -> Znode:
        replicas = {0: ReplicaAssignment((BrokerId(1),))}
        topic = TopicAssignment(OFFSETS_TOPIC, replicas, topic_id(OFFSETS_TOPIC), ZkVersion(0), 1)
        return Znode(path, znodes.encode_topic(topic), Stat(1, 1, 0, 0, 0))

    def submit(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(work())


class FakeConfigs:
    """Settings by entity; None stands for what nobody can read. `fail` is raised."""

    def __init__(self) -> None:
        self.stored: dict[str, Mapping[str, str] | None] = {}
        self.fail: RegencyError | None = None

    async def read(self, entities: Sequence[str]) -> dict[str, Mapping[str, str] | None]:
        if self.fail is not None:
            raise self.fail
        return {entity: self.stored[entity] for entity in entities if entity in self.stored}


class FakeProducerIds:
    def __init__(self) -> None:
        self.next = 4000
        self.fail: RegencyError | None = None

    async def allocate(self) -> ProducerId:
        if self.fail is not None:
            raise self.fail
        self.next += 1
        return ProducerId(self.next)
