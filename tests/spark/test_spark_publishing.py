"""What a job was about to publish, when its process dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from regency.pipeline.jobs.publishing import PlaceTaken, published

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


def test_of_two_at_once_the_later_one_is_refused(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = tmp_path / "report"
    with (
        pytest.raises(PlaceTaken, match="somebody else"),
        published(spark, str(report)) as later,
        published(spark, str(report)) as earlier,
    ):
        earlier.write("name", b"earlier")
        later.write("name", b"later")
    assert [each.name for each in tmp_path.iterdir()] == ["report"]
    assert {each.name: each.read_bytes() for each in report.iterdir()} == {"name": b"earlier"}

    with (
        pytest.raises(PlaceTaken, match="somebody else"),
        published(spark, str(tmp_path / "other")) as unlucky,
    ):
        unlucky.write("name", b"unlucky")
        exists = type(unlucky._files).exists
        monkeypatch.setattr(
            type(unlucky._files), "exists", lambda files, path: path != str(tmp_path / "other") and exists(files, path)
        )
        (tmp_path / "other").mkdir()  # and whoever looks has looked already
        (tmp_path / "other" / "name").write_bytes(b"another's")
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["name"]
