"""`regency pipeline cluster-history`: all decisions into tables and a report."""

from __future__ import annotations

import importlib
from pathlib import Path

import click

from regency.cli.asking.wire import cluster_wire
from regency.cli.context import conclude, current, print_json, say
from regency.cli.exits import CommandFailed, Exit
from regency.cli.pipeline.spark import Directory, SparkChoice, job_session, quickly, spark_options
from regency.judge.files import SUFFIXES


@click.command("cluster-history")
@click.argument("paths", nargs=-1, metavar="[PATH]...")
@click.option(
    "--to",
    type=Directory(new=True),
    required=True,
    metavar="DIRECTORY",
    help="Where tables and report are written; not there yet.",
)
@click.option("--overwrite", is_flag=True, help="Replace what this job has written there before.")
@click.option("--ask", is_flag=True, help="Ask the live brokers as well.  [default: only without PATHs]")
@click.option(
    "--top", type=click.IntRange(1, 1000), default=20, show_default=True, help="Rows of each list of the report."
)
@spark_options
def cluster_history(paths: tuple[str, ...], to: str, overwrite: bool, ask: bool, top: int, spark: SparkChoice) -> Exit:
    """Tell from all decisions of the controllers and leaders who led when, what failed, and which brokers are slow.

    PATHs are history files (*.jsonl, *.jsonl.gz), directories with such files at any depth, whatever the directories
    are called, or globs, anywhere that Spark can read; without them the live brokers are asked, as `regency history`
    does. Records found more than once count once.
    DIRECTORY gets a table in Parquet in each subdirectory, and report.html. docs/use/spark-cluster-history.md says what
    the tables and their columns mean.

    Exit status 0: done; 1: failed, and nothing was written; 3: done, but some lines are no decisions, some files could
    not be read to their end or some brokers not be asked.

    \b
    Examples:
      regency pipeline cluster-history --to /tmp/history
      regency pipeline cluster-history '/backup/*/history' --to /tmp/history --overwrite
      regency pipeline cluster-history s3a://logs/history/ --to s3a://reports/week-47 --master spark://spark:7077
      regency pipeline cluster-history --to /tmp/history -o json | jq .leaderless_ms
    """
    _check(paths)
    _check_plots()
    agents: dict[int, str] = {}
    if ask or not paths:
        with cluster_wire(current().bootstrap_servers()) as wire:
            agents = {broker: node.address for broker, node in wire.controllers().items()}
        if not agents and not paths:
            raise CommandFailed("There are no live brokers to ask.", hint="Name their history files instead.")
    with job_session(
        "regency cluster-history", quickly(spark), stopped=f"{to} is as it was, or has all of the new results."
    ) as session:
        from regency.pipeline.jobs.cluster_history.job import cluster_history as run
        from regency.pipeline.jobs.cluster_history.report import told

        summary = run(session, paths=paths, agents=agents, to=to, overwrite=overwrite, top=top)
        if current().json:
            print_json(summary)
        else:
            for each in summary.problems:
                say(f"{each.origin}: {each.why}")
            conclude(told(summary))
    return Exit.UNHEALTHY if summary.problems else Exit.DONE


def _check(paths: tuple[str, ...]) -> None:
    """Refuse a file of this machine by a name that would not be looked at."""
    for path in paths:
        if Path(path).is_file() and not path.endswith(SUFFIXES):
            raise click.BadParameter(
                f"{path}: only files {' and '.join('*' + each for each in SUFFIXES)} are read; rename it.",
                param_hint="PATH",
            )


def _check_plots() -> None:
    """Refuse before Spark starts what would be found out with the first plot."""
    try:
        importlib.import_module("matplotlib.figure")
    except ImportError as error:
        raise CommandFailed(
            f"The report needs matplotlib: {error}.", hint="Install it with: pip install 'regency[pipeline]'"
        ) from error
