"""PartitionStateMachine: what entering a state means for a partition: ZooKeeper writes, context, desired states.

Elections decide from the context and write with compare-and-set; only partitions whose
state znode changed meanwhile are read again and decided again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from regency.controller.channel.request_batch import RequestBatch
from regency.controller.machines.leader_choice import LeaderChoice
from regency.controller.machines.state_machine import Failed, StateMachine, States, refresh_leadership
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog, Outcome
from regency.controller.state.election import Election, ElectionKind, Recovery, elected_because
from regency.controller.state.states import PartitionState
from regency.controller.store.access import Counters, WriteCode, WriteResult
from regency.controller.store.cluster_store import LAST_LEADER_EPOCH, ClusterStore
from regency.model.crash_points import crash_point
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import LARGEST_LEAP, BrokerId, LeaderEpoch, TopicPartition, ZkVersion

logger = logging.getLogger(__name__)


class PartitionStateMachine(StateMachine):
    """Moves partitions between states, in one controller epoch."""

    def __init__(
        self,
        context: ControllerContext,
        store: ClusterStore,
        batch: RequestBatch,
        decisions: DecisionLog,
        counters: Counters,
        *,
        unclean_default: bool,
    ) -> None:
        super().__init__(context, store, batch, decisions)
        self._counters = counters
        self.choice = LeaderChoice(context, store, decisions.broker, unclean_default=unclean_default)
        self._stateless: set[TopicPartition] = set()
        """Partitions without a state znode when this controller began to rule: created a moment before, or the state is
        lost. Those created since are known to have none yet."""

    def startup(self) -> None:
        """Give every partition its first state from its leadership, and elect for those without a working leader."""
        for topic, entry in self._context.topics.items():
            if self._context.is_being_deleted(topic):
                states = [PartitionState.NON_EXISTENT] * len(entry.names)
            else:
                states = list(map(self._first_state, entry.names, entry.assignments, entry.leadership))
            self._context.begin_partitions(topic, states)
        state_of = self._context.partition_state
        self._stateless = {each for each in self._context.leaderless if state_of(each) is PartitionState.NEW}
        self.trigger_online()

    def _first_state(
        self,
        partition: TopicPartition,
        assignment: ReplicaAssignment | None,
        leadership: LeaderIsrAndControllerEpoch | None,
    ) -> PartitionState:
        if assignment is None:
            return PartitionState.NON_EXISTENT
        if leadership is None:
            return PartitionState.NEW
        online = self._context.is_online(leadership.leader_and_isr.leader, partition)
        return PartitionState.ONLINE if online else PartitionState.OFFLINE

    def trigger_online(self) -> Failed:
        """Try to elect for every partition that is New or Offline and not being deleted. Returns those that failed."""
        context = self._context
        waiting = [each for each in sorted(context.leaderless) if not context.is_being_deleted(each.topic)]
        return self.handle(waiting, PartitionState.ONLINE, ElectionKind.OFFLINE)

    def lacks_states(self, partitions: Iterable[TopicPartition]) -> bool:
        """Whether one of these may have lost its state, and has none yet."""
        return not self._stateless.isdisjoint(partitions)

    def ask_again(self) -> None:
        """Try again to elect for those that may have lost their states: who was silent may answer by now."""
        context = self._context
        self._stateless = {each for each in self._stateless if context.partition_state(each) is PartitionState.NEW}
        waiting = [each for each in sorted(self._stateless) if not context.is_being_deleted(each.topic)]
        self.handle(waiting, PartitionState.ONLINE)

    def handle(
        self,
        partitions: Iterable[TopicPartition],
        target: PartitionState,
        kind: ElectionKind = ElectionKind.OFFLINE,
        *,
        unclean: bool = False,
    ) -> Failed:
        """Move partitions into `target`, by an election of `kind` where they need a leader.

        `unclean` allows a leader out of sync whatever the settings say; where several could be that, none is elected
        yet (see `LeaderChoice`). Returns why, for those that did not move. Raises ControllerMoved, ZkError.
        """
        valid, refused = self._validate(partitions, target, self._context.partition_state)
        if target is not PartitionState.ONLINE:
            for partition in valid:
                self._context.set_partition_state(partition, target)
            self._stateless.difference_update(valid)
            return refused
        new = [each for each in valid if self._context.partition_state(each) is PartitionState.NEW]
        known = [each for each in valid if self._context.partition_state(each) is not PartitionState.NEW]
        return {**refused, **self._initialise(new, kind, unclean=unclean), **self._elect(known, kind, unclean=unclean)}

    def led_again(self, partition: TopicPartition) -> None:
        """Move an Offline partition to Online: a step of its reassignment has been written that gives it a leader."""
        for valid in self._validate((partition,), PartitionState.ONLINE, self._context.partition_state)[0]:
            self._context.set_partition_state(valid, PartitionState.ONLINE)

    def overtake(self, held: Mapping[TopicPartition, LeaderEpoch]) -> list[TopicPartition]:
        """Go beyond the leader epochs a broker holds where ZooKeeper has lower ones: a state was lost or restored.

        The states have just been read. Leader and ISR stay; what cannot be written now comes up again. Returns the
        partitions whose epochs are too far beyond what ZooKeeper has to be believed.
        """
        behind: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        unbelievable = []
        for partition, epoch in held.items():
            leadership = self._context.leadership(partition)
            if leadership is None or epoch <= leadership.leader_and_isr.leader_epoch:
                continue
            if self._context.former_members(partition):
                continue  # they leave its ISR first; the broker refuses that, and so this comes up again
            now = leadership.leader_and_isr
            if epoch > min(now.leader_epoch + LARGEST_LEAP, LAST_LEADER_EPOCH - 1):
                unbelievable.append(partition)
            else:
                beyond = LeaderAndIsr(now.leader, LeaderEpoch(epoch + 1), now.isr, now.zk_version)
                behind[partition] = LeaderIsrAndControllerEpoch(beyond, self._store.fence.epoch)
        for partition, result in self._store.update_states(behind).items():
            if result.code is WriteCode.WRITTEN:
                self._fence(partition, behind[partition].leader_and_isr, result.zk_version)
        return unbelievable

    def _fence(self, partition: TopicPartition, written: LeaderAndIsr, zk_version: ZkVersion) -> None:
        before, after = self._take_in(partition, written, zk_version)
        self._batch.host(self._context.assignment(partition).replicas, partition)
        why = "a replica holds a higher leader epoch than its state znode, which was lost or set back"
        self._decisions.leadership(partition, Outcome.FENCED, before, after, why)

    def _initialise(self, partitions: Sequence[TopicPartition], kind: ElectionKind, *, unclean: bool) -> Failed:
        """First leader and ISR: the first live replica, and all live ones; or by logs, where the state may be lost."""
        context = self._context
        first: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        failed: Failed = {}
        stateless = []
        for partition in partitions:
            replicas = context.assignment(partition).replicas
            online = context.online(partition)
            live = context.shared_isr(tuple(replica for replica in replicas if replica in online))
            if not live:
                failed[partition] = f"no replica of {list(replicas)} is live"
            elif partition in self._stateless:
                stateless.append(partition)
            else:
                decided = LeaderAndIsr(live[0], LeaderEpoch(0), live, ZkVersion(0))
                first[partition] = LeaderIsrAndControllerEpoch(decided, self._store.fence.epoch)
        recovered = self.choice.recover(stateless, failed, kind=kind, forced=unclean)
        for partition, recovery in recovered.items():
            leader, isr = recovery.election.leader, context.shared_isr(recovery.election.isr)
            assert leader is not None, "somebody is live"
            decided = LeaderAndIsr(leader, recovery.leader_epoch, isr, ZkVersion(0))
            first[partition] = LeaderIsrAndControllerEpoch(decided, self._store.fence.epoch)
        adopted = []
        for partition, result in self._store.create_states(first).items():
            if result.code is WriteCode.WRITTEN:
                self._begin(partition, first[partition], recovered.get(partition))
            elif result.code is WriteCode.EXISTS:
                adopted.append(partition)
            else:
                failed[partition] = f"its state znode cannot be created: {result.why}"
        return {**failed, **self._adopt(adopted, first, recovered)}

    def _begin(self, partition: TopicPartition, first: LeaderIsrAndControllerEpoch, recovery: Recovery | None) -> None:
        decided = first.leader_and_isr
        self._context.set_leadership(partition, first)
        self._context.set_partition_state(partition, PartitionState.ONLINE)
        self._stateless.discard(partition)
        if recovery is None or not recovery.election.unclean:
            self._batch.host(decided.isr, partition, is_new=True)
            why = f"first live replica of {list(self._context.assignment(partition).replicas)}"
            self._decisions.leadership(partition, Outcome.CREATED, None, decided, why)
        else:
            self._count(ElectionKind.OFFLINE, recovery.election)
            self._batch.host(self._recipients(partition, ElectionKind.OFFLINE), partition)
            self._decisions.leadership(partition, Outcome.ELECTED, None, decided, recovery.election.why)

    def _adopt(
        self,
        partitions: Sequence[TopicPartition],
        first: Mapping[TopicPartition, LeaderIsrAndControllerEpoch],
        recovered: Mapping[TopicPartition, Recovery],
    ) -> Failed:
        """Take over state znodes that stand there already, and elect where their leader does not work.

        One that is as it was to be created, down to our controller epoch, is our own, written unnoticed.
        """
        if not partitions:
            return {}
        refresh_leadership(self._context, self._store, partitions)
        failed = {}
        leaderless = []
        for partition in partitions:
            leadership = self._context.leadership(partition)
            if leadership is not None:
                self._stateless.discard(partition)
            if leadership is None:
                failed[partition] = "its state znode exists and cannot be read"
            elif leadership == first[partition]:
                self._begin(partition, leadership, recovered.get(partition))
            elif self._context.is_online(leadership.leader_and_isr.leader, partition):
                self._context.set_partition_state(partition, PartitionState.ONLINE)
                self._batch.host(self._context.assignment(partition).replicas, partition)
            else:
                self._context.set_partition_state(partition, PartitionState.OFFLINE)
                leaderless.append(partition)
        return {**failed, **self._elect(leaderless, ElectionKind.OFFLINE, unclean=False)}

    def _elect(self, partitions: Sequence[TopicPartition], kind: ElectionKind, *, unclean: bool) -> Failed:
        return self._settle(
            partitions,
            partial(self.choice.decide, kind=kind, unclean=unclean),
            self._write,
            partial(self._enter, kind=kind),
            partial(self._read_again, kind=kind),
            reconsider=True,
        )

    def _write(self, states: States) -> Mapping[TopicPartition, WriteResult]:
        crash_point("controller.election.before_write")
        return self._store.update_states(states)

    def _enter(
        self,
        partition: TopicPartition,
        before: LeaderAndIsr,
        after: LeaderAndIsr,
        election: Election,
        *,
        kind: ElectionKind,
    ) -> None:
        self._context.set_partition_state(partition, PartitionState.ONLINE)
        self._count(kind, election)
        self._batch.host(self._recipients(partition, kind), partition)
        self._decisions.leadership(partition, Outcome.ELECTED, before, after, election.why)

    def _count(self, kind: ElectionKind, election: Election) -> None:
        self._counters.elections[elected_because(kind, election)] += 1
        if election.unclean:
            self._counters.unclean_elections += 1

    def _recipients(self, partition: TopicPartition, kind: ElectionKind) -> Sequence[BrokerId]:
        assignment = self._context.assignment(partition)
        if kind not in (ElectionKind.OFFLINE, ElectionKind.LONGEST_LOG):
            return assignment.replicas
        online = self._context.online(partition)
        return [replica for replica in assignment.replicas if replica in online]

    def _read_again(self, partitions: Sequence[TopicPartition], *, kind: ElectionKind) -> list[TopicPartition]:
        """Those that differ from what was known. They are sent to brokers, whatever comes of the election."""
        changed = list(refresh_leadership(self._context, self._store, partitions))
        for partition in changed:
            self._batch.host(self._recipients(partition, kind), partition)
        return changed
