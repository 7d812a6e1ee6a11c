"""The group `regency pipeline`, the options its jobs share, and those of cluster-history. No Spark is started here."""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cli.pipeline.spark import _COLLECTOR, _QUICK_JAVA, SparkChoice, blamed, job_session, quickly, spark_options
from regency.pipeline.jobs.cluster_history.report import told
from regency.pipeline.jobs.cluster_history.summary import Summary
from regency.pipeline.session import SparkMissing


def invoke(*words: str) -> tuple[int, str]:
    """Exit status and all output of a job that prints its choice."""

    @click.command()
    @spark_options
    def job(spark: SparkChoice) -> None:
        """Print what was chosen."""
        click.echo(f"{spark.master} {dict(spark.settings)}")

    result = CliRunner().invoke(job, words)
    return result.exit_code, result.output


def test_the_group_lists_its_jobs_without_importing_them() -> None:
    result = CliRunner().invoke(cli, ["pipeline", "--help"], prog_name="regency")
    assert result.exit_code == 0
    for job in ("flights", "replica-audit", "cluster-history", "judge"):
        assert f"  {job}  " in result.stdout
    assert "Example" in result.stdout


def test_a_job_runs_on_this_machine_unless_told_otherwise() -> None:
    assert invoke() == (0, "local[*] {}\n")


def test_master_and_settings_reach_the_job() -> None:
    words = ("--master", "spark://h:7077", "--conf", "spark.a=b=c", "--conf", "spark.d=")
    assert invoke(*words) == (0, "spark://h:7077 {'spark.a': 'b=c', 'spark.d': ''}\n")


@pytest.mark.parametrize(
    ("of_every_java", "quick"), [("", f"{_QUICK_JAVA} {_COLLECTOR}"), ("-Xmx1g -XX:+UseSerialGC", _QUICK_JAVA)]
)
def test_options_of_java_that_were_given_are_the_only_ones(
    of_every_java: str, quick: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", of_every_java)
    key = "spark.driver.extraJavaOptions"
    assert quickly(SparkChoice("local", {"spark.a": "b"})).settings == {"spark.a": "b", key: quick}
    assert quickly(SparkChoice("local", {key: ""})).settings == {key: ""}


@pytest.mark.parametrize(
    ("conf", "why"),
    [
        (["nothing"], "'nothing' is not KEY=VALUE."),
        (["=x"], "'=x' is not KEY=VALUE."),
        ([" =x"], "' =x' is not KEY=VALUE."),
        (["driver.memory=1g"], "driver.memory is no setting of Spark: their names begin with spark."),
        (["spark.a=1", "spark.a=2"], "spark.a is said twice."),
        (["spark.master=local"], "say --master instead of spark.master."),
    ],
)
def test_a_setting_of_bad_form_is_refused(conf: list[str], why: str) -> None:
    status, output = invoke(*(word for pair in conf for word in ("--conf", pair)))
    assert status == 2
    assert why in output


@pytest.mark.parametrize(
    ("said", "about"),
    [
        (
            "Invalid maximum heap size: -Xmxlots",
            "driver.memory=lots: Invalid maximum heap size: -Xmxlots. Say for example spark.driver.memory=4g.",
        ),
        ("Too small maximum heap", "--conf: spark.driver.memory=lots: Too small maximum heap. Say"),
        ("Could not reserve enough space for 9KB object heap", "--conf: spark.driver.memory=lots: Could not reserve"),
        (
            "The value 'abc' in the config \"spark.sql.shuffle.partitions\" is invalid. It should be a/an 'int' value.",
            "'int' value. Say for example spark.sql.shuffle.partitions=8.",
        ),
        ("Executor memory must be a positive number", "--conf: spark.executor.memory=much: Executor memory must be"),
        ("ClassNotFoundException: nope", "--conf: spark.serializer=nope: ClassNotFoundException: nope."),
        (
            "Could not parse Master URL: 'm'",
            "--master: 'm' is no master of Spark: Could not parse Master URL: 'm'. Say for",
        ),
        (
            "Master must either be yarn or start with spark, k8s, or local",
            "Say for example local[2] or spark://host:7077.",
        ),
    ],
)
def test_what_spark_does_not_start_with_is_told_by_its_name_and_value(said: str, about: str) -> None:
    settings = {
        "spark.driver.memory": "lots",
        "spark.executor.memory": "much",
        "spark.sql.shuffle.partitions": "abc",
        "spark.sql.shuffle": "x",
        "spark.serializer": "nope",
        "spark.empty": "",
    }
    error = blamed(said, "m", settings)
    assert error is not None
    assert about in error.format_message()
    assert error.exit_code == 2


@pytest.mark.parametrize("said", ["All masters are unresponsive! Giving up.", "it lacks nope somewhere", ""])
def test_what_is_about_none_of_them_blames_none(said: str) -> None:
    assert blamed(said, "spark://h:7077", {"spark.serializer": "nope", "spark.b": ""}) is None
    assert blamed("Too small maximum heap", "local", {}) is None


def test_without_the_extra_a_job_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in ("pyspark", "pyarrow") else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    wanted = pytest.raises(SparkMissing, match=r"pyspark, pyarrow\. .*pip install 'regency\[pipeline\]'")
    with wanted, job_session("x", SparkChoice("local", {}), stopped=""):
        pytest.fail("a session without the packages")


def test_without_matplotlib_it_says_what_to_install_before_it_asks_anybody(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "matplotlib"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as where it is not installed, or broken
    words = [
        "--bootstrap-server",
        "localhost:1",
        "-o",
        "json",
        "pipeline",
        "cluster-history",
        "--to",
        str(tmp_path / "h"),
    ]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert (done.exit_code, done.stdout) == (1, "")
    assert "Error: The report needs matplotlib:" in done.stderr
    assert "Install it with: pip install 'regency[pipeline]'" in done.stderr
    assert not (tmp_path / "h").exists()


def test_a_file_of_another_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.bak").touch()
    words = ["pipeline", "cluster-history", str(tmp_path / "x.jsonl.bak"), "--to", str(tmp_path / "h")]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "x.jsonl.bak: only files *.jsonl and *.jsonl.gz are read; rename it." in done.stderr


def test_the_summary_counts_one_as_one() -> None:
    summary = Summary(
        tables="/h",
        report="/h/report.html",
        begin_ms=0,
        end_ms=9,
        origins=1,
        decisions=1,
        duplicates=0,
        malformed=0,
        partitions=1,
        leaderless_ms=1500,
        leaderless_intervals=1,
        leaderless_now=0,
        failovers=1,
        elections=1,
        unclean_elections=0,
        isr_absences=0,
        problems=[],
    )
    assert told(summary) == (
        "1 decision about 1 partition: 1 time without a leader, 1.5 s in all, 0 still so; 1 failover, 1 election; "
        "report: /h/report.html"
    )
