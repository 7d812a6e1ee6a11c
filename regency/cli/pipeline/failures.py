"""What an error of Spark, of Java or of a task says, in the words of one line. Pure: texts in, a text out."""

from __future__ import annotations

import re
from collections.abc import Iterable

from regency.pipeline.errors import package_hint

_NO_MEMORY = re.compile(r"OutOfMemoryError|Java heap space|GC overhead limit exceeded")
_STREAM = re.compile(r"^\[STREAM_FAILED\] Query \[[^\]]*\] terminated with exception: ")
_STATES = re.compile(r"( SQLSTATE: \w+\.?)+$")
_TRACEBACK = "Traceback (most recent call last):"
_JAVA_FRAME = re.compile(r"\s+at [\w.$<>/@-]+\(|\s+\.\.\. \d+ more")
_END = re.compile(r"(Driver|JVM) stacktrace:|Caused by: |={2,3} |['+]|\s*\^|\s*SQLSTATE: ")
"""Begins what follows a message: another trace, the text of a query, a plan, a code."""
_CLASS = re.compile(r"(?P<where>(?:\w+\.)*)(?P<name>\w+)(?:: |$)")
_LOGGED = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [A-Z]+ \S+: ")
"""Before what Spark logs in its session's pattern: time, level and class."""
_JAVA_ENDS = re.compile(
    r"Error: (Could not create the Java Virtual Machine|A fatal exception has occurred)|Error occurred during init"
)
"""Beside the reason a Java has not to start, which is in a line of its own."""
_AN_EXCEPTION = re.compile(r"\w(?:Exception|Error)\b")
_SOME_ERROR = re.compile(r"(?:Exception|Error)\b")
_CAUSE = re.compile(r"^(?:Caused by)?: ")
"""Begins a cause in a trace of Java's; without the words after what Py4J says of the call."""
_QUALIFIED = re.compile(r"^(?:[a-z]\w*\.)+[A-Z]\w*: ")


def words_of(text: str) -> str:
    """The message in what Spark says: of the last Python traceback in it, else up to the first trace of Java.

    An error of Regency is printed without its class, any other with it.
    """
    _, found, last = text.rpartition(_TRACEBACK)
    if found:
        return _of_traceback(last.splitlines())
    lines: list[str] = []
    for line in text.splitlines():
        if _JAVA_FRAME.match(line) or _END.match(line):
            break
        lines.append(line.strip())
    return _QUALIFIED.sub("", " ".join(line for line in lines if line))


def why_failed(text: str, trace: str = "") -> str:
    """The message of a failed query or call, and behind it that of its first cause, where the message does not have it.

    `text` is what Spark or Py4J says; `trace` that of Java, where it is not in the text.
    """
    if _TRACEBACK in text:
        return words_of(text)
    told = _STATES.sub("", _STREAM.sub("", words_of(text)))
    called = told.startswith("An error occurred while calling ")
    cause = cause_of(trace or text) if called or trace or "Caused by: " in text else ""
    if called:
        return cause or told
    if not cause or cause in told:
        return told
    return f"{told}{'' if told.endswith('.') else '.'} Its cause: {cause}"


def what_to_do(text: str, *, java_is_gone: bool) -> str:
    """A hint for what Spark or Java says, traces and all; empty where nothing is known about it."""
    if java_is_gone or _NO_MEMORY.search(text) is not None:
        return "Where it ended for want of memory, give it more: --conf spark.driver.memory=4g."
    return package_hint(text)


def worst_line(output: str) -> str:
    """What a Java that ended wrote last about it: the first line of an exception or an error, else its last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip() and not _JAVA_FRAME.match(line)]
    lines = [line for line in lines if not _JAVA_ENDS.match(line)] or lines
    for kind in (_AN_EXCEPTION, _SOME_ERROR):
        for line in lines:
            if kind.search(line) is not None and "WARN" not in line:
                return re.sub(r'^(Exception in thread "[^"]*" )?(?:[a-z]\w*\.)+', "", line)
    return _LOGGED.sub("", lines[-1]) if lines else ""


def cause_of(trace: str) -> str:
    """The message of the last cause in a trace of Java's, without its class, its code and its SQLSTATE."""
    lines = trace.splitlines()
    causes = [number for number, line in enumerate(lines) if _CAUSE.match(line)]
    told: list[str] = []
    for line in lines[causes[-1] if causes else 0 :]:
        if told and (_JAVA_FRAME.match(line) or _END.match(line)):
            break
        told.append(_CAUSE.sub("", line).strip())
    words = _QUALIFIED.sub("", " ".join(line for line in told if line))
    return re.sub(r" SQLSTATE: \w+\.?$", "", re.sub(r"^\[[A-Z_.]+\] ", "", words))


def _of_traceback(lines: Iterable[str]) -> str:
    """The exception behind the frames, which are indented, and its further lines up to an empty one."""
    words: list[str] = []
    for line in lines:
        if not words:
            if line.strip() and not line[0].isspace():
                words.append(line.strip())
        elif not line.strip() or _JAVA_FRAME.match(line) or _END.match(line):
            break
        else:
            words.append(line.strip())
    said = " ".join(words)
    named = _CLASS.match(said)
    if named is None:
        return said
    message = said[named.end() :]
    return message if named["where"].startswith("regency.") and message else f"{named['name']}: {message}".rstrip(": ")
