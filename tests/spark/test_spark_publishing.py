"""What a job was about to publish, when its process dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark

DIES = """
import os, signal, sys
from regency.pipeline.jobs.publishing import published
from regency.pipeline.session import spark_session

with spark_session("dies", master="local[1]", settings={"spark.driver.memory": "512m"}) as session:
    with published(session, sys.argv[1], mark="done", overwrite=False) as staging:
        staging.write("half", b"of it")
        print(os.listdir(os.path.dirname(sys.argv[1])), flush=True)
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_stays_of_what_a_killed_job_had_written(tmp_path: Path, eventually: Any) -> None:
    died = subprocess.run(
        [sys.executable, "-c", DIES, str(tmp_path / "report")], capture_output=True, text=True, timeout=120, check=False
    )
    assert died.returncode == -9, died.stderr
    assert ".part" in died.stdout
    eventually(lambda: not any(tmp_path.iterdir()), within=30, what="Java has ended")
