"""One log format for every process of the cluster: a line per decision, UTC, sortable by time across processes."""

from __future__ import annotations

import logging
import sys
import time

from regency.model.state_changes import STATE_CHANGES

FORMAT = "%(asctime)s.%(msecs)03dZ %(levelname)-7s {process} %(name)s: %(message)s"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S"


def configure(process: str, level: int = logging.INFO, *, state_changes: bool = False) -> None:
    """Send the log of this process to stderr, on request each change of a state too (model/state_changes.py).

    `process` names it in every line, as in `agent-1`.
    """
    formatter = logging.Formatter(FORMAT.format(process=process.replace("%", "%%")), TIME_FORMAT)
    formatter.converter = time.gmtime
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter)
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for chatty in ("kazoo", "kafka", "asyncio", "grpc"):
        logging.getLogger(chatty).setLevel(max(level, logging.WARNING))
    STATE_CHANGES.setLevel(logging.DEBUG if state_changes else logging.NOTSET)


def is_power_of_ten(count: int) -> bool:
    """Whether `count`, 1 or more, is 1, 10, 100 and so on: the repetitions worth a line."""
    while count % 10 == 0:
        count //= 10
    return count == 1
