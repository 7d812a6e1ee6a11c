"""Whole schedules: a seed says everything, what fails can be seen again, and many together reach every crash point."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.command import main
from simulation.faults.plan import BESIDE, DRILLS, Kind, plan
from simulation.judging.invariants import broken
from simulation.judging.judges import Judges
from simulation.kernel.clock import LAST, Trace
from simulation.run import run
from simulation.shape import DRILL_EVERY, shape_of

SEEDS = [("quick", 1), ("quick", 2), ("deep", 3), ("deep", 7), ("deep", 11)]
DIGESTS = f"""
import logging
from simulation.kernel.clock import Trace
from simulation.run import run
from simulation.shape import shape_of
logging.disable(logging.CRITICAL)
for profile, seed in {SEEDS}:
    print(run(seed, shape_of(profile, seed), trace=Trace(on=True)).digest)
"""

SIM = Path(__file__).resolve().parent


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)


def digests_under(hash_seed: int) -> list[int]:
    paths = os.pathsep.join([str(SIM), str(SIM.parents[1])])
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": paths}
    done = subprocess.run([sys.executable, "-c", DIGESTS], env=environment, capture_output=True, text=True, check=True)
    return [int(line) for line in done.stdout.split()]


def traced(profile: str, seed: int) -> tuple[int, int]:
    result = run(seed, shape_of(profile, seed), trace=Trace(on=True))
    assert result.failure is None
    return result.digest, result.steps


@pytest.mark.sim
@pytest.mark.long
def test_the_same_seed_gives_the_same_trace_in_every_process_and_again_in_one() -> None:
    logging.disable(logging.CRITICAL)
    first = [traced(profile, seed) for profile, seed in SEEDS]
    again = [traced(profile, seed) for profile, seed in reversed(SEEDS)]
    assert again[::-1] == first
    digests = [digest for digest, _ in first]
    assert len(set(digests)) == len(SEEDS)
    assert digests_under(1) == digests_under(20_000) == digests


@pytest.mark.sim
def test_looking_at_a_run_does_not_change_it() -> None:
    logging.disable(logging.CRITICAL)
    unseen = [run(seed, shape_of(profile, seed)).steps for profile, seed in SEEDS[1:3]]
    assert unseen == [traced(profile, seed)[1] for profile, seed in SEEDS[1:3]]


def test_a_quick_schedule_is_three_brokers_two_topics_ten_faults_and_a_minute() -> None:
    logging.disable(logging.CRITICAL)
    shapes = {shape_of("quick", seed) for seed in range(50)}
    (shape,) = shapes
    assert (shape.brokers, len(shape.topics), shape.faults) == (3, 2, 10)
    assert run(5, shape).seconds >= 60
    assert all(len(plan(shape, seed)) == 10 for seed in range(50))


def test_a_plan_is_over_when_everything_heals() -> None:
    beside = {Kind.COORDINATOR, Kind.CLEANING, *(kind for kind, _, _ in BESIDE)}
    for seed in range(200):
        shape = shape_of("deep", seed)
        faults = plan(shape, seed)
        drilled = seed % DRILL_EVERY == 0
        assert drilled == any(fault.kind in DRILLS for fault in faults)
        by_chance = [fault for fault in plan(shape.reconciled(), seed) if fault.kind not in beside]
        assert drilled or len(by_chance) == shape.faults
        assert [fault.at_us for fault in faults] == sorted(fault.at_us for fault in faults)
        assert all(fault.at_us + fault.for_us <= shape.heal_s * 1_000_000 for fault in faults)
        assert sum(fault.lossy for fault in faults if fault.kind is not Kind.CLEANING) <= shape.lossy
        assert sum(fault.lossy for fault in faults if fault.kind is Kind.CLEANING) <= 1


def test_in_every_fourth_deep_schedule_nothing_is_reconciled() -> None:
    assert {seed % 4 for seed in range(200) if not shape_of("deep", seed).reconciles} == {2}
    assert all(shape_of("quick", seed).reconciles for seed in range(200))


@pytest.fixture
def breaks_at_20_s(monkeypatch: pytest.MonkeyPatch) -> None:
    after_step = Judges.after_step

    def break_at_20_s(judges: Judges) -> None:
        after_step(judges)
        if judges._scheduler.now_us > 20_000_000:
            raise broken("logs-agree", "planted")

    monkeypatch.setattr(Judges, "after_step", break_at_20_s)


@pytest.mark.usefixtures("breaks_at_20_s")
def test_what_fails_is_told_with_its_last_events_and_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--profile", "deep", "--seed", "9", "--seeds", "1", "--jobs", "1"]) == 1
    told = capsys.readouterr().out
    assert "seed 9 FAILED: InvariantBroken: logs-agree: planted" in told
    assert "to see it again: ./dev sim --profile deep --seed 9 --seeds 1 --trace" in told
    events = [line for line in told.splitlines() if re.match(r" +\d+\.\d{6} s  \w+ ", line)]
    assert len(events) == LAST == 40
    assert "sim: 0 of 1 schedules passed" in told


@pytest.mark.usefixtures("breaks_at_20_s")
def test_no_more_is_run_after_enough_failures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "9", "--jobs", "1", "--stop-after", "2", "-o", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["schedules"] == 2
    assert list(report["failed"]) == ["1", "2"]


def test_a_traced_schedule_shows_every_event_and_its_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "2", "--trace"]) == 0
    *events, last = capsys.readouterr().out.splitlines()
    assert len(events) > 200
    for kind in ("start", "commit", "fault", "info", "heal"):
        assert any(re.match(rf" *[\d.]+ s  {kind} ", line) for line in events), kind
    assert re.fullmatch(r"\d+ steps, [\d.]+ s of virtual time, digest [0-9a-f]{8}", last)


def test_the_report_says_how_much_was_reached(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seeds", "2", "--jobs", "1", "--points"]) == 0
    first, _, *rows = capsys.readouterr().out.splitlines()
    found = re.match(
        r"sim: 2 of 2 schedules passed in \d+ s, [\d.]+ a second and core; (\d+) of (\d+) crash points", first
    )
    assert found is not None
    passed, every = map(int, found.groups())
    assert (len(rows), sum(int(row.split()[0]) > 0 for row in rows)) == (every, passed)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--jobs", "-1"], "--jobs must be at least 1"),
        (["--seconds", "0"], "--seconds must be more than 0"),
        (["--profile", "slow"], "invalid choice: 'slow'"),
        (["--defect", "race-in-two-step"], "perhaps race-in-two-steps"),
        (["--seed", "one"], "invalid int value: 'one'"),
        (["--sede", "1"], "unrecognized arguments"),
    ],
)
def test_wrong_use_is_refused_in_a_line(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    told = capsys.readouterr().err.splitlines()
    assert told[-1].startswith("./dev sim: error: ")
    assert words in told[-1]


def test_a_crash_point_that_many_schedules_miss_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.command.MANY", 2)
    wanted = ["--seeds", "2", "--jobs", "1"]
    assert main(wanted) == 0
    assert main([*wanted, "--all-points"]) == 1
    assert main(["--seeds", "1", "--jobs", "1", "--all-points"]) == 0
