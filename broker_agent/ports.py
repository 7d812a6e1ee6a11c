"""The agent's inner seams: what passive parts (log, replication) ask of the edge: threads, sockets and ZooKeeper.

But for `Loop`, everything here is called on the data loop, and calls back on the data loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import msgspec

from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition, ZkVersion

T = TypeVar("T")


class Worker(Protocol):
    """The worker pool: fsync, recovery, deletion, cold reads."""

    def submit(self, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` on a pool thread, then `done` with its result or its exception on the data loop."""
        ...


class Loop(Protocol):
    """The way to the data loop, from any thread."""

    def post(self, work: Callable[[], None], /) -> None:
        """Run `work` on the loop soon, in the order of posting."""
        ...

    def call(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """Run `work` on the loop and wait for its result; from another thread only."""
        ...


class Timer(Protocol):
    """Wakes a passive object."""

    def wake_by(self, monotonic_ms: int) -> None:
        """Call the owner's `run_due` no later than this time; an earlier wake already asked for stays."""
        ...


class IsrChange(msgspec.Struct, frozen=True):
    """An ISR a leader wants committed in the state znode, at exactly `zk_version`."""

    topic_partition: TopicPartition
    topic_id: TopicId
    leader: BrokerId
    leader_epoch: LeaderEpoch
    controller_epoch: ControllerEpoch
    """Epoch of the controller whose decision is being followed: written along, as Kafka's leaders do."""
    isr: tuple[BrokerId, ...]
    zk_version: ZkVersion
    why: str
    previous: tuple[BrokerId, ...] = ()
    """The committed ISR that this one replaces."""
    joining: tuple[tuple[BrokerId, BrokerEpoch], ...] = ()
    """Who is added, each with the incarnation whose log was judged: no other incarnation of that broker joins by it."""


class IsrWritten(msgspec.Struct, frozen=True):
    """The change is in ZooKeeper, at this version."""

    zk_version: ZkVersion


class IsrNotWritten(msgspec.Struct, frozen=True):
    """The change is not in ZooKeeper and never will be, and the state may be as it was: propose it again later."""

    why: str


class IsrUnknown(msgspec.Struct, frozen=True):
    """Another writer wrote the state, or it is not known whether we did: stay pending and wait for LeaderAndIsr.

    Never write again on a version just read.
    """

    why: str


IsrOutcome = IsrWritten | IsrNotWritten | IsrUnknown


class IsrStore(Protocol):
    """The ISR writer."""

    def submit(self, change: IsrChange, done: Callable[[IsrOutcome], None]) -> None:
        """Write the change; `done` is called on the data loop, once, when the outcome is known. Never blocks."""
        ...

    def withdraw(self, topic_partition: TopicPartition) -> bool:
        """Give up what waits to be written of a partition. Returns whether none of it can reach ZooKeeper any more."""
        ...

    def ask(self, topic_partition: TopicPartition) -> None:
        """Have the controller read the partition's state, and tell us by LeaderAndIsr if we do not have it."""
        ...


class Peers(Protocol):
    """What is known of the rest of the cluster."""

    def broker_epoch(self, broker: BrokerId) -> BrokerEpoch | None:
        """Registered incarnation of a live broker; None where it is not known to live."""
        ...

    def is_shutting_down(self, broker: BrokerId) -> bool:
        """Whether it is leaving under controlled shutdown."""
        ...

    def has_partition(self, topic_partition: TopicPartition) -> bool:
        """Whether the partition exists somewhere in the cluster."""
        ...

    def confirm(self, broker: BrokerId, epoch: BrokerEpoch) -> None:
        """The broker speaks as an incarnation that is not known: find out. Never blocks, and may be asked often."""
        ...
