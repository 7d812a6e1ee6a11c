"""`regency top`: a thread asks, this one draws and listens to keys."""

from __future__ import annotations

import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Console
from rich.live import Live

from regency.cli.context import Seconds, cluster_options, current, print_json
from regency.cli.exits import Exit
from regency.cli.top.asking import Asker
from regency.cli.top.keys import View, press, seen
from regency.cli.top.screen import render, render_help

KEY_WAIT_S = 0.1
FIRST_RATE_S = 2.0
"""Two looks so far apart give `--once` a throughput: agents report once a second."""
PIPE_WIDTH = 120


@click.command()
@click.option("--interval", type=Seconds(0.2), default=2.0, show_default=True, help="Seconds between two looks.")
@click.option(
    "--once", is_flag=True, help="Print it once, and end. So it is where stdout is no terminal, or with -o json."
)
@cluster_options
def top(interval: float, once: bool) -> int:
    """Show brokers, controller, partitions by health, throughput and the last decisions, again and again. q ends it.

    Keys: s sorts brokers, / filters, b and t show one broker or one topic, space pauses, ? lists all keys. A decision
    is a line for each event, with counts of partitions; `regency history --partitions` names them.

    One request to the ruling controller for each look, however many partitions there are, and one to the HTTP port
    of each agent: IN/S are bytes from producers, OUT/S bytes to consumers. LAG: the records that a broker's
    replicas are behind, as leaders know them; of a partition out of sync, how far each of its replicas is, in their
    order, and when it has caught up at that rate. RECORDS/S is the growth of the logs a broker leads; DISK the
    fullest volume of its log directories; UNACKED what the controller told it and it has not acknowledged. Groups
    of consumers are told by their coordinators, every five seconds, the one that is most behind first. What a
    broker does not tell within a second is `?`, never 0. Screens of 110 to 159 columns, and from 184 on, have
    FOLLOWS, OFFLINE, RECORDS/S and CONNS of brokers too, open connections. A broker that refuses produces now says
    so behind its line. Decisions are those of the ruling controller; `regency history` has those of leaders and of
    earlier controllers too. While a part is away it says so, and shows what was known last, or, at its start, what
    brokers know.

    Exit status of --once: 0 when a controller that rules has answered, 4 when none did, 5 when no broker answers.

    \b
    Examples:
      regency top
      regency top --interval 1 --bootstrap-server kafka-1:9092,kafka-2:9092
      regency top --once
      regency top --once -o json | jq '.brokers[] | {broker, bytes_in_per_s, lag, catch_up}'
    """
    asker = Asker(current().bootstrap_servers())
    try:
        if once or current().json or not sys.stdout.isatty():
            return _once(asker)
        _again_and_again(asker, interval)
    finally:
        asker.close()
    return Exit.DONE


def _once(asker: Asker) -> int:
    snapshot = asker.look()
    if snapshot.controller is not None and snapshot.records_per_s is None and snapshot.brokers:
        time.sleep(FIRST_RATE_S)
        snapshot = asker.look()
    if current().json:
        print_json(snapshot)
    else:
        console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
        console.print(render(seen(snapshot, View()), console.width))
    return asker.status


class _Asking:
    """Looks again and again, on a thread of its own; the newest snapshot is there to be drawn."""

    def __init__(self, asker: Asker, interval_s: float) -> None:
        self.newest = asker.failed("Asking ...")
        self._asker = asker
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._hurried = threading.Event()
        threading.Thread(target=self._run, name="asking", daemon=True).start()

    def end(self) -> None:
        """Look no more; one that goes on is left to itself."""
        self._ended.set()
        self._hurried.set()

    def hurry(self) -> None:
        """Look at once, and not only when it is time."""
        self._hurried.set()

    def _run(self) -> None:
        while not self._ended.is_set():
            began = time.monotonic()
            try:
                self.newest = self._asker.look()
            except Exception as error:  # noqa: BLE001  (whatever it is: the screen goes on, and says so)
                self.newest = self._asker.failed(f"Asking failed: {type(error).__name__}: {error}")
            self._hurried.wait(max(0.0, self._interval_s - (time.monotonic() - began)))
            if not self._ended.is_set():
                self._hurried.clear()


def _again_and_again(asker: Asker, interval_s: float) -> None:
    console = Console()
    view = View()
    with single_keys() as keys, Live(console=console, screen=True, auto_refresh=False) as live:
        asking = _Asking(asker, interval_s)
        held = asking.newest
        try:
            drawn: tuple[object, ...] = ()
            while not (view := press(view, keys.wait(KEY_WAIT_S))).ended:
                if asker.focus != view.topic:
                    asker.focus = view.topic
                    asking.hurry()
                held = held if view.paused else asking.newest
                size = console.size
                if drawn != (id(held), size, view):
                    hint = view.hint or f"every {interval_s:g} s, q ends, ? helps"
                    drawing = render(seen(held, view), size.width, size.height, hint=hint)
                    live.update(render_help(size.width, size.height) if view.help else drawing, refresh=True)
                    drawn = (id(held), size, view)
        finally:
            asking.end()


class Keys:
    """Keys that were pressed; without a terminal there are none."""

    def __init__(self, fd: int | None) -> None:
        self._fd = fd

    def wait(self, seconds: float) -> str:
        """What was typed, after so many seconds at most; empty where nothing was."""
        if self._fd is None:
            time.sleep(seconds)
            return ""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return ""
        typed = os.read(self._fd, 64)
        if not typed:  # the end: no key can come any more
            self._fd = None
        return typed.decode(errors="replace")


@contextmanager
def single_keys() -> Iterator[Keys]:
    """Inside, keys come one by one and are not shown; Ctrl-C works as ever. Afterwards the terminal is as it was."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield Keys(None)
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    try:
        tty.setcbreak(fd)
        yield Keys(fd)
    finally:
        termios.tcsetattr(fd, termios.TCSAFLUSH, before)
