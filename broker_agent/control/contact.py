"""Waits out a ZooKeeper that is away while an agent starts: a recovery of many minutes is not thrown away for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from regency.runtime.zookeeper.session import ZkConnectionLost, ZkSessionLost

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

RETRY_MS = 500


async def in_contact(call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Make a call that needs ZooKeeper, and may run twice, on a thread; again while contact is lost. For ever."""
    told = False
    while True:
        try:
            return await asyncio.to_thread(call, *arguments, **options)
        except (ZkConnectionLost, ZkSessionLost) as error:
            if not told:
                logger.warning("waiting for ZooKeeper: %s", error)
            told = True
        await asyncio.sleep(RETRY_MS / 1000)
