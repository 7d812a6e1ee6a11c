"""`regency logs`: whose entries, how many, from when, and colours on a terminal only."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from regency.cluster.state import BrokerPorts, ClusterState, write_state
from regency.model.ids import BrokerId

Run = Callable[..., Result]
FIRST = "2026-05-04T10:00:00.000Z INFO    agent-1 a: first"
SECOND = "2026-05-04T10:00:01.000Z INFO    controller-2 c: second"
THIRD = "2026-05-04T10:00:02.000Z ERROR   agent-1 a: third\nTraceback"


@pytest.fixture
def lab(tmp_path: Path, run: Run) -> Run:
    home = tmp_path / ".run"
    for name, text in (("agent-1", f"{FIRST}\n{THIRD}\n"), ("agent-2", f"{SECOND}\n")):
        (home / name).mkdir(parents=True)
        (home / name / "agent.log").write_text(text)
    brokers = tuple(BrokerPorts(BrokerId(number), {}) for number in (1, 2, 3))
    write_state(home, ClusterState(zookeeper_connect="z", zookeeper_port=0, session_timeout_ms=3000, brokers=brokers))
    return run


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), ["broker 1   " + FIRST, "broker 2   " + SECOND, *("broker 1   " + line for line in THIRD.split("\n"))]),
        (("1",), ["broker 1   " + FIRST, *("broker 1   " + line for line in THIRD.split("\n"))]),
        (("controller",), ["broker 2   " + SECOND]),
        (("3",), []),
        (("-n", "1", "2", "3"), ["broker 2   " + SECOND]),
        (("-n", "2", "1"), ["broker 1   " + FIRST, *("broker 1   " + line for line in THIRD.split("\n"))]),
        (("-n", "0"), []),
        (("--since", "2026-05-04T10:00:01+00:00", "2"), ["broker 2   " + SECOND]),
        (("--since", "10s"), []),
    ],
)
def test_whose_how_many_and_from_when(lab: Run, words: tuple[str, ...], told: list[str]) -> None:
    result = lab("logs", *words)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.splitlines() == told


@pytest.mark.parametrize(
    ("word", "near"), [("broker-2", "Did you mean 2? "), ("agent-2", "Did you mean 2? "), ("flights-2", "")]
)
def test_a_partition_has_no_log(lab: Run, word: str, near: str) -> None:
    result = lab("logs", word)
    told = f"'{word}' is no part of a lab. {near}Name brokers (1, 2, 3), controller, zookeeper or all."
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", f"Error: {told}\n")


def test_json_has_an_object_for_each_entry(lab: Run) -> None:
    found = [json.loads(line) for line in lab("logs", "-o", "json").stdout.splitlines()]
    assert [(each["process"], each["text"], each["by_controller"]) for each in found] == [
        ("broker 1", FIRST, False),
        ("broker 2", SECOND, True),
        ("broker 1", THIRD, False),
    ]


def test_what_is_not_there_is_named(lab: Run) -> None:
    refused = lab("logs", "9")
    assert (refused.exit_code, refused.stderr) == (1, "Error: There is no broker 9. There are 1, 2, 3.\n")
    refused = lab("logs", "zookeeper")
    assert (refused.exit_code, "not its own" in refused.stderr) == (1, True)
    refused = lab("logs", "--dir", "nowhere")
    assert (refused.exit_code, "There is no cluster in nowhere." in refused.stderr) == (1, True)
