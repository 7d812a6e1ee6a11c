"""What is to be done of a plan, whether it still fits the cluster, and how far it is."""

from __future__ import annotations

import time
from collections.abc import Sequence
from enum import Enum
from pathlib import Path
from typing import Final

import msgspec

from regency.cli.context import say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.partitions.reassignments import Refused, Situation, alter, describe_refused, look
from regency.model.ids import TopicPartition
from regency.model.words import listed
from regency.planning.plan_file import (
    PlanEdited,
    PlanFile,
    PlanRefused,
    decode_plan,
    encode_plan,
    fingerprints,
    reverse,
)
from regency.planning.plans import Move, Replicas

_LOOK_EVERY_S: Final = 0.5
_TOLD_EVERY_S: Final = 5.0
SETTLED_S: Final = 3.0
"""For so long brokers may tell of replicas as they were before the end of a reassignment."""


class Progress(Enum):
    """How far a partition is."""

    DONE = "done"
    IN_PROGRESS = "in progress"
    DIFFERS = "differs"


class PartitionProgress(msgspec.Struct, frozen=True):
    """A partition of a plan in `regency partitions verify`."""

    topic: str
    partition: int
    state: str
    wanted: Replicas
    replicas: Replicas
    adding: Replicas
    removing: Replicas


class Verdict(msgspec.Struct, frozen=True):
    """What `regency partitions verify -o json` prints. `waiting_for`: brokers without which what goes on cannot end."""

    state: str
    done: int
    in_progress: int
    differ: int
    waiting_for: list[int]
    partitions: list[PartitionProgress]

    @property
    def status(self) -> Exit:
        """Exit status that says so."""
        return {"done": Exit.DONE, "in progress": Exit.IN_PROGRESS}.get(self.state, Exit.FAILED)


def read_plan(file: Path) -> PlanFile:
    """The plan in a file. Raises CommandFailed: nothing that was edited is executed."""
    try:
        return decode_plan(str(file), file.read_bytes())
    except PlanRefused as error:
        status = Exit.REFUSED if isinstance(error, PlanEdited) else Exit.FAILED
        raise CommandFailed(error.message, hint=error.hint, status=status) from error


def look_fitting(servers: str, plan: PlanFile) -> tuple[PlanFile, Situation]:
    """The plan, if it fits, and the cluster; looked at again for a while: brokers learn of changes a little later.

    Raises CommandFailed.
    """
    deadline = time.monotonic() + SETTLED_S
    while True:
        situation = look(servers)
        try:
            return fit(plan, situation), situation
        except CommandFailed:
            if time.monotonic() >= deadline:
                raise
        time.sleep(_LOOK_EVERY_S)


def fit(plan: PlanFile, situation: Situation) -> PlanFile:
    """The plan, if the cluster is as it was when the plan was made, but for what the plan itself has done since.

    Of a file of Kafka's, which does not say what was before, that is filled in. Raises CommandFailed.
    """
    unknown = [str(move.partition) for move in plan.moves if move.partition not in situation.assignment]
    if unknown and plan.is_kafkas:
        raise CommandFailed(
            f"There is no partition {listed(unknown)}.", hint="`regency topics list` shows what there is."
        )
    if plan.is_kafkas:
        plan = _filled_in(plan, situation)
    else:
        _check_fresh(plan, situation)
    dead = sorted({each for move in plan.moves for each in move.adding if each not in situation.nodes})
    if dead and any(_is_left(move, situation) for move in plan.moves):
        live = ", ".join(map(str, situation.nodes)) or "none"
        raise CommandFailed(
            f"The plan gives replicas to {_brokers(dead)}, not live now; live are {live}.",
            hint="Start what is missing, or make a plan without it.",
            status=Exit.REFUSED,
        )
    return plan


def before_plan(plan: PlanFile, situation: Situation) -> dict[TopicPartition, Replicas]:
    """The assignment as it was before the plan, if nothing else has changed."""
    assignment = dict(situation.assignment)
    for move in plan.moves:
        if _is_of_plan(move, situation):
            assignment[move.partition] = move.before
    return assignment


def left_of(plan: PlanFile, situation: Situation) -> list[Move]:
    """What has not been asked for yet."""
    return [move for move in plan.moves if _is_left(move, situation)]


def write_rollback(plan: PlanFile, situation: Situation, file: Path) -> None:
    """Write the plan that leads back, once: what another plan would need is not overwritten. Raises CommandFailed."""
    topics = {move.partition.topic for move in plan.moves}
    before = {each: replicas for each, replicas in before_plan(plan, situation).items() if each.topic in topics}
    content = encode_plan(reverse(plan, before, situation.racks))
    if file.exists():
        if file.read_bytes() == content:
            return
        raise CommandFailed(
            f"{file} is there already and leads back from something else.",
            hint="Say --rollback-file with another name.",
            status=Exit.REFUSED,
        )
    file.write_bytes(content)
    say(f"Wrote {file}, which leads back: regency partitions execute {file}")


def begin(servers: str, moves: Sequence[Move]) -> None:
    """Ask for the moves. Raises CommandFailed naming what was refused; what was not goes on."""
    refused = alter(servers, [(move.partition, move.after) for move in moves])
    if refused:
        raise failed(refused, len(moves))


def failed(refused: Sequence[Refused], asked: int) -> CommandFailed:
    """Some were refused."""
    return CommandFailed(
        f"{len(refused)} of {asked} partitions were refused: {describe_refused(refused)}.",
        hint="The others go on. Mend it and say the same again: what is done is not done twice.",
    )


def judge(moves: Sequence[Move], situation: Situation) -> Verdict:
    """How far a plan is. Pure."""
    rows = [_progress(move, situation) for move in moves]
    counts = {state: sum(row.state == state.value for row in rows) for state in Progress}
    state = next((each for each in (Progress.DIFFERS, Progress.IN_PROGRESS) if counts[each]), Progress.DONE)
    going = {each for row in rows if row.state == Progress.IN_PROGRESS.value for each in row.wanted}
    return Verdict(
        state.value,
        counts[Progress.DONE],
        counts[Progress.IN_PROGRESS],
        counts[Progress.DIFFERS],
        sorted(each for each in going if each not in situation.nodes),
        rows,
    )


def verify(servers: str, moves: Sequence[Move]) -> Verdict:
    """How far a plan is; what differs is looked at again for a while, since brokers learn of an end a little later."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        verdict = judge(moves, look(servers))
        if verdict.state != Progress.DIFFERS.value or time.monotonic() >= deadline:
            return verdict
        time.sleep(_LOOK_EVERY_S)


def wait(servers: str, moves: Sequence[Move], timeout_s: float) -> Verdict:
    """Wait until a plan is done, telling how far it is. Raises CommandFailed when the time is over."""
    deadline = time.monotonic() + timeout_s
    told_at, told = -_TOLD_EVERY_S, ""
    while True:
        began = time.monotonic()
        verdict = verify(servers, moves)
        words = f"{verdict.done} of {len(moves)} partitions are done."
        if verdict.waiting_for:
            words += f" Waiting for {_brokers(verdict.waiting_for)}, not live now."
        now = time.monotonic()
        if words != told and (now - told_at >= _TOLD_EVERY_S or verdict.state == Progress.DONE.value):
            say(words)
            told_at, told = now, words
        if verdict.state != Progress.IN_PROGRESS.value:
            return verdict
        if now >= deadline:
            raise CommandFailed(
                f"{verdict.in_progress} of {len(moves)} partitions are still in progress after {timeout_s:g} s.",
                hint="They go on; `regency partitions list` shows them, `regency partitions cancel` ends them.",
                status=Exit.TIMED_OUT,
            )
        time.sleep(max(_LOOK_EVERY_S, now - began))


def cancellations(plan: PlanFile, situation: Situation) -> list[tuple[TopicPartition, Replicas | None]]:
    """What to ask for to undo what a plan has begun and not finished: the order of before, where that is known."""
    wanted: list[tuple[TopicPartition, Replicas | None]] = []
    for move in plan.moves:
        going = situation.moving.get(move.partition)
        if going is not None and going.target == move.after:
            back = move.before if set(going.origin) == set(move.before) else None
            wanted.append((move.partition, back))
    return wanted


def _filled_in(plan: PlanFile, situation: Situation) -> PlanFile:
    others = []
    moves = []
    for move in plan.moves:
        going = situation.moving.get(move.partition)
        if going is not None and going.target != move.after:
            others.append(f"{move.partition} (to {list(going.target)})")
        before = situation.assignment[move.partition] if going is None else going.origin
        moves.append(msgspec.structs.replace(move, before=before))
    if others:
        raise _busy(others)
    return msgspec.structs.replace(plan, moves=tuple(moves))


def _check_fresh(plan: PlanFile, situation: Situation) -> None:
    others = [
        f"{move.partition} (to {list(situation.moving[move.partition].target)})"
        for move in plan.moves
        if move.partition in situation.moving and not _is_of_plan(move, situation)
    ]
    if others:
        raise _busy(others)
    then = plan.computed_from or {}
    assignment = before_plan(plan, situation)
    now = fingerprints({each: replicas for each, replicas in assignment.items() if each.topic in then})
    changed = [topic for topic, of_then in then.items() if now.get(topic) != of_then]
    racks = [
        broker
        for broker, rack in plan.brokers.items()
        if broker in situation.nodes and situation.nodes[broker].rack != rack
    ]
    reasons = [f"the replicas of topic {listed(changed)} are others now"] if changed else []
    reasons += [f"{_brokers(racks)} moved to another rack"] if racks else []
    if reasons:
        again = f"Make it again: {plan.command}" if plan.command else "Make a new plan with `regency partitions plan`."
        raise CommandFailed(
            f"The plan is stale: {'; '.join(reasons)}. Nothing was done.", hint=again, status=Exit.REFUSED
        )


def _busy(others: Sequence[str]) -> CommandFailed:
    return CommandFailed(
        f"Something else moves {listed(others)}.",
        hint="Wait until `regency partitions list` shows it no more, or end it with `regency partitions cancel`.",
        status=Exit.REFUSED,
    )


def _is_of_plan(move: Move, situation: Situation) -> bool:
    """Whether the partition is before the move, after it, or between, in either direction."""
    going = situation.moving.get(move.partition)
    if going is None:
        return situation.assignment.get(move.partition) in (move.before, move.after)
    ways = ((move.before, move.after), (move.after, move.before))
    return any(going.target == target and set(going.origin) == set(origin) for origin, target in ways)


def _is_left(move: Move, situation: Situation) -> bool:
    going = situation.moving.get(move.partition)
    now = situation.assignment.get(move.partition) if going is None else going.target
    return now != move.after


def _progress(move: Move, situation: Situation) -> PartitionProgress:
    going = situation.moving.get(move.partition)
    now = situation.assignment.get(move.partition, ())
    none: Replicas = ()
    adding, removing = (none, none) if going is None else (going.adding, going.removing)
    if going is not None:
        state = Progress.IN_PROGRESS if going.target == move.after else Progress.DIFFERS
    else:
        state = Progress.DONE if now == move.after else Progress.DIFFERS
    return PartitionProgress(
        move.partition.topic, move.partition.partition, state.value, move.after, now, adding, removing
    )


def _brokers(ids: Sequence[int]) -> str:
    return f"{'broker' if len(ids) == 1 else 'brokers'} {listed(ids)}"
