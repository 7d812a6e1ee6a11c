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
from simulation.defects.patching import Defect, Patch


def _unfenced(patch: Patch) -> None:
    begin = fenced._FencedWrite.__init__

    def init(self: fenced._FencedWrite, *arguments: Any, **others: Any) -> None:
        begin(self, *arguments, **others)
        self._fence = Check(self._fence.path, None)

    patch.set(fenced._FencedWrite, "__init__", init)


def _own_id_counts(patch: Patch) -> None:
    elect = Elector.elect

    def by_id(self: Elector) -> Fence | Lost:
        incumbent = self.incumbent()
        if incumbent is not None and incumbent.broker == self._broker:
            generation = self._session.generation
            epoch, version = self._read_epoch()
            return Fence(ControllerEpoch(epoch), version, generation)
        return elect(self)

    patch.set(Elector, "elect", by_id)


def _own_znode_is_enough(patch: Patch) -> None:
    elect = Elector.elect

    def early(self: Elector) -> Fence | Lost:
        incumbent = self.incumbent()
        if incumbent is not None and incumbent.session_id == self._session.session_id:
            return Lost(incumbent)
        return elect(self)

    patch.set(Elector, "elect", early)


def _epoch_adopted(patch: Patch) -> None:
    write = StoreAccess.write

    def adopting(self: StoreAccess, items: Sequence[FencedItem]) -> list[ItemOutcome]:
        (znode,) = self.read_many([paths.CONTROLLER_EPOCH])
        if items and znode is not None:
            epoch = znodes.decode_controller_epoch(znode.path, znode.data)
            self.fence = Fence(epoch, znode.stat.version, self._session.generation)
        return write(self, items)

    patch.set(StoreAccess, "write", adopting)


def _two_steps(patch: Patch) -> None:
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


def _lost_race_counts_as_won(patch: Patch) -> None:
    patch.set(Elector, "still_rules", lambda self, fence: True)


def _deposition_unnoticed(patch: Patch) -> None:
    changed = Controller._on_controller_changed

    def only_when_idle(self: Controller) -> None:
        if self._term is None:
            changed(self)

    patch.set(Controller, "_on_controller_changed", only_when_idle)


def _context_survives(patch: Patch) -> None:
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


def _batch_survives(patch: Patch) -> None:
    """What an interrupted event wanted to send is in the next term's first batch."""
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


def _later_generation(patch: Patch) -> None:
    begin = fenced._FencedWrite.__init__

    def init(self: fenced._FencedWrite, *arguments: Any, **others: Any) -> None:
        begin(self, *arguments, **others)
        self._generation = self._session.generation

    patch.set(fenced._FencedWrite, "__init__", init)


def _no_look_again(patch: Patch) -> None:
    def watch(self: Controller, path: str, mode: WatchMode, event: Event) -> None:
        callback: WatchCallback = lambda seen: (  # noqa: E731
            None if seen.type is WatchEventType.LOOK_AGAIN else self._queue.put(event)
        )
        self._session.watch(path, mode, callback)

    patch.set(Controller, "_watch", watch)


def _kinds_stay(patch: Patch) -> None:
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


DEFECTS: tuple[Defect, ...] = (
    Defect(
        "unfenced-writes",
        "The controller's writes check that /controller_epoch exists, not its version.",
        "KAFKA-6082",
        _unfenced,
    ),
    Defect(
        "own-id-counts-as-own",
        "/controller that names this broker counts as won, also where an earlier session made it.",
        "KAFKA-13407",
        _own_id_counts,
    ),
    Defect(
        "own-znode-is-enough",
        "A race that finds /controller of this very session is over: the failover never runs.",
        "KAFKA-13407",
        _own_znode_is_enough,
    ),
    Defect(
        "newer-epoch-adopted",
        "A controller writes under whatever epoch stands in ZooKeeper, also a newer one.",
        "KAFKA-1096",
        _epoch_adopted,
    ),
    Defect("race-in-two-steps", "/controller is created first, the epoch is raised afterwards.", "KIP-380", _two_steps),
    Defect(
        "lost-reply-counts-as-won",
        "A race whose reply was lost counts as won; who rules is not read again.",
        "KAFKA-13407",
        _lost_race_counts_as_won,
    ),
    Defect(
        "deposition-unnoticed",
        "A ruling controller does not look whether /controller is still its own.",
        "KAFKA-6082",
        _deposition_unnoticed,
    ),
    Defect(
        "context-survives-the-term",
        "What was known in a term of this process is kept for the next one.",
        "KAFKA-12315",
        _context_survives,
    ),
    Defect(
        "batch-survives-the-term",
        "What an event that was cut short wanted to send is sent in the next term of this process.",
        "KAFKA-12315, KAFKA-2300",
        _batch_survives,
    ),
    Defect(
        "write-in-a-later-session",
        "The controller's writes go out under whichever session there is.",
        "KAFKA-6082",
        _later_generation,
    ),
    Defect(
        "no-look-again",
        "After a reconnect the controller's watches are armed, and nothing is read again.",
        "KAFKA-5502",
        _no_look_again,
    ),
    Defect(
        "mark-kept-too-long",
        "An event that was taken still counts as waiting: its next mark is swallowed.",
        "own rule",
        _kinds_stay,
    ),
)
"""In the order of the table."""
