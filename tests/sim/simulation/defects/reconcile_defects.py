"""Defects of reports and of reconcile: what an agent has lost stays lost."""

from __future__ import annotations

from typing import Any

from regency.broker_agent.replication.api import PartitionState
from regency.broker_agent.replication.control import ControlPath
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.controller import failover
from regency.controller.brokers import reconcile
from regency.controller.term import Term
from regency.model.hosting import HostedRole
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


@DEFECTS.of("own rule")
def never_reconciled(patch: Patch) -> None:
    """What agents report is never compared with what they shall host."""

    def nothing(*_: Any) -> None:
        """Nobody compares."""

    patch.set(failover, "begin_reconciling", nothing)


@DEFECTS.of("own rule")
def reconciled_isrs_unjudged(patch: Patch) -> None:
    """A controller that reads an ISR because its notification was lost ends no reassignment by it."""

    def nothing(*_: Any) -> None:
        """What is read goes into the context, and that is all."""

    patch.set(reconcile, "finish", nothing)
    patch.set(Term, "_judge_next", nothing)


@DEFECTS.of("own rule")
def fetcher_lost_unsaid(patch: Patch) -> None:
    """A follower without a fetcher is reported as one that follows."""
    role_of = ReplicaManager._reported_role

    def said(self: ReplicaManager, partition: Partition) -> HostedRole:
        role = role_of(self, partition)
        return HostedRole.FOLLOWER if role is HostedRole.UNFED else role

    patch.set(ReplicaManager, "_reported_role", said)


@DEFECTS.of("Kafka 2.4")
def lost_role_stays_lost(patch: Patch) -> None:
    """A stopped replica does not take its role again in the same leader epoch."""

    def higher(self: ControlPath, state: PartitionState) -> bool:
        partition = self._hosting.partitions.get(state.topic_partition)
        return partition is None or state.leader_epoch > partition.leader_epoch

    patch.set(ControlPath, "_is_transition", higher)
