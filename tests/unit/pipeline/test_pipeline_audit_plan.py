"""Which task of a replica audit reads what."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from uuid import UUID

import msgspec
import pytest

from regency.clients.replicas.reading import Partition
from regency.clients.replicas.wire import Place, Replica, Unanswered
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition
from regency.pipeline.jobs.replica_audit.job import _rounds
from regency.pipeline.jobs.replica_audit.plan import LEAST_SHARE, TASKS_PER_SLOT, asked, pieces_of, tasks_of, weight

T0 = TopicPartition("t", 0)


def partition(start: int = 0, mark: int = 1_000, *, name: TopicPartition = T0, dead: bool = False) -> Partition:
    place = Place(Offset(start), Offset(mark), Offset(mark))
    third = Unanswered("it is not live") if dead else place
    return Partition(name, TopicId(UUID(int=9)), 1, {BrokerId(1): place, BrokerId(2): place, BrokerId(3): third})


def sizes(size: int, name: TopicPartition = T0) -> dict[Replica, int]:
    return {(BrokerId(broker), name): size for broker in (1, 2, 3)}


def ranges(pieces: list[Partition]) -> list[tuple[int, int | None]]:
    return [(piece.begin, piece.end) for piece in pieces]


def test_a_partition_that_is_small_empty_or_of_unknown_size_is_one_piece() -> None:
    assert ranges(pieces_of(partition(), sizes(99), 100)) == [(0, 1_000)]
    assert ranges(pieces_of(partition(), {}, 100)) == [(0, 1_000)]
    assert ranges(pieces_of(partition(500, 500), sizes(10_000), 100)) == [(0, 500)]


def test_a_large_one_is_cut_at_equal_offsets_of_what_is_there() -> None:
    assert ranges(pieces_of(partition(400), sizes(301), 100)) == [(0, 550), (550, 700), (700, 850), (850, 1_000)]


def test_one_whose_replicas_are_compacted_is_not_cut() -> None:
    whole = msgspec.structs.replace(partition(), is_compacted=True)
    [piece] = pieces_of(whole, sizes(301), 100)
    assert piece == msgspec.structs.replace(whole, end=1_000)


def test_no_piece_is_without_offsets() -> None:
    pieces = pieces_of(partition(10, 13), sizes(1_000_000), 1)
    assert ranges(pieces) == [(0, 11), (11, 12), (12, 13)]


def test_pieces_weigh_what_has_to_be_read_for_them() -> None:
    whole = partition(400)
    [fixed] = [weight(each, {}) for each in pieces_of(whole, {}, 100)]
    weights = [weight(each, sizes(600)) - fixed for each in pieces_of(whole, sizes(600), 200)]
    assert weights == [600, 600, 600]
    [one_dead] = pieces_of(partition(400, dead=True), sizes(600), 1_000)
    assert weight(one_dead, sizes(600)) - fixed == 1_200
    assert asked(one_dead) == (1, 2)


def everything(count: int, seed: int) -> tuple[list[int], list[tuple[BrokerId, ...]]]:
    choose = random.Random(seed)
    brokers = [tuple(BrokerId(each) for each in choose.sample(range(1, 10), 3)) for _ in range(count)]
    return [choose.randint(1, 1_000) for _ in range(count)], brokers


@pytest.mark.parametrize("pace", [None, 64 << 20])
@pytest.mark.parametrize("count", [0, 1, 3, 400])
def test_every_piece_is_read_once_and_the_load_is_even(count: int, pace: int | None) -> None:
    weights, brokers = everything(count, count)
    tasks = tasks_of(weights, brokers, 4, pace)
    assert sorted(number for task in tasks for number in task.pieces) == list(range(count))
    assert all(task.pieces for task in tasks)
    most = 4 if pace else 4 * TASKS_PER_SLOT
    assert len(tasks) <= most
    if count == 400:
        loads = [sum(weights[number] for number in task.pieces) for task in tasks]
        assert len(tasks) == most
        assert max(loads) <= sum(weights) / most + 1_000


def test_a_task_asks_few_brokers_and_its_neighbour_others() -> None:
    """Of 100 brokers in rows of three."""
    rows = [(BrokerId(row), BrokerId(row + 1), BrokerId(row + 2)) for row in range(1, 97, 3)]
    brokers = [rows[number % len(rows)] for number in range(3_200)]
    tasks = tasks_of([1] * len(brokers), brokers, 32, None)
    seen = [{broker for number in task.pieces for broker in brokers[number]} for task in tasks]
    assert max(map(len, seen)) <= 6
    assert sum(bool(one & other) for one, other in pairwise(seen)) <= 4 * TASKS_PER_SLOT


@pytest.mark.parametrize("slots", [1, 3, 50])
@pytest.mark.parametrize("pace", [1, 100_000, 10 << 20])
def test_all_tasks_together_ask_no_broker_for_more_than_the_pace(slots: int, pace: int) -> None:
    weights, brokers = everything(200, 5)
    tasks = tasks_of(weights, brokers, slots, pace)
    total = Counter[BrokerId]()
    for task in tasks:
        assert task.pace is not None
        assert task.pace.keys() == {broker for number in task.pieces for broker in brokers[number]}
        total.update(task.pace)
    assert len(tasks) <= max(1, min(slots, pace // LEAST_SHARE))
    assert max(total.values()) <= pace
    assert min(total.values()) > pace - len(tasks), "and nothing of it is left unused"


def test_pieces_of_one_partition_are_read_one_after_another() -> None:
    names = [T0, T0, TopicPartition("t", 1), T0, TopicPartition("t", 1)]
    pieces = {number: partition(name=name) for number, name in enumerate(names)}
    assert _rounds(pieces, {0, 1, 2, 3, 4}) == [[0, 2], [1, 4], [3]]
    assert _rounds(pieces, {3}) == [[3]]
    assert _rounds(pieces, ()) == []
