"""What a process has of its machine: descriptors, what it means when there are no more, and memory that it keeps."""

from __future__ import annotations

import ctypes
import errno
import logging
import resource

logger = logging.getLogger(__name__)

_MOST_OF_LOGS = 16_384
_LARGEST_RESERVE = 1024
_PLENTY = 1 << 20
"""Where there is no limit."""
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_shortage(error: BaseException) -> bool:
    """Whether the process or its machine lacked descriptors or memory: no fault of a disk, and later it may succeed."""
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno in _SHORTAGES)


def limit() -> int:
    """How many descriptors this process may have at once."""
    soft: int = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return _PLENTY if soft == resource.RLIM_INFINITY else soft


def log_share(of: int) -> int:
    """How many of an agent's descriptors segments and their indexes may keep."""
    return min(of // 2, _MOST_OF_LOGS)


def connection_share(of: int) -> int:
    """How many of an agent's descriptors the connections of clients may have.

    A quarter is a reserve, for the control plane, ZooKeeper, replication, HTTP and what is written in the background.
    """
    return of - log_share(of) - min(of // 4, _LARGEST_RESERVE)


def raise_limit() -> None:
    """Allow this process as many descriptors as its hard limit does, as the JVM does for Kafka. Never fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS refuses an infinite one, for example
        logger.warning("the limit of open files stays at %d: %s", soft, error)
    else:
        logger.info("the limit of open files is %d, it was %d", hard, soft)


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of mallopt(3)."""

LARGEST_KEPT_BYTES = 32 << 20
"""Larger ones are mapped and given back one by one, as all above 128 KiB are by default. It takes no higher limit."""

KEPT_FREE_BYTES = 64 << 20
"""Free memory at the end of a heap that is not given back."""


def keep_large_buffers() -> bool:
    """Use the memory of large buffers again instead of giving it back; whether the allocator takes that.

    A megabyte that was just mapped is 256 page faults, each zeroing a page that is then written over: three quarters of
    what a consumer's fetch costs an agent otherwise. The price is KEPT_FREE_BYTES per heap, and what lies below
    a buffer still in use: nothing may keep even a small part of a large one that is done with.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_MMAP_THRESHOLD, LARGEST_KEPT_BYTES) and mallopt(_TRIM_THRESHOLD, KEPT_FREE_BYTES))
