"""Ctrl-C while Java works: the answer that is still to come is nobody's."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from regency.cli.exits import exit_on_termination
from regency.cli.pipeline.interrupts import Farewell, handlers_now, orderly_interrupts


def endless(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches
    while True:
        time.sleep(0.1)


def test_a_job_that_is_interrupted_is_cancelled_and_the_session_answers_what_it_is_asked_next(
    spark: Any, eventually: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = spark.sparkContext.statusTracker()

    def running() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(stage is not None and stage.numActiveTasks for stage in stages)

    def interrupt() -> None:
        eventually(running, within=60, what="a task runs")
        os.kill(os.getpid(), signal.SIGINT)

    with exit_on_termination():
        handlers = handlers_now()
        other = threading.Thread(target=interrupt)
        other.start()
        with pytest.raises(SystemExit), orderly_interrupts(spark, handlers, Farewell("There is no result.")):
            spark.range(0, 3, 1, 3).mapInArrow(endless, "id long").collect()
        other.join()
        assert spark.range(7).count() == 7
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert said.startswith("Stopped after ")
    assert said.endswith(" s, with 0 of 3 tasks done of what was running. There is no result.\n")
    eventually(lambda: not running(), within=30, what="the tasks end")
