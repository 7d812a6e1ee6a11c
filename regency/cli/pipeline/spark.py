"""What all jobs of `regency pipeline` share: the options about Spark, its session, its progress, and its errors."""

from __future__ import annotations

import functools
import os
import re
import select
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from regency.cli.context import cluster_options, parse_pairs, stderr_is_terminal
from regency.cli.exits import CommandFailed
from regency.cli.pipeline.failures import cause_of, what_to_do, why_failed, worst_line
from regency.cli.pipeline.interrupts import Farewell, handlers_now, interrupts_as_exits, java_ended, orderly_interrupts
from regency.pipeline.files.files import why_no_directory, why_no_new_directory
from regency.pipeline.session import LOCAL, require_packages, spark_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PYSPARKS_ERRORS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
"""Loggers of PySpark's that tell of errors with Java's whole stack, beside raising them."""
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
"""Most of a job over a small history is classes and code that run once: 25 s of CPU less of 55."""
_COLLECTOR = "-XX:+UseParallelGC"
"""A tenth less CPU: pauses do not matter. Java does not start where another collector is named too."""
_COLLECTORS = re.compile(r"-XX:\+Use\w*GC\b")
_JAVA_ENVIRONMENT = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")
"""Where options of every Java come from."""
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


def quickly(choice: SparkChoice) -> SparkChoice:
    """The same for a job of many small plans: the driver's Java is a quick one, unless it was given options."""
    is_chosen = any(_COLLECTORS.search(os.environ.get(name, "")) for name in _JAVA_ENVIRONMENT)
    java = _QUICK_JAVA if is_chosen else f"{_QUICK_JAVA} {_COLLECTOR}"
    return SparkChoice(choice.master, {"spark.driver.extraJavaOptions": java, **choice.settings})


@contextmanager
def job_session(name: str, choice: SparkChoice, *, stopped: str | Callable[[], str]) -> Iterator[SparkSession]:
    """A Spark session for a job, stopped at the end; tasks are shown on a terminal meanwhile.

    `stopped` says what it means that the job is stopped by Ctrl-C or SIGTERM; a function is asked by then.

    Raises CommandFailed in the place of every error of Spark, of Java and of a task; SparkMissing without the extra.
    """
    require_packages()
    handlers = handlers_now()
    farewell = Farewell(stopped)
    with farewell.at_last(), _errors_told(), interrupts_as_exits(handlers) as exits, ExitStack() as stack:
        session = stack.enter_context(_started(name, choice))
        stack.enter_context(orderly_interrupts(session, exits, farewell))
        stack.enter_context(_shown_tasks(session))
        with _errors_told():  # an exception of Spark's asks Java for its words, which ends further out
            yield session


@contextmanager
def _errors_told() -> Iterator[None]:
    """Raises CommandFailed in the place of what Spark and Java raise."""
    from py4j.protocol import Py4JError, Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        text, trace = str(error), getattr(error, "_stackTrace", None) or ""
        raise CommandFailed(
            f"Spark failed: {_ended(why_failed(text, trace))}", hint=what_to_do(text + trace, java_is_gone=False)
        ) from error
    except (Py4JError, ConnectionError) as error:
        if isinstance(error, BrokenPipeError) and output_closed():
            raise  # the reader of the result has seen enough; Java talks through sockets, which Py4J wraps
        text, gone = str(error), not isinstance(error, Py4JJavaError)
        raise CommandFailed(
            f"Spark's Java failed: {_ended(why_failed(text))}", hint=what_to_do(text, java_is_gone=gone)
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
    """The session; what Java says beside it is kept from the terminal, unless a log level was asked for.

    On stdout is the job's result and nothing of Java's, which writes warnings of its own there.
    """
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    with ExitStack() as stack:
        stack.enter_context(java_ended())  # after the session, or what there was of it
        opening = spark_session(name, master=choice.master, settings=choice.settings)
        is_quiet = "spark.log.level" not in choice.settings
        words = stack.enter_context(tempfile.TemporaryFile()) if is_quiet else None
        _log_errors(not is_quiet)
        try:
            with _output_into(2 if words is None else words.fileno()):
                session = stack.enter_context(opening)
        except (PySparkException, Py4JError) as error:
            raise _not_started(choice, error, words) from error
        yield session


def _not_started(choice: SparkChoice, error: Exception, words: BinaryIO | None) -> Exception:
    """The error for a session that there is not; `words`: what Java said meanwhile, None where that was seen."""
    told = cause_of(getattr(error, "_stackTrace", None) or str(error))
    said = ""
    if words is not None:
        words.seek(0)
        said = worst_line(words.read().decode(errors="replace"))
    for text in (said, told):
        wrong = blamed(text, choice.master, choice.settings)
        if wrong is not None:
            return wrong
    return CommandFailed(
        f"Spark does not start on {choice.master}: {_ended(said or told)}",
        hint="Look at --master, and at what --conf gives it.",
    )


def _log_errors(wanted: bool) -> None:
    """Whether PySpark logs the errors that it raises. Its own loggers take fields that others refuse."""
    from pyspark.logger import PySparkLogger

    for name in _PYSPARKS_ERRORS:
        PySparkLogger.getLogger(name).disabled = not wanted


@contextmanager
def _output_into(descriptor: int) -> Iterator[None]:
    """Processes started inside, such as Spark's Java, have it as their stdout and stderr for all their life."""
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    kept: dict[int, int] = {}
    for number in (1, 2):
        with suppress(OSError):  # closed by the parent
            kept[number] = os.dup(number)
            os.dup2(descriptor, number)
    try:
        yield
    finally:
        for number, before in kept.items():
            os.dup2(before, number)
            os.close(before)


@contextmanager
def _shown_tasks(session: SparkSession) -> Iterator[None]:
    """A line on stderr with the tasks that are done and all there are, where someone looks at it."""
    if not stderr_is_terminal():
        yield
        return
    from py4j.protocol import Py4JError

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


def output_closed() -> bool:
    """Whether the output of this command is not read any more."""
    poll = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, OSError, ValueError):  # no stream, or none with a descriptor
            poll.register(stream.fileno(), 0)  # which tells of an end that was closed, whatever is asked for
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))


def _ended(words: str) -> str:
    return words if words.endswith((".", "!", "?")) else f"{words or 'it does not say why'}."


_MASTER = re.compile(r"could not parse master|master must", re.IGNORECASE)
_HEAP = re.compile(r"(maximum|initial|object) heap|JNI error", re.IGNORECASE)
_MEMORY = "spark.driver.memory"
_EXAMPLES = ((re.compile(r"memory", re.IGNORECASE), "4g"), (re.compile(r"partitions|cores", re.IGNORECASE), "8"))


def blamed(said: str, master: str, settings: Mapping[str, str]) -> click.BadParameter | None:
    """A wrong use of --master or --conf, where what Spark or Java `said` is about one; None where it is not."""
    if _MASTER.search(said):
        return click.BadParameter(
            f"{master!r} is no master of Spark: {_ended(said)} Say for example local[2] or spark://host:7077.",
            param_hint="--master",
        )
    key = _named(said, settings)
    if key is None:
        return None
    example = next((f" Say for example {key}={value}." for kind, value in _EXAMPLES if kind.search(key)), "")
    return click.BadParameter(f"{key}={settings[key]}: {_ended(said)}{example}", param_hint="--conf")


def _named(said: str, settings: Mapping[str, str]) -> str | None:
    """The setting that is named, the longest name of several; else in other words, by its value, or by its effect."""
    named = [key for key in settings if key in said]
    named = named or [key for key in settings if key.removeprefix("spark.").replace(".", " ") in said.lower()]
    named = named or [
        key for key, value in settings.items() if value and re.search(rf"(?<![\w.]){re.escape(value)}$", said)
    ]
    if not named and _HEAP.search(said):
        named = [_MEMORY] if _MEMORY in settings else []
    return max(named, key=len, default=None)


class Directory(click.ParamType[str]):
    """A directory, anywhere that Spark can write; `new`: one that the job is to make."""

    name = "directory"

    def __init__(self, *, new: bool) -> None:
        self._why = why_no_new_directory if new else why_no_directory

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Raises BadParameter."""
        why = self._why(value)
        if why:
            self.fail(f"{value!r} {why}.", param, ctx)
        return value
