"""Defects of writes to ZooKeeper: lost replies, sessions, registrations, and the ISR writer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import msgspec

from regency.broker_agent.ports import IsrChange, IsrUnknown, IsrWritten
from regency.broker_agent.registry import incarnations, registration
from regency.broker_agent.registry.incarnations import Guard, PeerEpoch, Refused
from regency.broker_agent.registry.isr_store import IsrWriter, _Submitted
from regency.broker_agent.registry.registration import Registered, Registration, SessionFile, register
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.store.access import StoreAccess
from regency.model.clock import Clock
from regency.model.facts import Broker
from regency.model.ids import BrokerEpoch, BrokerId, ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import ItemOutcome, _FencedWrite
from regency.runtime.zookeeper.session import (
    Check,
    MultiOutcome,
    Op,
    OpOutcome,
    SessionEvent,
    SetData,
    Stat,
    ZkCode,
    ZkError,
    ZkSession,
)
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()

# The controller


def _lost_is(patch: Patch, outcome_of: Callable[[Op], OpOutcome]) -> None:
    def decided(self: _FencedWrite, lost: Sequence[int], losses: int) -> list[int]:
        del losses
        for index in lost:
            self._outcomes[index] = ItemOutcome(tuple(map(outcome_of, self._items[index].ops)))
        return []

    patch.set(_FencedWrite, "_read_back", decided)


@DEFECTS.of("Kafka 2.4")
def lost_reply_is_failure(patch: Patch) -> None:
    """A controller's write whose reply was lost counts as failed; nothing is read."""
    _lost_is(patch, lambda op: OpOutcome(ZkCode.NO_AUTH))


@DEFECTS.of("own rule")
def lost_reply_is_success(patch: Patch) -> None:
    """A controller's write whose reply was lost counts as written; nothing is read."""

    def written(op: Op) -> OpOutcome:
        if isinstance(op, SetData):
            return OpOutcome(ZkCode.OK, stat=Stat(0, 0, op.version + 1, 0, 0))
        return OpOutcome(ZkCode.OK, op.path)

    _lost_is(patch, written)


@DEFECTS.of("Kafka 2.4")
def lost_reply_is_conflict(patch: Patch) -> None:
    """A controller's write whose reply was lost counts as somebody else's, its own content too."""

    def conflict(op: Op) -> OpOutcome:
        return OpOutcome(ZkCode.BAD_VERSION if isinstance(op, SetData) else ZkCode.NODE_EXISTS)

    _lost_is(patch, conflict)


@DEFECTS.of("Kafka 2.4")
def existing_state_unread(patch: Patch) -> None:
    """A state that was created and whose reply was lost counts as somebody else's, and is not read."""
    lost_reply_is_conflict(patch)
    patch.edit(PartitionStateMachine, "_initialise", ("adopted.append(partition)", "failed[partition] = 'it exists'"))


@DEFECTS.of("own rule")
def lost_reply_sent_again(patch: Patch) -> None:
    """A controller's write whose reply was lost is sent again without a look."""
    patch.set(_FencedWrite, "_read_back", lambda self, lost, losses: list(lost))


# The ISR writer


@DEFECTS.of("own rule")
def lost_isr_write_is_success(patch: Patch) -> None:
    """An ISR change whose reply was lost counts as written."""
    resolve = IsrWriter._resolve

    def hopeful(self: IsrWriter, pending: _Submitted, outcome: MultiOutcome | ZkError) -> object:
        return resolve(self, pending, outcome) or IsrWritten(ZkVersion(pending.change.zk_version + 1))

    patch.set(IsrWriter, "_resolve", hopeful)


@DEFECTS.of("own rule")
def lost_isr_write_is_failure(patch: Patch) -> None:
    """An ISR change whose reply was lost is given up, and waits for the controller."""
    resolve = IsrWriter._resolve

    def gloomy(self: IsrWriter, pending: _Submitted, outcome: MultiOutcome | ZkError) -> object:
        return resolve(self, pending, outcome) or IsrUnknown("no answer")

    patch.set(IsrWriter, "_resolve", gloomy)


@DEFECTS.of("KAFKA-2729, KAFKA-3042")
def isr_conflict_overwritten(patch: Patch) -> None:
    """An ISR change that met another version is written again on the version just read."""
    read_back = IsrWriter._read_back

    def insist(self: IsrWriter, pending: _Submitted) -> object:
        outcome = read_back(self, pending)
        if not isinstance(outcome, IsrUnknown):
            return outcome
        held = self._session.read(paths.partition_state(pending.change.topic_partition))
        if held is None:
            return outcome
        pending.change = msgspec.structs.replace(pending.change, zk_version=ZkVersion(held.stat.version))
        pending.sent = False
        return None

    patch.set(IsrWriter, "_read_back", insist)


@DEFECTS.of("own rule")
def isr_by_the_unregistered(patch: Patch) -> None:
    """An ISR change is written without the check of the own registration."""
    send = IsrWriter._send

    def anybody(self: IsrWriter, batch: Sequence[_Submitted], generation: int) -> object:
        own, self._own_path = self._own_path, paths.BROKER_IDS
        try:
            return send(self, batch, generation)
        finally:
            self._own_path = own

    patch.set(IsrWriter, "_send", anybody)


@DEFECTS.of("own rule")
def isr_in_any_session(patch: Patch) -> None:
    """An ISR change is written under whichever session there is."""
    send = IsrWriter._send

    def whichever(self: IsrWriter, batch: Sequence[_Submitted], generation: int) -> object:
        del generation
        return send(self, batch, self._session.generation)

    patch.set(IsrWriter, "_send", whichever)


@DEFECTS.of("KIP-903")
def isr_members_unchecked(patch: Patch) -> None:
    """An ISR change is written without the check that no other member has restarted."""

    def as_metadata_has_it(session: ZkSession, changes: Sequence[IsrChange], peer_epoch: PeerEpoch) -> list[Guard]:
        del session
        return [
            ()
            if all(peer_epoch(member) == judged for member, judged in change.joining)
            else Refused("somebody restarted")
            for change in changes
        ]

    patch.set(incarnations, "guards", as_metadata_has_it)


@DEFECTS.of("KIP-903")
def kept_members_unchecked(patch: Patch) -> None:
    """A controller's states are written without the check that nobody they keep has restarted."""

    def unguarded(self: StoreAccess, brokers: tuple[BrokerId, ...]) -> tuple[Check, ...]:
        del self, brokers
        return ()

    patch.set(StoreAccess, "guards", unguarded)


@DEFECTS.of("own rule")
def isr_change_unannounced(patch: Patch) -> None:
    """A notification that could not be written is forgotten."""
    hold_back = IsrWriter._hold_back

    def forget(self: IsrWriter) -> None:
        self._unannounced.clear()
        hold_back(self)

    patch.set(IsrWriter, "_hold_back", forget)


@DEFECTS.of("KAFKA-15021")
def isr_change_raises_epoch(patch: Patch) -> None:
    """A leader that changes its ISR raises the leader epoch."""
    patch.edit(IsrWriter, "submit", ("change.leader, change.leader_epoch,", "change.leader, change.leader_epoch + 1,"))


# Registration


@DEFECTS.of("KAFKA-6584")
def registered_only_once(patch: Patch) -> None:
    """A lost registration is not made again."""
    renew = Registration._register

    def once(self: Registration) -> None:
        if self.epoch() < 0:
            renew(self)

    patch.set(Registration, "_register", once)


@DEFECTS.of("KAFKA-6584")
def lost_registration_unknown(patch: Patch) -> None:
    """A broker whose session is lost still counts as registered."""
    listen = Registration._on_session

    def deaf(self: Registration, event: SessionEvent, generation: int) -> None:
        if event is not SessionEvent.LOST:
            listen(self, event, generation)

    patch.set(Registration, "_on_session", deaf)


@DEFECTS.of("KAFKA-6584, KAFKA-7165")
def leftover_counts_as_registration(patch: Patch) -> None:
    """The registration that an earlier process left counts as this one's."""

    def lazy(
        session: ZkSession,
        broker: Broker,
        generation: int,
        sessions: SessionFile,
        clock: Clock,
        stopping: threading.Event,
        *,
        whole: bool,
        process: str,
    ) -> Registered:
        held = session.read(paths.broker(broker.id))
        if held is not None and held.stat.ephemeral_owner in sessions.read():
            return Registered(generation, BrokerEpoch(held.stat.czxid))
        return register(session, broker, generation, sessions, clock, stopping, whole=whole, process=process)

    patch.set(registration, "register", lazy)
