"""What every handler is given."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from regency.broker_agent.listener.answer_cache import AnswerCache
from regency.broker_agent.listener.auto_creation import AutoCreation
from regency.broker_agent.listener.ports import Admin, ConfigSource, FetchSessions, Metadata, ProducerIdSource, Replicas
from regency.broker_agent.listener.stats import ListenerStats
from regency.broker_agent.listener.unsent import UnsentAnswers
from regency.model.clock import Clock
from regency.model.settings import BrokerSettings

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
    metadata_answers: AnswerCache = field(default_factory=lambda: AnswerCache(CACHED_METADATA_BYTES))
