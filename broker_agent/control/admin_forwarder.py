"""Hands clients' admin requests to the controller that rules. Decides nothing: validation is the controller's.

Data loop only. Calls are awaited without blocking the loop; a controller that cannot be reached is a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar, Protocol, TypeVar
from uuid import UUID

import grpc
import msgspec

from regency.broker_agent.control.metadata import MetadataSnapshot
from regency.broker_agent.control.metadata_cache import MetadataCache, RulingController
from regency.model.clock import Clock
from regency.model.errors import RegencyError
from regency.model.ids import NO_LEADER, BrokerId, TopicId
from regency.model.kafka_errors import ErrorCode
from regency.protos import admin_pb2, controller_pb2
from regency.runtime.grpc.channels import Method, RenewedChannel, RpcFailed
from regency.runtime.grpc.clients import ControllerClient

FORWARD_TIMEOUT_MS = 30_000
"""Longest wait for the controller's answer, whatever the client asked for."""

LOOK_EVERY_MS = 250
OUT_OF_CONTACT_MS = 3_000
"""So long a client is kept waiting for a controller although ZooKeeper cannot be reached."""

LEAST_TIMEOUT_MS = 1000
"""Shortest wait for it: a client that does not want to wait for leaders still wants an answer."""


class _Outcome(Protocol):
    """What an answer says of the request as a whole."""

    @property
    def error_code(self) -> int: ...

    @property
    def message(self) -> str: ...


class AdminReply(Protocol):
    """An answer of service Admin."""

    @property
    def outcome(self) -> admin_pb2.Outcome:
        """Of the request as a whole."""
        ...


RequestT = TypeVar("RequestT")
AnswerT = TypeVar("AnswerT")
ReplyT = TypeVar("ReplyT", bound=AdminReply)


class NotController(RegencyError):
    """The controller child of this agent does not rule, or no controller is known. The client asks another broker."""

    code: ClassVar[str] = "not_controller"
    retriable: ClassVar[bool] = True
    error: ClassVar[ErrorCode] = ErrorCode.NOT_CONTROLLER


class OutOfContact(RpcFailed):
    """No controller rules, and ZooKeeper, by which another would be elected, cannot be reached from here."""

    code: ClassVar[str] = "out_of_contact"


class NewTopicSpec(msgspec.Struct, frozen=True):
    """A topic to create. `num_partitions` and `replication_factor` -1: the default, or as `assignments` say."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: dict[int, tuple[BrokerId, ...]] = {}
    configs: dict[str, str] = {}


class CreatedTopicResult(msgspec.Struct, frozen=True):
    """Outcome for one topic. `topic_id` is None, and the counts are -1, where it was not created."""

    name: str
    error: ErrorCode
    message: str = ""
    topic_id: TopicId | None = None
    num_partitions: int = -1
    replication_factor: int = -1


class _Patience:
    """Since when one request has waited without contact with ZooKeeper, in monotonic milliseconds; None with it."""

    __slots__ = ("lost_since",)

    def __init__(self) -> None:
        self.lost_since: int | None = None


class AdminForwarder:
    """Forwards to the ruling controller's gRPC endpoint.

    `own_port` tells the port by which this agent's child is reached: `require_local` means that this very child must
    rule, as Kafka wants of the broker that a client takes for the controller, or have ruled last: clients do not know
    better at once, and some do not ask again. `in_contact` tells whether this agent reaches ZooKeeper: where it does
    not for some seconds, nobody waits for the election of another controller.
    """

    def __init__(
        self,
        broker: BrokerId,
        metadata: MetadataCache,
        own_port: Callable[[], int],
        clock: Clock,
        in_contact: Callable[[], bool] = lambda: True,
    ) -> None:
        self._in_contact = in_contact
        self._broker = broker
        self._metadata = metadata
        self._own_port = own_port
        self._clock = clock
        self._channel = RenewedChannel()

    async def create_topics(
        self, topics: Sequence[NewTopicSpec], *, validate_only: bool, timeout_ms: int, require_local: bool
    ) -> list[CreatedTopicResult]:
        """Create topics, in the order given, with one result each.

        With `require_local` (a client's CreateTopics) the answer waits until this agent's metadata shows a leader for
        every new partition, at most `timeout_ms` milliseconds; where that passes, the topic exists and its result is
        REQUEST_TIMED_OUT. Without it (auto-creation) the controller's acknowledgement is enough.

        A controller that was just deposed or died is followed to its successor. Raises NotController. Where no
        controller can be reached every result is a retriable error.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        request = controller_pb2.CreateTopicsRequest(validate_only=validate_only)
        request.topics.extend(_encode(topic) for topic in topics)
        try:
            response = await self._ask(
                lambda channel: ControllerClient(channel).create_topics,
                request,
                lambda reply: reply,
                self._ruling(require_local),
                deadline,
            )
        except RpcFailed as error:
            return [CreatedTopicResult(topic.name, ErrorCode.REQUEST_TIMED_OUT, str(error)) for topic in topics]
        if response.error_code != ErrorCode.NONE:
            code = ErrorCode(response.error_code)
            return [CreatedTopicResult(topic.name, code, response.message) for topic in topics]
        results = [_decode(created) for created in response.topics]
        if validate_only or not require_local:
            return results
        return await self._await_leaders(results, deadline)

    async def forward(
        self,
        method: Callable[[grpc.Channel], Method[RequestT, ReplyT]],
        request: RequestT,
        *,
        timeout_ms: int,
        require_local: bool = True,
        repeatable: bool = False,
    ) -> ReplyT:
        """Let the controller answer a client's request of service Admin, within `timeout_ms` milliseconds.

        The client must have asked the broker whose child rules, or ruled last, unless `require_local` is off: for what
        Kafka's clients send to any broker. A controller that was just deposed or died is followed to its successor; so
        is one that fell silent with the request, where that is `repeatable`: it may run twice. Others are waited for.
        Raises NotController; RpcFailed where the request may or may not be done.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        ruling = self._ruling(require_local)
        return await self._ask(method, request, lambda reply: reply.outcome, ruling, deadline, repeatable=repeatable)

    async def _ask(
        self,
        method: Callable[[grpc.Channel], Method[RequestT, AnswerT]],
        request: RequestT,
        outcome: Callable[[AnswerT], _Outcome],
        ruling: RulingController,
        deadline: int,
        *,
        repeatable: bool = False,
    ) -> AnswerT:
        """Ask the controller; where it does not rule any more, its successor, as soon as there is one.

        Raises RpcFailed, NotController.
        """
        patience = _Patience()
        while True:
            left_ms = deadline - self._clock.monotonic_ms()
            refusal: RegencyError
            try:
                response = await self._channel.call_async(
                    ruling.endpoint,
                    method,
                    request,
                    timeout_ms=min(max(left_ms, LEAST_TIMEOUT_MS), FORWARD_TIMEOUT_MS),
                    name=f"the controller at {ruling.endpoint}",
                )
            except RpcFailed as error:
                if not (error.unsent or repeatable):
                    raise
                refusal = error
            else:
                answered = outcome(response)
                if answered.error_code != ErrorCode.NOT_CONTROLLER:
                    return response
                refusal = NotController(answered.message or f"Broker {ruling.id} no longer rules.")
            # One that is just taking over is known before it rules: it is asked again. A dead one is not.
            if not await self._await_successor(ruling, deadline, patience, again=isinstance(refusal, NotController)):
                raise refusal
            ruling = self._ruling(require_local=False)

    async def _await_successor(
        self, asked: RulingController, deadline: int, patience: _Patience, *, again: bool
    ) -> bool:
        """Whether another controller is known in time, or `again` the same may be asked. Raises OutOfContact."""
        while (left_ms := deadline - self._clock.monotonic_ms()) > 0:
            if await self._metadata.wait_for(partial(_succeeded, self._metadata, asked), min(left_ms, LOOK_EVERY_MS)):
                return True
            now = self._clock.monotonic_ms()
            if self._in_contact():
                patience.lost_since = None
            elif patience.lost_since is None:
                patience.lost_since = now
            elif now - patience.lost_since >= OUT_OF_CONTACT_MS:
                raise OutOfContact(
                    f"Broker {self._broker} has no contact with ZooKeeper: no controller can be elected without it.",
                    unsent=True,
                )
            if again and now < deadline:
                return True
        return False

    def close(self) -> None:
        """Close the channels: calls under way are cancelled."""
        self._channel.close()

    def _ruling(self, require_local: bool) -> RulingController:
        ruling = self._metadata.ruling
        if ruling is None:
            raise NotController("No controller is known yet.", hint="Try again when one has been elected.")
        if require_local and not self._is_own(ruling) and not self._is_own(self._metadata.predecessor):
            raise NotController(f"Broker {ruling.id} rules, not broker {self._broker}.", hint="Ask the controller.")
        return ruling

    def _is_own(self, controller: RulingController | None) -> bool:
        if controller is None or controller.id != self._broker:
            return False
        return controller.endpoint.rpartition(":")[2] == str(self._own_port())

    async def _await_leaders(self, results: list[CreatedTopicResult], deadline: int) -> list[CreatedTopicResult]:
        created = [result for result in results if result.error is ErrorCode.NONE]

        def led(view: MetadataSnapshot, result: CreatedTopicResult) -> bool:
            topic = view.topics.get(result.name)
            if topic is None or len(topic.partitions) < result.num_partitions:
                return False
            return all(partition.leader != NO_LEADER for partition in topic.partitions.values())

        left_ms = deadline - self._clock.monotonic_ms()
        if await self._metadata.wait_for(lambda view: all(led(view, result) for result in created), left_ms):
            return results
        view = self._metadata.current
        late = "The topic was created; its leaders are not known here yet."
        return [
            msgspec.structs.replace(result, error=ErrorCode.REQUEST_TIMED_OUT, message=late)
            if result.error is ErrorCode.NONE and not led(view, result)
            else result
            for result in results
        ]


def _succeeded(metadata: MetadataCache, asked: RulingController, _: MetadataSnapshot) -> bool:
    return metadata.ruling != asked


def _encode(topic: NewTopicSpec) -> controller_pb2.NewTopic:
    message = controller_pb2.NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        configs=topic.configs,
    )
    for partition, replicas in sorted(topic.assignments.items()):
        message.assignments.add(partition=partition, replicas=replicas)
    return message


def _decode(created: controller_pb2.CreatedTopic) -> CreatedTopicResult:
    return CreatedTopicResult(
        created.name,
        ErrorCode(created.error_code),
        created.message,
        topic_id_from(created.topic_id),
        created.num_partitions,
        created.replication_factor,
    )


def topic_id_from(data: bytes) -> TopicId | None:
    """A topic id of 16 bytes, or None where there is none."""
    return TopicId(UUID(bytes=data)) if len(data) == 16 else None
