"""A process that was started through the launcher ends with the one that started it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from regency.cluster.errors import ClusterStartFailed
from regency.cluster.process import launcher, processes
from regency.cluster.process.endings import noted, read_life
from regency.cluster.process.processes import ProcessRef, ProcessState
from regency.cluster.process.spawner import ManagedProcess, Spawner

LAUNCHER = str(Path(launcher.__file__))
SLEEPER = [sys.executable, "-I", "-S", "-c", "import signal; signal.pause()"]


def launch(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", LAUNCHER, *arguments], capture_output=True, text=True, check=False
    )


def test_launcher_becomes_the_program() -> None:
    done = launch("tied", str(os.getpid()), "--", sys.executable, "-c", "print('hello')")
    assert (done.returncode, done.stdout, done.stderr) == (0, "hello\n", "")


def test_launcher_starts_nothing_when_its_parent_is_another() -> None:
    done = launch("tied", "1", "--", sys.executable, "-c", "print('hello')")
    assert (done.returncode, done.stdout) == (launcher.EXIT_ORPHAN, "")
    assert "process 1 ended before" in done.stderr


def test_launcher_names_a_program_that_cannot_be_run() -> None:
    done = launch("tied", str(os.getpid()), "--", "/no/such/program")
    assert done.returncode == launcher.EXIT_NO_PROGRAM
    assert done.stderr == "launcher: cannot run /no/such/program: No such file or directory\n"


@pytest.mark.parametrize(
    "arguments", [[], ["tied"], ["tied", "12", "--"], ["tied", "x", "--", "true"], ["detached", "3", "--", "true"]]
)
def test_launcher_explains_its_use(arguments: list[str]) -> None:
    done = launch(*arguments)
    assert done.returncode == launcher.EXIT_USAGE
    assert done.stderr.startswith("usage: launcher.py")


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the guard ends what is left")
def test_process_dies_when_its_parent_is_killed(
    owner: Callable[[str], subprocess.Popen[str]], eventually: Callable[..., None], tmp_path: Path
) -> None:
    parent = owner(f"""
        from pathlib import Path
        from regency.cluster.process.spawner import Spawner
        here = Path({str(tmp_path)!r})
        print(Spawner().spawn("sleeper", {SLEEPER!r}, directory=here, log=here / "log").pid, flush=True)
        import signal
        signal.pause()
    """)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert processes.process(pid) is not None
    parent.send_signal(signal.SIGKILL)
    eventually(lambda: processes.process(pid) is None, what=f"process {pid} ends with its parent")


def test_process_outlives_the_thread_that_asked_for_it(tmp_path: Path, eventually: Callable[..., None]) -> None:
    spawner = Spawner()
    started: list[ManagedProcess] = []

    def ask() -> None:
        started.append(spawner.spawn("sleeper", SLEEPER, directory=tmp_path, log=tmp_path / "log"))

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    try:
        eventually(lambda: b"pause" in Path(f"/proc/{started[0].pid}/cmdline").read_bytes(), what="the launcher execs")
        assert started[0].state is ProcessState.RUNNING
    finally:
        started[0].kill()
        spawner.close()
    assert started[0].state is ProcessState.DEAD


def test_detached_process_is_nobodys_child(tmp_path: Path) -> None:
    spawner = Spawner(detached=True)
    process = spawner.spawn("sleeper", SLEEPER, directory=tmp_path, log=tmp_path / "log")
    spawner.close()
    row = processes.process(process.pid)
    assert row is not None
    assert (process.state, row.group) == (ProcessState.RUNNING, process.pid)
    assert row.parent != os.getpid()
    assert noted(tmp_path, "sleeper") == process.ref
    process.kill()


def test_end_of_a_process_is_told_in_words(tmp_path: Path, eventually: Callable[..., None]) -> None:
    spawner = Spawner()
    log = tmp_path / "log"
    process = spawner.spawn("failing", [sys.executable, "-c", "exit(3)"], directory=tmp_path, log=log)
    eventually(lambda: process.how_it_ended() == "ended with status 3", what="it ends by itself")
    process = spawner.spawn("ghost", ["/no/such/program"], directory=tmp_path, log=log)
    eventually(lambda: process.how_it_ended() == "ended with status 127", what="the launcher gives up")
    assert process.last_lines() == "launcher: cannot run /no/such/program: No such file or directory"
    process = spawner.spawn("sleeper", SLEEPER, directory=tmp_path, log=log)
    processes.send(process.ref, signal.SIGTERM)
    eventually(lambda: process.how_it_ended() == "was killed by SIGTERM", what="the signal is named")
    spawner.close()


@pytest.mark.parametrize(
    ("end", "status"), [("import os; os.abort()", -signal.SIGABRT), ("import sys; sys.exit(7)", 7)]
)
@pytest.mark.parametrize("detached", [False, True])
def test_how_a_process_ended_is_noted_by_its_parent(
    tmp_path: Path, eventually: Callable[..., None], detached: bool, end: str, status: int
) -> None:
    spawner = Spawner(detached=detached)
    talking = [sys.executable, "-c", f"import time; time.sleep(0.5); {end}"]
    began_ms = time.time_ns() // 1_000_000
    process = spawner.spawn("talking", talking, directory=tmp_path, log=tmp_path / "log")
    assert read_life(tmp_path, process.ref) is None
    eventually(lambda: process.how_it_ended() not in (None, "ended"), what="its end is noted")
    noted_end = read_life(tmp_path, process.ref)
    assert (noted_end.status, noted_end.oom) == (status, "no")
    assert began_ms <= noted_end.at_ms <= time.time_ns() // 1_000_000
    assert read_life(tmp_path, ProcessRef("talking", process.pid, "another boot/1")) is None
    spawner.close()


KILLS_AT_ONCE = """
import os, signal, sys
from regency.cluster.process import launcher

write = os.write

def killing(fd, data):
    done = write(fd, data)
    if data.endswith(b"\\n"):
        os.kill(int(data), signal.SIGKILL)
        os.waitid(os.P_PID, int(data), os.WEXITED | os.WNOWAIT)
    return done

os.write = killing
sys.exit(launcher.keep(1, sys.argv[1], ["sleep", "60"]))
"""


def test_a_program_that_is_killed_as_soon_as_its_pid_is_known_has_its_end_noted(tmp_path: Path) -> None:
    life = tmp_path / launcher.LIFE_FILE
    done = subprocess.run([sys.executable, "-c", KILLS_AT_ONCE, str(life)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(life.read_text())["status"] == -signal.SIGKILL


def test_a_late_note_about_an_earlier_process_does_not_touch_the_later_one(tmp_path: Path) -> None:
    file = tmp_path / launcher.LIFE_FILE
    earlier = launcher.Life(os.getpid(), str(file))
    earlier.began()
    file.write_text('{"pid": 5, "started": "later/1"}')
    earlier.ended(3)
    assert file.read_text() == '{"pid": 5, "started": "later/1"}'
    file.unlink()
    earlier.ended(3)
    assert not file.exists()


@pytest.mark.skipif(sys.platform != "linux", reason="needs cgroups")
@pytest.mark.parametrize(("kills", "oom"), [((3, 4), "likely"), ((3, 3), "no"), ((None, None), "unknown")])
def test_a_kill_is_told_from_one_for_want_of_memory_where_that_can_be_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kills: tuple[int | None, int | None], oom: str
) -> None:
    counted = iter(kills)
    monkeypatch.setattr(launcher, "_oom_file", lambda pid: "counter")
    monkeypatch.setattr(launcher, "_oom_kills", lambda file: next(counted))
    life = launcher.Life(os.getpid(), str(tmp_path / launcher.LIFE_FILE))
    life.began()
    life.ended(-signal.SIGKILL)
    assert json.loads((tmp_path / launcher.LIFE_FILE).read_text())["oom"] == oom


@pytest.mark.parametrize("detached", [False, True])
def test_what_earlier_processes_have_logged_is_not_told_of_a_later_one(
    detached: bool, tmp_path: Path, eventually: Callable[..., None]
) -> None:
    log = tmp_path / "log"
    log.write_text("Error: what was wrong yesterday\n")
    spawner = Spawner(detached=detached)
    process = spawner.spawn("sleeper", SLEEPER, directory=tmp_path, log=log)
    process.kill()
    assert process.last_lines() == "(nothing since this start)"
    talking = [sys.executable, "-c", "import time; print('today', flush=True); time.sleep(60)"]
    process = spawner.spawn("talking", talking, directory=tmp_path, log=log)
    eventually(lambda: process.last_lines() == "today", what="it has written")
    process.kill()
    spawner.close()


def test_spawner_says_that_a_directory_is_missing(tmp_path: Path) -> None:
    spawner = Spawner()
    with pytest.raises(ClusterStartFailed, match=r"ghost cannot be started: .*No such file"):
        spawner.spawn("ghost", SLEEPER, directory=tmp_path / "absent", log=tmp_path / "log")
    spawner.close()
