"""README's tour and its Python example are run as they stand."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

pytestmark = pytest.mark.integration

README = (Path(__file__).parents[3] / "README.md").read_text("utf-8")
BIN = Path(sys.executable).parent
COMMAND_S = 60
LATER_S = 30
"""Longest time that "a few seconds later" may be."""


class Step(NamedTuple):
    command: str
    status: int
    later: bool
    """Whether what it prints is true some seconds later."""
    shown: list[str]


def block(heading: str, language: str) -> str:
    """The first code block of this language below a heading."""
    [text] = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", README, re.DOTALL | re.MULTILINE)
    found = re.search(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found is not None
    return found[1]


def steps() -> list[Step]:
    made = []
    for part in re.split(r"^\$ ", block("A tour of five minutes", "console"), flags=re.MULTILINE)[1:]:
        line, *shown = part.rstrip().splitlines()
        command, _, remark = line.partition("  # ")
        status = re.search(r"exit status (\d+)", remark)
        made.append(Step(command.strip(), int(status[1]) if status else 0, "later" in remark, shown))
    return made


def pattern(shown: list[str]) -> re.Pattern[str]:
    """What was printed, whatever numbers and gaps it had; `...` stands for any lines."""
    parts = []
    for line in shown:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        elif line.strip():
            words = [re.sub(r"\d+", r"\\d+", re.escape(word)) for word in line.split()]
            words = [word.replace("/home/me/", r"\S*/") for word in words]
            parts.append(r"\s*" + r"\s+".join(words) + r"[ ]*\n")
    return re.compile("".join(parts))


def test_a_pattern_knows_numbers_and_gaps_from_words() -> None:
    shown = ["A  B", "flights  0  1,2,3", "...", "End."]
    assert pattern(shown).search("A    B\nflights  17  3,1,2\nother\nEnd.\n")
    assert not pattern(shown).search("A    B\nflight  17  3,1,2\nother\nEnd.\n")


def let_another_rule(directory: Path, environment: dict[str, str]) -> None:
    """The tour kills broker 2; where it rules, history tells of a failover, which is longer."""
    for _ in range(10):
        words = [BIN / "regency", "-o", "json", "controller", "status"]
        told = subprocess.run(words, cwd=directory, env=environment, capture_output=True, text=True, check=True).stdout
        if not any(each["broker"] == 2 and each["rules"] for each in json.loads(told)):
            return
        subprocess.run([BIN / "regency", "controller", "resign"], cwd=directory, env=environment, check=True)
    pytest.fail("broker 2 rules again and again")


@pytest.mark.timeout(300)
def test_the_tour_prints_what_it_shows(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("REGENCY_")}
    environment |= {"PATH": f"{BIN}:{os.environ['PATH']}", "COLUMNS": "160"}
    tour = steps()
    assert len(tour) > 8
    try:
        for step in tour:
            stop = time.monotonic() + (LATER_S if step.later else 0)
            while True:
                done = subprocess.run(
                    ["bash", "-o", "pipefail", "-c", step.command],
                    cwd=tmp_path,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    timeout=COMMAND_S,
                    check=False,
                )
                as_shown = done.returncode == step.status and pattern(step.shown).search(done.stdout + "\n")
                if as_shown or time.monotonic() > stop:
                    break
                time.sleep(0.5)
            assert as_shown, f"$ {step.command}\nexit status {done.returncode}\n{done.stdout}"
            if step is tour[0]:
                let_another_rule(tmp_path, environment)
    finally:
        subprocess.run([BIN / "regency", "down"], cwd=tmp_path, env=environment, capture_output=True, check=False)


@pytest.mark.timeout(120)
def test_the_python_example_runs_and_its_types_are_right(tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(block("A tour of five minutes", "python"))
    for command in (["-m", "mypy", "--strict", "--no-incremental", "--follow-imports=silent"], []):
        done = subprocess.run(
            [sys.executable, *command, str(example)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
