"""`regency pipeline judge`: the history judge on Spark."""

from __future__ import annotations

import click

from regency.cli.context import say
from regency.cli.data.judge import Rules, judging_options, tell_verdict
from regency.cli.exits import Exit
from regency.cli.pipeline.spark import SparkChoice, job_session, spark_options
from regency.judge.files import told_others
from regency.pipeline.files.history_files import PathMissing, find_files
from regency.pipeline.jobs.judge import judge_files, readable


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@judging_options
@spark_options
def judge(paths: tuple[str, ...], rules: Rules, spark: SparkChoice) -> Exit:
    """Judge a history of what producers were told and consumers saw that is too large for `regency judge`.

    The verdict is the same. PATHs are files, directories, of which all *.jsonl and *.jsonl.gz below are read, and
    globs, anywhere that Spark can read; together they are one history: lines of JSON, an operation each, in any order.
    A task has the records of one partition in memory at a time.

    Exit status 0: clean; 1: something was found that is not allowed, the files are no history, or an empty one, or
    Spark failed; 2: wrong use, such as a PATH that is not there.

    \b
    Examples:
      regency pipeline judge history.jsonl
      regency pipeline judge 'hdfs:///histories/2026-11-*/*.jsonl.gz' --master spark://spark:7077
      regency pipeline judge history/ --producers producers.json -o json | jq .counts
    """
    with job_session("regency judge", spark, stopped="There is no verdict.") as session:
        try:
            found = find_files(session, paths)
        except PathMissing as error:
            raise click.BadParameter(str(error), param_hint="PATH") from error
        if found.others:
            say(told_others(found.others))
        files = readable(found)
        verdict = judge_files(session, paths, files, allow=rules.allow, producers=rules.producers, most=rules.most)
        return tell_verdict(verdict)
