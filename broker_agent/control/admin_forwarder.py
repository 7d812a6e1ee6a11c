"""Hands clients' admin requests to the controller that rules. Decides nothing: validation is the controller's.

Data loop only. Calls are awaited without blocking the loop; a controller that cannot be reached is a retriable error.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

from regency.broker_agent.control.metadata_cache import MetadataCache, MetadataSnapshot, RulingController
from regency.kafka.apis import ApiKey
from regency.model.clock import Clock
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.principals import RequestContext
from regency.protos.admin_pb2 import Envelope, EnvelopeReply
from regency.runtime.grpc.channels import AdminClient, RenewedChannel, RpcFailed

FORWARD_TIMEOUT_MS = 30_000
"""Longest wait for the controller's answer, whatever the client asked for."""

LOOK_EVERY_MS = 250
OUT_OF_CONTACT_MS = 3_000
"""So long a client is kept waiting for a controller although ZooKeeper cannot be reached."""

LEAST_TIMEOUT_MS = 1000
"""Shortest wait for it: a client that does not want to wait for leaders still wants an answer."""


class NotController(RegencyError):
    """The controller child of this agent does not rule, or no controller is known. The client asks another broker."""

    code: ClassVar[str] = "not_controller"
    retriable: ClassVar[bool] = True
    error: ClassVar[ErrorCode] = ErrorCode.NOT_CONTROLLER


class OutOfContact(RpcFailed):
    """No controller rules, and ZooKeeper, by which another would be elected, cannot be reached from here."""

    code: ClassVar[str] = "out_of_contact"


class _Patience:
    """Since when one request has waited without contact with ZooKeeper, in monotonic milliseconds; None with it."""

    __slots__ = ("lost_since",)

    def __init__(self) -> None:
        self.lost_since: int | None = None


def envelope(api_key: ApiKey, version: int, body: bytes, context: RequestContext) -> Envelope:
    """What travels to the controller."""
    return Envelope(
        api_key=api_key,
        api_version=version,
        request=body,
        principal_type=context.principal.type,
        principal_name=context.principal.name,
        listener=context.listener,
        client_address=context.client_address,
        client_id=context.client_id,
    )


class AdminForwarder:
    """Forwards to the ruling controller's gRPC endpoint.

    `own_port` tells the port by which this agent's child is reached: `require_local` means that this very child must
    rule, as Kafka wants of the broker that a client takes for the controller, or have ruled last: clients do not know
    better at once, and some do not ask again. `in_contact` tells whether this agent reaches ZooKeeper: where it does
    not for some seconds, no request waits for the election of another controller.
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

    async def forward(
        self, envelope: Envelope, *, timeout_ms: int, require_local: bool = True, repeatable: bool = False
    ) -> EnvelopeReply:
        """Let the controller answer a client's request, within `timeout_ms` milliseconds.

        The client must have asked the broker whose child rules, or ruled last, unless `require_local` is off: for what
        Kafka's clients send to any broker. A controller that was just deposed or died is followed to its successor, as
        is one of a version without the method; so is one that fell silent with the request, where that is
        `repeatable`: it may run twice. Others are waited for.
        Raises NotController; RpcFailed where the request may or may not be done.
        """
        deadline = self._clock.monotonic_ms() + timeout_ms
        ruling = self._ruling(require_local)
        patience = _Patience()
        while True:
            left_ms = deadline - self._clock.monotonic_ms()
            refusal: RegencyError
            try:
                reply = await self._channel.call_async(
                    ruling.endpoint,
                    lambda channel: AdminClient(channel).forward,
                    envelope,
                    timeout_ms=min(max(left_ms, LEAST_TIMEOUT_MS), FORWARD_TIMEOUT_MS),
                    name=f"the controller at {ruling.endpoint}",
                )
            except RpcFailed as error:
                if not (error.unsent or repeatable):
                    raise
                refusal = error
            else:
                if reply.outcome.error_code != ErrorCode.NOT_CONTROLLER:
                    return reply
                refusal = NotController(reply.outcome.message or f"Broker {ruling.id} no longer rules.")
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


def _succeeded(metadata: MetadataCache, asked: RulingController, _: MetadataSnapshot) -> bool:
    return metadata.ruling != asked
