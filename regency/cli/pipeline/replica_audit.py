"""The command `regency pipeline replica-audit`."""

from __future__ import annotations

import time

import click

from regency.cli.asking.wire import first_that_answers
from regency.cli.context import TOPIC_NAME, Seconds, current, say
from regency.cli.exits import Exit
from regency.cli.pipeline.spark import Directory, SparkChoice, job_session, spark_options
from regency.model.words import counted

MOST_ROWS = 100
"""Replicas that a table shows in full."""


@click.command("replica-audit", short_help="Compare all replicas of many partitions, in parallel.")
@click.argument("topics", type=TOPIC_NAME, nargs=-1)
@click.option(
    "--wait", type=Seconds(0), default=5.0, show_default=True, help="Seconds to wait for a replica that is behind."
)
@click.option("--timeout", type=Seconds(0.1), default=10.0, show_default=True, help="Seconds per request.")
@click.option(
    "--throttle",
    type=click.IntRange(min=1),
    metavar="BYTES_PER_S",
    help="Read no more than that of each broker, all tasks together.  [default: as fast as brokers answer]",
)
@click.option(
    "--to", "directory", type=Directory(new=True), metavar="DIR", help="Write a row per replica there, as Parquet, too."
)
@spark_options
def replica_audit(
    topics: tuple[str, ...],
    wait: float,
    timeout: float,
    throttle: int | None,
    directory: str | None,
    spark: SparkChoice,
) -> Exit:
    """Read every replica of every partition, of TOPICS or of all topics, and compare them batch by batch, on Spark.

    As `regency verify replicas` does, with the same verdicts and exit status, for what is too large for one machine:
    large partitions are read in pieces, by many tasks at once. Nothing is changed, and no follower counts as more in
    sync for it.

    Exit status 0: all replicas agree; 1: some differ, are damaged, or cannot be read; 3: those that could be compared
    agree, and others are behind, offline or missing.

    \b
    Examples:
      regency pipeline replica-audit flights
      regency pipeline replica-audit --master spark://host:7077 --throttle 20000000 --to /tmp/audit
      regency pipeline replica-audit -o json | jq '.partitions[].divergences'
    """
    from regency.cli.verify.report import report
    from regency.clients.replicas.assignments import assignments
    from regency.pipeline.files.files import refuse_unfit
    from regency.pipeline.jobs.replica_audit.job import AuditOptions, audit, refuse_unknown, write_parquet

    servers = current().bootstrap_servers()
    options = AuditOptions(servers, topics or None, wait, int(timeout * 1000), throttle)
    first_that_answers(servers)  # in the words of every command, and before Spark has taken its seconds to start
    if topics:
        refuse_unknown(assignments(servers, topics, timeout_ms=options.timeout_ms), topics)
    with job_session("regency replica-audit", spark, stopped="There is no result.") as session:
        if directory is not None:
            refuse_unfit(session, directory)
        started = time.monotonic()
        found = audit(session, options, tell=say)
        seconds = time.monotonic() - started
        if directory is not None:
            write_parquet(session, found.partitions, directory)
        effort = f"{found.bytes / 1e6:.1f} MB by {counted(found.tasks, 'task')} in {seconds:.1f} s"
        return report(found.partitions, most_rows=MOST_ROWS, effort=effort)
