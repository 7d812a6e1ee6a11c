"""`regency top` on a real cluster, in a pseudo terminal: brokers and ZooKeeper go and return; keys and signals."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
from typing import Any

import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cluster.cluster import Cluster

pytestmark = pytest.mark.integration

ENTER, LEAVE, SHOW_CURSOR = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"
OWN_TERMINAL = """
import fcntl, os, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
from regency.cli.main import main
main()
"""
"""Makes its stdin the terminal that Ctrl-C comes from."""
_ORDERS = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """`regency top` in a terminal of so many columns and lines, and what it wrote."""

    def __init__(self, cluster: Cluster, *words: str, columns: int = 80, lines: int = 24) -> None:
        self.master, self.slave = pty.openpty()
        self.resize(columns, lines)
        self.before = termios.tcgetattr(self.slave)
        self.written = ""
        command = [sys.executable, "-c", OWN_TERMINAL, "top", "--interval", "0.3"]
        self.process = subprocess.Popen(
            [*command, "--bootstrap-server", cluster.bootstrap_servers, *words],
            stdin=self.slave,
            stdout=self.slave,
            stderr=self.slave,
            env={**os.environ, "TERM": "xterm-256color"},
        )
        self._reading = threading.Thread(target=self._read, daemon=True)
        self._ended = threading.Event()
        self._reading.start()

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def _read(self) -> None:
        while not self._ended.is_set():
            if select.select([self.master], [], [], 0.05)[0]:
                try:
                    self.written += os.read(self.master, 65536).decode(errors="replace")
                except OSError as error:
                    assert error.errno == errno.EIO
                    return

    def screen(self) -> str:
        """The last drawing that is whole, as the next has begun: every one begins at the screen's first place."""
        drawings = self.written.rsplit("\x1b[H", 2)
        return _ORDERS.sub("", drawings[1]).replace("\r", "") if len(drawings) == 3 else ""

    def live(self) -> list[str]:
        return re.findall(r"^ +(\d)  live", self.screen(), re.MULTILINE)

    def type(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        """The exit status; the terminal must be as it was before."""
        try:
            status = self.process.wait(10)
        finally:
            self.process.kill()
            self._ended.set()
            self._reading.join(2)
        assert termios.tcgetattr(self.slave) == self.before, "keys are read as before"
        assert self.written.count(ENTER) == self.written.count(LEAVE) == 1
        assert self.written.rindex(SHOW_CURSOR) > self.written.rindex(ENTER)
        assert "Traceback" not in self.written
        os.close(self.master)
        os.close(self.slave)
        return status


def once(cluster: Cluster) -> tuple[int, Any]:
    result = CliRunner().invoke(
        cli, ["top", "--once", "-o", "json", "--bootstrap-server", cluster.bootstrap_servers], prog_name="regency"
    )
    return result.exit_code, json.loads(result.stdout)


@pytest.fixture
def watched(new_cluster, create_topic) -> Cluster:
    cluster = new_cluster(brokers=3, own_zookeeper=True, settings={"replica.lag.time.max.ms": "2000"})
    create_topic(cluster, "t", partitions=6, replication=3)
    create_topic(cluster, "alone", partitions=3, replication=1)
    return cluster


def test_a_broker_is_killed_and_returns_and_q_ends_it(watched, eventually):
    terminal = Terminal(watched)
    eventually(lambda: "live *" in terminal.screen(), what="a screen")
    eventually(lambda: " 9 " in terminal.screen(), what="nine partitions")
    killed = watched.controller_id()
    watched.kill(killed)
    eventually(lambda: re.search(rf"{killed}  dead", terminal.screen()), within=30, what="the broker shown as dead")
    screen = eventually(
        lambda: (text := terminal.screen()) and re.search(r"t-\d +lacks ISR", text) and text,
        what="partitions in trouble",
    )
    assert re.search(r"alone-\d +offline +none", screen), screen
    # Sessions of agent and controller end in either order: the next controller finds the broker gone or sees it go.
    died = rf"broker {killed} (gone \(it ruled as controller in epoch 1, and |dead \()its registration is gone\): "
    assert re.search(died, " ".join(screen.split())), "a line for the event, with its reason"
    assert len(screen.splitlines()) <= 24
    assert max(map(len, screen.splitlines())) <= 80
    words = ["history", "--subject", f"broker {killed}", "--bootstrap-server", watched.bootstrap_servers]
    told = CliRunner().invoke(cli, words, prog_name="regency").stdout
    assert re.search(rf"{died}\d partitions lost a replica, \d .* new leader, \d .* none", told), told

    terminal.type("?")
    eventually(lambda: "regency top: keys" in terminal.screen(), what="the keys")
    terminal.type(" ")
    terminal.type(f"b{killed}\r")
    eventually(lambda: not terminal.live() and f"{killed}  dead" in terminal.screen(), what="one broker")
    terminal.type("\x1btalone\r")
    shown = lambda name: len(re.findall(rf"^{name}-\d ", terminal.screen(), re.MULTILINE))  # noqa: E731
    eventually(lambda: (shown("alone"), shown("t")) == (3, 0), what="one topic, also what is well of it")
    terminal.type("\x1b")
    watched.restart(killed)
    eventually(lambda: len(terminal.live()) == 3, within=30, what="all brokers shown as live")
    eventually(lambda: "lacks ISR" not in terminal.screen(), within=30, what="nothing in trouble")
    terminal.type("q")
    assert terminal.end() == 0


def test_zookeeper_and_all_brokers_go_and_return_and_ctrl_c_ends_it(watched, eventually):
    terminal = Terminal(watched, columns=200, lines=60)
    eventually(lambda: "live *" in terminal.screen(), what="a screen")
    watched.pause_zookeeper()
    eventually(lambda: "ZooKeeper is away" in terminal.screen(), within=30, what="that ZooKeeper is away")
    eventually(lambda: "no controller rules" in terminal.screen(), within=30, what="that nobody rules")
    eventually(lambda: "What follows was so" in terminal.screen(), within=30, what="what was known last")
    assert re.search(r"1  live", terminal.screen()), "what was known last is still shown"
    watched.resume_zookeeper()
    eventually(lambda: "ZooKeeper" not in terminal.screen(), within=30, what="all well again")
    terminal.resize(80, 24)
    eventually(lambda: max(map(len, terminal.screen().splitlines()), default=81) <= 80, what="the new size")
    for broker in (1, 2, 3):
        watched.kill(broker)
    eventually(lambda: "No broker answers" in terminal.screen(), within=40, what="that nobody answers")
    for broker in (1, 2, 3):
        watched.restart(broker)
    eventually(lambda: len(terminal.live()) == 3, within=40, what="all brokers shown as live")
    terminal.type("\x03")
    assert terminal.end() == 130


def test_once_for_scripts_in_a_pipe_and_until_sigterm(watched, eventually):
    status, found = once(watched)
    assert status == 0
    counts = found["totals"]
    assert (counts["topics"], counts["partitions"], counts["all_in_sync"], counts["leaderless"]) == (2, 9, 9, 0)
    assert [(each["broker"], each["state"]) for each in found["brokers"]] == [(1, "live"), (2, "live"), (3, "live")]
    assert found["ruling"]["broker"] == watched.controller_id()
    assert found["ruling"]["in_contact"] is True
    assert all(0 < each["disk_used"] < 1 for each in found["brokers"])

    def leads() -> bool:
        return sum(each["leads"] or 0 for each in once(watched)[1]["brokers"]) == 9

    eventually(leads, what="that agents have reported what they lead")

    command = [sys.executable, "-m", "regency", "top", "--bootstrap-server", watched.bootstrap_servers]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout.startswith("regency top  ")
    assert "\x1b" not in told.stdout + told.stderr
    assert told.stderr == ""

    terminal = Terminal(watched)
    eventually(lambda: "live *" in terminal.screen(), what="a screen")
    terminal.process.send_signal(signal.SIGTERM)
    assert terminal.end() == 143

    for broker in (1, 2, 3):
        watched.kill(broker)
    status, found = once(watched)
    assert (status, found["ruling"], found["age_s"]) == (5, None, None)
    assert "No broker answers" in found["notes"][0]
