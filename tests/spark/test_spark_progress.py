"""Whoever looks at a terminal sees how many tasks of a job are done."""

from __future__ import annotations

import os
import pty
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from regency.cli.pipeline.spark import _shown_tasks

WITHIN_S = 60
TASKS = 3
COUNTED = re.compile(rf"tasks [^\d]*1/{TASKS} ")
_COLOURS = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")


def waits_for(file: Path) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """A task that ends once the file is there; the first does not wait."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            while batch.column(0).to_pylist() != [0] and not file.exists():
                time.sleep(0.05)
            yield batch

    return run


def test_tasks_are_counted_on_a_terminal_while_they_run(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = pty.openpty()
    seen = ""
    rows: list[Any] = []

    def work() -> None:
        rows.extend(spark.range(0, TASKS, 1, TASKS).mapInArrow(waits_for(tmp_path / "go"), "id long").collect())

    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    with open(theirs, "w") as terminal, open(ours, "rb", buffering=0) as screen:  # noqa: PTH123  (descriptors)
        monkeypatch.setattr(sys, "stderr", terminal)
        worker = threading.Thread(target=work, daemon=True)
        try:
            with _shown_tasks(spark):
                worker.start()
                end = time.monotonic() + WITHIN_S
                while COUNTED.search(_COLOURS.sub("", seen)) is None and time.monotonic() < end:
                    if select.select([screen], [], [], 0.1)[0]:
                        seen += os.read(screen.fileno(), 4096).decode(errors="replace")
        finally:
            (tmp_path / "go").touch()
            worker.join(WITHIN_S)
    assert COUNTED.search(_COLOURS.sub("", seen)) is not None, f"the terminal showed {seen!r}"
    assert [row.id for row in rows] == [0, 1, 2]


def test_nothing_is_shown_where_nobody_looks(spark: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with _shown_tasks(spark):
        assert spark.range(3).count() == 3
    assert capsys.readouterr().err == ""
