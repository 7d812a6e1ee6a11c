"""ReportReplicas: what this broker hosts, told to the ruling controller at most once a second, changes only.

With every report goes a digest of all that is hosted, so that the controller need not look at each replica. Passive but
for its `ReportPort`: its owner calls `report` from time to time, on the data loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Protocol

from regency.broker_agent.control.metadata_cache import MetadataCache, RulingController
from regency.broker_agent.replication.api import ReplicaDescription
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.clock import Clock
from regency.model.errors import RegencyError
from regency.model.hosting import HostedRole, replaced, replica_number, topic_number
from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2
from regency.runtime.grpc.channels import ControllerClient, RenewedChannel

logger = logging.getLogger(__name__)

SLICE = 500
TIMEOUT_MS = 10_000
SIGN_OF_LIFE_MS = 10_000
"""So long after its last report an agent reports although nothing has changed."""


class ReportPort(Protocol):
    """The way to controllers."""

    async def tell(
        self, endpoint: str, report: controller_pb2.ReportReplicasRequest, /
    ) -> controller_pb2.ReportReplicasResponse:
        """Hand a report over and wait for the answer. Raises RegencyError."""
        ...

    async def pause(self) -> None:
        """Let the data loop do something else for a moment."""
        ...


class Reporter:
    """Remembers what was reported, and to whom. `broker_epoch` is -1 while this broker was never registered."""

    def __init__(
        self,
        broker: BrokerId,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        broker_epoch: Callable[[], BrokerEpoch],
        port: ReportPort,
        clock: Clock,
    ) -> None:
        self._broker = broker
        self._replicas = replicas
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._port = port
        self._clock = clock
        self._told: dict[TopicPartition, ReplicaDescription] = {}
        self._digest = 0
        """Of what was told."""
        self._told_to: tuple[RulingController, BrokerEpoch] | None = None
        self._told_ms = 0
        self._number = 0
        self._failing = False

    async def report(self) -> None:
        """Report once, if there is anything new and anybody to tell."""
        ruling, epoch = self._metadata.ruling, self._broker_epoch()
        if ruling is None or epoch < 0:
            return
        full = self._told_to != (ruling, epoch)
        if full:
            self._told.clear()
            self._digest = 0
        changes, gone = await self._changes()
        if not (changes or gone or full or self._clock.monotonic_ms() - self._told_ms >= SIGN_OF_LIFE_MS):
            return
        digest = self._digest_with(changes, gone)
        self._number += 1
        request = await self._encode(changes, gone)
        request.broker_epoch, request.controller_epoch, request.full = epoch, ruling.epoch, full
        request.digest, request.number = digest, self._number
        try:
            answer = await self._port.tell(ruling.endpoint, request)
        except RegencyError as error:
            self._failed(f"the controller at {ruling.endpoint} cannot be told: {error}")
            return
        if answer.error_code != ErrorCode.NONE:
            self._failed(f"the controller at {ruling.endpoint} refused a report: {answer.message}")
            return
        self._failing = False
        for replica in gone:
            del self._told[replica.topic_partition]
        self._told.update((change.topic_partition, change) for change in changes)
        self._digest, self._told_ms = digest, self._clock.monotonic_ms()
        self._told_to = None if answer.send_full else (ruling, epoch)

    def _failed(self, why: str) -> None:
        if not self._failing:
            logger.info("%s", why)
        self._failing = True

    async def _changes(self) -> tuple[list[ReplicaDescription], list[ReplicaDescription]]:
        """What is hosted otherwise than it was told, and what was told and is hosted no more."""
        hosted = self._replicas.partitions
        gone = [replica for name, replica in self._told.items() if name not in hosted]
        partitions = list(hosted)
        changes: list[ReplicaDescription] = []
        for start in range(0, len(partitions), SLICE):
            described = self._replicas.describe(partitions[start : start + SLICE])
            changes.extend(replica for replica in described if self._told.get(replica.topic_partition) != replica)
            await self._port.pause()
        return sorted(changes, key=_name), sorted(gone, key=_name)

    def _digest_with(self, changes: Iterable[ReplicaDescription], gone: Iterable[ReplicaDescription]) -> int:
        digest = self._digest
        for replica in gone:
            digest = replaced(digest, _number(replica), 0)
        for replica in changes:
            before = self._told.get(replica.topic_partition)
            digest = replaced(digest, 0 if before is None else _number(before), _number(replica))
        return digest

    async def _encode(
        self, changes: Sequence[ReplicaDescription], gone: Sequence[ReplicaDescription]
    ) -> controller_pb2.ReportReplicasRequest:
        request = controller_pb2.ReportReplicasRequest(broker_id=self._broker)
        for hosted, listed in ((False, gone), (True, changes)):
            for (topic, topic_id), replicas in groupby(listed, key=lambda each: (_name(each).topic, each.topic_id)):
                report = request.changes.add(topic=topic, topic_id=topic_id.bytes)
                for replica in replicas:
                    _add(report, replica, replica.role if hosted else HostedRole.NONE)
                await self._port.pause()
        return request


class GrpcReports:
    """ReportPort over gRPC, for the asyncio data loop; reports until it is cancelled."""

    def __init__(self) -> None:
        self._channel = RenewedChannel()

    async def run(self, reporter: Reporter, interval_ms: int) -> None:
        """Have it report for ever; cancelling ends it."""
        try:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                await reporter.report()
        finally:
            self.close()

    async def tell(
        self, endpoint: str, report: controller_pb2.ReportReplicasRequest, /
    ) -> controller_pb2.ReportReplicasResponse:
        """See ReportPort. Raises RpcFailed."""
        return await self._channel.call_async(
            endpoint, lambda channel: ControllerClient(channel).report_replicas, report, timeout_ms=TIMEOUT_MS
        )

    async def pause(self) -> None:
        """See ReportPort."""
        await asyncio.sleep(0)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()


def _name(replica: ReplicaDescription) -> TopicPartition:
    return replica.topic_partition


def _number(replica: ReplicaDescription) -> int:
    return replica_number(
        topic_number(replica.topic_id),
        replica.topic_partition.partition,
        replica.leader,
        replica.leader_epoch,
        replica.zk_version,
        replica.role,
    )


def _add(report: controller_pb2.ReplicaReports, replica: ReplicaDescription, role: HostedRole) -> None:
    report.partition.append(replica.topic_partition.partition)
    report.leader_epoch.append(replica.leader_epoch)
    report.zk_version.append(replica.zk_version)
    report.high_watermark.append(replica.high_watermark)
    report.log_end_offset.append(replica.log_end_offset)
    report.log_start_offset.append(replica.log_start_offset)
    report.isr_len.append(len(replica.isr))
    report.isr.extend(replica.isr)
    report.directory.append(replica.directory)
    report.leader.append(replica.leader)
    report.role.append(role)
    if replica.damage:
        report.damaged.append(replica.topic_partition.partition)
        report.damage.append(replica.damage)
