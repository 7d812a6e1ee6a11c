"""All fetchers of a broker: one per leader and slot, made when there is something to follow, ended when there is not.

Data loop only. What stands behind a fetcher (a thread, or a simulated network) is made by the `transport` it is given.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence

import msgspec

from regency.broker_agent.replication.api import LeaderAddress
from regency.broker_agent.replication.fetcher.fetcher_logic import FetcherLogic, Settle
from regency.broker_agent.replication.fetcher.fetcher_thread import Failed, FetcherThread, Outcome, Rested, Transport
from regency.broker_agent.replication.fetcher.follow_state import ReceivedBytes
from regency.broker_agent.replication.fetcher.throttle import ReplicationThrottle, unlimited
from regency.broker_agent.replication.partition import Partition
from regency.kafka.fetching.values import FetcherLimits, Pause, Plan
from regency.model.clock import Clock
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicPartition
from regency.model.settings import BrokerSettings
from regency.runtime.metrics.recent import RecentRate

_UTF_16 = codecs.lookup("utf-16-be")
"""Loaded now: later there may be no descriptor to read its code with."""


class FollowTask(msgspec.Struct, frozen=True):
    """A partition to follow, in a leader epoch."""

    replica: Partition
    leader_epoch: LeaderEpoch


class TransportSpec(msgspec.Struct, frozen=True):
    """What a transport is made for."""

    name: str
    client_id: str
    replica: BrokerId
    address: LeaderAddress
    request_timeout_ms: int


MakeTransport = Callable[[TransportSpec, Callable[[Outcome], None]], Transport]


def threads(post: Callable[[Callable[[], None]], None]) -> MakeTransport:
    """Transports that are threads; `post` hands a call to the data loop from any thread."""

    def make(spec: TransportSpec, deliver: Callable[[Outcome], None]) -> Transport:
        return FetcherThread(
            spec.name, spec.client_id, spec.replica, spec.address, spec.request_timeout_ms, post, deliver
        )

    return make


class Fetcher:
    """The data loop's end of one fetcher: feeds its transport from its logic."""

    def __init__(self, name: str, logic: FetcherLogic, clock: Clock, address: LeaderAddress) -> None:
        self.name = name
        self.logic = logic
        self.address = address
        self.requests = RecentRate(clock.monotonic_ms())
        self._clock = clock
        self._transport: Transport | None = None
        self._plan: Plan | None = None
        self._disowned = False
        logic.on_settled = self.wake

    @property
    def is_dead(self) -> bool:
        """Whether its requests are not carried out any more, although it was not closed."""
        return self._transport is not None and not self._transport.alive

    def start(self, transport: Transport) -> None:
        """Use this transport from now on."""
        self._transport = transport

    def wake(self) -> None:
        """There may be something new to ask for; a running exchange leads to the next request anyway."""
        if self._plan is None:
            self._advance()

    def redirect(self, address: LeaderAddress) -> None:
        """The leader is reached elsewhere now, or is another incarnation."""
        self.address = address
        self._disowned = self._plan is not None
        self.logic.restart()
        if self._transport is not None:
            self._transport.redirect(address)

    def deliver(self, outcome: Outcome) -> None:
        """What came of the last command."""
        if self._transport is None:
            return
        plan, now_ms = self._plan, self._clock.monotonic_ms()
        if isinstance(outcome, Rested):
            self.logic.go_on(now_ms)
            self.wake()
            return
        self._plan = None
        if self._disowned:
            self._disowned = False
            self.logic.restart()
        elif isinstance(outcome, Failed):
            self.logic.on_failure(now_ms, outcome.why)
        elif plan is not None:
            self.logic.on_reply(plan, outcome, now_ms)
        self.wake()

    def close(self) -> None:
        """End it; what still arrives is ignored."""
        self.logic.close()
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.close()

    def _advance(self) -> None:
        if self._transport is None:
            return
        now_ms = self._clock.monotonic_ms()
        command = self.logic.next(now_ms)
        if isinstance(command, Pause):
            self._plan = None
        else:
            self._plan = command
            self.requests.count(now_ms)
        self._transport.send(command)


class FetcherPool:
    """Who follows what, and through which fetcher."""

    def __init__(
        self,
        settings: BrokerSettings,
        clock: Clock,
        broker_epoch: Callable[[], BrokerEpoch],
        transport: MakeTransport,
        settle: Settle,
        throttle: ReplicationThrottle | None = None,
    ) -> None:
        """`broker_epoch` is this broker's own current registration, -1 before it has one.

        Without `throttle` nothing is held back.
        """
        self._throttle = throttle or unlimited(settings).follower
        self._settings = settings
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._make_transport = transport
        self._settle = settle
        self._limits = FetcherLimits(
            settings.replica_fetch_response_max_bytes,
            settings.replica_fetch_max_bytes,
            settings.replica_fetch_min_bytes,
            settings.replica_fetch_wait_max_ms,
            settings.replica_fetch_backoff_ms,
        )
        self._fetchers: dict[tuple[BrokerId, int], Fetcher] = {}
        self._followed: dict[TopicPartition, Fetcher] = {}
        self._closed = False
        self._leaving = False
        self.failed: dict[TopicPartition, str] = {}
        """Partitions given up until the next LeaderAndIsr, and why."""
        self.received = ReceivedBytes()

    def __len__(self) -> int:
        """Running fetchers."""
        return len(self._fetchers)

    def is_following(self, topic_partition: TopicPartition) -> bool:
        """Whether a fetcher works on the partition; not where it has failed."""
        fetcher = self._followed.get(topic_partition)
        return fetcher is not None and topic_partition in fetcher.logic

    @property
    def fetchers(self) -> Sequence[Fetcher]:
        """Running fetchers, to look at."""
        return tuple(self._fetchers.values())

    def lag(self, topic_partition: TopicPartition) -> tuple[str, int] | None:
        """Who fetches a partition, and how many records it was behind its leader's high watermark at the last answer.

        None where there is none, or no answer has come yet.
        """
        fetcher = self._followed.get(topic_partition)
        lag = None if fetcher is None else fetcher.logic.lag(topic_partition)
        return None if fetcher is None or lag is None else (fetcher.name, lag)

    def follow(self, address: LeaderAddress, tasks: Sequence[FollowTask]) -> None:
        """Follow a leader from each replica's end. Partitions followed elsewhere must have been removed."""
        if self._closed or self._leaving:
            return
        woken: dict[Fetcher, None] = {}
        for task in tasks:
            name = task.replica.topic_partition
            fetcher = self._fetcher(address, slot(name, self._settings.num_replica_fetchers))
            fetcher.logic.add(task.replica, task.leader_epoch)
            self._followed[name] = fetcher
            woken[fetcher] = None
        for fetcher in woken:
            fetcher.logic.go_on(self._clock.monotonic_ms())
            fetcher.wake()

    def throttles_changed(self) -> None:
        """Rates or lists of throttled replicas may have changed: no caller waits for what held them back before."""
        for fetcher in self._fetchers.values():
            fetcher.logic.release_throttled()
            fetcher.wake()

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Follow these no more; harmless for those that are not followed."""
        for name in topic_partitions:
            fetcher = self._followed.pop(name, None)
            if fetcher is not None:
                fetcher.logic.remove(name)
            self.failed.pop(name, None)

    def stop_idle(self) -> None:
        """End fetchers that have nothing left to follow."""
        for key in [key for key, fetcher in self._fetchers.items() if not len(fetcher.logic)]:
            self._fetchers.pop(key).close()

    def leave(self) -> None:
        """Follow nothing new: a broker that leaves must not come back into an ISR (KAFKA-7128)."""
        self._leaving = True

    def close(self) -> None:
        """End every fetcher, without waiting for the threads, and follow nothing any more."""
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._followed.clear()

    def _fetcher(self, address: LeaderAddress, number: int) -> Fetcher:
        key = (address.broker, number)
        fetcher = self._fetchers.get(key)
        if fetcher is None:
            fetcher = self._fetchers[key] = self._start(address, number)
        elif fetcher.address != address and address.broker_epoch >= fetcher.address.broker_epoch:
            fetcher.redirect(address)
        return fetcher

    def _start(self, address: LeaderAddress, number: int) -> Fetcher:
        broker = self._settings.broker_id
        name = f"ReplicaFetcherThread-{number}-{address.broker}"
        logic = FetcherLogic(
            f"fetcher {number} of broker {address.broker}",
            self._limits,
            self._broker_epoch,
            self._clock,
            self._settle,
            self.failed,
            self._throttle,
            self.received,
        )
        fetcher = Fetcher(name, logic, self._clock, address)
        spec = TransportSpec(
            name, f"broker-{broker}-fetcher-{number}", broker, address, self._settings.replica_socket_timeout_ms
        )
        fetcher.start(self._make_transport(spec, fetcher.deliver))
        return fetcher


def slot(topic_partition: TopicPartition, slots: int) -> int:
    """Which fetcher of a leader a partition has, as in Kafka: |31 * Java's string hash + partition| mod slots."""
    hashed = _int32(31 * java_hash(topic_partition.topic) + topic_partition.partition)
    return 0 if hashed == -(2**31) else abs(hashed) % slots


def java_hash(text: str) -> int:
    """String.hashCode of Java, over UTF-16 code units."""
    hashed = 0
    units, _ = _UTF_16.encode(text)
    for high, low in zip(units[::2], units[1::2], strict=True):
        hashed = _int32(31 * hashed + (high << 8 | low))
    return hashed


def _int32(number: int) -> int:
    return (number + 2**31) % 2**32 - 2**31
