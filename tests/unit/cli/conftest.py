"""The command line in an empty directory, with nothing of this machine's environment."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from fake_cluster import FakeCluster

from regency.cli.asking import wire
from regency.cli.main import cli
from regency.cli.schemas import LINES, OUTPUTS, output_type


def check_schema(words: Sequence[str], printed: str) -> None:
    """Fails where a command prints with -o json what is not of the type that its schema is made from."""
    if "json" not in words or not printed:
        return
    command = next((name for name in sorted(OUTPUTS, key=len, reverse=True) if set(name.split()) <= set(words)), None)
    assert command is not None or not printed.startswith(("{", "[")), f"no schema: {words}"
    if command is not None:
        for document in printed.splitlines() if command in LINES else [printed]:
            again = msgspec.json.decode(document, type=output_type(command))
            assert json.loads(msgspec.json.encode(again)) == json.loads(document), command


Run = Callable[..., Result]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run("topics", "list")`: stdout, stderr and exit status of a command."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGENCY_BOOTSTRAP_SERVERS", raising=False)

    def invoke(*words: str, given: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(cli, words, input=given, prog_name="regency")
        check_schema(words, result.stdout)
        return result

    return invoke


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Callable[[FakeCluster], None]:
    """`connect(fake)`: every command asks that one."""

    def place(fake: FakeCluster) -> None:
        monkeypatch.setattr(wire, "ClusterWire", lambda _: fake)
        monkeypatch.setattr(wire, "ask_controller", fake.order)

    return place
