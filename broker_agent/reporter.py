"""ReportReplicas: what this broker hosts, told to the ruling controller at most once a second, changes only.

Data loop only; describes partitions in slices and awaits the controller without blocking.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Protocol

import grpc

from regency.broker_agent.metadata_cache import MetadataCache, RulingController
from regency.broker_agent.replication.api import ReplicaDescription
from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import controller_pb2
from regency.runtime.grpc_channels import RpcFailed, call_async, open_channel
from regency.runtime.grpc_clients import ControllerClient

logger = logging.getLogger(__name__)

SLICE = 500
TIMEOUT_MS = 10_000


class Hosted(Protocol):
    """What the ReplicaManager tells of itself."""

    def describe(self, tps: Iterable[TopicPartition] | None = None) -> list[ReplicaDescription]:
        """The named replicas, or all."""
        ...


class Reporter:
    """Remembers what was reported, and to whom. `broker_epoch` is -1 while this broker was never registered."""

    def __init__(
        self,
        broker: BrokerId,
        replicas: Hosted,
        partitions: Callable[[], Sequence[TopicPartition]],
        metadata: MetadataCache,
        broker_epoch: Callable[[], BrokerEpoch],
        interval_ms: int = 1000,
    ) -> None:
        self._broker = broker
        self._replicas = replicas
        self._partitions = partitions
        self._metadata = metadata
        self._broker_epoch = broker_epoch
        self._interval_ms = interval_ms
        self._told: dict[TopicPartition, ReplicaDescription] = {}
        self._told_to: tuple[RulingController, BrokerEpoch] | None = None
        self._failing = False
        self._channel: grpc.Channel | None = None
        self._target = ""

    async def run(self) -> None:
        """Report for ever; cancelling ends it."""
        try:
            while True:
                await asyncio.sleep(self._interval_ms / 1000)
                await self.report()
        finally:
            self.close()

    async def report(self) -> None:
        """Report once, if there is anything new and anybody to tell."""
        ruling, epoch = self._metadata.ruling, self._broker_epoch()
        if ruling is None or epoch < 0:
            return
        full = self._told_to != (ruling, epoch)
        if full:
            self._told.clear()
        changes = await self._changes()
        if not changes and not full:
            return
        request = await self._encode(changes)
        request.broker_epoch, request.controller_epoch, request.full = epoch, ruling.epoch, full
        try:
            answer = await call_async(
                self._client(ruling.endpoint).report_replicas, request, timeout_ms=TIMEOUT_MS, target=ruling.endpoint
            )
        except RpcFailed as error:
            self._failed(f"the controller at {ruling.endpoint} cannot be told: {error}")
            return
        if answer.error_code != ErrorCode.NONE:
            self._failed(f"the controller at {ruling.endpoint} refused a report: {answer.message}")
            return
        self._failing = False
        self._told.update((change.topic_partition, change) for change in changes)
        self._told_to = None if answer.send_full else (ruling, epoch)

    def close(self) -> None:
        """Close the channel."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
            self._target = ""

    def _failed(self, why: str) -> None:
        if not self._failing:
            logger.info("%s", why)
        self._failing = True

    async def _changes(self) -> list[ReplicaDescription]:
        partitions = sorted(self._partitions())
        for gone in self._told.keys() - set(partitions):
            del self._told[gone]
        changes: list[ReplicaDescription] = []
        for start in range(0, len(partitions), SLICE):
            described = self._replicas.describe(partitions[start : start + SLICE])
            changes.extend(replica for replica in described if self._told.get(replica.topic_partition) != replica)
            await asyncio.sleep(0)
        return changes

    async def _encode(self, changes: Sequence[ReplicaDescription]) -> controller_pb2.ReportReplicasRequest:
        request = controller_pb2.ReportReplicasRequest(broker_id=self._broker)
        for (topic, topic_id), replicas in groupby(
            changes, key=lambda change: (change.topic_partition.topic, change.topic_id)
        ):
            report = request.changes.add(topic=topic, topic_id=topic_id.bytes)
            for replica in replicas:
                _add(report, replica)
            await asyncio.sleep(0)
        return request

    def _client(self, target: str) -> ControllerClient:
        if self._channel is None or self._target != target:
            self.close()
            self._channel = open_channel(target)
            self._target = target
        return ControllerClient(self._channel)


def _add(report: controller_pb2.ReplicaReports, replica: ReplicaDescription) -> None:
    report.partition.append(replica.topic_partition.partition)
    report.leader_epoch.append(replica.leader_epoch)
    report.zk_version.append(replica.zk_version)
    report.high_watermark.append(replica.high_watermark)
    report.log_end_offset.append(replica.log_end_offset)
    report.log_start_offset.append(replica.log_start_offset)
    report.isr_len.append(len(replica.isr))
    report.isr.extend(replica.isr)
    report.directory.append(replica.directory)
