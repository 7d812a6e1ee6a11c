"""What a difference between what a broker shall host and what it reports means, and what is done about it. Pure.

Source: protos/controller.proto (ReportReplicas); KAFKA-13790 for roles and fetchers that were lost.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from regency.controller.state.context import ControllerContext
from regency.controller.state.hosted_digests import Expected
from regency.controller.state.reports import ReplicaReport
from regency.model.hosting import SERVED, HostedRole
from regency.model.ids import LARGEST_LEAP, BrokerId, TopicPartition


class Repair(Enum):
    """What is done about a difference; the value is what counters call it."""

    TELL = "told again"
    READ = "read again"
    STOP = "stopped"


class Difference(NamedTuple):
    """How a report differs from what its broker shall be to a partition."""

    repair: Repair
    kind: str
    """A stable word, for tools."""
    why: str


def compare(wanted: Expected, told: ReplicaReport | None) -> Difference | None:
    """What differs for a replica that its broker shall host; None where nothing does."""
    if told is None or told.role is HostedRole.NONE:
        return Difference(Repair.TELL, "replica_missing", f"it does not serve what it shall {wanted}")
    if told.topic_id != wanted.topic_id:
        return Difference(Repair.TELL, "other_topic", f"what it serves is of topic id {told.topic_id}")
    if told.role is HostedRole.OFFLINE:
        why = f"its directory {told.directory} is offline, and the controller was not told"
        return Difference(Repair.TELL, "replica_offline", why)
    if told.leader_epoch > wanted.leader_epoch + LARGEST_LEAP:
        why = f"it {told}, too far beyond the controller's leader epoch {wanted.leader_epoch} to be believed"
        return Difference(Repair.TELL, "epoch_unbelievable", why)
    if told.leader_epoch > wanted.leader_epoch:
        why = f"it {told}, newer than the controller's leader epoch {wanted.leader_epoch}"
        return Difference(Repair.READ, "epoch_newer", why)
    if told.leader_epoch < wanted.leader_epoch:
        return Difference(Repair.TELL, "epoch_older", f"it {told}, and shall {wanted}")
    if told.leader != wanted.leader or (told.role is HostedRole.LEADER) != (wanted.role is HostedRole.LEADER):
        return Difference(Repair.READ, "role_differs", f"it {told}, and shall {wanted}")
    if told.role is HostedRole.UNFED:
        return Difference(Repair.TELL, "fetcher_missing", f"it {told}")
    if wanted.role is HostedRole.LEADER and told.zk_version > wanted.zk_version:
        why = f"it {told}, newer than the controller's version {wanted.zk_version}"
        return Difference(Repair.READ, "version_newer", why)
    if wanted.role is HostedRole.LEADER and told.zk_version < wanted.zk_version:
        return Difference(Repair.TELL, "version_older", f"it {told}, and shall {wanted}")
    return None


def judge_uncalled_for(
    context: ControllerContext, broker: BrokerId, partition: TopicPartition, told: ReplicaReport
) -> Difference | None:
    """What to do about a replica that its broker serves and shall not; None: nothing, it is under way already.

    It is stopped and its log stays: its deletion was not asked for. Replicas that are to be deleted learn it by their
    deletion, and those that were assigned and failed by what made them fail.
    """
    if told.role not in SERVED:
        return None
    if partition.topic not in context.topics:
        return Difference(Repair.STOP, "topic_unknown", f"it {told}, and there is no such topic")
    if context.is_queued_for_deletion(partition.topic):
        return None
    if told.topic_id != context.topic_id(partition.topic):
        return Difference(Repair.STOP, "other_topic", f"what it serves is of topic id {told.topic_id}")
    assignment = context.assignment(partition)
    if broker in assignment.replicas or broker in assignment.deleting:
        return None
    return Difference(Repair.STOP, "not_assigned", f"it {told}, and is assigned to {list(assignment.replicas)}")
