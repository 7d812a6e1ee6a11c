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
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from regency.pipeline.sink.identity import HEADER

HERE = Path(__file__).parent
BATCHES, ROWS = 4, 4_000
"""Batches, and rows of each task; two tasks make a batch."""
DRIVER_S = 240
"""When a driver hangs; they take some ten seconds."""

pytestmark = pytest.mark.timeout(500)


class Job:
    """A stream with its input, checkpoint and topic, and the deaths on its way."""

    def __init__(self, servers: str, folder: Path, topic: str, **options: str) -> None:
        self.told: dict[str, Any] = {"servers": servers, "topic": topic, "options": options, "deaths": []}
        for name in ("input", "checkpoint", "markers"):
            (folder / name).mkdir(parents=True)
            self.told[name] = str(folder / name)
        self.rows: Counter[bytes] = Counter()
        for number in range(2 * BATCHES):
            lines = [f"{number}-{row % 3500} of file {number}" for row in range(ROWS)]  # some rows are equal
            path = folder / "input" / f"{number:02}.txt"
            path.write_text("\n".join(lines))
            os.utime(path, (number + 1, number + 1))  # files are taken by age
            self.rows.update(line.encode() for line in lines)

    def dies(self, at: str, batch: int, rows: int = 0) -> None:
        self.told["deaths"].append({"at": at, "batch": batch, "rows": rows})

    def died(self) -> int:
        return len(list(Path(self.told["markers"]).iterdir()))

    def damage_newest_state(self) -> Path:
        """Flip a bit of what the sink has noted last: that a batch began, and where."""
        path = max(
            (Path(self.told["checkpoint"]) / "sinks" / "regency").iterdir(), key=lambda each: each.stat().st_mtime_ns
        )
        content = path.read_bytes()
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
        return path


def drive(*jobs: Job) -> tuple[int, str]:
    """A driver for the jobs: exit status, negative for the signal that ended it, and what it said."""
    driver = subprocess.Popen(
        [sys.executable, str(HERE / "sink_killing.py"), json.dumps([job.told for job in jobs])],
        start_new_session=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = driver.communicate(timeout=DRIVER_S)[0]
    finally:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
    return driver.returncode, said


def test_whoever_is_killed_every_row_is_there_and_with_the_option_once(
    cluster, create_topic, consume, tmp_path
) -> None:
    for topic in ("sink-plain", "sink-once"):
        create_topic(cluster, topic, partitions=3)
    plain = Job(cluster.bootstrap_servers, tmp_path / "plain", "sink-plain")
    once = Job(cluster.bootstrap_servers, tmp_path / "once", "sink-once", effectivelyOnce="true")
    for job in (plain, once):
        job.dies("task", 0, rows=3000)
        job.dies("commit", 1)
    once.dies("fail", 2)
    once.dies("write", 3, rows=1500)

    damaged = None
    for drivers in range(3):
        status, said = drive(plain, once)
        assert status == -signal.SIGKILL, said
        assert (plain.died(), once.died()) == [(2, 0), (2, 2), (2, 4)][drivers], said
        if damaged is not None:
            assert f"regency sink: {damaged}: not whole. Rows that are written again are looked for from" in said
        damaged = once.damage_newest_state() if once.died() == 2 else None  # of a batch that is all written
    status, said = drive(plain, once)
    assert status == 0, said

    records = consume("sink-once")
    assert Counter(record.value for record in records) == once.rows
    assert all([name for name, _ in record.headers] == [HEADER] for record in records)
    check_at_least_once(Counter(record.value for record in consume("sink-plain")), plain.rows)


def check_at_least_once(found: Counter[bytes], rows: Counter[bytes]) -> None:
    """Nothing is lost, and what was killed where is there twice: so those deaths would show with the option, too."""
    assert not rows - found, "no row is lost"
    doubled = found - rows
    assert set(doubled) <= set(rows)
    of_dead_driver = {value: count for value, count in rows.items() if value[:1] in b"23"}
    assert all(doubled[value] == count for value, count in of_dead_driver.items()), "all of the batch it had written"
    assert any(value[:1] in b"01" for value in doubled), "some of the task that was killed"
