"""What other threads see of topics: copies that are made again where something has changed, and what is counted."""

from __future__ import annotations

import threading

import msgspec
import pytest

from regency.controller.state.context import ControllerContext
from regency.controller.state.states import PartitionState, ReplicaState
from regency.controller.state.topic_copies import TopicCopies, is_imbalanced
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition

T0 = TopicPartition("t", 0)


def led(leader: int, isr: tuple[int, ...]) -> LeaderIsrAndControllerEpoch:
    return LeaderIsrAndControllerEpoch(LeaderAndIsr(leader, 0, isr), 1)


def counts(world) -> dict[str, int]:
    taken = msgspec.structs.asdict(world.term.copies.take())
    return {name: count for name, count in taken.items() if isinstance(count, int) and count}


@pytest.mark.parametrize(
    ("assignment", "leader", "isr", "imbalanced"),
    [
        (ReplicaAssignment((1, 2)), 1, (1, 2), False),
        (ReplicaAssignment((1, 2)), 2, (1, 2), True),
        (ReplicaAssignment((1, 2)), -1, (2,), True),
        (ReplicaAssignment((3, 1, 2), adding=(3,)), 1, (1, 2), False),
        (ReplicaAssignment((3, 1, 2), adding=(3,)), 1, (1, 2, 3), True),
        (ReplicaAssignment((3, 1, 2), adding=(3,)), 3, (1, 2, 3), False),
        (ReplicaAssignment(()), 1, (1,), False),
    ],
)
def test_preferred_leadership(assignment, leader, isr, imbalanced):
    assert is_imbalanced(assignment, led(leader, isr)) is imbalanced


def test_imbalance_follows_leaders_assignments_and_deletions(ruled):
    # ControllerContextTest.testPreferredReplicaImbalanceMetric
    copies = ruled.term.copies
    for name in ("a", "b", "c"):
        ruled.write_topic(name, {0: [1, 2, 3]})
    context, seen = ruled.term.context, []
    for name, leader in (("a", 1), ("b", 2), ("c", 3)):
        context.set_leadership(TopicPartition(name, 0), led(leader, (1, 2, 3)))
        seen.append(copies.take().imbalanced)
    for name in ("a", "b"):
        context.set_assignment(TopicPartition(name, 0), ReplicaAssignment((2, 3, 1)))
    seen.append(copies.take().imbalanced)
    context.topics_to_delete.add("c")
    seen.append(copies.take().imbalanced)
    context.set_leadership(TopicPartition("c", 0), led(2, (1, 2, 3)))
    seen.append(copies.take().imbalanced)
    for name in ("a", "b", "c"):
        context.remove_topic(name)
    seen.append(copies.take().imbalanced)

    assert seen == [0, 1, 2, 2, 1, 1, 0]


def test_a_topic_is_copied_again_only_where_it_has_changed(ruled):
    copies = ruled.term.copies
    ruled.write_topic("t", {0: [1, 2, 3]})
    ruled.write_topic("u", {0: [1, 2, 3]})
    context = ruled.term.context
    before = {copy.name: copy for copy in copies.take().topics}

    ruled.kill_broker(3)
    context.set_leadership(T0, led(2, (2,)))
    between = {copy.name: copy for copy in copies.take().topics}
    after = {copy.name: copy for copy in copies.take().topics}

    assert before["t"].leadership == [led(1, (1, 2, 3))]
    assert between["t"].leadership == [led(2, (2,))]
    assert (after["t"] is between["t"], after["u"] is between["u"]) == (True, True)
    assert between["u"] is not before["u"]


def test_deletions_are_counted_until_they_are_over(ruled):
    ruled.write_topic("t", {0: [1, 2, 3], 1: [2, 3, 1]})
    ruled.write_topic("u", {0: [1, 2, 3]})
    release = ruled.hold_stops(1, 2)
    assert counts(ruled) == {"topic_count": 2, "partitions": 3, "led": 3}

    ruled.mark("t")
    begun = counts(ruled)
    ruled.kill_broker(2)
    halted = counts(ruled)
    named = [copy.name for copy in ruled.term.copies.take().topics]
    ruled.start_broker(2)
    release(1)
    over = counts(ruled)

    assert begun == {
        "topic_count": 2,
        "partitions": 3,
        "led": 3,
        "topics_to_delete": 1,
        "replicas_to_delete": 4,
        "deleting": 1,
    }
    assert {key: halted[key] for key in ("topics_ineligible", "replicas_ineligible")} == {
        "topics_ineligible": 1,
        "replicas_ineligible": 2,
    }
    assert named == ["u"]
    assert over == {"topic_count": 1, "partitions": 1, "led": 1}


class Interrupted(list):
    """A list of a topic that somebody copies in the middle of every change."""

    def __init__(self, content, look) -> None:
        super().__init__(content)
        self.look = look

    def __setitem__(self, key, value) -> None:
        self.look()
        super().__setitem__(key, value)
        self.look()


def set_leadership(context) -> None:
    context.set_leadership(T0, led(2, (2, 3)))


def set_leaderships(context) -> None:
    context.set_leaderships({T0: led(2, (2, 3)), TopicPartition("u", 0): led(3, (3,))})


def set_assignment(context) -> None:
    context.set_assignment(T0, ReplicaAssignment((3, 2, 1)))


def set_replica_state(context) -> None:
    context.set_replica_state(T0, 2, ReplicaState.DELETION_SUCCESSFUL)


def begin_replicas(context) -> None:
    context.begin_replicas("t")


def set_partition_state(context) -> None:
    context.set_partition_state(T0, PartitionState.ONLINE)


def begin_partitions(context) -> None:
    context.begin_partitions("t", [PartitionState.OFFLINE, PartitionState.NEW])


def put_topic(context) -> None:
    context.put_topic(TopicAssignment("t", {2: ReplicaAssignment((2, 1)), 5: ReplicaAssignment((1, 2))}))


CHANGES = [
    set_leadership,
    set_leaderships,
    set_assignment,
    set_replica_state,
    begin_replicas,
    set_partition_state,
    begin_partitions,
    put_topic,
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_what_is_copied_in_the_middle_of_a_change_is_copied_again(change):
    context = ControllerContext()
    copies = TopicCopies(context)
    for name in ("t", "u"):
        context.put_topic(TopicAssignment(name, {number: ReplicaAssignment((1, 2, 3)) for number in range(2)}))
    context.topics_to_delete.add("t")
    context.set_replica_state(T0, 2, ReplicaState.DELETION_STARTED)
    context.set_replica_state(T0, 3, ReplicaState.DELETION_INELIGIBLE)
    for entry in context.topics.values():
        for name in ("assignments", "leadership", "partition_states", "replica_states"):
            setattr(entry, name, Interrupted(getattr(entry, name), copies.take))

    copies.take()
    change(context)

    assert copies.take() == TopicCopies(context).take()


def test_copies_are_right_after_another_thread_has_changed_what_they_are_of():
    """It changes leaderships as fast as it can; whatever two others saw meanwhile, at its end the copy is right."""
    context = ControllerContext()
    copies = TopicCopies(context)
    context.put_topic(TopicAssignment("t", {number: ReplicaAssignment((1, 2, 3)) for number in range(200)}))
    states = [led(leader, (1, 2, 3)) for leader in (1, 2, 3)]
    done = threading.Event()

    def change() -> None:
        for round_ in range(100):
            for number in range(200):
                context.set_leadership(TopicPartition("t", number), states[round_ % 3])
        done.set()

    def look() -> None:
        while not done.is_set():
            copies.take()

    threads = [threading.Thread(target=each) for each in (change, look, look)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    (copy,) = copies.take().topics
    assert copy.leadership == [states[99 % 3]] * 200
    assert (copy.led, copy.imbalanced) == (200, 0)
