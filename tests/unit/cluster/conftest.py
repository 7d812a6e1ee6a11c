"""Programs that stand in for agents and for owners of clusters."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Script = Callable[[str, str], Path]

ROOT = Path(__file__).resolve().parents[3]

STUB_AGENT = """
    import os, signal, subprocess, sys
    config = sys.argv[sys.argv.index("--config") + 1]
    broker = next(line.split("=")[1].strip() for line in open(config) if line.startswith("broker.id"))
    child = subprocess.Popen([sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"])
    def leave(*_):
        child.kill()
        child.wait()
        sys.exit(0)
    signal.signal(signal.SIGTERM, leave)
    sys.stderr.write(f"agent {broker} is here\\n")
    sys.stderr.flush()
    print('{"ready": true, "broker": %s, "ports": {}}' % broker, flush=True)
    while True:
        signal.pause()
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a program; its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(textwrap.dedent(text))
        return path

    return write


@pytest.fixture
def stub_command(script: Script) -> tuple[str, ...]:
    """Command of an agent that says it is ready, has a child, and leaves on SIGTERM."""
    return (sys.executable, "-I", "-S", str(script("stub_agent.py", STUB_AGENT)))


@pytest.fixture
def sleeper() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Starts processes that do nothing, in groups of their own; all are gone after the test."""
    started: list[subprocess.Popen[bytes]] = []

    def start(code: str = "import signal; signal.pause()") -> subprocess.Popen[bytes]:
        child = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", code], stdout=subprocess.PIPE, start_new_session=True
        )
        started.append(child)
        return child

    yield start
    for child in started:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        if child.stdout is not None:
            child.stdout.close()


LOCK = """
import fcntl, signal, sys
file = open({path!r}, "w")
fcntl.{how}(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("locked", flush=True)
signal.pause()
"""


@pytest.fixture
def lock_holder(sleeper: Callable[..., subprocess.Popen[bytes]]) -> Callable[..., int]:
    """Starts a process that locks a log directory, as an agent does; its pid."""

    def start(directory: Path, how: str = "lockf") -> int:
        directory.mkdir(parents=True, exist_ok=True)
        child = sleeper(LOCK.format(path=str(directory / ".lock"), how=how))
        assert child.stdout is not None
        assert child.stdout.readline() == b"locked\n"
        return child.pid

    return start


@pytest.fixture
def owner(script: Script, tmp_path: Path) -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Runs a Python program that may import regency, as somebody's own process; its stdout is text."""
    started: list[subprocess.Popen[str]] = []

    def start(text: str) -> subprocess.Popen[str]:
        path = script(f"owner{len(started)}.py", text)
        child = subprocess.Popen(
            [sys.executable, str(path)],
            stdout=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        started.append(child)
        return child

    yield start
    for child in started:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
