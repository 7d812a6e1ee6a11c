"""File descriptors of a process: how many it may have, and what it means when there are no more."""

from __future__ import annotations

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
