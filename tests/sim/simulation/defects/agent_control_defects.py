"""Defects of what an agent takes from controllers: whom it obeys, in which order, and what it answers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from regency.broker_agent.control import controlled_shutdown
from regency.broker_agent.control.gate import ControlGate, Header, RefusedRequest, RepeatedRequest
from regency.broker_agent.control.metadata_cache import MetadataCache, MetadataUpdate, Prepared, Refused
from regency.broker_agent.control.service import ControlService
from regency.broker_agent.control.strays import Strays
from regency.broker_agent.process.watchdog import Watchdog
from regency.broker_agent.registry.topic_configs import TopicConfigs
from regency.broker_agent.replication.api import AppliedState, PartitionState
from regency.broker_agent.replication.control import ControlPath
from regency.broker_agent.replication.partition import Partition
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, LeaderEpoch, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb
from simulation.defects.patching import Defect, Patch

Verdict = RefusedRequest | RepeatedRequest | bool


def _any_controller(patch: Patch) -> None:
    check = ControlGate.check_epochs

    def unchecked(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        refused = check(self, header, own_epoch)
        if refused is not None and refused.error is ErrorCode.STALE_CONTROLLER_EPOCH:
            newest = msgspec.structs.replace(
                header, controller_epoch=self.controller_epoch, controller_id=self._controller
            )
            return check(self, newest, own_epoch)
        return refused

    patch.set(ControlGate, "check_epochs", unchecked)


def _any_incarnation(patch: Patch) -> None:
    check = ControlGate.check_epochs

    def unchecked(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        refused = check(self, header, own_epoch)
        stale = refused is not None and refused.error is ErrorCode.STALE_BROKER_EPOCH
        return None if stale else refused

    patch.set(ControlGate, "check_epochs", unchecked)


def _earlier_processes(patch: Patch) -> None:
    check = ControlGate.check_epochs

    def trusting(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        refused = check(self, header, own_epoch)
        stale = refused is not None and refused.error is ErrorCode.STALE_BROKER_EPOCH
        return None if stale and own_epoch == NO_BROKER_EPOCH else refused

    patch.set(ControlGate, "check_epochs", trusting)


def _unconfirmed_controller(patch: Patch) -> None:
    def believed(self: ControlGate, header: Header) -> bool:
        del self, header
        return True

    patch.set(ControlGate, "_is_in_office", believed)


def _any_number(patch: Patch) -> None:
    admit = ControlGate.admit

    def unordered(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> Verdict:
        verdict = admit(self, header, own_epoch)
        refused = isinstance(verdict, RefusedRequest) and verdict.error is ErrorCode.INVALID_REQUEST
        if refused or isinstance(verdict, RepeatedRequest):
            self._seq = header.seq
            self._answer = None
            return False
        return verdict

    patch.set(ControlGate, "admit", unordered)


def _deltas_not_counted(patch: Patch) -> None:
    prepare = MetadataCache.prepare

    def whatever(self: MetadataCache, update: MetadataUpdate) -> Prepared | Refused:
        if not update.snapshot and update.controller_epoch == self._epoch and self._next_delta:
            update = msgspec.structs.replace(update, first_delta=self._next_delta)
        return prepare(self, update)

    patch.set(MetadataCache, "prepare", whatever)


def _part_of_a_snapshot(patch: Patch) -> None:
    prepare = MetadataCache.prepare

    def first_is_all(self: MetadataCache, update: MetadataUpdate) -> Prepared | Refused:
        if update.snapshot and update.first_chunk:
            update = msgspec.structs.replace(update, last_chunk=True)
        return prepare(self, update)

    patch.set(MetadataCache, "prepare", first_is_all)


def _snapshot_onto_the_old(patch: Patch) -> None:
    prepare = MetadataCache._prepare_snapshot

    def onto(self: MetadataCache, update: MetadataUpdate) -> Prepared | Refused:
        if update.first_chunk:
            self._staged = msgspec.structs.replace(self._view, controller_epoch=update.controller_epoch)
            update = msgspec.structs.replace(update, first_chunk=False)
        return prepare(self, update)

    patch.set(MetadataCache, "_prepare_snapshot", onto)


def _equal_epoch_is_stale(patch: Patch) -> None:
    def ignore(self: ControlPath, state: PartitionState, followers: list[Partition], now_ms: int) -> None:
        del self, state, followers, now_ms

    def higher(self: ControlPath, state: PartitionState) -> bool:
        partition = self._hosting.partitions.get(state.topic_partition)
        return partition is None or state.leader_epoch > partition.leader_epoch

    patch.set(ControlPath, "_refresh", ignore)
    patch.set(ControlPath, "_is_transition", higher)


def _failed_step_left_out(patch: Patch) -> None:
    patch.edit(ControlPath, "_refresh", ("if partition.role is Role.FOLLOWER and", "if False and"))


def _stop_of_equal_epoch(patch: Patch) -> None:
    patch.edit(
        ControlPath,
        "_admit_stop",
        ("stop.leader_epoch < partition.leader_epoch", "stop.leader_epoch <= partition.leader_epoch"),
    )


def _done_before_it_is(patch: Patch) -> None:
    read = ControlService._read_configs

    def hopeful(self: ControlService, states: Sequence[PartitionState]) -> dict[TopicPartition, AppliedState]:
        return {
            partition: AppliedState(ErrorCode.NONE, applied.leader_epoch)
            for partition, applied in read(self, states).items()
        }

    patch.set(ControlService, "_read_configs", hopeful)


def _told_in_turn(patch: Patch) -> None:
    describe = ControlService.describe_replicas

    def waiting(self: ControlService, request: pb.DescribeReplicasRequest) -> pb.DescribeReplicasResponse:
        with self._turn:
            return describe(self, request)

    patch.set(ControlService, "describe_replicas", waiting)


def _told_in_part(patch: Patch) -> None:
    patch.edit(TopicConfigs, "_tell", ("topics[_TOLD_AT_ONCE:]", "()"))


def _strays_of_the_past(patch: Patch) -> None:
    patch.edit(Strays, "_confirmed", ("self._session.sync(znode_paths.TOPICS)", "pass"))


def _unreachable_is_done(patch: Patch) -> None:
    follow = ControlPath._follow

    def hopeful(self: ControlPath, followers: Sequence[Partition]) -> list[TopicPartition]:
        follow(self, followers)
        return []

    patch.set(ControlPath, "_follow", hopeful)


def _lower_leader_epoch(patch: Patch) -> None:
    admit = ControlPath._admit

    def lenient(self: ControlPath, state: PartitionState) -> ErrorCode | None:
        error = admit(self, state)
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._hosting.partitions[state.topic_partition].leader_epoch = LeaderEpoch(state.leader_epoch - 1)
            return None
        return error

    patch.set(ControlPath, "_admit", lenient)


def _newer_incarnation_refused(patch: Patch) -> None:
    check = ControlGate.check_epochs

    def strict(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        if header.broker_epoch > own_epoch:
            return RefusedRequest(ErrorCode.STALE_BROKER_EPOCH, "not known here")
        return check(self, header, own_epoch)

    patch.set(ControlGate, "check_epochs", strict)


def _hung_loops_live_on(patch: Patch) -> None:
    patch.edit(Watchdog, "_run", ("if silent_ms >= self._limit_ms", "if False"))


def _leaves_without_epoch(patch: Patch) -> None:
    patch.edit(controlled_shutdown, "leave", ("broker_epoch=epoch", f"broker_epoch={NO_BROKER_EPOCH}"))


def _leaves_too_soon(patch: Patch) -> None:
    patch.edit(controlled_shutdown, "_in_the_way", ("if answer.remaining_partitions:", "if False:"))


DEFECTS: tuple[Defect, ...] = (
    Defect("any-controller-epoch", "An agent obeys a lower controller epoch too.", "KAFKA-1188", _any_controller),
    Defect(
        "hung-loops-live-on",
        "The watchdog does not end an agent whose data loop stands still.",
        "own rule",
        _hung_loops_live_on,
    ),
    Defect(
        "any-broker-epoch", "An agent obeys what was meant for another incarnation.", "KAFKA-7235", _any_incarnation
    ),
    Defect(
        "earlier-process-obeyed",
        "Until it knows its own registration, an agent obeys what was meant for the process before it.",
        "KAFKA-7235",
        _earlier_processes,
    ),
    Defect(
        "unconfirmed-controller-obeyed",
        "An agent obeys a controller epoch that ZooKeeper has not confirmed.",
        "own rule",
        _unconfirmed_controller,
    ),
    Defect(
        "newer-incarnation-refused",
        "An agent refuses a broker epoch that it does not know yet.",
        "KAFKA-9839",
        _newer_incarnation_refused,
    ),
    Defect("any-number", "An agent executes requests again and in any order.", "own rule", _any_number),
    Defect(
        "deltas-not-counted",
        "An agent takes metadata deltas without comparing their numbers.",
        "own rule",
        _deltas_not_counted,
    ),
    Defect(
        "part-of-a-snapshot",
        "The first piece of a metadata snapshot counts as all of it.",
        "own rule",
        _part_of_a_snapshot,
    ),
    Defect(
        "snapshot-onto-the-old",
        "A metadata snapshot is merged into what was known.",
        "KAFKA-13225",
        _snapshot_onto_the_old,
    ),
    Defect(
        "equal-epoch-is-stale",
        "A LeaderAndIsr with the leader epoch that is held is ignored, and answered as done.",
        "KAFKA-13790",
        _equal_epoch_is_stale,
    ),
    Defect(
        "failed-step-left-out",
        "What failed after a leader epoch was taken is not made up for when the same comes again.",
        "KAFKA-9769",
        _failed_step_left_out,
    ),
    Defect(
        "stop-of-equal-epoch-refused",
        "A StopReplica of the leader epoch that is held is refused.",
        "KAFKA-13972",
        _stop_of_equal_epoch,
    ),
    Defect(
        "answered-before-done",
        "Replicas whose settings could not be read are answered as if they were there.",
        "KAFKA-9307",
        _done_before_it_is,
    ),
    Defect(
        "unreachable-is-done",
        "A follower whose leader came without an address is answered as if it followed.",
        "KAFKA-9307",
        _unreachable_is_done,
    ),
    Defect(
        "ends-told-in-turn",
        "A broker says how far its logs go when it has done what a controller asked before.",
        "own rule",
        _told_in_turn,
    ),
    Defect(
        "settings-told-in-part",
        "Of many topics whose settings changed together only some go by the new ones.",
        "own rule",
        _told_in_part,
    ),
    Defect(
        "strays-of-the-past", "A server that lags is asked whether a log is a stray.", "own rule", _strays_of_the_past
    ),
    Defect(
        "leaves-without-epoch",
        "A broker asks to leave without saying as which incarnation.",
        "KAFKA-7235",
        _leaves_without_epoch,
    ),
    Defect(
        "leaves-too-soon",
        "A broker that is told what it still leads stops as if that were nothing.",
        "Kafka 2.4",
        _leaves_too_soon,
    ),
    Defect(
        "lower-leader-epoch",
        "A LeaderAndIsr of a lower leader epoch is applied.",
        "KAFKA-1188, KAFKA-9539",
        _lower_leader_epoch,
    ),
)
"""In the order of the table."""
