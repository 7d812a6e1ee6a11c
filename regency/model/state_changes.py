"""The log of state changes: each transition a line at DEBUG under a logger of its own, as Kafka's state-change.log.

Off unless `regency.state.change.log` is set. Who writes lines looks once, when it is made, whether anybody reads them.
"""

from __future__ import annotations

import logging
from typing import Final

STATE_CHANGES: Final = logging.getLogger("state.change.logger")


def traced() -> bool:
    """Whether lines are written."""
    return STATE_CHANGES.isEnabledFor(logging.DEBUG)
