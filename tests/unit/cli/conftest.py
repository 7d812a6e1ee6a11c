"""The command line in an empty directory, with nothing of this machine's environment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from fake_cluster import FakeCluster

from regency.cli.asking import wire
from regency.cli.main import cli

Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("topics", "list")`: stdout, stderr and exit status of a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGENCY_BOOTSTRAP_SERVERS", raising=False)

    def invoke(*words: str, given: str | bytes | None = None) -> Result:
        return CliRunner().invoke(cli, words, input=given, prog_name="regency")

    return invoke


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeCluster], None]:
    """`connect(fake)`: every command asks that one."""

    def place(fake: FakeCluster) -> None:
        monkeypatch.setattr(wire, "ClusterWire", lambda _: fake)
        monkeypatch.setattr(wire, "ask_controller", fake.order)

    return place
