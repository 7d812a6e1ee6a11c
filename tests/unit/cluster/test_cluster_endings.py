"""How a process ended, in words that say no more than is known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regency.cluster.process.endings import Ending, EndRecord, LastLife, ended_words, ending
from regency.cluster.process.processes import ProcessRef, this_boot


@pytest.mark.parametrize(
    ("status", "oom", "words"),
    [
        (1, "no", "ended with status 1"),
        (-15, "no", "was killed by SIGTERM"),
        (-9, "no", "was killed by SIGKILL"),
        (-9, "unknown", "was killed by SIGKILL (perhaps out of memory)"),
        (-9, "likely", "was killed by SIGKILL (probably out of memory: the kernel killed for that in its cgroup)"),
        (-9, "yes", "was killed by SIGKILL (out of memory, as the kernel's log says)"),
        (-99, "no", "was killed by signal 99"),
    ],
)
def test_words(status: int, oom: str, words: str) -> None:
    assert ended_words(EndRecord(status, 5, oom)) == words


def test_sources_from_the_surest_to_none(tmp_path: Path) -> None:
    ref = ProcessRef("agent-1", 12, f"{this_boot()}/34")
    assert "how is not known" in ending(LastLife(ref), tmp_path).how
    before = ProcessRef("agent-1", 12, "an earlier boot/34")
    assert ending(LastLife(before), tmp_path).how.startswith("ended with this machine")
    life = {"pid": 12, "started": ref.started, "status": -9, "at_ms": 7, "oom": "yes"}
    tmp_path.joinpath("life.json").write_text(json.dumps(life))
    told = ending(LastLife(ref), tmp_path)
    assert (told.at_ms, told.signal, told.exit_status, told.out_of_memory) == (7, "SIGKILL", None, "yes")
    assert ending(LastLife(before), tmp_path).signal is None, "the note is about another process"
    assert ending(LastLife(ref, "kill", 8), tmp_path) == Ending(
        "was killed on purpose", at_ms=8, signal="SIGKILL", out_of_memory="no"
    )
    tmp_path.joinpath("life.json").write_text("{")
    assert "how is not known" in ending(LastLife(ref), tmp_path).how
