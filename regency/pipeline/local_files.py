"""Moves of directories on the file system of this machine, whole or not at all.

Java's rename does not serve: where the place is taken it copies file by file into what is there.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Final

_HERE: Final = -100
"""AT_FDCWD: paths are as they are."""
_NOREPLACE, _EXCHANGE = 1, 2
_UNSUPPORTED: Final = frozenset({errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EXDEV})


def move(path: str, to: str) -> None:
    """Rename a directory. Raises FileExistsError where there is something, also if it appears this very moment."""
    if _renameat2(path, to, _NOREPLACE):
        return
    if os.path.lexists(to):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to)
    try:
        Path(path).rename(to)  # takes the place of an empty directory at most
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), to) from error
        raise


def exchange(path: str, other: str) -> bool:
    """Swap two directories: at every moment there is one of them at either place.

    False where the system or the file system cannot. Raises FileNotFoundError where one of them is not there.
    """
    return _renameat2(path, other, _EXCHANGE)


def _renameat2(path: str, other: str, flags: int) -> bool:
    """Linux' system call; False where there is none, or the file system does not know the flag."""
    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is None:
        return False
    if call(_HERE, os.fsencode(path), _HERE, os.fsencode(other), flags) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNSUPPORTED:
        return False
    raise OSError(code, os.strerror(code), path, None, other)
