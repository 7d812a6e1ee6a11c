"""Who runs as a broker, told by the lock of its log directory."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

from regency.cluster import lock_holders
from regency.kafka.logfiles.file_names import LOCK

Eventually = Callable[..., None]


def test_the_process_that_has_locked_a_directory_is_found_until_it_ends(
    lock_holder: Callable[..., int], tmp_path: Path, eventually: Eventually
) -> None:
    pid = lock_holder(tmp_path)

    found = lock_holders.started_by_hand("agent-7", tmp_path)
    assert found is not None
    assert (found.name, found.pid) == ("agent-7", pid)

    os.kill(pid, signal.SIGKILL)
    eventually(lambda: lock_holders.started_by_hand("agent-7", tmp_path) is None, what="the lock goes with the process")


def test_an_agent_locks_its_directory_so_that_it_is_found(
    owner: Callable[[str], subprocess.Popen[str]], tmp_path: Path
) -> None:
    agent = owner(f"""
        import signal
        from pathlib import Path
        from regency.runtime.disk import OsDisk
        OsDisk().lock(Path({str(tmp_path)!r}) / {LOCK!r})
        print("locked", flush=True)
        signal.pause()
    """)
    assert agent.stdout is not None
    assert agent.stdout.readline() == "locked\n"

    assert lock_holders.lock_holder(tmp_path / lock_holders.LOCK_NAME) == agent.pid


def test_nobody_is_found_where_nothing_is_locked_or_nothing_is(tmp_path: Path) -> None:
    assert lock_holders.started_by_hand("agent-7", tmp_path) is None
    (tmp_path / LOCK).write_bytes(b"")
    assert lock_holders.started_by_hand("agent-7", tmp_path) is None
