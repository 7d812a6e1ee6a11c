"""ControllerChannelManager: one thread and one gRPC channel per live broker, driving its passive Sender.

A slow broker delays only itself. Belongs to one controller epoch; `close` ends everything it started.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from typing import TypeVar

from grpc import insecure_channel

from regency.controller.channel.channels import (
    AgentPort,
    BrokerBacklog,
    BrokerRequests,
    Channels,
    Connect,
    Listener,
    OpenChannels,
    backlog_of,
)
from regency.controller.channel.log_questions import LogQuestion
from regency.controller.channel.messages import Origin
from regency.controller.channel.metadata import MetadataLog
from regency.controller.channel.sender import Message, Outgoing, Rpc, Sender
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError
from regency.model.facts import Broker, Endpoint
from regency.model.ids import BrokerEpoch, BrokerId, TopicId, TopicPartition
from regency.protos import control_pb2 as pb
from regency.runtime.grpc.channels import Dial, Method, RenewedChannel
from regency.runtime.grpc.clients import AgentControlClient

logger = logging.getLogger(__name__)

Request = TypeVar("Request")
Reply = TypeVar("Reply")

CLOSE_WAIT_S = 1.0
"""How long `close` waits for the threads together, seconds; they are daemons."""


Requested = Callable[[BrokerId, int], None]
"""Told of every request that is sent for the first time, on the thread that sends it: to which broker, and for how many
milliseconds the oldest of what it tells has been wanted. Must be quick."""


def unheard(_broker: BrokerId, _waited_ms: int) -> None:
    """Listens to no request."""


class GrpcAgent:
    """AgentPort over gRPC."""

    def __init__(self, endpoint: Endpoint, *, timeout_ms: int, dial: Dial = insecure_channel) -> None:
        self._target = f"{endpoint.host}:{endpoint.port}"
        self._timeout_ms = timeout_ms
        self._channel = RenewedChannel(dial)

    def call(self, message: Message) -> pb.ControlResponse:
        """Send a request and wait for its answer. Raises RpcFailed."""
        if isinstance(message, pb.LeaderAndIsrRequest):
            return self._ask(lambda client: client.leader_and_isr, message, self._timeout_ms)
        if isinstance(message, pb.UpdateMetadataRequest):
            return self._ask(lambda client: client.update_metadata, message, self._timeout_ms)
        return self._ask(lambda client: client.stop_replica, message, self._timeout_ms)

    def describe(self, request: pb.DescribeReplicasRequest, timeout_ms: int) -> pb.DescribeReplicasResponse:
        """Ask and wait. Raises RpcFailed."""
        return self._ask(lambda client: client.describe_replicas, request, timeout_ms)

    def close(self) -> None:
        """End the connection, and whatever call runs on it."""
        self._channel.close()

    def _ask(
        self, method: Callable[[AgentControlClient], Method[Request, Reply]], request: Request, timeout_ms: int
    ) -> Reply:
        return self._channel.call(
            self._target, lambda channel: method(AgentControlClient(channel)), request, timeout_ms=timeout_ms
        )


class ControllerChannelManager:
    """The senders of one controller epoch. Used by the controller's thread; `unacknowledged` and `backlogs` by any."""

    def __init__(
        self,
        origin: Origin,
        *,
        metadata: MetadataLog,
        control_listener: str,
        inter_broker_listener: str,
        connect: Connect,
        listener: Listener,
        clock: Clock,
        requested: Requested = unheard,
    ) -> None:
        self._metadata = metadata
        self._origin = origin
        self._control_listener = control_listener
        self._inter_broker_listener = inter_broker_listener
        self._connect = connect
        self._listener = listener
        self._clock = clock
        self._requested = requested
        self._channels: dict[BrokerId, _Channel] = {}
        self._brokers: Mapping[BrokerId, Broker] = {}
        self._reached: dict[BrokerId, tuple[BrokerEpoch, int]] = {}
        """Incarnation and last number of the conversations that have ended, by broker."""
        self._questions: list[LogQuestion] = []

    @property
    def metadata(self) -> MetadataLog:
        """The metadata every broker gets."""
        return self._metadata

    @property
    def unacknowledged(self) -> int:
        """Desired states that no agent has acknowledged yet. Any thread."""
        return sum(channel.unacknowledged() for channel in list(self._channels.values()))

    def owed(self, broker: BrokerId) -> AbstractSet[TopicPartition]:
        """Partitions of which the broker has yet to acknowledge something; none where there is no channel."""
        channel = self._channels.get(broker)
        return channel.owed() if channel is not None else frozenset()

    def backlogs(self) -> list[BrokerBacklog]:
        """How far every broker is, by id. Any thread."""
        return [channel.backlog(broker) for broker, channel in sorted(self._channels.items())]

    def set_brokers(self, brokers: Mapping[BrokerId, Broker]) -> None:
        """Where leaders are reached from now on. The mapping is not changed afterwards."""
        self._brokers = brokers

    def add(self, broker: Broker) -> None:
        """Open a channel to a broker; nothing is sent before `start`.

        To an incarnation that was spoken to before, numbers go on: it refuses lower ones than it has seen.
        """
        endpoint = broker.endpoint(self._control_listener)
        assert endpoint is not None, f"broker {broker.id} has no listener {self._control_listener}"
        self.remove(broker.id)
        epoch, seq = self._reached.get(broker.id, (broker.epoch, 0))
        last_seq = seq if epoch == broker.epoch else 0
        sender = Sender(self._origin, broker.id, broker.epoch, self._metadata, last_seq=last_seq)
        port = self._connect(endpoint)
        self._channels[broker.id] = _Channel(sender, port, self._encode, self._listener, self._clock, self._requested)

    def remove(self, broker: BrokerId) -> None:
        """End the channel to a broker and forget what it was to be told; harmless where there is none."""
        channel = self._channels.pop(broker, None)
        if channel is not None:
            channel.close()
            self._reached[broker] = channel.sender.reached

    def start(self, broker: BrokerId) -> None:
        """What the broker is wanted to do by now is all it hosts: the conversation may begin. Harmless twice."""
        channel = self._channels.get(broker)
        if channel is not None:
            channel.start()

    def send(self, requests: Mapping[BrokerId, BrokerRequests]) -> None:
        """Hand over what brokers are newly wanted to do; those without a channel are skipped. Wakes every sender."""
        for broker, channel in self._channels.items():
            channel.want(requests.get(broker))

    def ask_log_ends(self, broker: Broker, partitions: Mapping[TopicPartition, TopicId]) -> None:
        """Ask how far these logs go, on a thread and connection of its own. The listener is called once in any case."""
        endpoint = broker.endpoint(self._control_listener)
        assert endpoint is not None, f"broker {broker.id} has no listener {self._control_listener}"
        question = LogQuestion(self._origin, broker, partitions, self._connect(endpoint), self._listener.on_log_ends)
        self._questions = [*(each for each in self._questions if not each.answered), question]
        question.start()

    def forget(self, gone: Mapping[str, TopicId]) -> None:
        """Nothing is to be hosted of these topics any more: what brokers were to be told of that, they are not."""
        for channel in self._channels.values():
            channel.forget(gone)

    def close(self) -> None:
        """End every channel. Calls that run are cancelled; their outcome does not matter any more."""
        for question in self._questions:
            question.close()
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.close()
        for channel in channels.values():
            channel.join(CLOSE_WAIT_S / max(len(channels), 1))

    def _encode(self, sender: Sender, outgoing: Outgoing) -> Message:
        return sender.encode(outgoing, self._brokers, self._inter_broker_listener)


class _Channel:
    """One broker's sender, its lock and its thread."""

    def __init__(
        self,
        sender: Sender,
        port: AgentPort,
        encode: Callable[[Sender, Outgoing], Message],
        listener: Listener,
        clock: Clock,
        requested: Requested,
    ) -> None:
        self.sender = sender
        self._port = port
        self._encode = encode
        self._listener = listener
        self._clock = clock
        self._requested = requested
        self._changed = threading.Condition()
        self._closed = False
        self._waiting_since_ms: int | None = None
        """When the oldest of what is to be told, and is not in flight, was wanted first; None where nothing is."""
        self._taken: Outgoing | None = None
        """What was sent last: the same is sent again where no answer came."""
        self._thread: threading.Thread | None = None

    def unacknowledged(self) -> int:
        with self._changed:
            return self.sender.desired.unacknowledged

    def owed(self) -> AbstractSet[TopicPartition]:
        with self._changed:
            return self.sender.desired.owed()

    def backlog(self, broker: BrokerId) -> BrokerBacklog:
        with self._changed:
            return backlog_of(broker, self.sender, self._clock.monotonic_ms(), self._waiting_since_ms)

    def forget(self, gone: Mapping[str, TopicId]) -> None:
        with self._changed:
            self.sender.desired.forget(gone)

    def want(self, requests: BrokerRequests | None) -> None:
        with self._changed:
            if requests is not None:
                requests.apply_to(self.sender.desired)
            if self._waiting_since_ms is None:
                self._waiting_since_ms = self._clock.monotonic_ms()
            self._changed.notify()

    def start(self) -> None:
        with self._changed:
            self.sender.start()
            self._changed.notify()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"sender to {self.sender.label}", daemon=True)
            self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._port.close()

    def join(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            outgoing = self._wait_for_next()
            if outgoing is None:
                return
            self._exchange(outgoing)

    def _wait_for_next(self) -> Outgoing | None:
        with self._changed:
            while not self._closed:
                now = self._clock.monotonic_ms()
                outgoing = self.sender.next(now)
                if outgoing is not None:
                    self._count(outgoing, now)
                    return outgoing
                if not self.sender.desired.waiting:
                    self._waiting_since_ms = None
                if self.sender.snapshot_wanted:  # also again: one may have been outdated before it was read
                    self._listener.on_snapshot_wanted()
                wake_at = self.sender.wake_at(now)
                self._changed.wait(None if wake_at is None else max(wake_at - now, 1) / 1000)
        return None

    def _count(self, outgoing: Outgoing, now_ms: int) -> None:
        """Tell how long what is sent has waited, unless it is sent once more."""
        if outgoing is self._taken:
            return
        self._taken = outgoing
        since_ms = self._waiting_since_ms
        self._requested(self.sender.broker, 0 if since_ms is None else now_ms - since_ms)
        if not self.sender.desired.waiting:
            self._waiting_since_ms = None

    def _exchange(self, outgoing: Outgoing) -> None:
        crash_point("sender.request.before_call")
        try:
            answer = self._port.call(self._encode(self.sender, outgoing))
        except RegencyError as error:
            self._failed(outgoing.rpc, str(error))
            return
        except Exception as error:  # noqa: BLE001 (gRPC has many words for a channel closed meanwhile; the thread goes on)
            self._failed(outgoing.rpc, f"{type(error).__name__}: {error}")
            return
        crash_point("sender.answer.before_taken")
        with self._changed:
            failures = self.sender.failures
            trouble = self.sender.on_answer(answer, self._clock.monotonic_ms())
            deleted = self.sender.take_deleted()
            self._report(outgoing.rpc, failures)
        if trouble is not None:
            crash_point("sender.trouble.before_told")
            self._listener.on_trouble(trouble)
        if deleted is not None:
            crash_point("sender.deleted.before_told")
            self._listener.on_deleted(deleted)

    def _failed(self, rpc: Rpc, why: str) -> None:
        crash_point("sender.failure.before_taken")
        with self._changed:
            if not self._closed:
                failures = self.sender.failures
                self.sender.on_no_answer(why, self._clock.monotonic_ms())
                self._report(rpc, failures)

    def _report(self, rpc: Rpc, failures_before: int) -> None:
        if failures_before == 0 and self.sender.failures:
            logger.warning(
                "%s to %s is not acknowledged, it is repeated until it is: %s",
                rpc.value,
                self.sender.label,
                self.sender.last_failure,
            )
        elif failures_before and not self.sender.failures:
            logger.info("%s answers again after %d failed requests", self.sender.label, failures_before)


def open_channels(
    *, control_listener: str, inter_broker_listener: str, timeout_ms: int, clock: Clock, requested: Requested = unheard
) -> OpenChannels:
    """Channels over gRPC, with a thread each, whose calls take at most `timeout_ms` milliseconds."""

    def open_for(origin: Origin, listener: Listener) -> Channels:
        return ControllerChannelManager(
            origin,
            metadata=MetadataLog(),
            control_listener=control_listener,
            inter_broker_listener=inter_broker_listener,
            connect=lambda endpoint: GrpcAgent(endpoint, timeout_ms=timeout_ms),
            listener=listener,
            clock=clock,
            requested=requested,
        )

    return open_for
