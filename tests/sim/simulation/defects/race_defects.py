"""Defects of the race for /controller, of terms, and of what stands between a deposed controller and ZooKeeper."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

from regency.controller.channel.request_batch import RequestBatch
from regency.controller.controller import Controller
from regency.controller.events import Event, EventQueue
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.machines.replica_state_machine import ReplicaStateMachine
from regency.controller.state.context import ControllerContext
from regency.controller.store.access import Fence, StoreAccess
from regency.controller.store.elector import Elector, Lost
from regency.controller.term import Term
from regency.model import znodes
from regency.model.ids import ControllerEpoch
from regency.model.znodes import paths
from regency.runtime.zookeeper import fenced
from regency.runtime.zookeeper.fenced import FencedItem, ItemOutcome
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    Op,
    SetData,
    WatchCallback,
    WatchEventType,
    WatchMode,
    ZkSession,
)
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


@DEFECTS.of("KAFKA-6082")
def unfenced_writes(patch: Patch) -> None:
    """The controller's writes check that /controller_epoch exists, not its version."""
    begin = fenced._FencedWrite.__init__

    def init(self: fenced._FencedWrite, *arguments: Any, **others: Any) -> None:
        begin(self, *arguments, **others)
        self._fence = Check(self._fence.path, None)

    patch.set(fenced._FencedWrite, "__init__", init)


@DEFECTS.of("KAFKA-13407")
def own_id_counts_as_own(patch: Patch) -> None:
    """/controller that names this broker counts as won, also where an earlier session made it."""
    elect = Elector.elect

    def by_id(self: Elector) -> Fence | Lost:
        incumbent = self.incumbent()
        if incumbent is not None and incumbent.broker == self._broker:
            generation = self._session.generation
            epoch, version = self._read_epoch()
            return Fence(ControllerEpoch(epoch), version, generation)
        return elect(self)

    patch.set(Elector, "elect", by_id)


@DEFECTS.of("KAFKA-13407")
def own_znode_is_enough(patch: Patch) -> None:
    """A race that finds /controller of this very session is over: the failover never runs."""
    elect = Elector.elect

    def early(self: Elector) -> Fence | Lost:
        incumbent = self.incumbent()
        if incumbent is not None and incumbent.session_id == self._session.session_id:
            return Lost(incumbent)
        return elect(self)

    patch.set(Elector, "elect", early)


@DEFECTS.of("KAFKA-1096")
def newer_epoch_adopted(patch: Patch) -> None:
    """A controller writes under whatever epoch stands in ZooKeeper, also a newer one."""
    write = StoreAccess.write

    def adopting(self: StoreAccess, items: Sequence[FencedItem]) -> list[ItemOutcome]:
        (znode,) = self.read_many([paths.CONTROLLER_EPOCH])
        if items and znode is not None:
            epoch = znodes.decode_controller_epoch(znode.path, znode.data)
            self.fence = Fence(epoch, znode.stat.version, self._session.generation)
        return write(self, items)

    patch.set(StoreAccess, "write", adopting)


@DEFECTS.of("KIP-380")
def race_in_two_steps(patch: Patch) -> None:
    """/controller is created first, the epoch is raised afterwards."""

    def race(self: Elector, epoch: ControllerEpoch, version: int, generation: int) -> Fence | Lost:
        data = znodes.encode_controller(self._broker, timestamp_ms=self._clock.wall_ms())
        steps: tuple[Op, ...] = (
            Create(paths.CONTROLLER, data, ephemeral=True),
            SetData(paths.CONTROLLER_EPOCH, znodes.encode_controller_epoch(epoch), version),
        )
        for step in steps:
            if not self._session.multi([step], generation=generation).ok:
                return Lost(None)
        return Fence(epoch, version + 1, generation)

    patch.set(Elector, "_race", race)


@DEFECTS.of("KAFKA-13407")
def lost_reply_counts_as_won(patch: Patch) -> None:
    """A race whose reply was lost counts as won; who rules is not read again."""
    patch.set(Elector, "still_rules", lambda self, fence: True)


@DEFECTS.of("KAFKA-6082")
def deposition_unnoticed(patch: Patch) -> None:
    """A ruling controller does not look whether /controller is still its own."""
    changed = Controller._on_controller_changed

    def only_when_idle(self: Controller) -> None:
        if self._term is None:
            changed(self)

    patch.set(Controller, "_on_controller_changed", only_when_idle)


@DEFECTS.of("KAFKA-12315")
def context_survives_the_term(patch: Patch) -> None:
    """What was known in a term of this process is kept for the next one."""
    kept: WeakKeyDictionary[ZkSession, ControllerContext] = WeakKeyDictionary()
    begin = Term.__init__

    def init(self: Term, *arguments: Any, **others: Any) -> None:
        begin(self, *arguments, **others)
        self.context = kept.setdefault(self.store.access._session, self.context)
        self.batch = RequestBatch(self.context)
        unclean = self.log_config.unclean_leader_election_enable
        self.partitions = PartitionStateMachine(
            self.context, self.store, self.batch, self.decisions, self.counters, unclean_default=unclean
        )
        self.replicas = ReplicaStateMachine(self.context, self.store, self.batch, self.decisions)

    patch.set(Term, "__init__", init)


@DEFECTS.of("KAFKA-12315, KAFKA-2300")
def batch_survives_the_term(patch: Patch) -> None:
    """What an event that was cut short wanted to send is sent in the next term of this process."""
    left: WeakKeyDictionary[ZkSession, RequestBatch] = WeakKeyDictionary()
    begin = Term.__init__

    def init(self: Term, *arguments: Any, **others: Any) -> None:
        begin(self, *arguments, **others)
        session = self.store.access._session
        if session in left:
            for field in ("_orders", "_metadata", "_removed", "_starting"):
                setattr(self.batch, field, getattr(left[session], field))
        left[session] = self.batch

    patch.set(Term, "__init__", init)


@DEFECTS.of("KAFKA-6082")
def write_in_a_later_session(patch: Patch) -> None:
    """The controller's writes go out under whichever session there is."""
    begin = fenced._FencedWrite.__init__

    def init(self: fenced._FencedWrite, *arguments: Any, **others: Any) -> None:
        begin(self, *arguments, **others)
        self._generation = self._session.generation

    patch.set(fenced._FencedWrite, "__init__", init)


@DEFECTS.of("KAFKA-5502")
def no_look_again(patch: Patch) -> None:
    """After a reconnect the controller's watches are armed, and nothing is read again."""

    def watch(self: Controller, path: str, mode: WatchMode, event: Event) -> None:
        callback: WatchCallback = lambda seen: (  # noqa: E731
            None if seen.type is WatchEventType.LOOK_AGAIN else self._queue.put(event)
        )
        self._session.watch(path, mode, callback)

    patch.set(Controller, "_watch", watch)


@DEFECTS.of("own rule")
def mark_kept_too_long(patch: Patch) -> None:
    """An event that was taken still counts as waiting: its next mark is swallowed."""

    def forgetful(self: EventQueue) -> Event | None:
        now = self._clock.monotonic_ms()
        for when, due in [each for each in self._later if each[0] <= now]:
            self._add(due, when)
        self._later = [(when, event) for when, event in self._later if when > now]
        if not self._waiting:
            return None
        _, event = self._waiting.popleft()
        if self._waiting:
            self._kinds.discard(event)
        return event

    patch.set(EventQueue, "_next", forgetful)
