"""What a job was about to publish, when its process dies."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from light_java import SMALL

from regency.pipeline.files import publishing
from regency.pipeline.files.files import OutputUnwritable, located
from regency.pipeline.files.publishing import PlaceTaken, _HadoopPlaces, published

pytestmark = pytest.mark.spark

DIES = f"""
SETTINGS = {SMALL!r}
import os, signal, sys
from regency.pipeline.files.files import OutputUnwritable
from regency.pipeline.files.publishing import published
from regency.pipeline.session import spark_session

with spark_session("dies", master="local[1]", settings=SETTINGS) as session:
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


def test_of_two_at_once_the_later_one_is_refused(spark: Any, tmp_path: Path) -> None:
    report = tmp_path / "report"
    with (
        pytest.raises(PlaceTaken, match="another process"),
        published(spark, str(report)) as later,
        published(spark, str(report)) as earlier,
    ):
        earlier.write("name", b"earlier")
        later.write("name", b"later")
    assert [each.name for each in tmp_path.iterdir()] == ["report"]
    assert {each.name: each.read_bytes() for each in report.iterdir()} == {"name": b"earlier"}


def test_what_spark_writes_goes_where_a_link_leads(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to("a week:47")
    for count in (2, 3):
        with published(spark, str(tmp_path / "latest"), mark="done", overwrite=True) as staging:
            staging.write("done", b"")
            spark.range(count).coalesce(1).write.parquet(staging.path("table"))
    assert spark.read.parquet(str(tmp_path / "latest" / "table")).count() == 3
    assert (tmp_path / "latest").is_symlink()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["a week:47", "latest"]


def test_what_hadoop_moves_is_replaced_too(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On this machine's files: what is done on all others."""

    def places(session: Any, path: str) -> tuple[_HadoopPlaces, str]:
        return _HadoopPlaces(session, located(session, path)[1]), path

    monkeypatch.setattr(publishing, "_places", places)
    report = tmp_path / "report"
    for word in (b"last week", b"this week"):
        with published(spark, str(report), mark="done", overwrite=True) as staging:
            staging.write("done", word)
    assert (report / "done").read_bytes() == b"this week"
    assert [each.name for each in tmp_path.iterdir()] == ["report"]
    (tmp_path / ".report.lock").touch()
    with (
        pytest.raises(PlaceTaken, match=r"as .*\.report\.lock says"),
        published(spark, str(report), mark="done", overwrite=True),
    ):
        pass
    assert sorted(each.name for each in tmp_path.iterdir()) == [".report.lock", "report"]


@pytest.mark.parametrize(
    ("place", "said"), [("nosuch://host/x", 'No FileSystem for scheme "nosuch"'), ("hdfs://nohost.invalid/x", "nohost")]
)
def test_what_java_says_of_a_place_is_told_in_one_line(spark: Any, place: str, said: str) -> None:
    with pytest.raises(OutputUnwritable, match=rf"{place} cannot be made: .*{said}"), published(spark, place):
        pass
