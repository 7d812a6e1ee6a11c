"""Tasks and drivers are killed while they write a stream: at least once by default, once with effectivelyOnce.

The jobs are processes of their own (sink_killing.py), killed with SIGKILL and started again from their checkpoints.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from regency.pipeline.sink_identity import HEADER

HERE = Path(__file__).parent
BATCHES, ROWS = 4, 4_000
"""Batches, and rows of each task; two tasks make a batch."""


class Job:
    """A stream with its input, checkpoint and topic."""

    def __init__(self, servers: str, folder: Path, topic: str, **options: str) -> None:
        self.told: dict[str, Any] = {
            "servers": servers,
            "topic": topic,
            "master": "local[2,4]",
            "options": options,
            "settings": {},
            "deaths": [],
        }
        for name in ("input", "checkpoint", "markers"):
            (folder / name).mkdir(parents=True)
            self.told[name] = str(folder / name)
        self.rows: Counter[bytes] = Counter()
        for number in range(2 * BATCHES):
            lines = [f"{number}-{row % 3500} of file {number}" for row in range(ROWS)]  # some rows are equal
            (folder / "input" / f"{number:02}.txt").write_text("\n".join(lines))
            self.rows.update(line.encode() for line in lines)

    def run(self, *deaths: dict[str, Any]) -> int:
        """Exit status of the driver; negative for the signal that ended it."""
        self.told["deaths"] += deaths
        driver = subprocess.Popen(
            [sys.executable, str(HERE / "sink_killing.py"), json.dumps(self.told)],
            start_new_session=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            self.said = driver.communicate(timeout=90)[0]
        finally:
            try:
                os.killpg(driver.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return driver.returncode

    def died(self) -> int:
        """How many of the deaths happened."""
        return len(list(Path(self.told["markers"]).iterdir()))


def test_without_the_option_every_row_is_there_and_repeated_ones_twice(
    cluster, create_topic, consume, tmp_path
) -> None:
    create_topic(cluster, "sink-at-least-once", partitions=3)
    job = Job(cluster.bootstrap_servers, tmp_path, "sink-at-least-once")
    assert job.run({"at": "task", "batch": 0, "rows": 3000}, {"at": "commit", "batch": 1}) == -signal.SIGKILL, job.said
    assert job.run() == 0, job.said
    assert job.died() == 2
    found = Counter(record.value for record in consume("sink-at-least-once"))
    assert not job.rows - found, "no row is lost"
    doubled = found - job.rows
    assert set(doubled) <= set(job.rows)
    twice = {value: count for value, count in job.rows.items() if value[:1] in b"23"}
    assert all(doubled[value] == count for value, count in twice.items()), "all of the batch whose driver died"
    assert any(value[:1] in b"01" for value in doubled), "some of the task that was killed"


def test_with_the_option_every_row_is_there_once_whoever_is_killed(cluster, create_topic, consume, tmp_path) -> None:
    create_topic(cluster, "sink-once", partitions=3)
    job = Job(cluster.bootstrap_servers, tmp_path, "sink-once", effectivelyOnce="true")
    deaths = (
        [{"at": "task", "batch": 0, "rows": 3000}, {"at": "commit", "batch": 1}],
        [{"at": "committed", "batch": 2}],
        [{"at": "write", "batch": 3, "rows": 1500}],
    )
    for some in deaths:
        assert job.run(*some) == -signal.SIGKILL, job.said
    assert job.run() == 0, job.said
    assert job.died() == 4
    records = consume("sink-once")
    assert Counter(record.value for record in records) == job.rows
    assert all([name for name, _ in record.headers or ()] == [HEADER] for record in records)
