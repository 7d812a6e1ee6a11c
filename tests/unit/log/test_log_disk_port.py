"""The log touches files through its port alone, so that a simulated disk sees all it does."""

from __future__ import annotations

import ast
import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import regency.broker_agent.log
import regency.kafka.logfiles
from regency.runtime.disk import OsDisk

FOLDERS = [Path(room.__path__[0]) for room in (regency.broker_agent.log, regency.kafka.logfiles)]
MODULES = sorted(path for folder in FOLDERS for path in folder.rglob("*.py") if path.name != "__init__.py")
FORBIDDEN_IMPORTS = {"os", "shutil", "fcntl", "io", "tempfile", "mmap", "resource", "glob"}
PATH_METHODS = {
    "chmod", "exists", "glob", "is_dir", "is_file", "iterdir", "lstat", "mkdir", "open", "read_bytes", "read_text",
    "rename", "replace", "resolve", "rglob", "rmdir", "stat", "symlink_to", "touch", "unlink", "write_bytes",
    "write_text",
}  # fmt: skip
PORTS = {"disk", "_disk", "file"}
"""Names under which the log knows a disk, or a file that is behind one."""


def touches_files(source: str) -> list[str]:
    """What in a module's source goes round the port."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names if alias.name.split(".")[0] in FORBIDDEN_IMPORTS]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FORBIDDEN_IMPORTS:
            found.append(node.module or "")
        elif isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Name) and called.id == "open":
                found.append("open")
            elif isinstance(called, ast.Attribute) and called.attr in PATH_METHODS:
                receiver = called.value
                name = receiver.attr if isinstance(receiver, ast.Attribute) else getattr(receiver, "id", "")
                if name not in PORTS:
                    found.append(ast.unparse(called))
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_only_the_port_touches_files(module):
    assert touches_files(module.read_text()) == []


@pytest.mark.parametrize(
    "source",
    ["import os", "from shutil import rmtree", "open('x')", "path.unlink()", "(a / b).rename(c)", "self.path.exists()"],
)
def test_going_round_the_port_is_noticed(source):
    assert len(touches_files(source)) == 1


def test_the_operating_systems_disk_locks_a_file_once(tmp_path):
    disk = OsDisk()
    fd = disk.lock(tmp_path / "lock")
    with pytest.raises(BlockingIOError):
        disk.lock(tmp_path / "lock")
    disk.close(fd)
    disk.close(disk.lock(tmp_path / "lock"))


def test_the_operating_systems_disk_says_what_is_missing(tmp_path):
    disk, missing = OsDisk(), tmp_path / "missing"
    for use in (
        lambda: disk.read_file(missing),
        lambda: disk.sync_path(missing),
        lambda: disk.remove(missing),
        lambda: disk.remove_tree(missing),
        lambda: disk.names_in(missing),
        lambda: disk.rename(missing, tmp_path / "there"),
        lambda: disk.open(missing / "file"),
        lambda: disk.make_directory(missing / "directory"),
    ):
        with pytest.raises(FileNotFoundError) as refused:
            use()
        assert refused.value.errno == errno.ENOENT
    [(path, error)] = disk.sync_paths([tmp_path] * 40 + [missing] + [tmp_path] * 40).items()
    assert (path, error.errno) == (missing, errno.ENOENT)
    disk.remove(missing, missing_ok=True)
    assert (disk.exists(missing), disk.is_directory(missing), disk.names_in(tmp_path)) == (False, False, [])


def test_the_operating_systems_disk_syncs_every_path_once(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(OsDisk, "sync_path", lambda _, path: synced.append(path))
    for count in (0, 1, 15, 16, 17, 100):
        paths = [tmp_path / str(number) for number in range(count)]
        assert OsDisk().sync_paths(paths) == {}
        assert sorted(synced) == sorted(paths)
        synced.clear()


def test_the_operating_systems_disk_syncs_every_path_where_there_are_no_more_threads(tmp_path, monkeypatch):
    def no_thread(_) -> None:
        raise RuntimeError("can't start new thread")

    synced = []
    monkeypatch.setattr(OsDisk, "sync_path", lambda _, path: synced.append(path))
    monkeypatch.setattr(threading.Thread, "start", no_thread)
    assert OsDisk().sync_paths(range(100)) == {}
    assert sorted(synced) == list(range(100))


def test_a_reserve_serves_a_log_where_the_process_has_no_descriptors_any_more(tmp_path):
    program = f"""
import errno, os, resource
from pathlib import Path
from regency.runtime.disk import OsDisk
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
disk, path, taken = OsDisk(reserve=2), Path({str(tmp_path)!r}), []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    assert error.errno == errno.EMFILE
for _ in range(3):
    kept = [disk.open_empty(path / name, 1) for name in "ab"]
    for use in (disk.sync_path, disk.names_in, lambda path: disk.open(path / "a")):
        try:
            use(path)
        except OSError as error:
            assert error.errno == errno.EMFILE
        else:
            raise SystemExit("where did that come from?")
    disk.close(kept.pop())
    for _ in range(9):
        disk.sync_path(path)
        assert disk.read_file(path / "a") == bytes(1)
        assert disk.names_in(path) == ["a", "b"]
        disk.write(kept[0], bytes(2), 0)
        disk.truncate(kept[0], 1)
        disk.close(disk.open(path / "b"))
    disk.close(kept.pop())
    try:
        os.open(os.devnull, os.O_RDONLY)
    except OSError:
        continue
    raise SystemExit("the reserve was given away")
disk.make_directory(path / "tree")
disk.close(disk.open(path / "tree" / "file"))
disk.remove_tree(path / "tree")
"""
    subprocess.run([sys.executable, "-c", program], check=True)
