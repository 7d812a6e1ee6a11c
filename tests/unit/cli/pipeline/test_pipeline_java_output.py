"""What Spark's Java writes beside a job's result, and a result that nobody reads."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, QueryContextType

from regency.cli.exits import CommandFailed
from regency.cli.pipeline import spark
from regency.cli.pipeline.spark import SparkChoice, _log_errors, _output_into, job_session

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


class Failed(PySparkException):
    """What a query raises, of a kind of text: that of SQL or of a program's calls."""

    def __init__(self, kind: QueryContextType) -> None:
        super().__init__("words")
        self._kind = kind
        self._contexts = [self]

    def contextType(self) -> QueryContextType:  # noqa: N802  (a name of PySpark's, as below)
        return self._kind

    def callSite(self) -> str:  # noqa: N802
        return "job.py:7"

    def fragment(self) -> str:
        return "get"


@pytest.mark.parametrize("kind", list(QueryContextType))
def test_errors_that_are_raised_are_logged_besides_only_where_a_log_was_asked_for(
    kind: QueryContextType, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.Logger, "manager", logging.Manager(logging.root))  # as in a new process
    _log_errors(False)
    Failed(kind)._log_exception()
    assert capfd.readouterr() == ("", "")
    _log_errors(True)
    Failed(kind)._log_exception()
    assert '"logger": "' in capfd.readouterr().err


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_started", "_shown_tasks", "orderly_interrupts"):
        monkeypatch.setattr(spark, name, lambda *_, **__: contextlib.nullcontext())


@pytest.mark.usefixtures("without_spark")
def test_a_reader_who_closed_the_pipe_is_no_failure_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:  # noqa: PTH123  (a descriptor)
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(BrokenPipeError), job_session("job", SparkChoice("local", {}), stopped=""):
            print("{}", flush=True)
        monkeypatch.undo()
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


@pytest.mark.usefixtures("without_spark")
def test_a_pipe_to_java_that_broke_is_a_failure_though_someone_reads() -> None:
    session = job_session("job", SparkChoice("local", {}), stopped="")
    with pytest.raises(CommandFailed, match=r"Spark's Java failed: .*Broken pipe"), session:
        raise BrokenPipeError(32, "Broken pipe")
