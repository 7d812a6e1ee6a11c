"""What the processes of a job write down while they live, for whoever judges when they are dead: files in one folder.

`rows.PID` grows by a byte with each slice of rows that went through a task; `attempt.QUERY.BATCH.TASK.NUMBER` tells of
one attempt of a task that writes: a line of JSON when it began, one when it reads back, one when it ended well.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pyarrow as pa

FOLDER = "SPARK_KILLS_NOTES"
"""Environment variable that names the folder to every process of a job."""
SLICE_ROWS = 500
PAUSE_S = 0.01
"""After each slice: short jobs would be over before anybody is killed."""


class Attempt(NamedTuple):
    """One attempt of a task that writes. Times are wall milliseconds."""

    pid: int
    begun_ms: int
    asked_ms: int | None
    """When it began to read back; None if it did not."""
    ended: bool


class TaskName(NamedTuple):
    """A task of a batch of a query."""

    query: UUID
    batch: int
    task: int


class AttemptNotes:
    """Written by an attempt about itself. `number` counts the attempts of its task, whatever driver planned them."""

    def __init__(self, folder: Path, name: TaskName) -> None:
        self.number, self._path = _claim(folder, f"attempt.{name.query}.{name.batch}.{name.task}")
        self._add(pid=os.getpid(), begun_ms=now_ms())

    def reads_back(self) -> None:
        """It asks for the ends of the topics from now on."""
        self._add(asked_ms=now_ms())

    def ends(self) -> None:
        self._add(ended=True)

    def _add(self, **facts: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(facts) + "\n")


def attempts(folder: Path) -> dict[TaskName, dict[int, Attempt]]:
    """What is written down of attempts, by task and number."""
    found: dict[TaskName, dict[int, Attempt]] = {}
    for path in folder.glob("attempt.*"):
        query, batch, task, number = path.name.removeprefix("attempt.").split(".")
        facts: dict[str, Any] = {}
        for line in path.read_text().splitlines():
            facts |= json.loads(line)
        name = TaskName(UUID(query), int(batch), int(task))
        found.setdefault(name, {})[int(number)] = Attempt(
            facts.get("pid", 0), facts.get("begun_ms", 0), facts.get("asked_ms"), bool(facts.get("ended"))
        )
    return found


def counted(batches: Iterator[pa.RecordBatch], *, pause_s: float = PAUSE_S) -> Iterator[pa.RecordBatch]:
    """The batches in slices, each noted before it goes on."""
    path = Path(os.environ[FOLDER]) / f"rows.{os.getpid()}"
    for batch in batches:
        for start in range(0, batch.num_rows, SLICE_ROWS):
            with path.open("ab") as file:
                file.write(b".")
            time.sleep(pause_s)
            yield batch.slice(start, SLICE_ROWS)


def rows_by_process(folder: Path) -> dict[int, int]:
    """About how many rows went through each process so far."""
    return {int(path.suffix[1:]): path.stat().st_size * SLICE_ROWS for path in folder.glob("rows.*")}


def now_ms() -> int:
    """Wall clock, as brokers stamp what they append."""
    return int(time.time() * 1000)


def _claim(folder: Path, name: str) -> tuple[int, Path]:
    """The first number nobody has, and its file."""
    number = 0
    while True:
        path = folder / f"{name}.{number}"
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            number += 1
            continue
        return number, path
