"""The rules of leaders: looked at when something has changed in a hosted partition. Each raises InvariantBroken."""

from __future__ import annotations

from regency.broker_agent.replication.api import Role
from regency.broker_agent.replication.followers import IsrState, PendingExpand
from regency.broker_agent.replication.partition import Partition
from simulation.judging.invariants import broken


def check_transition(where: str, partition: Partition, before: Role, epoch_before: int) -> None:
    """The role or the leader epoch has changed."""
    role, epoch = partition.role, partition.leader_epoch
    if epoch < epoch_before:
        raise broken("epoch-holds", f"{where}: from leader epoch {epoch_before} to {epoch}")
    swapped = {role, before} == {Role.LEADER, Role.FOLLOWER}
    if swapped and epoch <= epoch_before:
        raise broken("role-by-epoch", f"{where}: from {before.value} to {role.value} in leader epoch {epoch}")


def check_version(where: str, partition: Partition, before: int) -> None:
    """The ISR, the role or the leader epoch may have changed."""
    if partition.zk_version < before:
        raise broken("version-holds", f"{where}: from version {before} to {partition.zk_version}, {partition.isr}")


def check_enough(
    where: str, partition: Partition, min_insync: int, isr_before: IsrState | None, watermark_before: int
) -> None:
    """The high watermark has risen within an epoch."""
    in_sync = max(len(partition.isr.committed), 0 if isr_before is None else len(isr_before.committed))
    if in_sync < min(min_insync, len(partition.assignment.origin)):
        raise broken(
            "watermark-needs-min-insync",
            f"{where}: from {watermark_before} to {partition.log.high_watermark} with {partition.isr}, and "
            f"min.insync.replicas is {min_insync}",
        )


def check_remotes(where: str, partition: Partition) -> None:
    """What a leader knows of its followers is of its own leader epoch, and of those who are assigned."""
    assigned = partition.assignment.replicas
    for replica in partition.remotes.values():
        if replica.broker not in assigned:
            raise broken("followers-assigned", f"{where}: it counts {replica.broker}, assigned are {list(assigned)}")
        if replica.log_end_offset >= 0 and replica.fetch_epoch != partition.leader_epoch:
            raise broken(
                "epoch-resets-knowledge",
                f"{where}: in leader epoch {partition.leader_epoch} it knows of {replica.broker} from epoch "
                f"{replica.fetch_epoch} that it has all below {replica.log_end_offset}",
            )


def check_joining(where: str, partition: Partition) -> None:
    """The ISR has changed: whom the leader wants in it may be there."""
    isr, peers = partition.isr, partition._rules.peers
    for member in isr.joining if isinstance(isr, PendingExpand) else ():
        replica = partition.remotes[member]
        if (
            peers.broker_epoch(member) != replica.broker_epoch
            or peers.is_shutting_down(member)
            or replica.log_end_offset < partition.epoch_start
            or replica.fetch_epoch != partition.leader_epoch
        ):
            leaving = ", which shuts down" if peers.is_shutting_down(member) else ""
            raise broken(
                "isr-eligible",
                f"{where}: {member} shall join as broker epoch {replica.broker_epoch}, known is "
                f"{peers.broker_epoch(member)}{leaving}; in leader epoch {partition.leader_epoch}, which begins at "
                f"{partition.epoch_start}, it was at {replica.log_end_offset} in {replica.fetch_epoch}",
            )
