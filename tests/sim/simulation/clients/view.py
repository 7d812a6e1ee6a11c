"""What a client knows of the cluster: who leads which partition, taken from brokers that may be behind.

And its connections, on which requests and answers keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from regency.broker_agent.control.metadata_cache import MetadataSnapshot
from regency.model.ids import BrokerId, LeaderEpoch, TopicId, TopicPartition
from simulation.cluster.agent import MetadataAsked
from simulation.cluster.channels import CLIENTS, KAFKA, host_of
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Call, Channel, NetFailed, Network

LISTENER = "PLAINTEXT"
TIMEOUT_MS = 1_500
BACKOFF_MS = 100
BACKOFF_MAX_MS = 1_000


class Leader(NamedTuple):
    """Where to send what concerns a partition."""

    broker: BrokerId
    epoch: LeaderEpoch
    address: str
    topic_id: TopicId


class _Known(NamedTuple):
    topic_id: TopicId
    epoch: LeaderEpoch
    leader: Leader | None


def addresses(brokers: Iterable[BrokerId]) -> list[str]:
    return [f"{host_of(broker)}:{KAFKA}" for broker in brokers]


class ClusterView:
    """Asks any broker for metadata, one request at a time. Of a partition it believes the greatest leader epoch it saw.

    `on_change` is called after every answer that told something new, and after every failure: look again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        brokers: Sequence[BrokerId],
        partitions: Sequence[TopicPartition],
        on_change: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._process = process
        self._bootstrap = addresses(brokers)
        self._partitions = partitions
        self._on_change = on_change
        self._known: dict[TopicPartition, _Known] = {}
        self._asking = False
        self._failures = 0
        self._next_ms = 0

    def leader(self, partition: TopicPartition) -> Leader | None:
        """Who leads the partition, or None: then `refresh`."""
        known = self._known.get(partition)
        return known.leader if known is not None else None

    def refresh(self) -> None:
        """Ask soon, unless a request is under way or waits for its time already."""
        if self._asking:
            return
        self._asking = True
        clock = self._process.clock
        self._scheduler.at(clock.delay_us(self._next_ms - clock.monotonic_ms()), self._ask, self._process)

    def any_address(self) -> str:
        return self._scheduler.random.choice(self._bootstrap)

    def _ask(self) -> None:
        self._network.call(
            self._process,
            CLIENTS,
            self.any_address(),
            MetadataAsked(),
            self._answered,
            timeout_us=self._process.clock.delay_us(TIMEOUT_MS),
        )

    def _answered(self, answer: Any) -> None:
        self._asking = False
        news = self._take(answer) if isinstance(answer, MetadataSnapshot) else False
        self._failures = 0 if news else self._failures + 1
        backoff = min(BACKOFF_MS << min(self._failures, 4), BACKOFF_MAX_MS)
        self._next_ms = self._process.clock.monotonic_ms() + backoff
        self._on_change()

    def _take(self, snapshot: MetadataSnapshot) -> bool:
        """Believe what is not older; whether anything is new."""
        news = False
        for name in self._partitions:
            topic = snapshot.topics.get(name.topic)
            told = topic.partitions.get(name.partition) if topic is not None else None
            if topic is None or told is None:
                continue
            known = self._known.get(name)
            if known is not None and known.topic_id == topic.topic_id and told.leader_epoch < known.epoch:
                continue
            node = snapshot.brokers.get(told.leader)
            endpoint = node.endpoint(LISTENER) if node is not None else None
            leader = None
            if endpoint is not None:
                address = f"{endpoint.host}:{endpoint.port}"
                leader = Leader(told.leader, told.leader_epoch, address, topic.topic_id)
            now = _Known(topic.topic_id, told.leader_epoch, leader)
            if now != known:
                news = True
                self._known[name] = now
        return news


Done = Callable[[Any], None]

LOST = NetFailed("the connection was lost")


class _Connection:
    __slots__ = ("channel", "under_way")

    def __init__(self) -> None:
        self.channel = Channel()
        self.under_way: dict[Call, Done] = {}


class Connections:
    """Opens a connection when there is none; after a failure the next request opens a new one."""

    def __init__(self, network: Network, process: Process) -> None:
        self._network = network
        self._process = process
        self._open: dict[str, _Connection] = {}

    def ask(self, address: str, request: Any, done: Done, timeout_ms: int) -> None:
        """Send a request behind those that are under way; `done` gets the answer or NetFailed, once."""
        connection = self._open.get(address)
        if connection is None:
            connection = self._open[address] = _Connection()
        ours = connection

        def answered(answer: Any) -> None:
            done = ours.under_way.pop(call)
            if isinstance(answer, NetFailed):
                self._fail(address, ours, answer, done)
            else:
                done(answer)

        call = self._network.call(
            self._process,
            CLIENTS,
            address,
            request,
            answered,
            timeout_us=self._process.clock.delay_us(timeout_ms),
            channel=connection.channel,
        )
        connection.under_way[call] = done

    def close(self) -> None:
        for connection in self._open.values():
            for call in connection.under_way:
                call.close()
            connection.under_way.clear()
        self._open.clear()

    def _fail(self, address: str, connection: _Connection, failed: NetFailed, first: Done) -> None:
        if self._open.get(address) is connection:
            del self._open[address]
        others = list(connection.under_way.items())
        connection.under_way.clear()
        first(failed)
        for call, done in others:
            call.close()
            done(LOST)
