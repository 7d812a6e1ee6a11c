"""What both state machines do: legal transitions, and decisions about leaders that are written with compare-and-set.

Only partitions whose state znode changed meanwhile, or which name a broker that has restarted, are read and decided
again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from regency.controller.channel.request_batch import RequestBatch
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog
from regency.controller.state.election import Election
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.store.access import WriteCode, WriteResult
from regency.controller.store.cluster_store import ClusterStore
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch
from regency.model.ids import LeaderEpoch, PartitionReplica, TopicPartition, ZkVersion

logger = logging.getLogger(__name__)

ROUNDS = 10
"""How often a decision is made again because its znode changed, before it is left to a later event."""

Failed = dict[TopicPartition, str]
"""Partitions that stay as they are, and why."""
States = Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
Item = TypeVar("Item", TopicPartition, PartitionReplica)


class StateMachine:
    """Moves what it is about between states, in one controller epoch."""

    def __init__(
        self, context: ControllerContext, store: ClusterStore, batch: RequestBatch, decisions: DecisionLog
    ) -> None:
        self._context = context
        self._store = store
        self._batch = batch
        self._decisions = decisions

    def _validate(
        self,
        items: Iterable[Item],
        target: PartitionState | ReplicaState,
        state_of: Callable[[Item], PartitionState | ReplicaState],
    ) -> tuple[list[Item], dict[Item, str]]:
        """Those that may enter the state, and why the others may not."""
        allowed = tuple(target.valid_previous)  # to look in by identity
        valid: list[Item] = []
        refused: dict[Item, str] = {}
        for item in items:
            current = state_of(item)
            if current in allowed and item.topic in self._context.topics:
                valid.append(item)
                continue
            names = ", ".join(sorted(state.value for state in allowed))
            refused[item] = f"{item} cannot go from {current.value} to {target.value}, only from {names}"
            logger.error("%s", refused[item])
        return valid, refused

    def _settle(
        self,
        partitions: Iterable[TopicPartition],
        decide: Callable[[Sequence[TopicPartition], Failed], Mapping[TopicPartition, Election]],
        write: Callable[[States], Mapping[TopicPartition, WriteResult]],
        enter: Callable[[TopicPartition, LeaderAndIsr, LeaderAndIsr, Election], None],
        read_again: Callable[[Sequence[TopicPartition]], list[TopicPartition]],
        *,
        reconsider: bool = False,
    ) -> Failed:
        """Decide about partitions and write it, until none is left that others wrote meanwhile. Returns who failed.

        `enter` takes in what was written: the state before and after. `read_again` returns those that differ from what
        was known. `reconsider`: once, also those that failed are read again, as their leader may have grown the ISR.
        """
        failed: Failed = {}
        pending = list(partitions)
        for attempt in range(ROUNDS):
            elections = decide(pending, failed)
            decided = {partition: self._next_state(partition, election) for partition, election in elections.items()}
            results = write(decided) if decided else {}
            conflicts = []
            for partition, result in results.items():
                if result.code is WriteCode.WRITTEN:
                    before, after = self._take_in(partition, decided[partition].leader_and_isr, result.zk_version)
                    enter(partition, before, after, elections[partition])
                elif result.code in (WriteCode.CONFLICT, WriteCode.RESTARTED):
                    conflicts.append(partition)
                else:
                    failed[partition] = f"its state znode cannot be written: {result.why}"
            note_restarts(self._context, self._store, results.values())
            read_again(conflicts)
            if reconsider and not attempt:
                changed = read_again([each for each in pending if each in failed])
                for partition in changed:
                    del failed[partition]
                conflicts += changed
            pending = conflicts
            if not pending:
                return failed
        failed.update(dict.fromkeys(pending, f"its state znode changed {ROUNDS} times meanwhile"))
        return failed

    def _next_state(self, partition: TopicPartition, election: Election) -> LeaderIsrAndControllerEpoch:
        leadership = self._context.leadership(partition)
        assert leadership is not None and election.leader is not None, "only decided partitions are written"
        now, isr = leadership.leader_and_isr, self._context.shared_isr(election.isr)
        changed = LeaderAndIsr(election.leader, LeaderEpoch(now.leader_epoch + 1), isr, now.zk_version)
        return LeaderIsrAndControllerEpoch(changed, self._store.fence.epoch)

    def _take_in(
        self, partition: TopicPartition, written: LeaderAndIsr, zk_version: ZkVersion
    ) -> tuple[LeaderAndIsr, LeaderAndIsr]:
        """Take what was written into the context. Returns the states before and after."""
        before = self._context.leadership(partition)
        assert before is not None, "only known leadership is changed"
        after = LeaderAndIsr(written.leader, written.leader_epoch, written.isr, zk_version)
        self._context.set_leadership(partition, LeaderIsrAndControllerEpoch(after, self._store.fence.epoch))
        return before.leader_and_isr, after


def note_restarts(context: ControllerContext, store: ClusterStore, results: Iterable[WriteResult]) -> None:
    """Where a write found that a broker has restarted, look which have: until that is handled none of them takes part.

    Their registrations are an event of its own, which comes or waits in the queue.
    """
    if any(result.code is WriteCode.RESTARTED for result in results):
        registered = store.registered_brokers()
        context.note_losses(registered.lost_epochs)
        context.note_restarts(registered.epochs)


def refresh_leadership(
    context: ControllerContext, store: ClusterStore, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Read the state znodes of known partitions into the context.

    Returns those that differ from what was known, each with the zxid of its last write. Raises ControllerMoved where a
    state was written under a newer controller epoch.
    """
    changed: dict[TopicPartition, int] = {}
    known = [each for each in partitions if context.assignment(each).replicas]
    if not known:
        return changed
    read = store.read_states(known)
    for partition, state in read.states.items():
        if context.leadership(partition) != state:
            context.set_leadership(partition, state)
            context.judge_losses(partition, read.mzxids[partition])
            changed[partition] = read.mzxids[partition]
    context.unjudged.update(changed)
    return changed
