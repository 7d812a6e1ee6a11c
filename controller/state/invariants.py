"""What must hold of every partition, checked against the controller's picture. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from regency.controller.state.context import ControllerContext
from regency.controller.state.states import PartitionState
from regency.model.facts import LeaderAndIsr, ReplicaAssignment
from regency.model.ids import NO_LEADER, TopicPartition


def violations(context: ControllerContext) -> Iterator[str]:
    """What is wrong, in words, partition by partition; nothing where all is well."""
    sound: set[tuple[int, int]] = set()  # most partitions share their leadership and their assignment with others
    for entry in context.topics.values():
        for partition, assignment, leadership, state in zip(
            entry.names, entry.assignments, entry.leadership, entry.partition_states, strict=True
        ):
            if assignment is None:
                continue
            if leadership is not None and (id(leadership), id(assignment)) not in sound:
                found = list(_of_leadership(partition, leadership.leader_and_isr, assignment))
                if not found:
                    sound.add((id(leadership), id(assignment)))
                yield from found
            if state is PartitionState.ONLINE and (leadership is None or leadership.leader_and_isr.leader == NO_LEADER):
                yield f"{partition} is online without a leader"
            waits = partition in context.leaderless if context.leaderless else False
            if (state is PartitionState.NEW or state is PartitionState.OFFLINE) != waits:
                yield f"{partition} is {state.value}, and it is not noted whether it waits for a leader"


def _of_leadership(partition: TopicPartition, now: LeaderAndIsr, assignment: ReplicaAssignment) -> Iterator[str]:
    if not now.isr:
        yield f"{partition} has no ISR"
    if now.has_leader and now.leader not in now.isr:
        yield f"{partition} is led by {now.leader}, which is not in the ISR {list(now.isr)}"
    strangers = [member for member in now.isr if member not in assignment.replicas]
    if strangers:
        yield f"{partition} has {strangers} in the ISR, which are not assigned ({list(assignment.replicas)})"
