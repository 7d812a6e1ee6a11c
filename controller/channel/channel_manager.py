"""ControllerChannelManager: one thread and one gRPC channel per live broker, driving its passive Sender.

A slow broker delays only itself. Belongs to one controller epoch; `close` ends everything it started.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import msgspec

from regency.controller.channel.agents import Connect, GrpcAgent
from regency.controller.channel.log_questions import LogEnds, LogQuestion
from regency.controller.channel.messages import Origin
from regency.controller.channel.metadata import MetadataLog
from regency.controller.channel.sender import Deleted, Message, Outgoing, Rpc, Sender, Trouble
from regency.controller.channel.slots import BrokerRequests
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError
from regency.model.facts import Broker
from regency.model.ids import BrokerEpoch, BrokerId, TopicId, TopicPartition

logger = logging.getLogger(__name__)

CLOSE_WAIT_S = 1.0
"""How long `close` waits for the threads together, seconds; they are daemons."""


class NoSnapshot(msgspec.Struct, frozen=True):
    """A broker needs a metadata snapshot, and there is none."""


Told = Trouble | Deleted | LogEnds | NoSnapshot
"""What channels tell the controller, on their own threads: it must only hand the word on. LogEnds: of a question."""

Requested = Callable[[BrokerId, int], None]
"""Told of every request that is sent for the first time, on the thread that sends it: to which broker, and for how many
milliseconds the oldest of what it tells has been wanted. Must be quick."""


def unheard(_broker: BrokerId, _waited_ms: int) -> None:
    """Listens to no request."""


class BrokerBacklog(msgspec.Struct, frozen=True):
    """How far one broker is with its desired state."""

    broker: BrokerId
    unacknowledged: int
    oldest_attempt_ms: int
    """How long the oldest of what was sent waits for its acknowledgement; 0 where nothing does."""
    last_failure: str
    """Of the requests that fail now; empty where none does."""
    waiting: int = 0
    """Desired states that are not being told right now: they wait for a request that is in flight, or for a delay."""
    oldest_ms: int = 0
    """How long the oldest of what is not acknowledged is wanted already; 0 where nothing is."""


class ControllerChannelManager:
    """The senders of one controller epoch. Used by the controller's thread; `unacknowledged` and `backlogs` by any."""

    def __init__(
        self,
        origin: Origin,
        *,
        control_listener: str,
        inter_broker_listener: str,
        connect: Connect,
        tell: Callable[[Told], None],
        clock: Clock,
        requested: Requested = unheard,
    ) -> None:
        self.metadata = MetadataLog()
        """The metadata every broker gets."""
        self._origin = origin
        self._control_listener = control_listener
        self._inter_broker_listener = inter_broker_listener
        self._connect = connect
        self._tell = tell
        self._clock = clock
        self._requested = requested
        self._channels: dict[BrokerId, _Channel] = {}
        self._brokers: Mapping[BrokerId, Broker] = {}
        self._reached: dict[BrokerId, tuple[BrokerEpoch, int]] = {}
        """Incarnation and last number of the conversations that have ended, by broker."""
        self._questions: list[LogQuestion] = []

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
        sender = Sender(self._origin, broker.id, broker.epoch, self.metadata, last_seq=last_seq)
        port = self._connect(endpoint)
        self._channels[broker.id] = _Channel(sender, port, self._encode, self._tell, self._clock, self._requested)

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
        """Ask how far these logs go, on a thread and a connection of its own. `tell` is called once in any case."""
        endpoint = broker.endpoint(self._control_listener)
        assert endpoint is not None, f"broker {broker.id} has no listener {self._control_listener}"
        question = LogQuestion(self._origin, broker, partitions, self._connect(endpoint), self._tell)
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
        port: GrpcAgent,
        encode: Callable[[Sender, Outgoing], Message],
        tell: Callable[[Told], None],
        clock: Clock,
        requested: Requested,
    ) -> None:
        self.sender = sender
        self._port = port
        self._encode = encode
        self._tell = tell
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
                    self._tell(NoSnapshot())
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
        try:
            answer = self._port.call(self._encode(self.sender, outgoing))
        except RegencyError as error:
            self._failed(outgoing.rpc, str(error))
            return
        except Exception as error:  # noqa: BLE001 (gRPC has many words for a channel closed meanwhile; the thread goes on)
            self._failed(outgoing.rpc, f"{type(error).__name__}: {error}")
            return
        with self._changed:
            failures = self.sender.failures
            trouble = self.sender.on_answer(answer, self._clock.monotonic_ms())
            deleted = self.sender.take_deleted()
            self._report(outgoing.rpc, failures)
        if trouble is not None:
            crash_point("sender.trouble.before_told")
            self._tell(trouble)
        if deleted is not None:
            crash_point("sender.deleted.before_told")
            self._tell(deleted)

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


def backlog_of(broker: BrokerId, sender: Sender, now_ms: int, waiting_since_ms: int | None = None) -> BrokerBacklog:
    """How far the broker of a sender is; `waiting_since_ms`: when the oldest of what waits was wanted first."""
    failure = sender.last_failure if sender.failures else ""
    attempt_ms = sender.oldest_attempt_ms(now_ms)
    desired = sender.desired
    waited_ms = now_ms - waiting_since_ms if desired.waiting and waiting_since_ms is not None else 0
    return BrokerBacklog(
        broker, desired.unacknowledged, attempt_ms, failure, desired.waiting, max(attempt_ms, waited_ms)
    )


OpenChannels = Callable[[Origin, Callable[[Told], None]], ControllerChannelManager]
