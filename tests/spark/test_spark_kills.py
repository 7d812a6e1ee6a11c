"""One small job of `./dev bench spark-kills`: executors of their own, one of which is killed, and a worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from spark_kills.jobs import CLUSTER, Fault, Job
from spark_kills.trial import create, fill, run_job

ROWS = 16_000


@pytest.mark.timeout(300)
def test_a_stream_whose_executor_and_worker_are_killed_writes_every_row_once_and_in_order(
    cluster, tmp_path: Path
) -> None:
    create(cluster, "kills-from", 2)
    values = fill(cluster.bootstrap_servers, "kills-from", ROWS, partitions=2, size=100)
    (tmp_path / "job" / "notes").mkdir(parents=True)
    job = Job(
        kind="write",
        stream=True,
        master=CLUSTER,
        servers=cluster.bootstrap_servers,
        source="kills-from",
        topic="kills-to",
        folder=str(tmp_path / "job"),
        task_rows=4_000,
        batch_rows=ROWS // 2,
    )
    faults = [Fault("executor", 1_500, 0.0, 0.0), Fault("worker", 3_000, 0.0, 0.0)]
    story, verdict = run_job(cluster, 1, job, faults, values, tmp_path / "job")[2:]
    assert verdict.bugs == []
    assert (verdict.records, verdict.rows) == (ROWS + verdict.late, ROWS)
    assert story.kills == {"executor": 1, "worker": 1}
    assert story.drivers == 1
