"""A controller that is paused at any write or request, and resumed when another rules, changes nothing."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.faults.points import crash_point_names
from simulation.kernel.clock import Trace
from simulation.paused.__main__ import main
from simulation.paused.enumeration import WITHOUT_OFFICE, Breaker, Trial, breakers, played, run, share, trials_of
from simulation.paused.scenes import SCENES
from simulation.paused.trial import WAYS, play
from simulation.paused.watch import REQUESTS, Moment, handled_events, writing_verbs

pytestmark = pytest.mark.sim

UNREACHED_EVENTS = {
    "ShutDown": "a simulated controller ends with its process; one that is told to end in order only resigns"
}
UNREACHED_POINTS = {
    "controller.reconcile.before_overtaking": "a replica would have to know more than ZooKeeper, which is forbidden"
}
"""Some of them are passed by chance: a report may be late."""


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)


def moments() -> list[tuple[str, Moment]]:
    return [(scene, moment) for scene in SCENES for moment in played(scene).moments]


# What is gone through


@pytest.mark.parametrize("scene", SCENES)
def test_a_scene_comes_to_its_end_while_nobody_is_paused(scene: str) -> None:
    assert played(scene).failure is None


def test_the_scenes_make_every_write_the_controller_can_make() -> None:
    made = {moment.verb for _, moment in moments() if moment.is_write}
    assert made == {str(verb) for verb in writing_verbs()}
    assert len(made) > 15


def test_the_scenes_send_everything_agents_can_be_asked_for() -> None:
    assert {moment.verb for _, moment in moments() if not moment.is_write} == REQUESTS


def test_the_scenes_go_through_every_handler() -> None:
    reached = frozenset().union(*(played(scene).events for scene in SCENES))
    assert handled_events() - reached == UNREACHED_EVENTS.keys()


def test_the_scenes_pass_every_crash_point_of_the_controller() -> None:
    passed = {point for scene in SCENES for point, times in played(scene).points.items() if times}
    known = {name for name in crash_point_names() if name.startswith(("controller.", "fenced.", "sender."))}
    assert known - passed <= UNREACHED_POINTS.keys()


def test_what_tests_leave_out_is_only_what_is_there_again() -> None:
    chosen = {(trial.scene, trial.number, trial.way) for trials in share().values() for trial in trials}
    kinds = {(moment.verb, moment.event): set() for _, moment in moments()}
    for scene, moment in moments():
        kinds[moment.verb, moment.event].update(way for way in WAYS if (scene, moment.number, way) in chosen)
    assert all(ways == WAYS.keys() for ways in kinds.values())
    assert chosen <= {tuple(trial) for scene in SCENES for trial in trials_of(scene)}


# What comes of it


@pytest.mark.parametrize("scene", SCENES)
def test_a_controller_resumed_when_another_rules_changes_nothing(scene: str) -> None:
    failed = {str(trial): outcome.failure for trial in share()[scene] if (outcome := run(trial)).failure is not None}
    assert failed == {}, "to see one: PYTHONPATH=tests/sim python -m simulation.paused ONE --trace"


@pytest.mark.parametrize("breaker", breakers(), ids=lambda each: each.name)
def test_a_fence_that_is_missing_is_found(breaker: Breaker) -> None:
    known = {(scene, moment.number): moment for scene, moment in moments()}
    tried = [
        trial
        for trials in share().values()
        for trial in trials
        if breaker.verb in ("", known[trial.scene, trial.number].verb)
    ]
    found = next((failure for trial in tried if (failure := run(trial, plant=breaker.plant).failure)), None)
    assert found is not None
    assert found.startswith(("InvariantBroken: controller-fenced", "InvariantBroken: deposed-refused"))


@pytest.mark.parametrize("verb", [str(verb) for verb in sorted(writing_verbs()) if str(verb) not in WITHOUT_OFFICE])
def test_a_missing_check_of_the_epoch_shows_only_where_somebody_is_paused(verb: str) -> None:
    (breaker,) = [each for each in breakers() if each.verb == verb]
    scene = next(scene for scene, moment in moments() if moment.verb == verb)
    assert play(*SCENES[scene], plant=breaker.plant).failure is None


def test_a_trial_is_the_same_whatever_the_hash_seed() -> None:
    here = run(Trial("failovers", 16, "sent-deleted"), trace=Trace(on=True))
    there = subprocess.run(
        [sys.executable, "-m", "simulation.paused", *str(Trial("failovers", 16, "sent-deleted")).split(), "--trace"],
        env={**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)},
        cwd=Path(__file__).parent,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert there.splitlines()[-1] == f"digest {here.digest:08x}"
    assert "is paused when it is sent, its answer unread" in there


# The command


def test_the_command_lists_what_can_be_paused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list", "--scene", "growth"]) == 0
    listed = capsys.readouterr().out.splitlines()
    wanted = "(CreatePartitions) store.topics.write_assignments check /controller_epoch, setdata /brokers/topics/blue"
    assert sum(line.endswith(wanted) for line in listed) == 1
    assert len(listed) == len(played("growth").moments)


def test_the_command_says_what_failed_and_how_to_see_it(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--scene", "growth", "--number", "1", "--way", "before-deleted", "--jobs", "1"]
    assert main(arguments) == 0
    assert "1 of 1 trials passed" in capsys.readouterr().out
    number = next(moment.number for scene, moment in moments() if (scene, moment.event) == ("growth", "AlterConfigs"))
    arguments[3] = str(number)
    assert main([*arguments, "--without", "unfenced-store.configs.write_configs"]) == 1
    told = capsys.readouterr().out
    assert "FAILED: InvariantBroken: controller-fenced" in told
    assert f"python -m simulation.paused --scene growth --number {number} --way before-deleted --trace" in told


@pytest.mark.parametrize(
    "arguments", [["--number", "1"], ["--scene", "growth", "--number", "0"], ["--trace"], ["--jobs", "0"]]
)
def test_the_command_refuses_what_cannot_be_meant(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().err
