"""What all jobs of `regency pipeline` share: the options about Spark, its session, its progress, and its errors."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from regency.cli.context import cluster_options, parse_pairs, stderr_is_terminal
from regency.cli.exits import CommandFailed
from regency.cli.pipeline.failures import words_of, worst_line
from regency.pipeline.session import LOCAL, require_packages, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOOK_S = 0.3
"""How often progress looks at the tasks."""


@dataclass(frozen=True)
class SparkChoice:
    """Where a job runs, and its Spark settings by name."""

    master: str
    settings: Mapping[str, str]


def spark_options(command: Callable[..., object]) -> Callable[..., object]:
    """Adds --master and --conf, given to the command as `spark`, and the options about cluster and output."""

    @functools.wraps(command)
    def with_choice(*arguments: Any, master: str, conf: tuple[str, ...], **named: Any) -> object:
        return command(*arguments, spark=SparkChoice(master, _settings(conf)), **named)

    conf_option = click.option(
        "--conf",
        metavar="KEY=VALUE",
        multiple=True,
        help="A setting of Spark, such as spark.driver.memory=4g; repeatable.",
    )
    master_option = click.option("--master", default=LOCAL, show_default=True, help="Spark master to run on.")
    return master_option(conf_option(cluster_options(with_choice)))


@contextmanager
def job_session(name: str, choice: SparkChoice) -> Iterator[SparkSession]:
    """A Spark session for a job, stopped at the end; tasks are shown on a terminal meanwhile.

    Raises CommandFailed in the place of every error of Spark, of Java and of a task; SparkMissing without the extra.
    """
    require_packages()
    from py4j.protocol import Py4JError  # noqa: PLC0415  (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    try:
        with ExitStack() as stack:
            session = stack.enter_context(_started(name, choice))
            stack.enter_context(_shown_tasks(session))
            yield session
    except PySparkException as error:
        raise CommandFailed(f"Spark failed: {_ended(words_of(str(error)))}") from error
    except (Py4JError, ConnectionError) as error:
        raise CommandFailed(
            f"Spark's Java failed: {_ended(words_of(str(error)))}",
            hint="Where it ended for want of memory, give it more: --conf spark.driver.memory=4g.",
        ) from error


def _settings(conf: tuple[str, ...]) -> dict[str, str]:
    settings = parse_pairs(conf, "--conf")
    for key in settings:
        if not key.startswith("spark."):
            raise click.BadParameter(
                f"{key} is no setting of Spark: their names begin with spark.", param_hint="--conf"
            )
        if key == "spark.master":
            raise click.BadParameter("say --master instead of spark.master.", param_hint="--conf")
    return settings


@contextmanager
def _started(name: str, choice: SparkChoice) -> Iterator[SparkSession]:
    """The session; what Java says beside it is kept from the terminal, unless a log level was asked for."""
    from py4j.protocol import Py4JError  # noqa: PLC0415  (an extra)
    from pyspark.errors import PySparkException  # noqa: PLC0415

    with ExitStack() as stack:
        opening = spark_session(name, master=choice.master, settings=choice.settings)
        if "spark.log.level" in choice.settings:
            session = stack.enter_context(opening)
        else:
            words = stack.enter_context(tempfile.TemporaryFile())
            try:
                with _stderr_into(words):
                    session = stack.enter_context(opening)
            except (PySparkException, Py4JError) as error:
                words.seek(0)
                said = worst_line(words.read().decode(errors="replace"))
                if not said:
                    raise
                raise CommandFailed(
                    f"Spark does not start on {choice.master}: {_ended(said)}",
                    hint="Look at --master, and at what --conf gives it.",
                ) from error
        yield session


@contextmanager
def _stderr_into(file: BinaryIO) -> Iterator[None]:
    """Processes started inside, such as Spark's Java, have the file as their stderr for all their life."""
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


@contextmanager
def _shown_tasks(session: SparkSession) -> Iterator[None]:
    """A line on stderr with the tasks that are done and all there are, where someone looks at it."""
    if not stderr_is_terminal():
        yield
        return
    from py4j.protocol import Py4JError  # noqa: PLC0415  (an extra)

    tracker = session.sparkContext.statusTracker()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    ended = threading.Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("tasks", total=None)

        def look() -> None:
            while not ended.wait(_LOOK_S):
                try:
                    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
                except (Py4JError, OSError):
                    return  # Java is gone: the job itself says so
                running = [stage for stage in stages if stage is not None]
                if running:
                    done = sum(stage.numCompletedTasks for stage in running)
                    total = sum(stage.numTasks for stage in running)
                    bar.update(task, completed=done, total=total)

        watcher = threading.Thread(target=look, name="progress", daemon=True)
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _ended(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words or 'it does not say why'}."
