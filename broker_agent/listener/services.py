"""What every handler is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from regency.broker_agent.listener.answer_cache import AnswerCache
from regency.broker_agent.listener.aside import Aside
from regency.broker_agent.listener.auto_creation import AutoCreation
from regency.broker_agent.listener.ports import Admin, ConfigSource, FetchSessions, Metadata, ProducerIdSource, Replicas
from regency.broker_agent.listener.stats import ListenerStats
from regency.broker_agent.listener.unsent import UnsentAnswers
from regency.broker_agent.wire.codec import Request
from regency.model.clock import Clock
from regency.model.settings import BrokerSettings

T = TypeVar("T")

CACHED_METADATA_BYTES: Final = 16 << 20
"""Encoded metadata answers kept per snapshot; one that is larger than this is not kept."""


@dataclass(frozen=True, slots=True)
class Services:
    """The rest of the agent, as handlers reach it, and what they share among requests."""

    settings: BrokerSettings
    replicas: Replicas
    sessions: FetchSessions
    metadata: Metadata
    admin: Admin
    producer_ids: ProducerIdSource
    configs: ConfigSource
    cluster_id: str
    clock: Clock
    auto_creation: AutoCreation
    stats: ListenerStats
    unsent: UnsentAnswers
    aside: Aside

    async def build(self, request: Request, work: Callable[[], T]) -> T:
        """What `work` makes of a request and its outcome; aside where the request is large."""
        return await self.aside.if_large(request.is_large, work)

    metadata_in_making: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict)
    """By what they are asked for: answers that are put together aside, and may be wanted by several clients."""
    metadata_answers: AnswerCache = field(default_factory=lambda: AnswerCache(CACHED_METADATA_BYTES))
