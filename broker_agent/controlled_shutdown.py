"""Leaving in order: the ruling controller moves leadership away before this broker stops serving.

Data loop only. Source: kafka-controller 8.2 (controlled.shutdown.* settings); the broker then stops in any case.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial

import grpc

from regency.broker_agent.metadata import MetadataSnapshot
from regency.broker_agent.metadata_cache import MetadataCache, RulingController
from regency.model.ids import BrokerEpoch, BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.protos import controller_pb2
from regency.runtime.grpc_channels import RpcFailed, call_async, open_channel
from regency.runtime.grpc_clients import ControllerClient

logger = logging.getLogger(__name__)


async def leave(
    settings: BrokerSettings,
    broker: BrokerId,
    metadata: MetadataCache,
    broker_epoch: Callable[[], BrokerEpoch],
) -> bool:
    """Ask to be relieved of leadership, as often as the settings allow; whether nothing is led here any more.

    A new controller is asked at once, the same one again after controlled.shutdown.retry.backoff.ms. Bounded by
    retries × (controller.socket.timeout.ms + backoff); cancelling ends it at once.
    """
    if metadata.ruling is None:
        logger.info("no controller ever made this broker lead anything; stopping")
        return True
    for attempt in range(1, settings.controlled_shutdown_max_retries + 1):
        asked = metadata.ruling
        assert asked is not None
        why = await _ask_unless_succeeded(settings, broker, metadata, asked, broker_epoch())
        if why is None:
            logger.info("leadership has been moved away; stopping")
            return True
        logger.info("controlled shutdown, attempt %d: %s", attempt, why)
        if attempt < settings.controlled_shutdown_max_retries:
            await metadata.wait_for(partial(_succeeded, metadata, asked), settings.controlled_shutdown_retry_backoff_ms)
    logger.warning("stopping although leadership could not be moved away: clients wait until the controller notices")
    return False


def _succeeded(metadata: MetadataCache, asked: RulingController, _: MetadataSnapshot) -> bool:
    return metadata.ruling != asked


async def _ask_unless_succeeded(
    settings: BrokerSettings, broker: BrokerId, metadata: MetadataCache, asked: RulingController, epoch: BrokerEpoch
) -> str | None:
    """The same as `_ask`; but once another controller rules, one whose machine may be gone is waited for no longer."""
    asking = asyncio.create_task(_ask(settings, broker, asked, epoch))
    patience_ms = settings.controller_socket_timeout_ms
    succession = asyncio.create_task(metadata.wait_for(partial(_succeeded, metadata, asked), patience_ms))
    try:
        await asyncio.wait((asking, succession), return_when=asyncio.FIRST_COMPLETED)
        if not asking.done() and succession.result():
            return f"the controller at {asked.endpoint} does not rule any more"
        return await asking
    finally:
        for task in (asking, succession):
            task.cancel()
        await asyncio.gather(asking, succession, return_exceptions=True)


async def _ask(settings: BrokerSettings, broker: BrokerId, ruling: RulingController, epoch: BrokerEpoch) -> str | None:
    """What stands in the way; None: nothing is led here any more."""
    channel: grpc.Channel = open_channel(ruling.endpoint)
    try:
        answer = await call_async(
            ControllerClient(channel).controlled_shutdown,
            controller_pb2.ControlledShutdownRequest(broker_id=broker, broker_epoch=epoch),
            timeout_ms=settings.controller_socket_timeout_ms,
            target=f"the controller at {ruling.endpoint}",
        )
    except RpcFailed as error:
        return str(error)
    finally:
        channel.close()
    if answer.error_code != ErrorCode.NONE:
        return f"controller {ruling.id} refused: {answer.message or ErrorCode(answer.error_code).name}"
    if answer.remaining_partitions:
        return f"{answer.remaining_partitions} partitions are still led here"
    return None
