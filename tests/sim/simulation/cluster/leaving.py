"""How an agent that leaves in order asks controllers: ShutdownPort over the simulated network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from regency.broker_agent.control.controlled_shutdown import AnotherRules
from regency.broker_agent.control.metadata_cache import MetadataCache, RulingController
from regency.controller.elections.controlled_shutdown import ShutdownOutcome
from regency.controller.events import NotController
from regency.model.ids import BrokerEpoch, BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.protos.controller_pb2 import ControlledShutdownRequest, ControlledShutdownResponse
from simulation.cluster.controller import CallFailed, ShutdownAsked
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Call, NetFailed, Network


class SimShutdown:
    """ShutdownPort for an actor."""

    def __init__(
        self, scheduler: Scheduler, network: Network, process: Process, host: str, metadata: MetadataCache
    ) -> None:
        self.answer: ControlledShutdownResponse | None = None
        """The last one."""
        self._scheduler = scheduler
        self._network = network
        self._process = process
        self._host = host
        self._metadata = metadata

    async def ask(
        self, asked: RulingController, request: ControlledShutdownRequest, timeout_ms: int, /
    ) -> ControlledShutdownResponse:
        on_its_way = ShutdownAsked(BrokerId(request.broker_id), BrokerEpoch(request.broker_epoch))
        timeout_us = self._process.clock.delay_us(timeout_ms)
        calls: list[Call] = []

        def begin(resume: Callable[[Any], None]) -> None:
            call = self._network.call(
                self._process, self._host, asked.endpoint, on_its_way, resume, timeout_us=timeout_us
            )
            calls.append(call)

        answer = self._until_another_rules(asked, begin)
        if answer is None:
            for call in calls:
                call.close()
            raise AnotherRules(f"the controller at {asked.endpoint} does not rule any more")
        if isinstance(answer, NetFailed):
            raise CallFailed(f"{asked.endpoint}: {answer.why}.")
        self.answer = _response(answer)
        return self.answer

    async def rest(self, asked: RulingController, milliseconds: int, /) -> None:
        self._until_another_rules(asked, lambda _: None, self._process.clock.delay_us(milliseconds))

    def _until_another_rules(
        self, asked: RulingController, begin: Callable[[Callable[[Any], None]], None], timeout_us: int | None = None
    ) -> Any:
        """What `begin` is resumed with, TIMED_OUT, or None where another controller rules."""
        if self._metadata.ruling != asked:
            return None

        def register(resume: Callable[[Any], None]) -> None:
            begin(resume)
            self._metadata.subscribe(lambda _: resume(None) if self._metadata.ruling != asked else None)

        return self._scheduler.wait(register, timeout_us)


def _response(answer: Any) -> ControlledShutdownResponse:
    """An event's outcome as the controller's admin service puts it."""
    if isinstance(answer, ShutdownOutcome):
        return ControlledShutdownResponse(
            error_code=answer.error, message=answer.message, remaining_partitions=len(answer.remaining)
        )
    code = ErrorCode.NOT_CONTROLLER if isinstance(answer, NotController) else ErrorCode.UNKNOWN_SERVER_ERROR
    return ControlledShutdownResponse(error_code=code, message=str(answer))
