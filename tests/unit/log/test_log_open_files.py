"""The pool of open files."""

from __future__ import annotations

import errno
import os

import pytest

from regency.broker_agent.log.segments.open_files import LogFile, OpenFiles
from regency.runtime.disk import OsDisk


@pytest.fixture
def pool():
    pool = OpenFiles(8, OsDisk())
    yield pool
    pool.close_all()


def test_the_least_recently_used_file_is_closed_and_opened_again_when_needed(tmp_path, pool):
    files = [LogFile(tmp_path / str(number), pool) for number in range(9)]
    closed = []
    for number, file in enumerate(files):
        file.on_close = lambda number=number: closed.append(number)
    for file in files[:8]:
        file.write(b"abc", 0)
    files[0].read(3, 0)
    files[8].write(b"abc", 0)

    assert (closed, len(pool)) == ([1], 8)
    assert [file.read(9, 0) for file in files] == [b"abc"] * 9
    assert len(pool) == 8


def test_a_short_write_is_an_error(tmp_path, pool, monkeypatch):
    file = LogFile(tmp_path / "a", pool)
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: len(data) - 1)
    with pytest.raises(OSError, match="only 2 of 3 bytes"):
        file.write(b"abc", 0)


@pytest.mark.parametrize(("use", "left"), [(LogFile.fileno, 3), (LogFile.twin, 2)])
def test_a_process_out_of_descriptors_gives_back_its_own_first(tmp_path, pool, monkeypatch, use, left):
    files = [LogFile(tmp_path / str(number), pool) for number in range(5)]
    for file in files[:4]:
        file.size()
    really_open, refusals = os.open, iter([True])

    def sparing_open(*args, **kwargs):
        if next(refusals, False):
            raise OSError(errno.EMFILE, "Too many open files")
        return really_open(*args, **kwargs)

    monkeypatch.setattr(os, "open", sparing_open)
    use(files[4])
    assert files[4].path.exists()
    assert len(pool) == left


def test_without_anything_to_give_back_the_error_stands(tmp_path, pool, monkeypatch):
    def no_open(*args, **kwargs):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "open", no_open)
    with pytest.raises(OSError, match="Too many"):
        LogFile(tmp_path / "a", pool).size()


def test_files_can_change_pools(tmp_path, pool):
    other = OpenFiles(8, OsDisk())
    file = LogFile(tmp_path / "a", pool)
    file.write(b"x", 0)
    file.move_to(other)
    assert (file.read(1, 0), len(pool), len(other)) == (b"x", 0, 1)
    other.close_all()
    assert len(other) == 0
