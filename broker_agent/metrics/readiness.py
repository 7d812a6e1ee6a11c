"""When an agent says that it is ready: once the ruling controller counts on it, and not merely once it is registered.

A caller that waits for the last of N brokers to be ready may create a topic with N replicas at once. Data loop only.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Mapping

from regency.broker_agent.control.metadata import MetadataSnapshot
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.model.ids import BrokerEpoch, BrokerId

logger = logging.getLogger(__name__)

PATIENCE_MS = 10_000
"""After waiting this long for a controller it says so in the log, and waits on."""


def is_known(view: MetadataSnapshot, broker: BrokerId, epoch: BrokerEpoch) -> bool:
    """Whether metadata names this incarnation of the broker."""
    node = view.brokers.get(broker)
    return node is not None and node.epoch == epoch


async def say_ready_once_known(
    broker: BrokerId, ports: Mapping[str, int], metadata: MetadataCache, broker_epoch: Callable[[], BrokerEpoch]
) -> None:
    """Write one JSON line to stdout when metadata names this incarnation of the broker. `ports` by listener."""

    def known(view: MetadataSnapshot) -> bool:
        return is_known(view, broker, broker_epoch())

    told = False
    while not await metadata.wait_for(known, PATIENCE_MS):
        if not told:
            logger.warning("registered, but not ready: no controller has told this broker yet that it counts on it")
        told = True
    with contextlib.suppress(OSError):  # there is no listener any more
        sys.stdout.write(json.dumps({"ready": True, "broker": broker, "ports": dict(ports)}) + "\n")
        sys.stdout.flush()
    logger.info("ready: %s", ", ".join(f"{listener} on port {port}" for listener, port in ports.items()))
