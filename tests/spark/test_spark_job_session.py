"""The session of a job, in a process of its own: when it ends, its Java is gone."""

from __future__ import annotations

import subprocess
import sys

import pytest
from light_java import SMALL

pytestmark = pytest.mark.spark

FAILS = f"""
SETTINGS = {SMALL!r}
from regency.cli.exits import CommandFailed
from regency.cli.pipeline.spark import SparkChoice, job_session
from pyspark.errors import PySparkException
from pyspark.sql import functions as f

try:
    with job_session("fails", SparkChoice("local[1]", SETTINGS), stopped="") as session:
        try:
            session.range(1).select(f.array("id")[f.col("id") + 7]).collect()
        except PySparkException as error:
            print(error.getCondition())
        session.sql("SELECT nothing_there")
except CommandFailed as error:
    print(error)
"""


def test_what_spark_says_of_a_failure_is_told_although_its_java_has_ended() -> None:
    ran = subprocess.run([sys.executable, "-c", FAILS], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    of_a_task, of_a_query = ran.stdout.splitlines()
    assert of_a_task == "INVALID_ARRAY_INDEX"
    assert of_a_query.startswith("Spark failed: [UNRESOLVED_COLUMN")
    assert "nothing_there" in of_a_query
    assert ran.stderr == "", "PySpark tells of both in its own way besides"
