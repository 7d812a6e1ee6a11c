"""kaskade, a text user interface from PyPI, in a terminal: its list of topics, their groups and lag, and its reader."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import sys
import termios
import time
from typing import Final

from confluent_kafka import Consumer, Producer

from compat.suite import Case, Suite, Target, done, timed

VERSION: Final = "5.1.0"
RECORDS: Final = 300
LINES, COLUMNS = 50, 200
WITHIN_S: Final = 40.0
TOPIC: Final = "kaskade-topic"
OF_TOPIC: Final = rf"{TOPIC} +1 +1 +1 +1 +1 +≈300 +≈2"
"""Partitions, replicas, in sync; groups, members; records, and as much of the lag as fits."""
_ESCAPES: Final = re.compile(rb"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-_()=>].?")


def _program(suite: Suite) -> str:
    home = suite.directory / "venv"

    def make() -> None:
        suite.call([sys.executable, "-m", "venv", home], within_s=120, must=True)
        suite.call([home / "bin" / "pip", "install", "-q", f"kaskade=={VERSION}"], within_s=300, must=True)

    done(suite.directory / f"fetched-{VERSION}", make)
    return str(home / "bin" / "kaskade")


def _screen(suite: Suite, arguments: list[str], wanted: list[str]) -> str:
    """Run it in a terminal until all that is wanted has stood there; what is missing, or nothing."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", LANG="C.UTF-8", HOME=str(suite.directory))
        os.execv(arguments[0], arguments)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    shown = b""
    missing = list(wanted)
    deadline = time.monotonic() + WITHIN_S
    try:
        while missing and time.monotonic() < deadline:
            if select.select([terminal], [], [], 0.2)[0]:
                try:
                    shown += os.read(terminal, 65_536)
                except OSError:  # it has ended
                    break
            text = _ESCAPES.sub(b"", shown).decode(errors="replace")
            missing = [pattern for pattern in missing if not re.search(pattern, text)]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    with suite.log.open("ab") as log:
        log.write(b"\n$ " + " ".join(arguments).encode() + b"\n" + _ESCAPES.sub(b"", shown) + b"\n")
    return f"it did not show {missing[0]!r}" if missing else ""


def run(suite: Suite, target: Target) -> list[Case]:
    """The administration's first screen, and the reader of a topic."""
    program = _program(suite)
    producer = Producer({"bootstrap.servers": target.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"value {number}", key=f"key {number}")
    assert producer.flush(30) == 0
    reader = Consumer(
        {"bootstrap.servers": target.bootstrap_servers, "group.id": "kaskade-group", "auto.offset.reset": "earliest"}
    )
    reader.subscribe([TOPIC])
    assert len(reader.consume(100, 30)) == 100
    reader.commit(asynchronous=False)
    at = ["-b", target.bootstrap_servers]
    admin = [program, "admin", *at]
    read = [program, "consumer", *at, "-t", TOPIC, "--earliest", "-k", "string", "-v", "string"]
    cases = [
        timed("admin: topics, with their groups and lag", lambda: _screen(suite, admin, [OF_TOPIC])),
        timed("consumer: records of a topic", lambda: _screen(suite, read, ["key 0", "value 0"])),
    ]
    reader.close()
    return cases


SUITE: Final = Suite(
    name="kaskade",
    what=f"kaskade {VERSION} in a terminal",
    programs=(),
    run=run,
    settings={"auto.create.topics.enable": "true", "num.partitions": 1, "group.initial.rebalance.delay.ms": 0},
)
