"""The group `regency pipeline` and the options its jobs share. No Spark is started here."""

from __future__ import annotations

import importlib.util
from importlib.machinery import ModuleSpec

import click
import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cli.pipeline.spark import SparkChoice, job_session, spark_options
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
    ("conf", "why"),
    [
        (["nothing"], "'nothing' is not KEY=VALUE."),
        (["=x"], "'=x' is not KEY=VALUE."),
        (["driver.memory=1g"], "driver.memory is no setting of Spark: their names begin with spark."),
        (["spark.a=1", "spark.a=2"], "spark.a is said twice."),
        (["spark.master=local"], "say --master instead of spark.master."),
    ],
)
def test_a_setting_of_bad_form_is_refused(conf: list[str], why: str) -> None:
    status, output = invoke(*(word for pair in conf for word in ("--conf", pair)))
    assert status == 2
    assert why in output


def test_without_the_extra_a_job_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec

    def without(name: str, package: str | None = None) -> ModuleSpec | None:
        return None if name in ("pyspark", "pyarrow") else real(name, package)

    monkeypatch.setattr(importlib.util, "find_spec", without)
    wanted = pytest.raises(SparkMissing, match=r"pyspark, pyarrow\. .*pip install 'regency\[pipeline\]'")
    with wanted, job_session("x", SparkChoice("local", {})):
        pytest.fail("a session without the packages")
