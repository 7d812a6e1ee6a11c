from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from regency.broker_agent.process.child import ChildFailed, ControllerChild

PLAYED = """
import json, os, signal, sys
port, http = map(int, sys.argv[1:3]) if len(sys.argv) == 5 else (9093, 9405)
open(os.environ["LIVES"], "a").write(f"{os.getpid()} {port} {http}\\n")
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
print(json.dumps({"port": port, "http": http}), flush=True)
os.read(int(sys.argv[-1]), 1)
open(os.environ["LIVES"], "a").write("orphan\\n")
"""


@pytest.fixture
def lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "lives"
    path.touch()
    monkeypatch.setenv("LIVES", str(path))
    return path


def child(script: str = PLAYED) -> ControllerChild:
    def fix_ports(port: int, http_port: int) -> Sequence[str]:
        return [str(port), str(http_port)]

    return ControllerChild([], fix_ports, (sys.executable, "-c", script))


async def until(path: Path, lines: int) -> list[str]:
    while len(found := path.read_text().splitlines()) < lines:
        await asyncio.sleep(0.01)
    return found


def test_the_child_tells_its_ports_and_ends_when_told(lives: Path) -> None:
    async def scenario() -> tuple[int, int, bool, bool]:
        one = child()
        port = await one.start()
        ran = one.running
        await one.stop()
        return port, one.http_port, ran, one.running

    assert asyncio.run(scenario()) == (9093, 9405, True, False)


def test_a_child_that_dies_is_started_again_on_its_ports(lives: Path) -> None:
    async def scenario() -> list[str]:
        one = child()
        await one.start()
        watch = asyncio.ensure_future(one.watch())
        pid = int((await until(lives, 1))[0].split()[0])
        os.kill(pid, signal.SIGKILL)
        found = await until(lives, 2)
        watch.cancel()
        await one.stop()
        return found

    first, second = asyncio.run(scenario())
    assert first.split()[0] != second.split()[0]
    assert second.split()[1:] == ["9093", "9405"]


def test_a_child_sees_its_parents_end_by_the_pipe(lives: Path) -> None:
    async def scenario() -> list[str]:
        one = child()
        await one.start()
        os.close(one._pipe)
        one._pipe = -1
        found = await until(lives, 2)
        await one.stop()
        return found

    assert asyncio.run(scenario())[-1] == "orphan"


def test_a_child_that_cannot_start_is_an_error(lives: Path) -> None:
    with pytest.raises(ChildFailed, match="ended with status 3"):
        asyncio.run(child("import sys; sys.exit(3)").start())


def test_words_before_a_port_are_not_taken_for_one(lives: Path) -> None:
    with pytest.raises(ChildFailed):
        asyncio.run(child("print('hello')").start())


def test_a_child_that_cannot_be_forked_now_is_started_later(lives: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forks = [OSError("no more processes"), None]
    popen = subprocess.Popen

    def fork(*arguments, **options):
        if problem := forks.pop(0):
            raise problem
        return popen(*arguments, **options)

    async def scenario() -> list[str]:
        one = child()
        await one.start()
        monkeypatch.setattr("subprocess.Popen", fork)
        watch = asyncio.ensure_future(one.watch())
        os.kill(int((await until(lives, 1))[0].split()[0]), signal.SIGKILL)
        found = await until(lives, 2)
        assert not watch.done()
        watch.cancel()
        await one.stop()
        return found

    assert len(asyncio.run(scenario())) == 2
    assert forks == []
