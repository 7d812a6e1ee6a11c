"""Reassignments (KIP-455): replicas are added, caught up and removed, step by step, many partitions at once.

What goes on stands in the topic znodes alone, so the next controller goes on with it. Every step is one write of a
topic and the states of its partitions: assignment, leader, ISR and leader epoch change together or not at all. Former
replicas stay in the topic znode as `deleting` until their brokers have confirmed that the logs are gone.
See docs/operate/partitions.md.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import msgspec

from regency.controller.events import ControllerState, Notification
from regency.controller.machines.state_machine import ROUNDS, note_restarts, refresh_leadership
from regency.controller.reassignment.replica_deletion import delete_replicas
from regency.controller.reassignment.rules import Step, next_step
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import Outcome
from regency.controller.state.election import REASSIGN
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.store.access import WriteCode
from regency.controller.store.reassignments import MOST_STATES, TopicChange, TopicChanged, write_topics
from regency.controller.store.topics import StoredTopic, read_assignments
from regency.controller.term import Term
from regency.model.crash_points import crash_point
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch
from regency.model.ids import (
    NO_LEADER,
    ZERO_TOPIC_ID,
    BrokerId,
    LeaderEpoch,
    PartitionReplica,
    TopicPartition,
    ZkVersion,
)

logger = logging.getLogger(__name__)


class ReassignmentsWait(Notification):
    """A step could not be written some time ago: everything is looked at again."""

    state = ControllerState.ALTER_PARTITION_REASSIGNMENT
    cause = "partition_reassignment"


AGAIN_MS = 1_000
"""How long after a step that could not be written everything is looked at again."""

Target = tuple[BrokerId, ...] | None
"""Wanted replicas; None: those already wanted."""


class Unfinished(msgspec.Struct, frozen=True):
    """Why a step was not written. `lasting`: it will not be better the next time."""

    why: str
    lasting: bool


def reassign(term: Term, targets: Mapping[TopicPartition, Target]) -> dict[TopicPartition, Unfinished]:
    """Give known partitions other replicas, whatever was wanted of them before, or go on with what is wanted.

    Each goes as far as it can now: it begins, or it ends where all it needs is in sync. Returns those not written.
    """
    under_way = term.context.reassigning
    moving = [partition for partition in targets if partition in under_way]
    moves = _Moves(term)
    moves.run({each: target for each, target in targets.items() if _decide(term, each, target) is not None})
    ended = {partition.topic for partition in moving if partition not in under_way}
    if ended:
        term.deletions.resume(ended)
    if any(not each.lasting for each in moves.failed.values()):
        term.queue.put_later(ReassignmentsWait(), AGAIN_MS)
    return moves.failed


def advance(term: Term, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Complete those of the partitions that can be. Returns those whose reassignment ended."""
    under_way = term.context.reassigning
    going = [partition for partition in partitions if partition in under_way]
    failed = reassign(term, dict.fromkeys(going))
    for partition, unfinished in islice(failed.items(), 10):
        logger.warning("the reassignment of %s waits: %s", partition, unfinished.why)
    return [partition for partition in going if partition not in under_way]


def _decide(term: Term, partition: TopicPartition, target: Target) -> Step | None:
    context = term.context
    return next_step(
        context.assignment(partition),
        target,
        context.leader(partition),
        context.steady(partition, context.isr(partition)),
        frozenset(context.online(partition)).difference(
            context.unsure_members(partition), context.former_members(partition)
        ),
    )


def _has_lost_its_isr(context: ControllerContext, partition: TopicPartition) -> bool:
    """Whether all who are in sync have restarted, which is yet to be handled."""
    return context.leadership(partition) is not None and not context.steady(partition, context.isr(partition))


class _Plan(msgspec.Struct, frozen=True):
    """The next write of one topic."""

    change: TopicChange
    steps: Mapping[TopicPartition, Step]


class _Moves:
    """The steps of many partitions, written in as few rounds as their topics allow."""

    def __init__(self, term: Term) -> None:
        self.failed: dict[TopicPartition, Unfinished] = {}
        self._term = term
        self._waiting: dict[str, dict[TopicPartition, Target]] = {}
        self._stored: dict[str, StoredTopic] = {}
        self._most: dict[str, int] = {}
        """States written together with a topic: fewer where they change all the time, or do not fit."""
        self._lost: dict[str, int] = {}
        self._added: list[PartitionReplica] = []
        self._caught_up: list[PartitionReplica] = []
        self._removed: list[PartitionReplica] = []

    def run(self, targets: Mapping[TopicPartition, Target]) -> None:
        for partition, target in targets.items():
            self._waiting.setdefault(partition.topic, {})[partition] = target
        while self._waiting:
            plans = self._plan()
            if not plans:
                break
            crash_point("controller.reassignment.before_write")
            outcomes = write_topics(self._term.store.access, [plan.change for plan in plans.values()])
            conflicts = []
            for (topic, plan), outcome in zip(plans.items(), outcomes, strict=True):
                if outcome.result.code in (WriteCode.CONFLICT, WriteCode.RESTARTED):
                    conflicts += self._conflict(topic)
                else:
                    self._settle(topic, plan, outcome)
            note_restarts(self._term.context, self._term.store, [outcome.result for outcome in outcomes])
            self._read_again(conflicts)
        self._move_replicas()

    def _plan(self) -> dict[str, _Plan]:
        unread = [topic for topic in self._waiting if topic not in self._stored]
        self._stored.update(read_assignments(self._term.store.access, unread))
        plans = {}
        for topic in list(self._waiting):
            plan = self._plan_topic(topic)
            if plan is not None:
                plans[topic] = plan
        return plans

    def _plan_topic(self, topic: str) -> _Plan | None:
        context = self._term.context
        stored, known = self._stored.get(topic), context.topics.get(topic)
        if stored is None or known is None:
            self._give_up(topic, Unfinished("its topic's znode is gone, or cannot be read", lasting=True))
            return None
        if stored.assignment.czxid != known.czxid:
            self._give_up(topic, Unfinished("its topic was deleted and created again", lasting=True))
            return None
        steps = self._next_steps(topic)
        if not steps:
            return None
        numbers = {partition.partition: step.assignment for partition, step in steps.items()}
        topic_id = stored.assignment.topic_id or known.topic_id
        after = msgspec.structs.replace(
            stored.assignment,
            partitions={**stored.assignment.partitions, **numbers},
            topic_id=None if topic_id == ZERO_TOPIC_ID else topic_id,
        )
        states = {partition: state for partition, step in steps.items() if (state := self._next_state(partition, step))}
        return _Plan(TopicChange(stored, after, states), steps)

    def _next_steps(self, topic: str) -> dict[TopicPartition, Step]:
        """As many steps as are written together. Partitions that need none are done with."""
        waiting, steps = self._waiting[topic], {}
        most = self._most.get(topic, MOST_STATES)
        for partition in list(waiting):
            if _has_lost_its_isr(self._term.context, partition):
                self.failed[partition] = Unfinished("all that are in sync restarted at this moment", lasting=False)
                del waiting[partition]
                continue
            step = _decide(self._term, partition, waiting[partition])
            if step is None:
                del waiting[partition]
                continue
            steps[partition] = step
            if len(steps) == most:
                break
        if not waiting:
            del self._waiting[topic]
        return steps

    def _next_state(self, partition: TopicPartition, step: Step) -> LeaderIsrAndControllerEpoch | None:
        """The state that goes with a step, in a new leader epoch: fetches of before prove nothing any more."""
        leadership = self._term.context.leadership(partition)
        if leadership is None:
            return None
        now = leadership.leader_and_isr
        isr = self._term.context.shared_isr(step.isr)
        decided = LeaderAndIsr(step.leader, LeaderEpoch(now.leader_epoch + 1), isr, now.zk_version)
        return LeaderIsrAndControllerEpoch(decided, self._term.epoch)

    def _give_up(self, topic: str, why: Unfinished) -> None:
        self.failed.update(dict.fromkeys(self._waiting.pop(topic), why))

    def _read_again(self, partitions: Sequence[TopicPartition]) -> None:
        """Learn what others wrote, and tell it their leaders, whatever comes of the steps."""
        context = self._term.context
        for partition in refresh_leadership(context, self._term.store, partitions):
            self._term.batch.host((context.leader(partition),), partition)

    def _conflict(self, topic: str) -> list[TopicPartition]:
        """The topic or a state was written meanwhile: returns what is to be read again before it is decided again."""
        self._stored.pop(topic, None)
        self._most[topic] = max(1, self._most.get(topic, MOST_STATES) // 2)
        self._lost[topic] = self._lost.get(topic, 0) + 1
        partitions = list(self._waiting[topic])
        if self._lost[topic] >= ROUNDS:
            self._give_up(topic, Unfinished(f"its znodes changed {ROUNDS} times meanwhile", lasting=False))
        return partitions

    def _settle(self, topic: str, plan: _Plan, outcome: TopicChanged) -> None:
        waiting = self._waiting[topic]
        if outcome.result.code is WriteCode.WRITTEN:
            self._stored[topic] = outcome.stored
            self._term.context.topics[topic].zk_version = outcome.result.zk_version
            for partition, step in plan.steps.items():
                self._enter(partition, step, plan.change.states.get(partition), outcome.versions)
                del waiting[partition]
        elif outcome.result.code is WriteCode.FAILED and len(plan.steps) > 1:
            self._most[topic] = len(plan.steps) // 2
        else:
            missing = outcome.result.code is WriteCode.MISSING
            why = "its topic or its state is gone" if missing else f"it cannot be written: {outcome.result.why}"
            for partition in plan.steps:
                self.failed[partition] = Unfinished(why, lasting=missing)
                del waiting[partition]
        if not waiting:
            del self._waiting[topic]

    def _enter(
        self,
        partition: TopicPartition,
        step: Step,
        state: LeaderIsrAndControllerEpoch | None,
        versions: Mapping[TopicPartition, ZkVersion],
    ) -> None:
        context, after = self._term.context, step.assignment
        before, leadership = context.assignment(partition), context.leadership(partition)
        for returning in [broker for broker in after.replicas if broker in before.deleting]:
            # The order to delete what was there stands before all that it is sent from now on.
            context.set_replica_state(partition, returning, ReplicaState.NON_EXISTENT)
        context.set_assignment(partition, after)
        if state is not None and leadership is not None:
            written = state.leader_and_isr
            now = LeaderAndIsr(written.leader, written.leader_epoch, written.isr, versions[partition])
            context.set_leadership(partition, LeaderIsrAndControllerEpoch(now, state.controller_epoch))
            if now.has_leader and context.partition_state(partition) is PartitionState.OFFLINE:
                self._term.partitions.led_again(partition)
            if now.leader not in (NO_LEADER, leadership.leader_and_isr.leader):
                self._term.counters.elections[REASSIGN] += 1
            outcome = Outcome.REASSIGNING if after.is_reassigning else Outcome.REASSIGNED
            self._term.decisions.leadership(partition, outcome, leadership.leader_and_isr, now, step.why)
        else:
            self._term.decisions.note(str(partition), f"replicas {list(before.replicas)}", step.why, "without a state")
        self._term.batch.host(after.replicas, partition)
        added = [each for each in after.replicas if each not in before.replicas]
        for broker in added:
            context.mark_online(broker, (partition,))  # made again, in a directory that works
        self._added += _replicas(partition, added)
        self._removed += _replicas(partition, (each for each in before.replicas if each not in after.replicas))
        joined = (each for each in before.adding if each in after.replicas and each not in after.adding)
        self._caught_up += _replicas(partition, joined)

    def _move_replicas(self) -> None:
        """Let the replicas of what was written enter their states, each state for all of them at once."""
        term, context = self._term, self._term.context
        if not (self._added or self._removed or self._caught_up):
            return
        crash_point("controller.reassignment.before_replicas")
        term.replicas.handle(self._added, ReplicaState.NEW)
        dead = [each for each in self._added if not context.is_online(each.broker, each.topic_partition)]
        term.replicas.handle(dead, ReplicaState.OFFLINE)
        working = [each for each in self._caught_up if context.is_online(each.broker, each.topic_partition)]
        term.replicas.handle(working, ReplicaState.ONLINE)
        delete_replicas(term, self._removed)
        if any(context.partition_state(each.topic_partition) is PartitionState.NEW for each in self._added):
            term.partitions.trigger_online()


def _replicas(partition: TopicPartition, brokers: Iterable[BrokerId]) -> list[PartitionReplica]:
    return [PartitionReplica(*partition, broker) for broker in brokers]
