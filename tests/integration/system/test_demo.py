"""The demonstration itself, as a user starts it, and what is left of it when it is interrupted."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regency.cluster.process import processes

pytestmark = pytest.mark.integration

COMMAND = [sys.executable, "-m", "regency", "demo"]
LAST_LINE = re.compile(r"demo: acked=(\d+) consumed=(\d+) lost=(\d+) duplicated=(\d+) unavailable_ms=(\d+)")


def test_the_demo_loses_nothing_and_says_so_in_its_last_line(tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    done = subprocess.run(
        [*COMMAND, "--flights", "40000", "--json", str(result)],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    last = LAST_LINE.fullmatch(done.stdout.splitlines()[-1])
    assert last is not None, done.stdout
    acked, consumed, lost, duplicated, unavailable_ms = map(int, last.groups())
    assert (acked, consumed, lost, duplicated) == (40000, 40000, 0, 0)
    written = json.loads(result.read_text())
    assert {name: written[name] for name in ("acked", "consumed", "lost", "duplicated", "unavailable_ms")} == {
        "acked": acked,
        "consumed": consumed,
        "lost": lost,
        "duplicated": duplicated,
        "unavailable_ms": unavailable_ms,
    }
    story = {entry["event"] for entry in written["timeline"]}
    assert {"failover", "broker_change", "isr_expand"} <= story, sorted(story)
    assert "kill -9 agent" in done.stderr


@pytest.fixture
def running_demo(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    demo = subprocess.Popen(
        [*COMMAND, "--dir", str(tmp_path / "demo")], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    assert demo.stderr is not None
    for line in demo.stderr:
        if "all led and in sync" in line:
            break
    yield demo
    demo.kill()
    demo.wait()
    demo.stderr.close()


def of_the_demo(directory: Path) -> list[processes.ProcessRow]:
    state = json.loads((directory / "cluster.json").read_text())
    pids = {reference["pid"] for reference in state["processes"]}
    assert len(pids) == 4, state
    groups = pids
    return [row for row in processes.all_processes() if row.pid in pids or row.group in groups]


@pytest.mark.parametrize(
    ("how", "status"),
    [(signal.SIGKILL, -signal.SIGKILL), (signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)],
)
def test_an_interrupted_demo_leaves_no_process_behind(
    running_demo: subprocess.Popen[str], tmp_path: Path, how: signal.Signals, status: int, eventually: Any
) -> None:
    started = of_the_demo(tmp_path / "demo")
    assert len(started) >= 7, "ZooKeeper, three agents and their three children"
    running_demo.send_signal(how)
    assert running_demo.stderr is not None
    assert running_demo.wait(timeout=20) == status, running_demo.stderr.read()
    pids = {row.pid for row in started}
    eventually(
        lambda: not pids & {row.pid for row in processes.all_processes() if row.alive},
        within=5,
        what="no process is left",
    )
