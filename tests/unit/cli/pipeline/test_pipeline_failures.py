"""One line out of what Spark, Java and Python tasks say when they fail, or when Java does not start."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import PySparkException, QueryContextType

from regency.cli.exits import CommandFailed
from regency.cli.pipeline import spark
from regency.cli.pipeline.failures import cause_of, what_to_do, why_failed, words_of, worst_line
from regency.cli.pipeline.spark import SparkChoice, _log_errors, _output_into, job_session

IN_A_TASK = """\
Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 in stage 0.0 \
(TID 0) (vm executor driver): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/lib/pyspark/worker.py", line 1810, in main
    process()
    ~~~~~~~^^
  File "/home/me/job.py", line 3, in read
    raise {error}
{said}
 SQLSTATE: 38000
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:581)
\tat java.base/java.lang.Thread.run(Thread.java:840)

Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2898)
"""


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ("ValueError: 7 is odd", "ValueError: 7 is odd"),
        ("KeyError", "KeyError"),
        ("regency.judge.operations.HistoryMalformed: t-0 has two final reads.", "t-0 has two final reads."),
        ("json.decoder.JSONDecodeError: line 1\nand column 2", "JSONDecodeError: line 1 and column 2"),
    ],
)
def test_an_error_of_a_task_is_told_without_the_traces(said: str, words: str) -> None:
    assert words_of(IN_A_TASK.replace("{said}", said).replace("{error}", "it")) == words


def test_of_an_error_that_followed_another_the_last_one_is_told() -> None:
    text = (
        "Traceback (most recent call last):\n  File 'a', line 1\nKeyError: 'x'\n\nDuring handling of the above "
        "exception, another exception occurred:\n\nTraceback (most recent call last):\n  File 'b', line 2\n"
        "regency.model.errors.RegencyError: topic x is gone.\n"
    )
    assert words_of(text) == "topic x is gone."


def test_an_error_of_java_is_told_up_to_its_trace() -> None:
    text = "org.apache.spark.SparkException: Java heap space\n\tat org.apache.spark.A.b(A.scala:1)\nCaused by: x"
    assert words_of(text) == "Java heap space"


def test_an_error_of_a_query_is_told_without_query_and_plan() -> None:
    text = "[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03\n== SQL ==\nselect 1\n^^^\n'Project"
    assert words_of(text) == "[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03"


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("", ""),
        ("\nlast words\n\n", "last words"),
        (
            (
                'WARNING: Using incubator modules\nException in thread "main" org.apache.spark.SparkException: no x\n'
                "\tat org.apache.spark.deploy.SparkSubmit.main(SparkSubmit.scala)\nShutdown hook called"
            ),
            "SparkException: no x",
        ),
        ("Error occurred during initialization of VM\nToo small maximum heap", "Too small maximum heap"),
        (
            (
                "Invalid maximum heap size: -Xmxlots\nError: Could not create the Java Virtual Machine.\n"
                "Error: A fatal exception has occurred. Program will exit.\n"
            ),
            "Invalid maximum heap size: -Xmxlots",
        ),
        (
            (
                "2026-11-22 18:14:06 ERROR SparkContext: Error initializing SparkContext.\n"
                "java.lang.ClassNotFoundException: nope\n\tat java.base/java.lang.Class.forName(Class.java:467)\n"
            ),
            "ClassNotFoundException: nope",
        ),
        ("Error: Could not create the Java Virtual Machine.", "Error: Could not create the Java Virtual Machine."),
    ],
)
def test_of_a_java_that_ended_the_line_about_why_is_told(output: str, line: str) -> None:
    assert worst_line(output) == line


def test_what_spark_logs_is_told_without_its_time_level_and_class() -> None:
    logged = "2026-11-22 16:53:21 ERROR StandaloneSchedulerBackend: Application has been killed. Reason: Giving up."
    assert worst_line(logged) == "Application has been killed. Reason: Giving up."


@pytest.mark.parametrize(
    ("trace", "why"),
    [
        ("", ""),
        ("it is over", "it is over"),
        (
            (
                "java.lang.IllegalArgumentException: Error while instantiating 'org.apache.spark.sql.internal.X':\n"
                "\tat org.apache.spark.sql.classic.SparkSession$.instantiate(SparkSession.scala:1)\n"
                "Caused by: org.apache.spark.SparkIllegalArgumentException: [INVALID_CONF_VALUE.TYPE_MISMATCH] The "
                "value 'abc' in the config \"spark.sql.shuffle.partitions\" is invalid. It should be a/an 'int' value. "
                "SQLSTATE: 22022\n\tat org.apache.spark.A.b(A.scala:1)\n\t... 17 more\n"
            ),
            "The value 'abc' in the config \"spark.sql.shuffle.partitions\" is invalid. It should be a/an 'int' value.",
        ),
        (
            (
                "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
                ": org.apache.spark.SparkException: Could not parse Master URL: 'local[abc]'\n"
                "\tat org.apache.spark.A.b(A.scala:1)\n"
            ),
            "Could not parse Master URL: 'local[abc]'",
        ),
    ],
)
def test_of_an_error_of_java_the_last_cause_is_told(trace: str, why: str) -> None:
    assert cause_of(trace) == why


CALL = "An error occurred while calling o439.start.\n: "
FRAMES = "\tat org.apache.hadoop.fs.FileSystem.primitiveMkdir(FileSystem.java:1414)\n\t... 23 more\n"
NO_S3 = "java.lang.ClassNotFoundException: Class org.apache.hadoop.fs.s3a.S3AFileSystem not found\n"
STREAM = "[STREAM_FAILED] Query [id = a-1, runId = b-2] terminated with exception: "
PLAN = "\n=== Streaming Query ===\nIdentifier: [id = a-1, runId = b-2]\n\nLogical Plan:\n~Project [a#1]\n"


@pytest.mark.parametrize(
    ("text", "trace", "why"),
    [
        (
            f"{CALL}java.io.IOException: mkdir of file:/proc/x/_spark_metadata failed\n{FRAMES}",
            "",
            "mkdir of file:/proc/x/_spark_metadata failed",
        ),
        (
            f"{CALL}java.lang.RuntimeException: {NO_S3}{FRAMES}Caused by: {NO_S3}{FRAMES}",
            "",
            "Class org.apache.hadoop.fs.s3a.S3AFileSystem not found",
        ),
        ("An error occurred while calling o42.start", "", "An error occurred while calling o42.start"),
        ("[Errno 111] Connection refused", "", "[Errno 111] Connection refused"),
        (
            f"{STREAM}Job aborted. SQLSTATE: XXKST{PLAN}",
            (
                f"org.apache.spark.SparkException: Job aborted.\n{FRAMES}Caused by: java.io.IOException: No space left "
                f"on device\n{FRAMES}"
            ),
            "Job aborted. Its cause: No space left on device",
        ),
        (
            f"{STREAM}No space left on device SQLSTATE: XXKST{PLAN}",
            f"java.io.IOException: No space left on device\n{FRAMES}",
            "No space left on device",
        ),
        (IN_A_TASK.replace("{said}", "ValueError: 7 is odd"), "java.io.IOException: other", "ValueError: 7 is odd"),
    ],
)
def test_a_failure_is_told_with_its_first_cause_and_without_call_plan_and_query(
    text: str, trace: str, why: str
) -> None:
    assert why_failed(text, trace) == why


@pytest.mark.parametrize(
    ("text", "gone", "hint"),
    [
        ("An error occurred while calling o42.start", True, "for want of memory, give it more: --conf spark.driver"),
        ("java.lang.OutOfMemoryError: Java heap space", False, "for want of memory, give it more: --conf spark.driver"),
        (f"{CALL}java.lang.RuntimeException: {NO_S3}", False, "Spark needs the package that has this class: --conf"),
        ("java.io.IOException: No space left on device", False, ""),
    ],
)
def test_memory_is_advised_where_it_may_have_lacked(text: str, gone: bool, hint: str) -> None:
    told = what_to_do(text, java_is_gone=gone)
    assert hint in told
    assert bool(hint) == bool(told)


SPEAK = ["sh", "-c", "echo result-like; echo words >&2"]


def test_stdout_has_nothing_of_java(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with (tmp_path / "words").open("w+") as words:
        with _output_into(words.fileno()):
            java = subprocess.Popen(SPEAK)
        print("result")
        assert java.wait(30) == 0
        assert (tmp_path / "words").read_text() == "result-like\nwords\n"
    assert capfd.readouterr() == ("result\n", "")


def test_where_a_log_was_asked_for_all_of_it_is_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with _output_into(2):
        subprocess.run(SPEAK, check=True, timeout=30)
    print("result")
    assert capfd.readouterr() == ("result\n", "result-like\nwords\n")


class Failed(PySparkException):
    """What a query raises, of a kind of text: that of SQL or of a program's calls."""

    def __init__(self, kind: QueryContextType) -> None:
        super().__init__("words")
        self._kind = kind
        self._contexts = [self]

    def contextType(self) -> QueryContextType:  # noqa: N802  (a name of PySpark's, as below)
        return self._kind

    def callSite(self) -> str:  # noqa: N802
        return "job.py:7"

    def fragment(self) -> str:
        return "get"


@pytest.mark.parametrize("kind", list(QueryContextType))
def test_errors_that_are_raised_are_logged_besides_only_where_a_log_was_asked_for(
    kind: QueryContextType, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.Logger, "manager", logging.Manager(logging.root))  # as in a new process
    _log_errors(False)
    Failed(kind)._log_exception()
    assert capfd.readouterr() == ("", "")
    _log_errors(True)
    Failed(kind)._log_exception()
    assert '"logger": "' in capfd.readouterr().err


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_started", "_shown_tasks", "orderly_interrupts"):
        monkeypatch.setattr(spark, name, lambda *_, **__: contextlib.nullcontext())


@pytest.mark.usefixtures("without_spark")
def test_a_reader_who_closed_the_pipe_is_no_failure_of_java(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:  # noqa: PTH123  (a descriptor)
        monkeypatch.setattr(sys, "stdout", pipe)
        with pytest.raises(BrokenPipeError), job_session("job", SparkChoice("local", {}), stopped=""):
            print("{}", flush=True)
        monkeypatch.undo()
        with contextlib.suppress(BrokenPipeError):
            pipe.close()


@pytest.mark.usefixtures("without_spark")
def test_a_pipe_to_java_that_broke_is_a_failure_though_someone_reads() -> None:
    session = job_session("job", SparkChoice("local", {}), stopped="")
    with pytest.raises(CommandFailed, match=r"Spark's Java failed: .*Broken pipe"), session:
        raise BrokenPipeError(32, "Broken pipe")
