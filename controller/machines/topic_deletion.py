"""TopicDeletionManager: which topics are to be deleted, how far each is, what is done next. In one controller epoch.

A topic that is being reassigned waits until that is over. Then metadata drops it (leader -2), every live broker
is ordered to delete its replicas, and when all have confirmed, also those that were dead, the topic leaves ZooKeeper.
Former replicas, whose deletion a reassignment has left over, are replicas like the others here. Everything is found
again in ZooKeeper: the marker and the topic's znode go last, together. Source: Kafka's TopicDeletionManager.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Sequence

import msgspec

from regency.controller.channel.request_batch import RequestBatch
from regency.controller.channel.sender import Deleted
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.machines.replica_state_machine import ReplicaStateMachine
from regency.controller.state.context import ControllerContext
from regency.controller.state.decisions import DecisionLog
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.state.topic_entry import TopicEntry
from regency.controller.store.deletions import DeletionStore
from regency.controller.store.topics import TopicWatches
from regency.model.crash_points import crash_point
from regency.model.ids import BrokerId, PartitionReplica, TopicPartition

logger = logging.getLogger(__name__)

REASSIGNED_FIRST = "it is being reassigned (`regency partitions list` shows it, `regency partitions cancel` ends it)"


class DeletionProgress(msgspec.Struct, frozen=True):
    """How far the deletion of a topic is."""

    topic: str
    replicas: int
    deleted: int
    """Replicas whose broker has confirmed it."""
    waits_for: str = ""
    """Why it does not go on, in words; empty where it does."""
    offline: tuple[BrokerId, ...] = ()
    """Brokers whose replicas cannot be deleted now."""


def deletion_path(state: ReplicaState, *, online: bool, awaited: bool = True) -> tuple[ReplicaState, ...]:
    """The states that a replica of a topic to be deleted goes through now, one after the other.

    One that is not online cannot be deleted until it is; one whose broker has been told is waited for. One that is not
    even `awaited`, because its broker never was or is gone for good, is taken for deleted.
    """
    match state:
        case ReplicaState.DELETION_SUCCESSFUL | ReplicaState.NON_EXISTENT:
            return ()
        case ReplicaState.DELETION_STARTED if not awaited:
            return (ReplicaState.DELETION_SUCCESSFUL,)
        case ReplicaState.DELETION_STARTED:
            return () if online else (ReplicaState.DELETION_INELIGIBLE,)
        case ReplicaState.DELETION_INELIGIBLE if awaited and not online:
            return ()
    path: tuple[ReplicaState, ...] = (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)
    if awaited:
        path = path[:1] if online else (ReplicaState.DELETION_INELIGIBLE,)
    return path if state is ReplicaState.OFFLINE else (ReplicaState.OFFLINE, *path)


class TopicDeletionManager:
    """Carries deletions on whenever something happens that they wait for. The controller's thread calls it."""

    def __init__(
        self,
        context: ControllerContext,
        store: DeletionStore,
        batch: RequestBatch,
        decisions: DecisionLog,
        *,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        watches: TopicWatches,
    ) -> None:
        self.store = store
        self._context = context
        self._batch = batch
        self._decisions = decisions
        self._partitions = partitions
        self._replicas = replicas
        self._watches = watches

    # What happens

    def begin(self, topics: Iterable[str]) -> None:
        """Topics whose deletion is asked for, at a failover: no broker hears of them; `resume` goes on with them."""
        self._queue(topics, "its deletion was asked for before this controller ruled")

    def enqueue(self, topics: Iterable[str]) -> None:
        """Delete these topics, as soon as that is possible; unknown ones are left out.

        Raises ControllerMoved, ZkError.
        """
        new = self._queue(topics, "its deletion is asked for")
        self.resume(new)

    def resume(self, topics: Iterable[str] | None = None) -> None:
        """Go on with these topics, or with all that are to be deleted: something may have changed that they waited for.

        Call it when a broker or a directory works again, when a reassignment has ended, when a deletion was confirmed
        and when replicas stopped working. Topics that are not to be deleted are left alone. Raises ControllerMoved,
        ZkError.
        """
        context = self._context
        wanted = context.topics_to_delete if topics is None else context.topics_to_delete.intersection(topics)
        if not wanted:
            return
        names = sorted(wanted)
        self._start([name for name in names if not context.is_being_deleted(name)])
        started = [name for name in names if context.is_being_deleted(name)]
        self._advance(started)
        self._complete(started)

    def confirm(self, deleted: Deleted) -> None:
        """A broker has confirmed deletions; what it says of other topics, or of earlier ones, is none of ours."""
        context = self._context
        confirmed = [
            PartitionReplica(*partition, deleted.broker)
            for partition, topic_id in deleted.partitions.items()
            if context.is_being_deleted(partition.topic)
            and context.topic_id(partition.topic) == topic_id
            and context.replica_state(partition, deleted.broker) is ReplicaState.DELETION_STARTED
        ]
        self._replicas.handle(confirmed, ReplicaState.DELETION_SUCCESSFUL)
        self.resume({partition.topic for partition in deleted.partitions})

    def replicas_offline(self, replicas: Iterable[PartitionReplica]) -> None:
        """Replicas stopped working; the context knows. Those that are being deleted wait until they work again."""
        self.resume({replica.topic for replica in replicas})

    def brokers_started(self, brokers: Collection[BrokerId]) -> None:
        """Brokers started, or are reached in another way; the context knows. They receive all they have to delete.

        Also once more what they were told: that may not have reached them, or a restart may have brought it back.
        """
        context = self._context
        self.resume()
        again = (ReplicaState.DELETION_STARTED, ReplicaState.DELETION_SUCCESSFUL)
        for name in sorted(context.topics_deletion_started):
            for partition, states in _replica_states(name, context.topics[name]):
                for broker, state in states:
                    if broker in brokers and state in again:
                        self._batch.stop(broker, partition, delete=True)

    def abandon(self, topics: Sequence[str]) -> None:
        """Topics that were to be deleted have been removed from ZooKeeper by another tool: clean up after it.

        Brokers that are still to delete replicas will.
        """
        if topics:
            self.store.remove_topics({name: self._context.topics[name].czxid for name in topics})

    def progress(self) -> Iterator[DeletionProgress]:
        """How far each deletion is, by topic."""
        for name in sorted(self._context.topics_to_delete):
            entry = self._context.topics[name]
            states = [state for _, replicas in _replica_states(name, entry) for _, state in replicas]
            deleted = sum(state is ReplicaState.DELETION_SUCCESSFUL for state in states)
            waits_for = self._context.topics_ineligible.get(name, "")
            yield DeletionProgress(name, len(states), deleted, waits_for, tuple(self._unreachable(name, entry)))

    # What is done

    def _queue(self, topics: Iterable[str], why: str) -> list[str]:
        context = self._context
        new = sorted({name for name in topics if name in context.topics and not context.is_queued_for_deletion(name)})
        context.topics_to_delete.update(new)
        self._note(new, "kept", "to be deleted", why)
        reassigning = self._reassigning()
        for name in new:
            if name in reassigning:
                self._wait(name, REASSIGNED_FIRST)
            else:
                context.topics_deletion_started.add(name)
        self._forget_partitions([name for name in new if name not in reassigning])
        return new

    def _start(self, waiting: Sequence[str]) -> None:
        """Begin with those that no reassignment keeps any more."""
        if not waiting:
            return
        context = self._context
        reassigning = self._reassigning()
        ready = [name for name in waiting if name not in reassigning]
        for name in ready:
            context.topics_ineligible.pop(name, None)
            context.topics_deletion_started.add(name)
        self._note(ready, "waits", "being deleted", "its reassignment is over")
        self._forget_partitions(ready)

    def _forget_partitions(self, topics: Sequence[str]) -> None:
        """From now on these topics are not in metadata."""
        context = self._context
        partitions = [
            TopicPartition(name, number) for name in topics for number, _ in context.topics[name].partitions()
        ]
        existing = [each for each in partitions if context.partition_state(each) is not PartitionState.NON_EXISTENT]
        self._partitions.handle(existing, PartitionState.OFFLINE)
        self._partitions.handle(existing, PartitionState.NON_EXISTENT)
        self._batch.metadata(partitions)

    def _advance(self, topics: Sequence[str]) -> None:
        """Move every replica as far as it can go now, all of one target state at once."""
        context = self._context
        steps: dict[ReplicaState, list[PartitionReplica]] = {
            ReplicaState.OFFLINE: [],
            ReplicaState.DELETION_INELIGIBLE: [],
            ReplicaState.DELETION_STARTED: [],
            ReplicaState.DELETION_SUCCESSFUL: [],
        }
        for name in topics:
            for partition, states in _replica_states(name, context.topics[name]):
                for broker, state in states:
                    online, awaited = context.is_online(broker, partition), broker in context.members
                    for target in deletion_path(state, online=online, awaited=awaited):
                        steps[target].append(PartitionReplica(name, partition.partition, broker))
        if steps[ReplicaState.DELETION_STARTED]:
            crash_point("controller.deletion.before_replicas_told")
        for target, replicas in steps.items():
            if replicas:
                self._replicas.handle(replicas, target)

    def _complete(self, topics: Sequence[str]) -> None:
        """Remove from ZooKeeper the topics of which no replica is left; say what the others wait for."""
        context = self._context
        done: dict[str, int] = {}
        for name in topics:
            entry = context.topics[name]
            left = [state for _, states in _replica_states(name, entry) for _, state in states if not _is_done(state)]
            if not left:
                done[name] = entry.czxid
            elif ReplicaState.DELETION_INELIGIBLE in left:
                self._wait(name, "; ".join(map(self._why_not, self._unreachable(name, entry))))
            else:
                context.topics_ineligible.pop(name, None)
        if done:
            removed = self.store.remove_topics(done)
            given_up = [name for name in removed.gone if not self._is_all_deleted(name)]
            self._forget([name for name in removed.gone if name not in given_up], "all its replicas are deleted")
            self._forget(given_up, "its replicas are deleted, but for those on brokers that are gone for good")
            self._forget(removed.replaced, "another topic of its name was created outside")

    def _forget(self, topics: Sequence[str], why: str) -> None:
        context = self._context
        replicas = [
            PartitionReplica(name, partition.partition, broker)
            for name in topics
            for partition, states in _replica_states(name, context.topics[name])
            for broker, state in states
            if state is ReplicaState.DELETION_SUCCESSFUL
        ]
        self._replicas.handle(replicas, ReplicaState.NON_EXISTENT)
        for name in topics:
            self._batch.topic_removed(name, context.topic_id(name))
            context.remove_topic(name)
            self._watches.disarm(name)
        self._note(topics, "being deleted", "gone", why)

    def _is_all_deleted(self, name: str) -> bool:
        """Whether brokers have confirmed it of every replica of a topic of which none is left."""
        states = (each for _, replicas in _replica_states(name, self._context.topics[name]) for each in replicas)
        return all(broker in self._context.members for broker, _ in states)

    # Why not

    def _reassigning(self) -> set[str]:
        return {partition.topic for partition in self._context.reassigning}

    def _unreachable(self, name: str, entry: TopicEntry) -> list[BrokerId]:
        return sorted(
            {
                broker
                for _, states in _replica_states(name, entry)
                for broker, state in states
                if state is ReplicaState.DELETION_INELIGIBLE
            }
        )

    def _why_not(self, broker: BrokerId) -> str:
        if broker not in self._context.brokers:
            return f"broker {broker} holds replicas and is not live (gone for good? `regency brokers forget {broker}`)"
        if broker in self._context.shutting_down:
            return f"broker {broker} holds replicas and is shutting down"
        return f"broker {broker} holds replicas in a directory that failed (repair it, then restart that broker)"

    def _wait(self, topic: str, why: str) -> None:
        if self._context.topics_ineligible.get(topic) != why:
            self._context.topics_ineligible[topic] = why
            self._decisions.note(f"topic {topic}", "to be deleted", "waits", why)

    def _note(self, topics: Sequence[str], before: str, after: str, why: str) -> None:
        self._decisions.note_each((f"topic {name}", before, after, why) for name in topics)


def _replica_states(
    name: str, entry: TopicEntry
) -> Iterator[tuple[TopicPartition, Sequence[tuple[BrokerId, ReplicaState]]]]:
    for number, _ in entry.partitions():
        yield TopicPartition(name, number), entry.replica_states[number]


def _is_done(state: ReplicaState) -> bool:
    return state in (ReplicaState.DELETION_SUCCESSFUL, ReplicaState.NON_EXISTENT)
