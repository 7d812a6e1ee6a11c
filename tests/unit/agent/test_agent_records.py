from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import pytest

import regency
from regency.broker_agent.ports import IsrChange, IsrWritten
from regency.broker_agent.registry.isr_store import IsrHistory
from regency.history.files import HistoryWriter, read_file
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition, ZkVersion
from regency.runtime.logging import configure


def change(before: tuple[int, ...], after: tuple[int, ...]) -> IsrChange:
    return IsrChange(
        TopicPartition("flights", 3),
        TopicId(UUID(int=1)),
        BrokerId(1),
        LeaderEpoch(4),
        ControllerEpoch(2),
        tuple(map(BrokerId, after)),
        ZkVersion(6),
        "2 stopped fetching",
        tuple(map(BrokerId, before)),
    )


def test_isr_decisions_are_numbered_over_restarts_and_say_why(tmp_path: Path) -> None:
    clock = ManualClock()
    IsrHistory(BrokerId(1), HistoryWriter(tmp_path, "agent"), clock).record(
        change((1, 2), (1,)), IsrWritten(ZkVersion(7))
    )
    IsrHistory(BrokerId(1), HistoryWriter(tmp_path, "agent"), clock).record(
        change((1,), (1, 2)), IsrWritten(ZkVersion(8))
    )
    shrink, expand = read_file(tmp_path / "agent.jsonl").decisions
    assert (shrink.number, shrink.event, shrink.subject, shrink.from_, shrink.role) == (
        1,
        "isr_shrink",
        "flights-3",
        "isr [1, 2]",
        "agent",
    )
    assert shrink.to == "isr [1], leader epoch 4, version 7"
    assert shrink.why == "2 stopped fetching"
    assert (expand.number, expand.event) == (2, "isr_expand")


def test_a_log_line_has_utc_time_process_and_place(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    root = logging.getLogger()
    before = root.handlers[:], root.level
    with monkeypatch.context() as patched:
        patched.setattr(sys, "stderr", written)
        configure("agent-1")
        logging.getLogger("regency.x").info("elected %d", 2)
        logging.getLogger("kazoo").info("chatter")
    root.handlers[:], root.level = before
    (line,) = written.getvalue().splitlines()
    time, level, process, place, words = line.split(maxsplit=4)
    assert (level, process, place, words) == ("INFO", "agent-1", "regency.x:", "elected 2")
    assert time[10] == "T" and time[-5] == "." and time.endswith("Z")


@pytest.mark.parametrize("daemon", ["regency.broker_agent", "regency.controller"])
@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (["--override", "broker.idd=1"], 1, "did you mean broker.id"),
        (["--config", "/no/such/file"], 2, "does not exist"),
        (["--overide", "broker.id=1"], 2, "--overide"),
        (["--override"], 2, "requires an argument"),
        (["server.properties"], 2, "unexpected extra argument"),
    ],
)
def test_what_a_user_gets_wrong_is_one_message_and_a_status(
    daemon: str, words: list[str], status: int, told: str
) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", daemon, *words],
        env={**os.environ, "PYTHONPATH": str(Path(regency.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == status
    assert "Error: " in ended.stderr and told in ended.stderr
    assert "Traceback" not in ended.stderr and ended.stdout == ""
