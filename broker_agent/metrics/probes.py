"""When an agent is alive and when it is ready: /livez and /readyz, read on the threads that serve probes, and a line on
stdout once the ruling controller counts on it, and not merely once it is registered.

A caller that waits for the last of N brokers to be ready may create a topic with N replicas at once.
"""

from __future__ import annotations

import contextlib
import json
import logging
import sys
from collections.abc import Callable, Mapping

from regency.broker_agent.assembly import Parts
from regency.broker_agent.control.metadata_cache import MetadataCache, MetadataSnapshot
from regency.broker_agent.process.data_loop import DataLoop, LoopClosed
from regency.model.facts import is_wildcard
from regency.model.ids import BrokerEpoch, BrokerId
from regency.runtime.http.probes import Condition

logger = logging.getLogger(__name__)

LOOP_ANSWERS_MS = 3_000
"""A data loop that does not come to a call within this time serves no client."""

LOGS_PER_LINE = 1000
"""Logs opened at the start for each line about it."""


class Recovery:
    """How far the start is with opening logs. Told on the threads that open them, one number at a time."""

    def __init__(self) -> None:
        self.opened = 0
        self.count = 0

    def tell(self, opened: int, count: int) -> None:
        """So many of `count` logs are open."""
        self.opened, self.count = opened, count
        if opened == count or opened % LOGS_PER_LINE == 0:
            logger.info("opened %d of %d logs", opened, count)


def live_conditions(loop: DataLoop) -> list[Condition]:
    """What holds as long as a restart would not help."""

    def loop_answers() -> str:
        try:
            loop.call(lambda: None, timeout_ms=LOOP_ANSWERS_MS)
        except LoopClosed as error:
            return error.message
        return ""

    return [Condition("data_loop", loop_answers)]


def ready_conditions(
    broker: BrokerId, parts: Callable[[], Parts | None], recovery: Recovery, stopping: Callable[[], bool]
) -> list[Condition]:
    """What must hold before clients are sent to this agent."""

    def recovered() -> str:
        if parts() is not None:
            return ""
        return f"{recovery.opened} of {recovery.count} logs are open" if recovery.count else "no log is open yet"

    def registered() -> str:
        made = parts()
        is_registered = made is not None and made.registration.owner_generation() is not None
        return "" if is_registered else "this broker is not registered in ZooKeeper"

    def known() -> str:
        made = parts()
        if made is not None and is_known(made.metadata.current, broker, made.registration.epoch()):
            return ""
        return "no controller has told yet that it counts on this broker"

    def stays() -> str:
        return "this agent is stopping" if stopping() else ""

    return [
        Condition("recovered", recovered),
        Condition("registered", registered),
        Condition("metadata", known),
        Condition("not_stopping", stays),
    ]


PATIENCE_MS = 10_000
"""After waiting this long for a controller it says so in the log, and waits on."""


def is_known(view: MetadataSnapshot, broker: BrokerId, epoch: BrokerEpoch) -> bool:
    """Whether metadata names this incarnation of the broker."""
    node = view.brokers.get(broker)
    return node is not None and node.epoch == epoch


async def say_ready_once_known(
    broker: BrokerId,
    ports: Mapping[str, int],
    bound: Mapping[str, tuple[str, int]],
    metadata: MetadataCache,
    broker_epoch: Callable[[], BrokerEpoch],
) -> None:
    """Write one JSON line to stdout when metadata names this incarnation of the broker.

    `ports` are those that others connect to; the log gets the hosts and ports that are `bound`. Both by listener.
    """

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
    places = [f"{name} on {'*' if is_wildcard(host) else host}:{port}" for name, (host, port) in bound.items()]
    logger.info("ready: %s", ", ".join(places))
