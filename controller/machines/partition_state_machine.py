"""PartitionStateMachine: what entering a state means for a partition: ZooKeeper writes, context, desired states.

Elections decide from the context and write with compare-and-set; only partitions whose
state znode changed meanwhile are read again and decided again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice

from regency.controller.channel.request_batch import RequestBatch
from regency.controller.machines.unclean_leave import UncleanLeave
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog, Outcome
from regency.controller.state.election import (
    Election,
    ElectionKind,
    LogEnd,
    Recovery,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
    elect_restarted,
    elect_unclean,
    elect_without_state,
    elected_because,
)
from regency.controller.state.states import PartitionState
from regency.controller.store.access import WriteCode, WriteResult
from regency.controller.store.cluster_store import LAST_LEADER_EPOCH, ClusterStore
from regency.controller.store.counters import Counters
from regency.model.crash_points import crash_point
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment
from regency.model.ids import LARGEST_LEAP, BrokerId, LeaderEpoch, TopicPartition, ZkVersion

logger = logging.getLogger(__name__)

Elect = Callable[
    [Sequence[BrokerId], Sequence[BrokerId], Collection[BrokerId], Mapping[BrokerId, LogEnd | None]], Election
]
"""Elects by assignment, ISR, who is online, and how far logs go."""

ROUNDS = 10
"""How often a decision is made again because its znode changed, before it is left to a later event."""


class PartitionStateMachine:
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
        self._context = context
        self._store = store
        self._batch = batch
        self._decisions = decisions
        self._counters = counters
        self._leave = UncleanLeave(context, store, decisions.broker, default=unclean_default)
        self._undecided: dict[TopicPartition, bool] = {}
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

    def trigger_online(self) -> dict[TopicPartition, str]:
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
    ) -> dict[TopicPartition, str]:
        """Move partitions into `target`, by an election of `kind` where they need a leader.

        `unclean` allows a leader out of sync whatever the settings say; where several could be that, none is elected
        yet (see `take_undecided`). Returns why, for those that did not move. Raises ControllerMoved, ZkError.
        """
        valid, refused = self._validate(partitions, target)
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
        for valid in self._validate((partition,), PartitionState.ONLINE)[0]:
            self._context.set_partition_state(valid, PartitionState.ONLINE)

    def take_undecided(self) -> dict[TopicPartition, bool]:
        """Partitions that any of several replicas out of sync may lead, and whether that was asked for by `unclean`.

        Who of them has the longest log must be asked first. They are forgotten here.
        """
        undecided, self._undecided = self._undecided, {}
        return undecided

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
        before = self._context.leadership(partition)
        assert before is not None, "only known partitions are fenced"
        after = LeaderAndIsr(written.leader, written.leader_epoch, written.isr, zk_version)
        self._context.set_leadership(partition, LeaderIsrAndControllerEpoch(after, self._store.fence.epoch))
        self._batch.host(self._context.assignment(partition).replicas, partition)
        why = "a replica holds a higher leader epoch than its state znode, which was lost or set back"
        self._decisions.leadership(partition, Outcome.FENCED, before.leader_and_isr, after, why)

    def _validate(
        self, partitions: Iterable[TopicPartition], target: PartitionState
    ) -> tuple[list[TopicPartition], dict[TopicPartition, str]]:
        allowed = tuple(target.valid_previous)  # to look in by identity
        valid = []
        refused = {}
        for partition in partitions:
            current = self._context.partition_state(partition)
            if current in allowed and partition.topic in self._context.topics:
                valid.append(partition)
                continue
            names = ", ".join(sorted(state.value for state in allowed))
            refused[partition] = f"{partition} cannot go from {current.value} to {target.value}, only from {names}"
            logger.error("%s", refused[partition])
        return valid, refused

    def _initialise(
        self, partitions: Sequence[TopicPartition], kind: ElectionKind, *, unclean: bool
    ) -> dict[TopicPartition, str]:
        """First leader and ISR: the first live replica, and all live ones; or by logs, where the state may be lost."""
        context = self._context
        first: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        failed: dict[TopicPartition, str] = {}
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
        recovered = self._recover(stateless, kind, failed, forced=unclean)
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

    def _recover(
        self,
        partitions: Sequence[TopicPartition],
        kind: ElectionKind,
        failed: dict[TopicPartition, str],
        *,
        forced: bool,
    ) -> dict[TopicPartition, Recovery]:
        """Choose by logs; ask about them first. Who is not heard may have more: then it takes leave, as out of sync."""
        context = self._context
        chosen: dict[TopicPartition, Recovery] = {}
        for partition in partitions:
            inquiry = context.inquiries.get(partition)
            if kind is not ElectionKind.LONGEST_LOG or inquiry is None:
                self._undecided[partition] = forced or self._undecided.get(partition, False)
                failed[partition] = "it has no state znode: its replicas are being asked for logs of it"
                continue
            replicas, online = context.assignment(partition).replicas, context.online(partition)
            chosen[partition] = elect_without_state(replicas, online, inquiry.ends)
        risky = {partition: recovery for partition, recovery in chosen.items() if recovery.unheard}
        for partition in self._leave.among(list(risky)):
            del risky[partition]
        for partition, recovery in risky.items():
            del chosen[partition]
            failed[partition] = (
                f"its state znode is lost, and replicas {list(recovery.unheard)}, of which nothing is heard, may have "
                "the longest log; an unclean election that is asked for does without them"
            )
        for partition in islice(risky, 1):
            logger.error("%d partitions wait, such as %s: %s", len(risky), partition, failed[partition])
        return chosen

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
    ) -> dict[TopicPartition, str]:
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

    def _elect(
        self, partitions: Sequence[TopicPartition], kind: ElectionKind, *, unclean: bool
    ) -> dict[TopicPartition, str]:
        failed: dict[TopicPartition, str] = {}
        pending = list(partitions)
        for attempt in range(ROUNDS):
            elections = self._decide(pending, kind, failed, unclean=unclean)
            conflicts = self._commit(elections, kind, failed)
            self._read_again(conflicts, kind)
            pending = conflicts if attempt else [*conflicts, *self._reconsider(pending, kind, failed)]
            if not pending:
                return failed
        failed.update(dict.fromkeys(pending, f"its state znode changed {ROUNDS} times during the election"))
        return failed

    def _reconsider(
        self, partitions: Sequence[TopicPartition], kind: ElectionKind, failed: dict[TopicPartition, str]
    ) -> list[TopicPartition]:
        """Those that failed by what is known, but of which more is known now: their leader may have grown the ISR."""
        changed = self._read_again([partition for partition in partitions if partition in failed], kind)
        for partition in changed:
            del failed[partition]
        return changed

    def _decide(
        self,
        partitions: Sequence[TopicPartition],
        kind: ElectionKind,
        failed: dict[TopicPartition, str],
        *,
        unclean: bool,
    ) -> dict[TopicPartition, Election]:
        elections: dict[TopicPartition, Election] = {}
        without_isr = []
        for partition in partitions:
            leadership = self._context.leadership(partition)
            if leadership is None:
                failed[partition] = "it has no state znode"
                continue
            election = self._elect_one(partition, leadership.leader_and_isr, kind)
            if election.leader is not None:
                elections[partition] = election
                continue
            failed[partition] = election.why
            if kind not in (ElectionKind.OFFLINE, ElectionKind.LONGEST_LOG):
                continue
            if not self._may_be_restarted(partition, leadership.leader_and_isr):
                without_isr.append(partition)
            elif (leader := self._elect_longest(partition, kind, elect_restarted, forced=unclean)) is not None:
                elections[partition] = leader
                del failed[partition]
        for partition in without_isr if unclean else self._leave.among(without_isr):
            leader = self._elect_longest(partition, kind, elect_unclean, forced=unclean)
            if leader is not None:
                elections[partition] = leader
                del failed[partition]
        return elections

    def _may_be_restarted(self, partition: TopicPartition, now: LeaderAndIsr) -> bool:
        """Whether a member of the ISR lives and none can return with more: all restarted after a loss."""
        online, unsure = self._context.online(partition), self._context.unsure_members(partition)
        return set(unsure).issuperset(now.isr) and any(member in online for member in now.isr)

    def _elect_longest(
        self, partition: TopicPartition, kind: ElectionKind, elect: Elect, *, forced: bool
    ) -> Election | None:
        """Elect by how far logs go; None where no replica can be, or where replicas must be asked first."""
        context = self._context
        leadership = context.leadership(partition)
        assert leadership is not None, "it was decided about before"
        replicas, isr = context.assignment(partition).replicas, leadership.leader_and_isr.isr
        online = context.online(partition)
        unsure = context.unsure_members(partition)
        if any(member in online and member not in unsure for member in isr):
            return None  # not assigned: nothing but a reassignment or a strange hand does that
        if kind is not ElectionKind.LONGEST_LOG and sum(replica in online for replica in replicas) > 1:
            self._undecided[partition] = forced or self._undecided.get(partition, False)
            return None
        inquiry = context.inquiries.get(partition)
        election = elect(replicas, isr, online, {} if inquiry is None else inquiry.ends)
        return None if election.leader is None else election

    def _elect_one(self, partition: TopicPartition, now: LeaderAndIsr, kind: ElectionKind) -> Election:
        context = self._context
        assignment = context.assignment(partition)
        online = context.online(partition)
        match kind:
            case ElectionKind.OFFLINE | ElectionKind.LONGEST_LOG:
                return elect_offline(assignment.replicas, now.isr, online, context.unsure_members(partition))
            case ElectionKind.PREFERRED:
                return elect_preferred(assignment.replicas, now.isr, online, context.unsure_members(partition))
            case ElectionKind.CONTROLLED_SHUTDOWN:
                live = context.online(partition, including_shutting_down=True)
                return elect_for_shutdown(assignment.replicas, now.isr, live, context.shutting_down)

    def _commit(
        self, elections: Mapping[TopicPartition, Election], kind: ElectionKind, failed: dict[TopicPartition, str]
    ) -> list[TopicPartition]:
        """Write elections. Returns those to be decided again."""
        if not elections:
            return []
        decided = {partition: self._next_state(partition, election) for partition, election in elections.items()}
        crash_point("controller.election.before_write")
        results = self._store.update_states(decided)
        crash_point("controller.election.after_write")
        again = []
        for partition, result in results.items():
            if result.code is WriteCode.WRITTEN:
                self._enter(partition, decided[partition].leader_and_isr, result.zk_version, kind, elections[partition])
            elif result.code in (WriteCode.CONFLICT, WriteCode.RESTARTED):
                again.append(partition)
            else:
                failed[partition] = f"its state znode cannot be written: {result.why}"
        note_restarts(self._context, self._store, results.values())
        return again

    def _next_state(self, partition: TopicPartition, election: Election) -> LeaderIsrAndControllerEpoch:
        leadership = self._context.leadership(partition)
        assert leadership is not None and election.leader is not None, "only decided partitions are written"
        now = leadership.leader_and_isr
        isr = self._context.shared_isr(self._context.steady(election.isr))
        elected = LeaderAndIsr(election.leader, LeaderEpoch(now.leader_epoch + 1), isr, now.zk_version)
        return LeaderIsrAndControllerEpoch(elected, self._store.fence.epoch)

    def _enter(
        self,
        partition: TopicPartition,
        written: LeaderAndIsr,
        zk_version: ZkVersion,
        kind: ElectionKind,
        election: Election,
    ) -> None:
        context = self._context
        before = context.leadership(partition)
        assert before is not None, "only known partitions are elected for"
        after = LeaderAndIsr(written.leader, written.leader_epoch, written.isr, zk_version)
        context.set_leadership(partition, LeaderIsrAndControllerEpoch(after, self._store.fence.epoch))
        context.set_partition_state(partition, PartitionState.ONLINE)
        self._count(kind, election)
        self._batch.host(self._recipients(partition, kind), partition)
        self._decisions.leadership(partition, Outcome.ELECTED, before.leader_and_isr, after, election.why)

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

    def _read_again(self, partitions: Sequence[TopicPartition], kind: ElectionKind) -> list[TopicPartition]:
        """Those that differ from what was known. They are sent to brokers, whatever comes of the election."""
        changed = list(refresh_leadership(self._context, self._store, partitions))
        for partition in changed:
            self._batch.host(self._recipients(partition, kind), partition)
        return changed


def note_restarts(context: ControllerContext, store: ClusterStore, results: Iterable[WriteResult]) -> None:
    """Where a write found that a broker has restarted, look which have: until that is handled none of them takes part.

    Their registrations are an event of its own, which comes or waits in the queue.
    """
    if any(result.code is WriteCode.RESTARTED for result in results):
        crash_point("controller.restarts.before_look")
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
