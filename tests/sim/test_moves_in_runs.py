"""Runs of the whole system in which replicas move between log directories: they do, and what goes wrong is noticed."""

from __future__ import annotations

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


def test_a_move_that_forgets_producers_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    take_over = PartitionLog.take_over

    def forget(self: PartitionLog, other: PartitionLog) -> None:
        take_over(self, other)
        self._producers._producers.clear()

    monkeypatch.setattr(PartitionLog, "take_over", forget)
    failures = [run(seed, shape_of("deep", seed)).failure for seed in SEEDS[:3]]
    assert any(failure and "moved-whole" in failure for failure in failures), failures
