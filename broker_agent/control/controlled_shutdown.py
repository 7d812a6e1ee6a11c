"""Leaving in order: the ruling controller moves leadership away before this broker stops serving.

Data loop only. Source: kafka-controller 8.2 (controlled.shutdown.* settings); the broker then stops in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Protocol

import grpc

from regency.broker_agent.control.metadata_cache import MetadataCache, MetadataSnapshot, RulingController
from regency.model.errors import RegencyError
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.words import counted
from regency.protos import controller_pb2
from regency.runtime.grpc.channels import ControllerClient, call_async, open_channel

logger = logging.getLogger(__name__)


class AnotherRules(RegencyError):
    """Another controller rules than the one that was asked, whose machine may be gone."""

    code = "another_controller_rules"
    retriable = True


class ShutdownPort(Protocol):
    """The way to controllers. Neither call outlasts the rule of the one that was asked, as far as this agent hears."""

    async def ask(
        self, asked: RulingController, request: controller_pb2.ControlledShutdownRequest, timeout_ms: int, /
    ) -> controller_pb2.ControlledShutdownResponse:
        """Ask to be relieved of leadership. Raises RegencyError: no answer in time, or AnotherRules."""
        ...

    async def rest(self, asked: RulingController, milliseconds: int, /) -> None:
        """Wait before it is asked again."""
        ...


async def leave(
    settings: BrokerSettings,
    broker: BrokerId,
    metadata: MetadataCache,
    broker_epoch: Callable[[], BrokerEpoch],
    port: ShutdownPort,
) -> bool:
    """Ask to be relieved of leadership, as often as the settings allow; whether nothing is led here any more.

    The last live broker does not wait for one that could take over. A new controller is asked at once, the same one
    again after controlled.shutdown.retry.backoff.ms. Bounded by retries × (controller.socket.timeout.ms + backoff);
    cancelling ends it at once.
    """
    if metadata.ruling is None:
        logger.info("no controller ever made this broker lead anything; stopping")
        return True
    for attempt in range(1, settings.controlled_shutdown_max_retries + 1):
        asked = metadata.ruling
        assert asked is not None
        epoch = broker_epoch()
        request = controller_pb2.ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch)
        try:
            if epoch == NO_BROKER_EPOCH:  # which controllers do not compare: it could hit the process after this one
                why = "under which epoch this broker is registered is not known yet"
            else:
                answer = await port.ask(asked, request, settings.controller_socket_timeout_ms)
                why = _in_the_way(asked, answer)
                if answer.remaining_partitions and is_last(metadata.current, broker):
                    led = counted(answer.remaining_partitions, "partition")
                    logger.info("this is the last live broker: until another starts, none can lead its %s", led)
                    return False
        except RegencyError as error:
            why = str(error)
        if not why:
            logger.info("leadership has been moved away; stopping")
            return True
        logger.info("controlled shutdown, attempt %d: %s", attempt, why)
        if attempt < settings.controlled_shutdown_max_retries:
            await port.rest(asked, settings.controlled_shutdown_retry_backoff_ms)
    logger.warning("stopping although leadership could not be moved away: clients wait until the controller notices")
    return False


def _in_the_way(asked: RulingController, answer: controller_pb2.ControlledShutdownResponse) -> str:
    """What keeps this broker from leaving; empty: nothing is led here any more."""
    if answer.error_code != ErrorCode.NONE:
        return f"controller {asked.id} refused: {answer.message or ErrorCode(answer.error_code).name}"
    if answer.remaining_partitions:
        return f"{counted(answer.remaining_partitions, 'partition')} are still led here"
    return ""


def is_last(known: MetadataSnapshot, broker: BrokerId) -> bool:
    """Whether every other broker is gone or is leaving, so that waiting moves nothing away."""
    others = (node for node in known.brokers.values() if node.id != broker)
    return broker in known.brokers and all(node.shutting_down for node in others)


class GrpcShutdown:
    """ShutdownPort over gRPC, for the asyncio data loop."""

    def __init__(self, metadata: MetadataCache, broker: BrokerId) -> None:
        self._metadata = metadata
        self._broker = broker

    async def ask(
        self, asked: RulingController, request: controller_pb2.ControlledShutdownRequest, timeout_ms: int, /
    ) -> controller_pb2.ControlledShutdownResponse:
        """See ShutdownPort. Raises RpcFailed, AnotherRules."""
        asking = asyncio.create_task(_ask(asked, request, timeout_ms))
        succession = asyncio.create_task(self.rest(asked, timeout_ms))
        try:
            await asyncio.wait((asking, succession), return_when=asyncio.FIRST_COMPLETED)
            if not asking.done() and self._metadata.ruling != asked:
                raise AnotherRules(f"the controller at {asked.endpoint} does not rule any more")
            return await asking
        finally:
            for task in (asking, succession):
                task.cancel()
            await asyncio.gather(asking, succession, return_exceptions=True)

    async def rest(self, asked: RulingController, milliseconds: int, /) -> None:
        """See ShutdownPort."""
        alone = is_last(self._metadata.current, self._broker)
        changed = partial(self._changed, asked, alone)
        await self._metadata.wait_for(changed, milliseconds)

    def _changed(self, asked: RulingController, alone: bool, known: MetadataSnapshot) -> bool:
        return self._metadata.ruling != asked or (not alone and is_last(known, self._broker))


async def _ask(
    asked: RulingController, request: controller_pb2.ControlledShutdownRequest, timeout_ms: int
) -> controller_pb2.ControlledShutdownResponse:
    channel: grpc.Channel = open_channel(asked.endpoint)
    try:
        return await call_async(
            ControllerClient(channel).controlled_shutdown,
            request,
            timeout_ms=timeout_ms,
            target=f"the controller at {asked.endpoint}",
        )
    finally:
        channel.close()
