"""Runs of the whole system in which replicas move between log directories: they do, and what goes wrong is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulation.moves import EVERY, are_made
from simulation.run import run
from simulation.shape import shape_of

from regency.broker_agent.log.partition_log import PartitionLog

SEEDS = [seed for seed in range(5, 200, EVERY) if are_made(shape_of("deep", seed), seed)]
WHOLE_MOVE = {
    "replication.move.after_creation",
    "replication.move.before_append",
    "replication.move.before_swap",
    "log.swap.before_checkpoints",
    "log.swap.after_future",
}


def test_replicas_move_in_a_share_of_the_runs() -> None:
    assert len(SEEDS) > 5
    assert not any(are_made(shape_of("quick", seed), seed) for seed in range(200))


def test_a_run_passes_all_of_a_move() -> None:
    result = run(SEEDS[0], shape_of("deep", SEEDS[0]))
    assert result.failure is None
    assert {name for name, times in result.passed.items() if times} >= WHOLE_MOVE


def _forgets_producers(log: PartitionLog) -> None:
    log._producers._producers.clear()


def _sets_the_high_watermark_back(log: PartitionLog) -> None:
    log._high_watermark = log.log_start_offset


def _sets_the_high_watermark_to_the_end(log: PartitionLog) -> None:
    log._high_watermark = log.log_end_offset


@pytest.mark.parametrize(
    "wrong", [_forgets_producers, _sets_the_high_watermark_back, _sets_the_high_watermark_to_the_end]
)
def test_a_move_that_takes_something_else_over_is_noticed(
    monkeypatch: pytest.MonkeyPatch, wrong: Callable[[PartitionLog], None]
) -> None:
    take_over = PartitionLog.take_over

    def otherwise(self: PartitionLog, other: PartitionLog) -> None:
        take_over(self, other)
        wrong(self)

    monkeypatch.setattr(PartitionLog, "take_over", otherwise)
    failures = [run(seed, shape_of("deep", seed)).failure for seed in SEEDS[:3]]
    assert any(failure and "moved-whole" in failure for failure in failures), failures
