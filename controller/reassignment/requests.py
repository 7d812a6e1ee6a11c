"""Who asks for reassignments: clients, through Kafka's protocol, and other tools, in /admin/reassign_partitions.

The latest request wins: a client's takes its partitions out of the znode, one in the znode replaces a client's. Entries
leave the znode when they are done or cannot be, and the znode goes with the last. Source: KIP-455.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Final

import msgspec

from regency.controller.events import ControllerState, Notification, Request
from regency.controller.reassignment.moves import Target, Unfinished, advance, reassign
from regency.controller.reassignment.replica_deletion import forget_confirmed, resume_deletions
from regency.controller.reassignment.rules import problem_with, retarget
from regency.controller.store.reassignments import Asked, AskedMoves, read_asked, replace_asked
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.facts import ReplicaAssignment
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths

logger = logging.getLogger(__name__)


class ReassignmentsAsked(Notification):
    """/admin/reassign_partitions changed."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    cause = "partition_reassignment"


class PartitionOutcome(msgspec.Struct, frozen=True):
    """What became of what was asked for one partition."""

    partition: TopicPartition
    error: ErrorCode = ErrorCode.NONE
    message: str = ""


@dataclass(eq=False)
class AlterReassignments(Request[tuple[PartitionOutcome, ...]]):
    """Give partitions other replicas, or (None) cancel what goes on. The answer comes when it has begun."""

    moves: tuple[tuple[TopicPartition, tuple[BrokerId, ...] | None], ...]
    _: KW_ONLY
    keep_factor: bool = False
    """Whether none may get more or fewer replicas than it has (KIP-860)."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    cause = "alter_reassignments"


@dataclass(eq=False)
class ListReassignments(Request[tuple[tuple[TopicPartition, ReplicaAssignment], ...]]):
    """Which of these partitions, or (None) of all, are being reassigned. Others are left out."""

    partitions: tuple[TopicPartition, ...] | None

    state = ControllerState.LIST_PARTITION_REASSIGNMENT
    cause = "list_reassignments"


ROUNDS: Final = 10
"""How often the znode is read again because it was written meanwhile; its watch brings the rest."""

TWICE: Final = "it is asked for with different replicas at once"
NO_SUCH: Final = "there is no such partition"


# Other tools


def on_reassignments_wait(term: Term) -> None:
    """Try everything again that could not be written."""
    term.context.asked_seen = None
    look_at_asked(term)
    finish(term, list(term.context.reassigning))
    forget_confirmed(term, list(term.context.deleting))


def resume_reassignments(term: Term) -> None:
    """A new controller: first what the znode asks for, which wins, then what was under way."""
    crash_point("controller.reassignment.before_resumption")
    resume_deletions(term)
    look_at_asked(term)
    finish(term, list(term.context.reassigning))


def finish(term: Term, partitions: Iterable[TopicPartition]) -> None:
    """Complete those of the partitions that can be, and take them out of the znode."""
    done = advance(term, partitions)
    if done:
        replicas = {partition: term.context.assignment(partition).replicas for partition in done}
        _take_from_asked(term, lambda partition, wanted: replicas.get(partition) == wanted)


def look_at_asked(term: Term) -> None:
    """Begin what the znode asks for and is not under way; leave in it what is, and nothing else."""
    for _ in range(ROUNDS):
        asked = read_asked(term.store.access)
        if asked is None or (asked.czxid, asked.version) == term.context.asked_seen:
            return
        remaining = _begin_asked(term, asked)
        if _leave(term, asked, remaining):
            return


def _take_from_asked(term: Term, is_over: Callable[[TopicPartition, tuple[BrokerId, ...]], bool]) -> None:
    """Take out of the znode what is over. What else was written into it meanwhile, its watch brings."""
    for _ in range(ROUNDS):
        asked = read_asked(term.store.access)
        if asked is None or asked.malformed is not None:
            return
        remaining = tuple(move for move in asked.moves if not is_over(*move))
        if len(remaining) == len(asked.moves) or _replace(term, asked, remaining):
            return


def _leave(term: Term, asked: Asked, remaining: AskedMoves) -> bool:
    """Leave only `remaining`, all of which has begun, in the znode. False: it has changed since it was read."""
    term.context.asked_seen = (asked.czxid, asked.version)
    return (bool(remaining) and remaining == asked.moves) or _replace(term, asked, remaining)


def _replace(term: Term, asked: Asked, remaining: AskedMoves) -> bool:
    if not replace_asked(term.store.access, asked, remaining):
        return False
    if (asked.czxid, asked.version) == term.context.asked_seen:
        term.context.asked_seen = (asked.czxid, asked.version + 1)
    if not remaining:
        logger.info("%s is removed: all that was asked for is done or was refused", paths.REASSIGN_PARTITIONS)
    elif len(remaining) < len(asked.moves):
        logger.info("%d partitions are left in %s", len(remaining), paths.REASSIGN_PARTITIONS)
    return True


def _begin_asked(term: Term, asked: Asked) -> AskedMoves:
    """Begin what is asked for. Returns what is still to be done afterwards."""
    if asked.malformed is not None:
        why = f"{asked.malformed} It is removed: while it stands, nothing else can be asked for there."
        term.decisions.note(paths.REASSIGN_PARTITIONS, "malformed", "removed", why)
        return ()
    problems = _problems(term, asked.moves)
    targets: dict[TopicPartition, Target] = {
        partition: replicas for partition, replicas in asked.moves if partition not in problems
    }
    failed = reassign(term, targets)
    problems.update((partition, each.why) for partition, each in failed.items() if each.lasting)
    for partition, why in problems.items():
        if term.report_once(f"asked reassignment {partition} {asked.czxid} {asked.version}"):
            term.decisions.note(str(partition), "asked to be reassigned", "not reassigned", f"{why}: it is dropped")
    waiting = {partition for partition in targets if _is_waiting(term, partition, failed)}
    return tuple(dict(move for move in asked.moves if move[0] in waiting).items())


def _problems(term: Term, moves: AskedMoves) -> dict[TopicPartition, str]:
    """What cannot be done, and why. Dead brokers are waited for, as Kafka does."""
    problems: dict[TopicPartition, str] = {}
    asked: dict[TopicPartition, tuple[BrokerId, ...]] = {}
    for partition, replicas in moves:
        problem = problem_with(replicas) or _refusal(term, partition)
        if asked.setdefault(partition, replicas) != replicas:
            problem = TWICE
        if problem:
            problems[partition] = problem
    return problems


def _is_waiting(term: Term, partition: TopicPartition, failed: Mapping[TopicPartition, Unfinished]) -> bool:
    unfinished = failed.get(partition)
    if unfinished is not None:
        return not unfinished.lasting
    return partition in term.context.reassigning


def _refusal(term: Term, partition: TopicPartition) -> str:
    """Why a partition cannot be reassigned, whatever is wanted; empty where it can be."""
    if not _is_known(term, partition):
        return NO_SUCH
    return "its topic is being deleted" if term.context.is_queued_for_deletion(partition.topic) else ""


def _is_known(term: Term, partition: TopicPartition) -> bool:
    return partition.partition >= 0 and bool(term.context.assignment(partition).replicas)


# Clients


def alter_reassignments(term: Term, event: AlterReassignments) -> tuple[PartitionOutcome, ...]:
    """Begin, replace or cancel reassignments, each partition for itself. Answers in the order asked for."""
    refused: dict[TopicPartition, PartitionOutcome] = {}
    targets: dict[TopicPartition, Target] = {}
    asked: dict[TopicPartition, Target] = {}
    for partition, replicas in event.moves:
        if asked.setdefault(partition, replicas) != replicas:
            refused[partition] = PartitionOutcome(partition, ErrorCode.INVALID_REQUEST, f"{partition}: {TWICE}.")
            continue
        outcome = _validate(term, partition, replicas, keep_factor=event.keep_factor)
        if outcome.error is not ErrorCode.NONE:
            refused[partition] = outcome
        else:
            targets[partition] = term.context.assignment(partition).origin if replicas is None else replicas
    accepted = {partition: target for partition, target in targets.items() if partition not in refused}
    crash_point("controller.reassignment.before_znode")
    if accepted:
        _take_from_asked(term, lambda partition, _: partition in accepted)
    for partition, unfinished in reassign(term, accepted).items():
        why = f"{partition} is not reassigned: {unfinished.why}."
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if unfinished.lasting else ErrorCode.UNKNOWN_SERVER_ERROR
        refused[partition] = PartitionOutcome(partition, error, why)
    return tuple(refused.get(partition, PartitionOutcome(partition)) for partition, _ in event.moves)


def list_reassignments(term: Term, event: ListReassignments) -> tuple[tuple[TopicPartition, ReplicaAssignment], ...]:
    """What is under way, by topic and partition."""
    context = term.context
    under_way = context.reassigning
    wanted = sorted(under_way) if event.partitions is None else dict.fromkeys(event.partitions)
    return tuple((partition, context.assignment(partition)) for partition in wanted if partition in under_way)


def _validate(
    term: Term, partition: TopicPartition, replicas: tuple[BrokerId, ...] | None, *, keep_factor: bool
) -> PartitionOutcome:
    current = term.context.assignment(partition)
    refusal = _refusal(term, partition)
    if replicas is None:
        if refusal == NO_SUCH or not current.is_reassigning or term.context.is_being_deleted(partition.topic):
            why = f"{partition} is not being reassigned."
            return PartitionOutcome(partition, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, why)
        return PartitionOutcome(partition)
    problem = problem_with(replicas)
    if not problem and not refusal:
        dead = [each for each in retarget(current, replicas, (), ()).adding if each not in term.context.brokers]
        live = ", ".join(map(str, sorted(term.context.brokers))) or "none"
        problem = f"brokers {dead} are not live; live are {live}" if dead else ""
    if problem:
        return PartitionOutcome(partition, ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{partition}: {problem}.")
    if refusal:
        return PartitionOutcome(partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition}: {refusal}.")
    before = len(current.origin)
    if keep_factor and len(replicas) != before:
        why = f"{partition} would have {len(replicas)} replicas instead of {before}, and no other number is allowed."
        return PartitionOutcome(partition, ErrorCode.INVALID_REPLICATION_FACTOR, why)
    return PartitionOutcome(partition)
