"""The algebra of reassignments: which replicas a partition has on its way, and what comes next. Pure, and says why.

RS, all replicas of now, holds those being added (AR) and removed (RR). Target = RS - RR, origin = RS - AR (KIP-455).
Every step is one write of assignment, leader and ISR together, so the ISR never names who is not assigned (KAFKA-9672).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import msgspec

from regency.controller.state.election import elect_reassigned
from regency.model.facts import ReplicaAssignment
from regency.model.ids import NO_LEADER, BrokerId


class Step(msgspec.Struct, frozen=True):
    """What to write next: assignment, leader and ISR; `why` is for people and for the history."""

    assignment: ReplicaAssignment
    leader: BrokerId
    isr: tuple[BrokerId, ...]
    why: str


def next_step(
    current: ReplicaAssignment,
    target: Sequence[BrokerId] | None,
    leader: BrokerId,
    isr: Sequence[BrokerId],
    online: Collection[BrokerId],
) -> Step | None:
    """The next step towards `target`, or towards the target of now where that is None. None: nothing to write now.

    A leader that is a replica and works stays. `isr` is empty where the partition has no state yet: then nothing can
    complete, and leader and ISR of the step mean nothing.
    """
    planned = current if target is None or tuple(target) == current.target else retarget(current, target, isr, online)
    if is_complete(planned, isr, online):
        planned = completed(planned)
    if planned == current:
        return None
    staying = tuple(member for member in isr if member in planned.replicas)
    elected, why = _leader(planned.replicas, leader, staying, online)
    return Step(planned, elected, staying, f"{_told(current, planned)}; {why}")


def retarget(
    current: ReplicaAssignment, target: Sequence[BrokerId], isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> ReplicaAssignment:
    """The assignment once `target` is wanted, whatever was wanted before: the latest request wins.

    RS = target, then origin. Replicas that were being added and are wanted no more go at once; but where no working
    member of the ISR would be left, its members stay until the target is in sync: no other replica has all records.
    """
    origin = current.origin
    known = {*target, *origin}
    kept: tuple[BrokerId, ...] = ()
    if not any(member in known and member in online for member in isr):
        kept = tuple(member for member in isr if member not in known and member in current.replicas)
    replicas = _distinct((*target, *origin, *kept))
    adding = tuple(replica for replica in replicas if replica not in origin and replica not in kept)
    removing = tuple(replica for replica in replicas if replica not in target)
    return ReplicaAssignment(replicas, adding, removing, _deleting(current, replicas))


def is_complete(assignment: ReplicaAssignment, isr: Sequence[BrokerId], online: Collection[BrokerId]) -> bool:
    """Whether all of the target is in sync and one of it can lead; also where nothing is added or removed."""
    if not assignment.is_reassigning:
        return True
    target = assignment.target
    return all(replica in isr for replica in target) and any(replica in online for replica in target)


def completed(assignment: ReplicaAssignment) -> ReplicaAssignment:
    """The assignment when the reassignment is done."""
    target = assignment.target
    return ReplicaAssignment(target, deleting=_deleting(assignment, target))


def forget_deleted(assignment: ReplicaAssignment, deleted: Collection[BrokerId]) -> ReplicaAssignment:
    """The assignment once these former replicas are known to be deleted."""
    deleting = tuple(replica for replica in assignment.deleting if replica not in deleted)
    return msgspec.structs.replace(assignment, deleting=deleting)


def problem_with(replicas: Sequence[BrokerId]) -> str:
    """Why no partition can have these replicas; empty where that is not so."""
    if not replicas:
        return "no replicas are given"
    if len(set(replicas)) != len(replicas):
        return f"a broker stands twice in {list(replicas)}"
    if min(replicas) < 0:
        return f"a broker below 0 stands in {list(replicas)}"
    return ""


def _leader(
    replicas: Sequence[BrokerId], leader: BrokerId, isr: Sequence[BrokerId], online: Collection[BrokerId]
) -> tuple[BrokerId, str]:
    if leader in replicas and leader in online:
        return leader, "the leader stays"
    election = elect_reassigned(replicas, isr, online)
    if election.leader is not None:
        return election.leader, election.why
    return (leader if leader in replicas else NO_LEADER), election.why


def _deleting(before: ReplicaAssignment, replicas: Collection[BrokerId]) -> tuple[BrokerId, ...]:
    former = _distinct((*before.deleting, *before.replicas))
    return tuple(replica for replica in former if replica not in replicas)


def _distinct(replicas: Iterable[BrokerId]) -> tuple[BrokerId, ...]:
    return tuple(dict.fromkeys(replicas))


def _told(before: ReplicaAssignment, after: ReplicaAssignment) -> str:
    if not after.is_reassigning:
        added = [replica for replica in after.replicas if replica not in before.origin]
        gone = [replica for replica in before.replicas if replica not in after.replicas]
        return f"replicas {list(after.replicas)} instead of {list(before.origin)}, added {added}, removed {gone}"
    return (
        f"from {list(after.origin)} to {list(after.target)}, adding {list(after.adding)}, "
        f"removing {list(after.removing)}"
    )
