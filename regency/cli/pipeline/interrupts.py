"""Ctrl-C and SIGTERM while Spark works: what the main thread waits for is let go of, and a line says where it stood."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from subprocess import Popen, TimeoutExpired
from types import FrameType
from typing import TYPE_CHECKING, Any

from regency.cli.context import say
from regency.cli.exits import Exit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Handler = Callable[[int, FrameType | None], Any]

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_CANCEL_S = 5.0
"""How long Java may take to hear that its jobs are to end."""
_HEAR_S = 1.0
"""How long it may take to notice a closed connection, which it does not while it starts."""
_END_S = 5.0
"""How long it may take to end once it is asked to."""


def handlers_now() -> dict[int, Handler]:
    """Who is called for which signal; ask before Spark starts, which puts a handler of its own for Ctrl-C there.

    Spark's asks Java to cancel all jobs, over the very connection whose answer is waited for.
    """
    found = {int(number): signal.getsignal(number) for number in _SIGNALS}
    return {number: handler for number, handler in found.items() if callable(handler)}


class Farewell:
    """The line that tells a user where a job stood when it was stopped, and what that means for it. Said once.

    An interrupt may be taken for an error of Spark's further in: then the caller that lets it out says so.
    """

    def __init__(self, stopped: str | Callable[[], str]) -> None:
        self._stopped = stopped
        self._began: float | None = None
        self._over = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """Inside is the job; once it ended by itself, nothing was stopped."""
        self._began = time.monotonic()
        yield
        self._over = True

    @contextmanager
    def at_last(self) -> Iterator[None]:
        """Said by who leaves this, if not before."""
        try:
            yield
        except (KeyboardInterrupt, SystemExit):
            self.say()
            raise

    def say(self, standing: str = "") -> None:
        """Say it, with how far tasks were."""
        if not self._over:
            self._over = True
            began = self._began
            where = "before Spark was there" if began is None else f"after {time.monotonic() - began:.0f} s{standing}"
            say(f"Stopped {where}. {self._stopped() if callable(self._stopped) else self._stopped}")


@contextmanager
def orderly_interrupts(session: SparkSession, handlers: Mapping[int, Handler], farewell: Farewell) -> Iterator[None]:
    """Inside, `handlers` are called again, once jobs are cancelled and the main thread's connection to Java is hung up.

    A signal leaves an answer of Java behind that is not taken: the next call, such as to stop the session, would wait
    for it, and take it for its own. With what they raise, as SystemExit, `farewell` says where it stood.
    """
    context: Any = session.sparkContext
    client = context._gateway._gateway_client  # noqa: SLF001  (Py4J has no public way to hang up)

    standing: list[str] = []

    def cancel() -> None:
        with suppress(Exception):  # Java is gone: there is nothing to end
            standing.append(_standing(context))
            context.cancelAllJobs()

    leaving = _Leaving(handlers)

    def leave(number: int, frame: FrameType | None) -> None:
        client.thread_connection.connection = None
        other = threading.Thread(target=cancel, name="cancel", daemon=True)  # with a connection of its own
        other.start()
        other.join(_CANCEL_S)
        leaving(number, frame)

    try:
        with leaving.prevails(), _handled(dict.fromkeys(handlers, leave), handlers), farewell.working():
            yield
    except (KeyboardInterrupt, SystemExit):
        farewell.say("".join(standing[:1]))
        raise


def _take_no_more_counts() -> None:
    """PySpark's thread that takes tasks' counts prints a traceback when Java hangs up; counts are not wanted then."""
    accumulators = sys.modules.get("pyspark.accumulators")  # an extra, and it may be imported this very moment
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = lambda *_: None


@contextmanager
def interrupts_as_exits(handlers: Mapping[int, Handler]) -> Iterator[Mapping[int, Handler]]:
    """Inside, `handlers` are called, by those that are yielded, and a KeyboardInterrupt they raise becomes SystemExit.

    Py4J prints a traceback for KeyboardInterrupt, and closes more connections than the one that waits.
    """

    leaving = _Leaving(handlers)
    exits: dict[int, Handler] = dict.fromkeys(handlers, leaving)
    with leaving.prevails(), _handled(exits, handlers):
        yield exits


class _Leaving:
    """Calls the handler of a signal, and raises SystemExit for the KeyboardInterrupt of one."""

    def __init__(self, handlers: Mapping[int, Handler]) -> None:
        self._handlers = handlers
        self._exit: SystemExit | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        _take_no_more_counts()
        try:
            self._handlers[number](number, frame)
        except KeyboardInterrupt:
            self._exit = SystemExit(Exit.INTERRUPTED)
            raise self._exit from None
        except SystemExit as ended:
            self._exit = ended
            raise

    @contextmanager
    def prevails(self) -> Iterator[None]:
        """Inside, the exit of a signal is kept: who undoes things on the way out may fail, as Java was cut short."""
        try:
            yield
        except Exception as error:
            if self._exit is None:
                raise
            raise self._exit from error


@contextmanager
def java_ended() -> Iterator[None]:
    """Every Java that PySpark launches inside has ended afterwards, and with it its Python workers.

    Else it goes some seconds after this command, and never where Ctrl-C came while it started: then PySpark has told
    no call to it yet, so that the place where it makes the process is looked at.
    """
    from pyspark import java_gateway

    launched: list[Popen[bytes]] = []
    launch: Any = java_gateway.Popen  # type: ignore[attr-defined]

    def noted(*words: Any, **named: Any) -> Popen[bytes]:
        java: Popen[bytes] = launch(*words, **named)
        launched.append(java)
        return java

    java_gateway.Popen = noted  # type: ignore[assignment,attr-defined]
    try:
        yield
    finally:
        java_gateway.Popen = launch  # type: ignore[attr-defined]
        if launched:
            _hang_up()
        for java in launched:
            _end(java)


def _hang_up() -> None:
    """Close Py4J's connections: else what Python collects later is reported to a Java that is not there any more."""
    from pyspark import SparkContext

    gateway: Any = SparkContext._gateway  # noqa: SLF001  (PySpark has no public way either)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    if gateway is not None:
        with suppress(Exception):  # Java is gone
            gateway.shutdown()


def _end(java: Popen[bytes]) -> None:
    if java.stdin is not None:
        java.stdin.close()  # which it takes for the end
    with suppress(TimeoutExpired):
        java.wait(_HEAR_S)
        return
    java.terminate()
    with suppress(TimeoutExpired):
        java.wait(_END_S)
        return
    java.kill()
    java.wait()


@contextmanager
def _handled(inside: Mapping[int, Handler], after: Mapping[int, Handler]) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number, handler in inside.items():
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number, handler in after.items():
            signal.signal(number, handler)


def _standing(context: Any) -> str:
    """How far the stages are that run now, in words; nothing where none does."""
    tracker = context.statusTracker()
    running = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    stages = [stage for stage in running if stage is not None]
    if not stages:
        return ""
    done, of = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
    return f", with {done} of {of} tasks done of what was running"
