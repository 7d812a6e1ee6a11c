"""A controller process: the production Controller on its queue and senders, over simulated ports."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from regency.broker_agent.control.controlled_shutdown import AnotherRules
from regency.broker_agent.control.metadata_cache import MetadataCache, RulingController
from regency.controller.admin.services import AGENT_TIMEOUT_MS, ControllerService, shut_down_request
from regency.controller.brokers.leaving import SteeredBroker
from regency.controller.channel.agents import GrpcAgent
from regency.controller.channel.channel_manager import ControllerChannelManager, Told
from regency.controller.channel.messages import Origin
from regency.controller.controller import Controller
from regency.controller.elections.controlled_shutdown import ControlledShutdown, ShutdownOutcome
from regency.controller.events import ControllerState, EventLoop, EventQueue, NotController, Request
from regency.controller.request_gate import RequestGate
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.model.errors import RegencyError
from regency.model.facts import Endpoint
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.protos import control_pb2 as pb
from regency.protos import controller_pb2
from regency.protos.controller_pb2 import ControlledShutdownRequest, ControlledShutdownResponse
from regency.runtime.zookeeper.session import ZkSession
from simulation.cluster.channels import CONTROLLER, ControlAsked, ReportAsked, broker_at, dialing, host_of
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Call, NetFailed, Network, Respond


class CreateAsked(NamedTuple):
    """CreateTopics on its way to a controller."""

    topics: tuple[NewTopic, ...]


class ShutdownAsked(NamedTuple):
    """ControlledShutdown on its way to a controller."""

    broker: BrokerId
    epoch: BrokerEpoch


PROMPTLY_US = 1_500_000
"""An answer that takes longer may come too late to count."""


class Leave(NamedTuple):
    """A controller lets a broker leave."""

    broker: BrokerId
    asked_as: BrokerEpoch
    known_as: BrokerEpoch
    """By the controller, just then."""


class Asked(NamedTuple):
    """Any other request on its way to a controller; every copy that arrives is one of its own."""

    make: Callable[[], Request[Any]]


class CallFailed(RegencyError):
    """A control request has no answer."""

    code = "rpc_failed"
    retriable = True


class SimAgentPort(GrpcAgent):
    """AgentPort, on channels over the simulated network; tells judges which broker did not say promptly what it has."""

    def __init__(
        self, scheduler: Scheduler, network: Network, process: Process, host: str, endpoint: Endpoint, timeout_ms: int
    ) -> None:
        super().__init__(endpoint, timeout_ms=timeout_ms, dial=dialing(scheduler, network, process, host))
        self._scheduler = scheduler
        self._network = network
        self._broker = broker_at(endpoint.host)

    def describe(self, request: pb.DescribeReplicasRequest, timeout_ms: int) -> pb.DescribeReplicasResponse:
        began_us, heard = self._scheduler.now_us, False
        try:
            answer = super().describe(request, timeout_ms)
            heard = answer.error_code == ErrorCode.NONE and self._scheduler.now_us - began_us < PROMPTLY_US
        finally:
            if not heard and self._network.on_silence is not None:
                self._network.on_silence(self._broker)
        return answer


class SimController:
    """One controller process. `start` is its first actor."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        settings: BrokerSettings,
        open_session: Callable[[Process], ZkSession],
    ) -> None:
        self.process = process
        self.controller: Controller | None = None
        self.session: ZkSession | None = None
        self.leaves: list[Leave] = []
        """What nobody has looked at yet."""
        self.unanswered: dict[Request[Any], ControllerEpoch] = {}
        """What it was asked and has not answered yet, and in which epoch it ruled then."""
        self._scheduler = scheduler
        self._network = network
        self._settings = settings
        self._host = host_of(settings.broker_id)
        self._open_session = open_session
        self._queue: EventQueue | None = None
        self._loop: EventLoop | None = None
        self._reporting: ControllerService | None = None

    @property
    def idle(self) -> bool:
        """Whether it lives, no event waits and none is being processed."""
        queue, loop = self._queue, self._loop
        if not self.process.alive or queue is None or loop is None:
            return False
        return not len(queue) and loop.state is ControllerState.IDLE

    def start(self) -> None:
        """Connect, then race and process events for ever. Runs in an actor."""
        clock = self.process.clock
        self.session = session = self._open_session(self.process)
        self._queue = queue = EventQueue(clock)
        self.controller = controller = Controller(
            self._settings, session, queue, open_channels=self._open_channels, clock=clock, history=None
        )
        self._loop = loop = EventLoop(queue, controller.process)
        self._reporting = ControllerService(
            controller,
            RequestGate(controller, queue, loop, timeout_ms=self._settings.controller_socket_timeout_ms),
            loop,
            broker=self._settings.broker_id,
            session_id=lambda: session.session_id,
            clock=clock,
        )
        address = f"{self._host}:{CONTROLLER}"
        self._network.listen(address, self._host, self.process, self._serve)
        controller.start(address)
        loop.run()

    def _open_channels(self, origin: Origin, tell: Callable[[Told], None]) -> ControllerChannelManager:
        return ControllerChannelManager(
            origin,
            control_listener=self._settings.control_plane_listener_name,
            inter_broker_listener=self._settings.inter_broker_listener_name,
            connect=lambda endpoint: SimAgentPort(
                self._scheduler,
                self._network,
                self.process,
                self._host,
                endpoint,
                self._settings.controller_socket_timeout_ms,
            ),
            tell=tell,
            clock=self.process.clock,
        )

    def _serve(self, request: Any, respond: Respond) -> None:
        """What ControllerService does with a call: an event, and its answer when the controller has one."""
        assert self.controller is not None
        assert self._queue is not None
        if isinstance(request, ReportAsked):
            assert self._reporting is not None
            report = controller_pb2.ReportReplicasRequest.FromString(request.data)
            respond(self._reporting.report_replicas(report).SerializeToString())
            return
        if not self.controller.view.ruling:
            respond(NotController("This controller does not rule."))
            return
        event: Request[Any]
        if isinstance(request, CreateAsked):
            event = CreateTopics(request.topics, validate_only=False)
        elif isinstance(request, ShutdownAsked):
            event = ControlledShutdown(request.broker, request.epoch)
            event.reply.add_done_callback(lambda done: self._note_leave(request, done.exception() or done.result()))
        else:
            assert isinstance(request, Asked)
            event = request.make()
        self.unanswered[event] = self.controller.view.epoch

        def done(reply: Future[Any]) -> None:
            del self.unanswered[event]
            self._answer(reply.exception() or reply.result(), respond)

        event.reply.add_done_callback(done)
        self._queue.put(event)

    def _note_leave(self, asked: ShutdownAsked, answer: ShutdownOutcome | BaseException) -> None:
        term = None if self.controller is None else self.controller._term
        if isinstance(answer, ShutdownOutcome) and answer.error is ErrorCode.NONE and term is not None:
            known = term.context.brokers.get(asked.broker)
            if known is not None:
                self.leaves.append(Leave(asked.broker, asked.epoch, known.epoch))

    def _answer(self, answer: Any, respond: Respond) -> None:
        """A broker that is to leave is told so first, as the thread that serves the request does."""
        if not isinstance(answer, SteeredBroker) or answer.error is not ErrorCode.NONE:
            respond(answer)
            return
        request = ControlAsked(pb.ShutDownRequest, shut_down_request(answer).SerializeToString())
        timeout_us = self.process.clock.delay_us(AGENT_TIMEOUT_MS)
        self._network.call(self.process, self._host, answer.target, request, respond, timeout_us=timeout_us)


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
