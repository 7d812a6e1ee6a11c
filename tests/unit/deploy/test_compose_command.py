"""What `./dev compose-test` says where it cannot run, how it reads dashboards, and what a failed step does to a run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from compose_test import files
from compose_test.dashboards import queries
from compose_test.engine import ROOT, CommandFailed
from compose_test.project import STARTED
from compose_test.steps import StepFailed, Steps
from compose_test.waiting import CheckFailed, eventually, expect

FAKE = "#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n"


def compose_test(*arguments: str, path: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": str(path),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "compose")]),
    }
    return subprocess.run(
        [sys.executable, "-m", "compose_test", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )


def test_without_docker_it_says_what_to_install(tmp_path: Path) -> None:
    done = compose_test(path=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("compose-test: There is no command `docker`.")


def test_without_an_engine_it_says_what_to_start(tmp_path: Path) -> None:
    fake = tmp_path / "docker"
    fake.write_text(FAKE)
    fake.chmod(0o755)
    done = compose_test(path=tmp_path)
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "compose-test: No container engine answers: Cannot connect to the Docker daemon",
        "Start it (systemctl start docker), or point DOCKER_HOST at one; who calls it needs the right to.",
    ]


def test_wrong_use_is_2(tmp_path: Path) -> None:
    assert compose_test("--nonsense", path=tmp_path).returncode == 2


def test_everything_but_grafana_is_started() -> None:
    assert {*files.services()} - {*STARTED} == {"grafana", "agent-4"}


def test_a_failed_step_fails_the_run_and_stops_it_where_others_need_it() -> None:
    steps = Steps()

    def fail() -> str:
        raise CheckFailed("not so")

    steps.run("first", lambda: "seen")
    steps.run("second", fail, needed=False)
    with pytest.raises(StepFailed):
        steps.run("third", lambda: expect(False, "nor so"))
    assert [(step.name, step.ok, step.said) for step in steps.done] == [
        ("first", True, "seen"),
        ("second", False, "not so"),
        ("third", False, "nor so"),
    ]
    assert not steps.ok


def test_a_mistake_of_the_test_is_no_finding() -> None:
    with pytest.raises(TypeError):
        Steps().run("wrong", lambda: len(3))  # type: ignore[arg-type]


def test_waiting_ends_and_says_what_for() -> None:
    with pytest.raises(CheckFailed, match=r"not within 0 s: rain; last: no"):
        eventually(lambda: None, within_s=0, what=lambda: "rain; last: no")
    assert eventually(lambda: 3, within_s=0, what="three") == 3


def test_a_failed_command_is_told_with_the_end_of_its_words() -> None:
    said = "\n".join(f"line {number}" for number in range(100))
    words = str(CommandFailed(("docker", "a b"), 1, said))
    assert words.startswith("`docker 'a b'` ended with 1:\nline 85\n")
    assert words.endswith("line 99")


def dashboard(directory: Path, expression: str) -> None:
    panel = {"title": "P", "targets": [{"expr": expression, "instant": True}, {"refId": "B"}]}
    row = {"title": "row", "panels": [panel]}
    document = {"title": "D", "panels": [row], "templating": {"list": [{"name": "topic"}]}}
    (directory / "d.json").write_text(json.dumps(document))


def test_expressions_are_filled_as_grafana_does(tmp_path: Path) -> None:
    dashboard(tmp_path, 'rate(x{topic=~"$topic"}[$__rate_interval]) + y{t=~"${topic:regex}"}')
    [query] = queries(tmp_path)
    assert query.expression == 'rate(x{topic=~".*"}[1m]) + y{t=~".*"}'
    assert (query.dashboard, query.panel, query.instant) == ("D", "P", True)


def test_a_variable_that_nobody_defines_is_named(tmp_path: Path) -> None:
    dashboard(tmp_path, "x{broker=~'$broker'}")
    with pytest.raises(ValueError, match="panel P: nobody defines the variable broker"):
        queries(tmp_path)
