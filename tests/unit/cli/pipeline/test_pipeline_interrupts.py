"""Ctrl-C and SIGTERM while a job waits for Java, with a Java that only notes what it is told."""

from __future__ import annotations

import os
import signal
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext, accumulators, java_gateway

from regency.cli.exits import CommandFailed, exit_on_termination
from regency.cli.pipeline import interrupts, spark
from regency.cli.pipeline.interrupts import Farewell, handlers_now, interrupts_as_exits, java_ended, orderly_interrupts

WHENEVER = pytest.mark.parametrize("inside", ["while Spark starts", "while it works"])


class Java:
    """Two stages of which one knows how far it is, and a connection that waits for an answer."""

    def __init__(self, *, gone: bool = False) -> None:
        self.gone = gone
        self.cancelled: list[bool] = []
        self.waiting = SimpleNamespace(connection="that waits for an answer")
        self._gateway = SimpleNamespace(_gateway_client=SimpleNamespace(thread_connection=self.waiting))
        self.sparkContext = self

    def statusTracker(self) -> Any:  # noqa: N802
        if self.gone:
            raise ConnectionError("Java is gone")
        stages = {1: SimpleNamespace(numCompletedTasks=3, numTasks=8), 2: None}
        return SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)

    def cancelAllJobs(self) -> None:  # noqa: N802
        assert self.waiting.connection is None, "nobody takes the answer that is still to come"
        self.cancelled.append(threading.current_thread() is threading.main_thread())


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_hangs_up_cancels_all_jobs_and_says_where_it_stood(
    number: signal.Signals, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    java: Any = Java()
    with exit_on_termination() as ending:
        handlers = handlers_now()
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as Spark, which puts another there
        with pytest.raises(SystemExit) as raised, orderly_interrupts(java, handlers, Farewell("Nothing was written.")):
            os.kill(os.getpid(), number)
            pytest.fail("the signal was not heard")
        assert raised.value.code == ending.status == status, "Py4J prints a traceback for KeyboardInterrupt"
        assert handlers_now() == handlers
    assert java.cancelled == [False], "by a thread with a connection of its own"
    assert capsys.readouterr() == (
        "",
        "Stopped after 0 s, with 3 of 8 tasks done of what was running. Nothing was written.\n",
    )


def test_a_java_that_is_gone_is_in_nobodys_way(capsys: pytest.CaptureFixture[str]) -> None:
    java: Any = Java(gone=True)
    with pytest.raises(KeyboardInterrupt), orderly_interrupts(java, {}, Farewell("There is no verdict.")):
        raise KeyboardInterrupt
    with exit_on_termination():
        handlers = handlers_now()
        with pytest.raises(SystemExit), orderly_interrupts(java, handlers, Farewell("There is no verdict.")):
            os.kill(os.getpid(), signal.SIGINT)
    assert capsys.readouterr().err == "Stopped after 0 s. There is no verdict.\n" * 2


def test_errors_pass_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    java: Any = Java()
    with pytest.raises(ValueError, match="7"), orderly_interrupts(java, handlers_now(), Farewell("")):
        raise ValueError("7")
    assert java.cancelled == []
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("script", "ended_by"),
    [
        ("cat", 0),
        ("exec sleep 600 < /dev/null", -signal.SIGTERM),
        ("trap '' TERM; echo; exec sleep 600 < /dev/null", -signal.SIGKILL),
    ],
    ids=["who listens", "who starts", "who is stuck"],
)
def test_a_java_that_was_launched_has_ended_afterwards_whether_or_not_it_listens(
    script: str, ended_by: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interrupts, "_END_S", 0.5)
    launch = java_gateway.Popen
    launched: list[subprocess.Popen[bytes]] = []
    with pytest.raises(KeyboardInterrupt), java_ended():
        launched.append(java_gateway.Popen(["sh", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        if ended_by == -signal.SIGKILL:
            launched[0].stdout.read(1)  # type: ignore[union-attr]  (it does not hear SIGTERM any more)
        raise KeyboardInterrupt  # while PySpark waits for it
    launched[0].stdout.close()  # type: ignore[union-attr]
    assert launched[0].poll() == ended_by
    assert java_gateway.Popen is launch


def test_nothing_is_said_to_java_once_it_is_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of Java that are collected afterwards were told to it, which printed a traceback now and then."""
    order: list[str] = []

    class Gateway:
        def shutdown(self) -> None:
            order.append("hung up" if launched[0].poll() is None else "too late")

    monkeypatch.setattr(SparkContext, "_gateway", Gateway())
    monkeypatch.setattr(SparkContext, "_jvm", object())
    launched: list[subprocess.Popen[bytes]] = []
    with java_ended():
        launched.append(java_gateway.Popen(["cat"], stdin=subprocess.PIPE))
    assert order == ["hung up"]
    assert SparkContext._gateway is SparkContext._jvm is None
    with java_ended():
        pass  # another's gateway, say of the tests: nothing was launched here
    assert order == ["hung up"]


def during(inside: str, handlers: dict[int, Any]) -> Any:
    if inside == "while Spark starts":
        return interrupts_as_exits(handlers)
    return orderly_interrupts(Java(), handlers, Farewell(""))  # type: ignore[arg-type]


@WHENEVER
def test_after_ctrl_c_the_end_of_tasks_counts_prints_nothing(
    inside: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """PySpark's server for them, of whichever kind, takes the end of Java for an error of its own."""
    kinds = (accumulators.AccumulatorTCPServer, accumulators.AccumulatorUnixServer)
    for kind in kinds:
        monkeypatch.setattr(kind, "handle_error", socketserver.BaseServer.handle_error)  # an earlier test changed it
    with exit_on_termination(), pytest.raises(SystemExit), during(inside, handlers_now()):
        os.kill(os.getpid(), signal.SIGINT)
    capsys.readouterr()
    for kind in kinds:
        server: Any = object.__new__(kind)
        server.handle_error(None, ("127.0.0.1", 1))
    assert capsys.readouterr() == ("", "")


@WHENEVER
def test_what_fails_on_the_way_out_is_not_the_reason(inside: str, capsys: pytest.CaptureFixture[str]) -> None:
    """PySpark undoes what it began over the connection that was cut off, and fails at it."""
    with exit_on_termination():
        with pytest.raises(SystemExit) as raised, during(inside, handlers_now()):
            try:
                os.kill(os.getpid(), signal.SIGTERM)
            finally:
                raise ConnectionError("SparkSession does not exist in the JVM")
        assert raised.value.code == 143
    assert "does not exist" not in capsys.readouterr().err


def test_while_spark_starts_ctrl_c_is_an_exit_too() -> None:
    with exit_on_termination() as ending:
        handlers = handlers_now()
        with pytest.raises(SystemExit) as raised, interrupts_as_exits(handlers):
            os.kill(os.getpid(), signal.SIGINT)
        assert raised.value.code == ending.status == 130
        assert handlers_now() == handlers


@pytest.mark.parametrize("there", [False, True])
def test_an_interrupt_that_was_taken_for_an_error_is_told_all_the_same(
    there: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    java: Any = Java()

    @contextmanager
    def starting(*_: object) -> Iterator[Any]:
        if not there:
            with suppress(SystemExit):
                os.kill(os.getpid(), signal.SIGTERM)
            raise CommandFailed("Java was lost while it started.")
        yield java
        os.kill(os.getpid(), signal.SIGTERM)  # when all is done

    monkeypatch.setattr(spark, "_started", starting)
    monkeypatch.setattr(spark, "_shown_tasks", lambda _: nullcontext())
    session = spark.job_session("job", spark.SparkChoice("local", {}), stopped="Nothing was written.")
    with exit_on_termination(), pytest.raises(SystemExit) as raised, session:
        pass
    assert raised.value.code == 143
    assert capsys.readouterr().err == ("" if there else "Stopped before Spark was there. Nothing was written.\n")
