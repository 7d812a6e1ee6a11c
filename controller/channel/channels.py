"""What the controller asks of its channels to the brokers, and what they ask of a connection and tell it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Protocol

import msgspec

from regency.controller.channel.log_questions import DescribePort, LogEnds
from regency.controller.channel.messages import Origin
from regency.controller.channel.metadata import MetadataLog
from regency.controller.channel.rows import StopReplicaRow, TopicRows
from regency.controller.channel.sender import Deleted, Message, Sender, Trouble
from regency.controller.channel.slots import DesiredState
from regency.model.facts import Broker, Endpoint
from regency.model.ids import BrokerId, TopicId, TopicPartition
from regency.protos import control_pb2 as pb


class AgentPort(DescribePort, Protocol):
    """A connection to one incarnation of an agent."""

    def call(self, message: Message) -> pb.ControlResponse:
        """Send a request and wait for its answer. Raises RpcFailed."""
        ...

    def close(self) -> None:
        """End the connection, and whatever call runs on it."""
        ...


Connect = Callable[[Endpoint], AgentPort]


class Listener(Protocol):
    """What the channels tell the controller, on their own threads: it must only hand the word on."""

    def on_trouble(self, trouble: Trouble) -> None:
        """An answer obliges the controller to look at something."""
        ...

    def on_deleted(self, deleted: Deleted) -> None:
        """A broker has confirmed deletions."""
        ...

    def on_snapshot_wanted(self) -> None:
        """A broker needs a metadata snapshot, and there is none."""
        ...

    def on_log_ends(self, ends: LogEnds) -> None:
        """A broker has been asked how far its logs go: what it said, if anything."""
        ...


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


class Channels(Protocol):
    """The way to the brokers in one controller epoch: what the controller asks of a ControllerChannelManager."""

    @property
    def metadata(self) -> MetadataLog:
        """The metadata every broker gets."""
        ...

    @property
    def unacknowledged(self) -> int:
        """Desired states that no agent has acknowledged yet."""
        ...

    def owed(self, broker: BrokerId) -> AbstractSet[TopicPartition]:
        """Partitions of which the broker has yet to acknowledge something."""
        ...

    def backlogs(self) -> list[BrokerBacklog]:
        """How far every broker is, by id."""
        ...

    def set_brokers(self, brokers: Mapping[BrokerId, Broker]) -> None:
        """Where leaders are reached from now on."""
        ...

    def add(self, broker: Broker) -> None:
        """Open a channel to a broker, in place of an older one."""
        ...

    def remove(self, broker: BrokerId) -> None:
        """End the channel to a broker."""
        ...

    def start(self, broker: BrokerId) -> None:
        """The broker has been told all it hosts."""
        ...

    def send(self, requests: Mapping[BrokerId, BrokerRequests]) -> None:
        """Hand over what brokers are newly wanted to do."""
        ...

    def ask_log_ends(self, broker: Broker, partitions: Mapping[TopicPartition, TopicId]) -> None:
        """Ask how far these logs go. The listener is called once, in any case."""
        ...

    def forget(self, gone: Mapping[str, TopicId]) -> None:
        """Nothing is to be hosted of these topics any more."""
        ...

    def close(self) -> None:
        """End every channel."""
        ...


OpenChannels = Callable[[Origin, Listener], Channels]


class BrokerRequests(msgspec.Struct, frozen=True):
    """What one broker is newly wanted to do: first to stop, then to host."""

    topics: Sequence[TopicRows] = ()
    stops: Mapping[TopicPartition, StopReplicaRow] = {}

    def apply_to(self, desired: DesiredState) -> None:
        """Put it into the broker's slots."""
        for partition, stop in self.stops.items():
            desired.want(partition, stop)
        desired.want_topics(self.topics)


def backlog_of(broker: BrokerId, sender: Sender, now_ms: int, waiting_since_ms: int | None = None) -> BrokerBacklog:
    """How far the broker of a sender is; `waiting_since_ms`: when the oldest of what waits was wanted first."""
    failure = sender.last_failure if sender.failures else ""
    attempt_ms = sender.oldest_attempt_ms(now_ms)
    desired = sender.desired
    waited_ms = now_ms - waiting_since_ms if desired.waiting and waiting_since_ms is not None else 0
    return BrokerBacklog(
        broker, desired.unacknowledged, attempt_ms, failure, desired.waiting, max(attempt_ms, waited_ms)
    )
