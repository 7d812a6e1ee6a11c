"""`./dev sim` ends with a line and a status, whatever becomes of its output, its terminal and its parent."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from simulation.__main__ import main as begin
from simulation.command import main
from simulation.defects import BECAUSE, DEFECTS, UNSEEN
from simulation.kernel.clock import LAST
from simulation.output import NOBODY_READS, Output
from simulation.workers import ended_by_signals

SIM = Path(__file__).resolve().parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SIM), str(SIM.parents[1])])}
COMMAND = f"{shlex.quote(sys.executable)} -m simulation"
FAILS = ["--profile", "deep", "--defect", "acknowledge-early", "--seeds", "3", "--jobs", "1", "--stop-after", "1"]

WORKERS = """
import signal
import sys
from simulation.workers import ended_by_signals, pool_of

def work(number):
    sys.stdout.write("works\\n")
    sys.stdout.flush()
    signal.pause()

with ended_by_signals(), pool_of(2) as pool:
    pool.map(work, range(2))
"""


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    disabled = logging.root.manager.disable
    yield
    logging.disable(disabled)


@pytest.fixture
def pipe_that_nobody_reads() -> Iterator[int]:
    read_end, write_end = os.pipe()
    os.close(read_end)
    yield write_end
    os.close(write_end)


@pytest.mark.parametrize(
    ("arguments", "unbuffered"),
    [("--seeds 1 --jobs 1 -o json", ""), ("--seeds 2 --jobs 2", "1"), ("--trace", ""), ("--defects", "1")],
)
def test_a_reader_that_has_gone_is_told_in_a_line_and_a_status(
    arguments: str, unbuffered: str, pipe_that_nobody_reads: int
) -> None:
    done = subprocess.run(
        f"exec {COMMAND} {arguments}",
        shell=True,
        env={**ENVIRONMENT, "PYTHONUNBUFFERED": unbuffered},
        stdout=pipe_that_nobody_reads,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert done.stderr == "./dev sim: standard output cannot be written: Broken pipe\n"
    assert done.returncode == NOBODY_READS == 141


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--trace > /dev/full", "No space left on device\n"),
        ("--seeds 2 --jobs 2 > /dev/full", "No space left on device\n"),
        ("--trace >&-", "it is closed\n"),
        ("--seeds 1 --jobs 1 > /dev/full 2>&1", ""),
        ("--seeds 1 --jobs 1 >&- 2>&-", ""),
    ],
)
def test_what_cannot_be_written_is_a_line_where_stderr_is_open_and_status_2(arguments: str, told: str) -> None:
    done = subprocess.run(
        f"exec {COMMAND} {arguments}", shell=True, env=ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert done.stderr == (told and f"./dev sim: standard output cannot be written: {told}")
    assert (done.stdout, done.returncode) == ("", 2)


class Unwritable:
    """A stream of which nothing is known but that it is full."""

    def write(self, _text: str) -> int:
        raise OSError(28, "No space left on device")

    def flush(self) -> None: ...

    def fileno(self) -> int:
        raise OSError


def test_a_schedule_that_fails_stays_a_failure_when_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", Unwritable())
    assert main(FAILS) == 1
    assert capsys.readouterr().err.count("standard output cannot be written") == 1


def test_nothing_is_written_after_something_could_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    output = Output("it")
    assert output.end(0) == 0
    monkeypatch.setattr(sys, "stdout", Unwritable())
    output.write("lost")
    monkeypatch.undo()
    output.write("dropped")
    assert output.lost
    assert (output.end(0), output.end(1), output.end(130)) == (2, 1, 130)


def test_what_fails_is_told_in_json_with_its_last_events_and_the_command_that_repeats_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*FAILS, "-o", "json"]) == 1
    [[seed, failure]] = json.loads(capsys.readouterr().out)["failed"].items()
    assert failure["failure"].startswith(("InvariantBroken: ", "HistoryWrong: "))
    assert len(failure["last_events"]) == LAST
    assert failure["again"] == f"./dev sim --profile deep --seed {seed} --seeds 1 --trace --defect acknowledge-early"


def test_defects_are_listed_in_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--defects", "-o", "json"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [*DEFECTS, *UNSEEN]
    assert {name for name, row in rows.items() if row["planted_in_vain"]} == set(BECAUSE)
    assert all(row["what"] and row["source"] for row in rows.values())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--trace", "--jobs", "2"], "--trace shows one schedule: leave out --jobs"),
        (["--trace", "--stop-after", "3", "-o", "json"], "leave out --stop-after, -o json"),
        (["--defects", "--trace"], "--defects runs nothing: leave out --trace"),
        (["--defects", "--seeds", "3", "--profile", "deep"], "leave out --seeds, --profile"),
    ],
)
def test_options_that_would_change_nothing_are_refused(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refused:
        main(arguments)
    assert refused.value.code == 2
    assert capsys.readouterr().err.endswith(f"{words}\n")


@pytest.mark.parametrize("fails", [FAILS, [*FAILS[:4], "--unreconciled", *FAILS[4:]]], ids=["", "unreconciled"])
def test_the_command_that_is_told_shows_the_same_failure(fails: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*fails, "-o", "json"]) == 1
    [failed] = json.loads(capsys.readouterr().out)["failed"].values()
    command, *arguments = failed["again"].split()
    assert (command, arguments.pop(0)) == ("./dev", "sim")
    assert main(arguments) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last == f"FAILED: {failed['failure']}"


@pytest.mark.parametrize("where", ["simulation.command.main", "simulation.command.Coverage"])
def test_ctrl_c_before_the_first_schedule_is_a_line(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupted)
    monkeypatch.setattr(sys, "argv", ["sim"])
    assert begin() == 130
    assert capsys.readouterr() == ("", "./dev sim: interrupted before the first schedule\n")


def test_ctrl_c_while_a_failure_is_looked_at_again_ends_with_a_report_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("simulation.command.run", interrupted)
    assert main(FAILS) == 130
    assert "sim: 0 of 1 schedules passed" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGHUP, 129), (signal.SIGTERM, 143)]
)
def test_workers_end_quietly_with_whoever_started_them(number: signal.Signals, status: int) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", WORKERS], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    with process:
        assert [process.stdout.readline() for _ in range(2)] == ["works\n"] * 2
        process.send_signal(number)
        assert process.stdout.read() == ""  # to the end, which comes when no worker holds the pipe any more
    assert process.returncode == status


def test_a_hangup_that_is_ignored_ends_nothing() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ended_by_signals():
            os.kill(os.getpid(), signal.SIGHUP)
    finally:
        signal.signal(signal.SIGHUP, before)
