"""Defects of reports and of reconcile: what an agent has lost stays lost."""

from __future__ import annotations

from typing import Any

from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.controller import failover
from regency.model.hosting import HostedRole
from simulation.defects.patching import Defect, Patch


def _never_compared(patch: Patch) -> None:
    def nothing(*_: Any) -> None:
        """Nobody compares."""

    patch.set(failover, "begin_reconciling", nothing)


def _unfed_unsaid(patch: Patch) -> None:
    role_of = ReplicaManager._reported_role

    def said(self: ReplicaManager, partition: Partition) -> HostedRole:
        role = role_of(self, partition)
        return HostedRole.FOLLOWER if role is HostedRole.UNFED else role

    patch.set(ReplicaManager, "_reported_role", said)


_ALL = (
    Defect(
        "never-reconciled",
        "What agents report is never compared with what they shall host.",
        "design section 5",
        _never_compared,
    ),
    Defect(
        "fetcher-lost-unsaid",
        "A follower without a fetcher is reported as one that follows.",
        "design section 5",
        _unfed_unsaid,
    ),
)

BECAUSE: dict[str, str] = {
    "fetcher-lost-unsaid": "a gap: found before there were so many kinds of faults, now not within 50 seeds; it needs "
    "a drill of its own"
}

DEFECTS: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name not in BECAUSE)

UNSEEN: tuple[Defect, ...] = tuple(defect for defect in _ALL if defect.name in BECAUSE)
"""Planted in vain."""
