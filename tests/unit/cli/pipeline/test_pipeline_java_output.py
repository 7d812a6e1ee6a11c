"""What Spark's Java writes beside a job's result."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from regency.cli.pipeline.spark import _output_into

SPEAK = ["sh", "-c", "echo result-like; echo words >&2"]


def test_stdout_has_nothing_of_java(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with (tmp_path / "words").open("w+") as words:
        with _output_into(words.fileno()):
            java = subprocess.Popen(SPEAK)
        print("result")
        assert java.wait(30) == 0
        assert (tmp_path / "words").read_text() == "result-like\nwords\n"
    assert capfd.readouterr() == ("result\n", "")


def test_where_a_log_was_asked_for_all_of_it_is_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with _output_into(2):
        subprocess.run(SPEAK, check=True, timeout=30)
    print("result")
    assert capfd.readouterr() == ("result\n", "result-like\nwords\n")
