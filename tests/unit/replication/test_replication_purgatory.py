"""Waiting operations: completed once, by what they wait for or by their deadline, and free of cost while idle."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication.purgatory import Completions, DelayedOperation, Purgatory
from regency.model.ids import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


class Waiting(DelayedOperation):
    def __init__(self, deadline_ms: int, *partitions: TopicPartition) -> None:
        super().__init__(deadline_ms)
        self.keys = partitions
        self.missing = set(partitions)
        self.looked: list[TopicPartition] = []
        self.answers = 0

    def partitions(self):
        return self.keys

    def progress(self, partition):
        self.looked.append(partition)
        self.missing.discard(partition)
        return not self.missing

    def finish(self):
        self.answers += 1


@pytest.fixture
def completions() -> Completions:
    return Completions()


@pytest.fixture
def purgatory(completions) -> Purgatory:
    return Purgatory(completions)


def test_an_operation_is_complete_when_all_it_waits_for_has_happened(purgatory, completions) -> None:
    waiting = Waiting(100, A, B)
    purgatory.watch(waiting)
    with completions:
        purgatory.check(A)
        purgatory.check(C)
        assert not waiting.done
        purgatory.check(B)
        assert (waiting.done, waiting.answers) == (True, 0)
    assert (waiting.answers, len(purgatory), waiting.looked) == (1, 0, [A, B])


def test_it_is_answered_once_whatever_happens_afterwards(purgatory, completions) -> None:
    waiting = Waiting(100, A)
    purgatory.watch(waiting)
    with completions:
        purgatory.check(A)
        purgatory.check(A)
        purgatory.expire_due(1_000)
        purgatory.complete_all()
        purgatory.cancel(waiting)
    assert waiting.answers == 1


def test_deadlines_complete_in_their_order(purgatory, completions) -> None:
    order = []
    for deadline in (300, 100, 200):
        waiting = Waiting(deadline, A)
        waiting.finish = lambda deadline=deadline: order.append(deadline)  # type: ignore[method-assign]
        purgatory.watch(waiting)
    assert purgatory.next_deadline_ms == 100
    with completions:
        purgatory.expire_due(250)
    assert order == [100, 200]
    assert purgatory.next_deadline_ms == 300


def test_a_withdrawn_operation_is_forgotten(purgatory, completions) -> None:
    waiting = Waiting(100, A, B)
    purgatory.watch(waiting)
    purgatory.cancel(waiting)
    with completions:
        purgatory.check(A)
        purgatory.expire_due(1_000)
    assert (waiting.answers, len(purgatory), purgatory.next_deadline_ms, waiting.looked) == (0, 0, None, [])


def test_an_event_looks_only_at_who_waits_for_its_partition(purgatory, completions) -> None:
    idle = [Waiting(100, A, C) for _ in range(1_000)]
    for waiting in idle:
        purgatory.watch(waiting)
    busy = Waiting(100, B)
    purgatory.watch(busy)
    with completions:
        purgatory.check(B)
    assert busy.answers == 1
    assert not any(waiting.looked for waiting in idle)


def test_deadlines_of_completed_operations_do_not_pile_up(purgatory, completions) -> None:
    for _ in range(5_000):
        purgatory.watch(Waiting(30_000, A))
        with completions:
            purgatory.check(A)
    assert len(purgatory._deadlines) < 1_000


def test_what_an_answer_adds_is_answered_in_the_same_go(completions) -> None:
    order = []

    def first() -> None:
        with completions:
            completions.add(lambda: order.append("inner"))
        order.append("first")

    with completions:
        completions.add(first)
        completions.add(lambda: order.append("second"))
        assert order == []
    assert order == ["first", "second", "inner"]
