"""File descriptors of a process: how many it may have, and what it means when there are no more."""

from __future__ import annotations

import errno
import logging
import resource

logger = logging.getLogger(__name__)

_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def is_shortage(error: BaseException) -> bool:
    """Whether the process or its machine lacked descriptors or memory: no fault of a disk, and later it may succeed."""
    return isinstance(error, OSError) and error.errno in _SHORTAGES


def raise_limit() -> None:
    """Allow this process as many descriptors as its hard limit does, as the JVM does for Kafka. Never fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:  # macOS refuses an infinite one, for example
        logger.warning("the limit of open files stays at %d: %s", soft, error)
    else:
        logger.info("the limit of open files is %d, it was %d", hard, soft)
