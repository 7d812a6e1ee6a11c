"""Leaving in order, and calls that fail, over real channels to a controller that the test plays."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from regency.broker_agent.control import controlled_shutdown
from regency.broker_agent.control.metadata_cache import BrokerNode, MetadataCache, RulingController
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.protos import controller_pb2 as pb
from regency.runtime.grpc.channels import ControllerClient, RpcFailed, call, open_channel
from regency.runtime.grpc.servers import GrpcServer, PortUnavailable

ME = BrokerId(1)


def leave(metadata: MetadataCache, **settings: int) -> bool:
    asked = BrokerSettings(**{"broker_id": ME, "controlled_shutdown_retry_backoff_ms": 1, **settings})
    return asyncio.run(leaving(asked, metadata))


def leaving(
    settings: BrokerSettings, metadata: MetadataCache, epoch: Callable[[], BrokerEpoch] = lambda: BrokerEpoch(50)
) -> Coroutine[object, None, bool]:
    return controlled_shutdown.leave(settings, ME, metadata, epoch, controlled_shutdown.GrpcShutdown(metadata, ME))


def test_leaving_asks_until_nothing_is_led_any_more(controller) -> None:
    controller.shutdown_answers = [
        pb.ControlledShutdownResponse(remaining_partitions=2),
        pb.ControlledShutdownResponse(),
    ]
    assert leave(controller.known())
    assert [(asked.broker_id, asked.broker_epoch) for asked in controller.shutdowns] == [(1, 50), (1, 50)]


def test_leaving_gives_up_after_the_attempts_of_the_settings(controller) -> None:
    controller.shutdown_answers = [pb.ControlledShutdownResponse(error_code=ErrorCode.NOT_CONTROLLER)] * 2
    assert not leave(controller.known(), controlled_shutdown_max_retries=2)
    assert controller.shutdown_answers == []


@pytest.mark.parametrize("other", ["gone", "leaving", "staying"])
def test_the_last_live_broker_leaves_at_once_and_says_that_it_is(controller, caplog, other) -> None:
    caplog.set_level(logging.INFO)
    controller.shutdown_answers = [pb.ControlledShutdownResponse(remaining_partitions=2)] * 2
    metadata = controller.known()
    nodes = {ME: BrokerNode(ME, BrokerEpoch(50), ())}
    if other != "gone":
        nodes[BrokerId(2)] = BrokerNode(BrokerId(2), BrokerEpoch(51), (), shutting_down=other == "leaving")
    metadata._view = msgspec.structs.replace(metadata.current, brokers=nodes)

    assert not leave(metadata, controlled_shutdown_max_retries=2)

    last = other != "staying"
    assert len(controller.shutdowns) == (1 if last else 2)
    assert ("this is the last live broker: until another starts, none can lead its 2 partitions" in caplog.text) == last
    assert any(each.levelname == "WARNING" for each in caplog.records) != last


def test_leaving_asks_only_when_it_is_known_as_whom(controller) -> None:
    """Before the registration is confirmed: a request without an epoch could be taken for one of the next process."""
    controller.shutdown_answers = [pb.ControlledShutdownResponse()]
    epochs = iter([NO_BROKER_EPOCH, BrokerEpoch(50)])
    settings = BrokerSettings(broker_id=ME, controlled_shutdown_retry_backoff_ms=1)
    assert asyncio.run(leaving(settings, controller.known(), lambda: next(epochs)))
    assert [asked.broker_epoch for asked in controller.shutdowns] == [50]


def test_leaving_pauses_before_it_asks_the_same_controller_again(controller) -> None:
    controller.shutdown_answers = [pb.ControlledShutdownResponse(remaining_partitions=1)] * 3
    began = time.monotonic()
    assert not leave(controller.known(), controlled_shutdown_retry_backoff_ms=100)
    assert time.monotonic() - began >= 0.2, "between three attempts there are two pauses, and none after the last"


def test_leaving_asks_a_controller_that_has_just_come_without_a_pause(controller) -> None:
    controller.shutdown_answers = [
        pb.ControlledShutdownResponse(remaining_partitions=1),
        pb.ControlledShutdownResponse(),
    ]
    metadata = controller.known(epoch=3)

    async def leave_while_another_takes_over() -> bool:
        asked = BrokerSettings(broker_id=ME, controlled_shutdown_retry_backoff_ms=60_000)
        left = asyncio.create_task(leaving(asked, metadata))
        while not controller.shutdowns:
            await asyncio.sleep(0.01)
        metadata.saw_controller(RulingController(BrokerId(2), ControllerEpoch(4), f"127.0.0.1:{controller.port}"))
        return await asyncio.wait_for(left, 30)

    assert asyncio.run(leave_while_another_takes_over())


def test_leaving_waits_no_longer_for_a_controller_that_another_has_succeeded(controller) -> None:
    controller.shutdown_answers = [pb.ControlledShutdownResponse()]
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes connections, and never answers
        metadata = MetadataCache()
        before = f"127.0.0.1:{silent.getsockname()[1]}"
        metadata.saw_controller(RulingController(BrokerId(2), ControllerEpoch(3), before))

        async def leave_while_another_takes_over() -> bool:
            asked = BrokerSettings(broker_id=ME, controller_socket_timeout_ms=60_000)
            left = asyncio.create_task(leaving(asked, metadata))
            connection, _ = await asyncio.to_thread(silent.accept)
            endpoint = f"127.0.0.1:{controller.port}"
            metadata.saw_controller(RulingController(BrokerId(1), ControllerEpoch(4), endpoint))
            with connection:
                return await left

        assert asyncio.run(leave_while_another_takes_over())
    assert len(controller.shutdowns) == 1


def test_a_broker_nobody_ever_gave_a_partition_leaves_at_once() -> None:
    assert leave(MetadataCache())


def test_a_call_to_nobody_fails_by_its_deadline_and_names_the_target(controller) -> None:
    controller.server.stop(0)
    channel = open_channel(f"127.0.0.1:{controller.port}")
    with pytest.raises(RpcFailed, match="the controller"):
        call(
            ControllerClient(channel).describe, pb.DescribeControllerRequest(), timeout_ms=500, target="the controller"
        )
    channel.close()


def test_a_method_nobody_serves_is_an_rpc_failure_with_its_status(controller) -> None:
    channel = open_channel(f"127.0.0.1:{controller.port}")
    with pytest.raises(RpcFailed, match="unimplemented"):
        call(ControllerClient(channel).describe, pb.DescribeControllerRequest(), timeout_ms=5000, target="it")
    channel.close()


def test_a_port_belongs_to_one_server(controller) -> None:
    other = GrpcServer([], threads=1, name="other")
    with pytest.raises(PortUnavailable, match=str(controller.port)):
        other.bind("127.0.0.1", controller.port)
    other.stop(0)
