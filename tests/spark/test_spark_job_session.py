"""The session of a job, in a process of its own: when it ends, its Java is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

FAILS = """
from regency.cli.exits import CommandFailed
from regency.cli.pipeline.spark import SparkChoice, job_session

try:
    with job_session("fails", SparkChoice("local[1]", {"spark.driver.memory": "512m"}), stopped="") as session:
        session.sql("SELECT nothing_there")
except CommandFailed as error:
    print(error)
"""


def test_what_spark_says_of_a_failure_is_told_although_its_java_has_ended() -> None:
    ran = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("Spark failed: [UNRESOLVED_COLUMN")
    assert "nothing_there" in ran.stdout
    assert "stacktrace" not in ran.stderr, "PySpark tells of it in its own way besides"
