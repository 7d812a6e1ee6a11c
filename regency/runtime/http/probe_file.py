"""A file that says where a daemon serves its probes, for a health check on the same host that knows no settings.

Settings come from files, variables and command lines, and port 0 is any free one: only the daemon knows what came of
them. deploy/healthcheck.py is the reader.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

NOT_SERVED = -1


def write_probe_file(path: Path, addresses: Sequence[str], port: int) -> None:
    """Say that probes are asked at the first of `addresses` that answers, on `port`; NOT_SERVED: nowhere.

    A file that cannot be written is logged: the daemon does its work without it.
    """
    beside = path.with_name(f"{path.name}.tmp")
    try:
        beside.write_text(json.dumps({"addresses": list(addresses), "port": port}) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        logger.warning("%s cannot be written, so no health check finds /readyz: %s", path, error.strerror or error)


def remove_probe_file(path: Path) -> None:
    """Leave nothing that names a port which another process may take."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path, error.strerror or error)
