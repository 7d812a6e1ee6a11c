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
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()

Verdict = RefusedRequest | RepeatedRequest | bool


@DEFECTS.of("KAFKA-1188")
def any_controller_epoch(patch: Patch) -> None:
    """An agent obeys a lower controller epoch too."""
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


@DEFECTS.of("KAFKA-7235")
def any_broker_epoch(patch: Patch) -> None:
    """An agent obeys what was meant for another incarnation."""
    check = ControlGate.check_epochs

    def unchecked(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        refused = check(self, header, own_epoch)
        stale = refused is not None and refused.error is ErrorCode.STALE_BROKER_EPOCH
        return None if stale else refused

    patch.set(ControlGate, "check_epochs", unchecked)


@DEFECTS.of("KAFKA-7235")
def earlier_process_obeyed(patch: Patch) -> None:
    """Until it knows its own registration, an agent obeys what was meant for the process before it."""
    check = ControlGate.check_epochs

    def trusting(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        refused = check(self, header, own_epoch)
        stale = refused is not None and refused.error is ErrorCode.STALE_BROKER_EPOCH
        return None if stale and own_epoch == NO_BROKER_EPOCH else refused

    patch.set(ControlGate, "check_epochs", trusting)


@DEFECTS.of("own rule")
def unconfirmed_controller_obeyed(patch: Patch) -> None:
    """An agent obeys a controller epoch that ZooKeeper has not confirmed."""

    def believed(self: ControlGate, header: Header) -> bool:
        del self, header
        return True

    patch.set(ControlGate, "_is_in_office", believed)


@DEFECTS.of("own rule")
def any_number(patch: Patch) -> None:
    """An agent executes requests again and in any order."""
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


@DEFECTS.of("own rule")
def deltas_not_counted(patch: Patch) -> None:
    """An agent takes metadata deltas without comparing their numbers."""
    prepare = MetadataCache.prepare

    def whatever(self: MetadataCache, update: MetadataUpdate) -> Prepared | Refused:
        if not update.snapshot and update.controller_epoch == self._epoch and self._next_delta:
            update = msgspec.structs.replace(update, first_delta=self._next_delta)
        return prepare(self, update)

    patch.set(MetadataCache, "prepare", whatever)


@DEFECTS.of("own rule")
def part_of_a_snapshot(patch: Patch) -> None:
    """The first piece of a metadata snapshot counts as all of it."""
    prepare = MetadataCache.prepare

    def first_is_all(self: MetadataCache, update: MetadataUpdate) -> Prepared | Refused:
        if update.snapshot and update.first_chunk:
            update = msgspec.structs.replace(update, last_chunk=True)
        return prepare(self, update)

    patch.set(MetadataCache, "prepare", first_is_all)


@DEFECTS.of("KAFKA-13225")
def snapshot_onto_the_old(patch: Patch) -> None:
    """A metadata snapshot is merged into what was known."""
    prepare = MetadataCache._prepare_snapshot

    def onto(self: MetadataCache, update: MetadataUpdate) -> Prepared | Refused:
        if update.first_chunk:
            self._staged = msgspec.structs.replace(self._view, controller_epoch=update.controller_epoch)
            update = msgspec.structs.replace(update, first_chunk=False)
        return prepare(self, update)

    patch.set(MetadataCache, "_prepare_snapshot", onto)


@DEFECTS.of("KAFKA-13790")
def equal_epoch_is_stale(patch: Patch) -> None:
    """A LeaderAndIsr with the leader epoch that is held is ignored, and answered as done."""

    def ignore(self: ControlPath, state: PartitionState, followers: list[Partition], now_ms: int) -> None:
        del self, state, followers, now_ms

    def higher(self: ControlPath, state: PartitionState) -> bool:
        partition = self._hosting.partitions.get(state.topic_partition)
        return partition is None or state.leader_epoch > partition.leader_epoch

    patch.set(ControlPath, "_refresh", ignore)
    patch.set(ControlPath, "_is_transition", higher)


@DEFECTS.of("KAFKA-9769")
def failed_step_left_out(patch: Patch) -> None:
    """What failed after a leader epoch was taken is not made up for when the same comes again."""
    patch.edit(ControlPath, "_refresh", ("if partition.role is Role.FOLLOWER and", "if False and"))


@DEFECTS.of("KAFKA-13972")
def stop_of_equal_epoch_refused(patch: Patch) -> None:
    """A StopReplica of the leader epoch that is held is refused."""
    patch.edit(
        ControlPath,
        "_admit_stop",
        ("stop.leader_epoch < partition.leader_epoch", "stop.leader_epoch <= partition.leader_epoch"),
    )


@DEFECTS.of("KAFKA-9307")
def answered_before_done(patch: Patch) -> None:
    """Replicas whose settings could not be read are answered as if they were there."""
    read = ControlService._read_configs

    def hopeful(self: ControlService, states: Sequence[PartitionState]) -> dict[TopicPartition, AppliedState]:
        return {
            partition: AppliedState(ErrorCode.NONE, applied.leader_epoch)
            for partition, applied in read(self, states).items()
        }

    patch.set(ControlService, "_read_configs", hopeful)


@DEFECTS.of("own rule")
def ends_told_in_turn(patch: Patch) -> None:
    """A broker says how far its logs go when it has done what a controller asked before."""
    describe = ControlService.describe_replicas

    def waiting(self: ControlService, request: pb.DescribeReplicasRequest) -> pb.DescribeReplicasResponse:
        with self._turn:
            return describe(self, request)

    patch.set(ControlService, "describe_replicas", waiting)


@DEFECTS.of("own rule")
def settings_told_in_part(patch: Patch) -> None:
    """Of many topics whose settings changed together only some go by the new ones."""
    patch.edit(TopicConfigs, "_tell", ("topics[_TOLD_AT_ONCE:]", "()"))


@DEFECTS.of("own rule")
def strays_of_the_past(patch: Patch) -> None:
    """A server that lags is asked whether a log is a stray."""
    patch.edit(Strays, "_confirmed", ("self._session.sync(znode_paths.TOPICS)", "pass"))


@DEFECTS.of("KAFKA-9307")
def unreachable_is_done(patch: Patch) -> None:
    """A follower whose leader came without an address is answered as if it followed."""
    follow = ControlPath._follow

    def hopeful(self: ControlPath, followers: Sequence[Partition]) -> list[TopicPartition]:
        follow(self, followers)
        return []

    patch.set(ControlPath, "_follow", hopeful)


@DEFECTS.of("KAFKA-1188, KAFKA-9539")
def lower_leader_epoch(patch: Patch) -> None:
    """A LeaderAndIsr of a lower leader epoch is applied."""
    admit = ControlPath._admit

    def lenient(self: ControlPath, state: PartitionState) -> ErrorCode | None:
        error = admit(self, state)
        if error is ErrorCode.FENCED_LEADER_EPOCH:
            self._hosting.partitions[state.topic_partition].leader_epoch = LeaderEpoch(state.leader_epoch - 1)
            return None
        return error

    patch.set(ControlPath, "_admit", lenient)


@DEFECTS.of("KAFKA-9839")
def newer_incarnation_refused(patch: Patch) -> None:
    """An agent refuses a broker epoch that it does not know yet."""
    check = ControlGate.check_epochs

    def strict(self: ControlGate, header: Header, own_epoch: BrokerEpoch) -> RefusedRequest | None:
        if header.broker_epoch > own_epoch:
            return RefusedRequest(ErrorCode.STALE_BROKER_EPOCH, "not known here")
        return check(self, header, own_epoch)

    patch.set(ControlGate, "check_epochs", strict)


@DEFECTS.of("own rule")
def hung_loops_live_on(patch: Patch) -> None:
    """The watchdog does not end an agent whose data loop stands still."""
    patch.edit(Watchdog, "_run", ("if silent_ms >= self._limit_ms", "if False"))


@DEFECTS.of("KAFKA-7235")
def leaves_without_epoch(patch: Patch) -> None:
    """A broker asks to leave without saying as which incarnation."""
    patch.edit(controlled_shutdown, "leave", ("broker_epoch=epoch", f"broker_epoch={NO_BROKER_EPOCH}"))


@DEFECTS.of("Kafka 2.4")
def leaves_too_soon(patch: Patch) -> None:
    """A broker that is told what it still leads stops as if that were nothing."""
    patch.edit(controlled_shutdown, "_in_the_way", ("if answer.remaining_partitions:", "if False:"))
