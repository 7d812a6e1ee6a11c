"""How replicas are compared while their batches come in."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from regency.clients.replicas.compacted import Batch
from regency.clients.replicas.comparison import Comparison


def batch(base: int, last: int, *, epoch: int = 0, crc: int = 7) -> Batch:
    return Batch(base, last, epoch, crc, 100)


def log(*ends: int, start: int = 0) -> list[Batch]:
    """Batches that end at these offsets, one after the other."""
    batches = []
    for end in ends:
        batches.append(batch(start, end))
        start = end + 1
    return batches


def compare(logs: dict[int, Sequence[Batch]], *, starts: dict[int, int] | None = None, seed: int = 0) -> Comparison:
    """Feeds the logs in random pieces to whoever wants some."""
    comparison = Comparison({broker: (starts or {}).get(broker, 0) for broker in logs})
    left = {broker: list(batches) for broker, batches in logs.items()}
    chance = random.Random(seed)
    while any(comparison.wants(broker) for broker in logs):
        broker = chance.choice([broker for broker in logs if comparison.wants(broker)])
        count = chance.randint(1, 3)
        comparison.take(broker, left[broker][:count])
        if not left[broker]:
            comparison.end(broker)
        del left[broker][:count]
        comparison.advance()
    comparison.advance()
    return comparison


def found(comparison: Comparison) -> list[tuple[int, int]]:
    return [(each.from_offset, each.to_offset) for each in comparison.divergences]


@pytest.mark.parametrize("seed", range(20))
def test_equal_logs_agree_in_whatever_pieces_they_come(seed: int) -> None:
    same = log(3, 9, 10, 20, 40)
    comparison = compare({1: same, 2: same, 3: same}, seed=seed)
    assert (found(comparison), comparison.differs, comparison.agreed) == ([], set(), 5)


@pytest.mark.parametrize("seed", range(20))
def test_a_different_checksum_or_epoch_is_found_where_it_is(seed: int) -> None:
    same = log(3, 9, 10, 20, 40)
    for other in (batch(4, 9, crc=8), batch(4, 9, epoch=1)):
        comparison = compare({1: same, 2: [same[0], other, *same[2:]], 3: same}, seed=seed)
        assert found(comparison) == [(4, 9)]
        assert comparison.differs == {2}
        assert comparison.divergences[0].first == {1: same[1], 2: other, 3: same[1]}


@pytest.mark.parametrize("seed", range(20))
def test_a_missing_batch_is_found_and_the_rest_still_agrees(seed: int) -> None:
    same = log(3, 9, 10, 20, 40)
    comparison = compare({1: same, 2: [*same[:2], *same[3:]], 3: same}, seed=seed)
    assert found(comparison) == [(10, 10)]
    assert comparison.differs == {2}
    assert comparison.divergences[0].first[2] is None


@pytest.mark.parametrize("seed", range(20))
def test_other_boundaries_are_one_divergence_until_they_meet_again(seed: int) -> None:
    comparison = compare({1: log(3, 9, 20, 30, 40), 2: log(3, 12, 15, 30, 40), 3: log(3, 9, 20, 30, 40)}, seed=seed)
    assert found(comparison) == [(4, 30)]
    assert 2 in comparison.differs


@pytest.mark.parametrize("seed", range(20))
def test_only_what_both_have_is_compared(seed: int) -> None:
    """One replica's retention was faster, another could not be read to the end."""
    same = log(3, 9, 10, 20, 40)
    comparison = compare({1: same, 2: same[2:], 3: same[:2]}, starts={2: 10}, seed=seed)
    assert (found(comparison), comparison.differs) == ([], set())
    assert comparison.agreed == 5


def test_a_log_that_begins_within_a_batch_has_that_batch_whole() -> None:
    same = log(3, 9, 20)
    comparison = compare({1: same, 2: same[1:]}, starts={2: 6})
    assert (found(comparison), comparison.agreed) == ([], 2)


def test_a_single_replica_is_compared_with_nobody() -> None:
    comparison = compare({1: log(3, 9)})
    assert (found(comparison), comparison.agreed) == ([], 0)


def test_two_that_differ_are_both_shown() -> None:
    comparison = compare({1: log(5), 2: [batch(0, 5, crc=9)]})
    assert found(comparison) == [(0, 5)]
    assert comparison.divergences[0].first == {1: batch(0, 5), 2: batch(0, 5, crc=9)}
    assert len(comparison.differs) == 1


def test_a_log_that_begins_later_by_now_is_compared_from_there() -> None:
    same = log(3, 9, 20, 40)
    comparison = Comparison({1: 0, 2: 0})
    comparison.take(1, same)
    comparison.take(2, same[:1])
    comparison.advance()
    comparison.skip_to(2, 21)
    comparison.take(2, same[3:])
    for broker in (1, 2):
        comparison.end(broker)
    comparison.advance()
    assert (found(comparison), comparison.agreed) == ([], 2)
