"""What every handler is given."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from regency.broker_agent.control.admin_forwarder import AdminForwarder
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.listener.apis.auto_creation import AutoCreation
from regency.broker_agent.listener.buffers import UnsentAnswers
from regency.broker_agent.listener.stats import ListenerStats
from regency.broker_agent.listener.turns import Aside
from regency.broker_agent.registry.producer_ids import ProducerIds
from regency.broker_agent.registry.topic_configs import StoredConfigs
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.clock import Clock
from regency.model.settings import BrokerSettings

T = TypeVar("T")

CACHED_METADATA_BYTES: Final = 16 << 20
"""Encoded metadata answers kept per snapshot; one that is larger than this is not kept."""


@dataclass(frozen=True, slots=True)
class Services:
    """The rest of the agent, as handlers reach it, and what they share among requests."""

    settings: BrokerSettings
    replicas: ReplicaManager
    sessions: FetchSessionCache
    metadata: MetadataCache
    admin: AdminForwarder
    producer_ids: ProducerIds
    configs: StoredConfigs
    groups: GroupCoordinator
    cluster_id: str
    clock: Clock
    auto_creation: AutoCreation
    stats: ListenerStats
    unsent: UnsentAnswers
    aside: Aside

    metadata_in_making: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict)
    """By what they are asked for: answers that are put together aside, and may be wanted by several clients."""
    metadata_answers: AnswerCache = field(default_factory=lambda: AnswerCache(CACHED_METADATA_BYTES))


class AnswerCache:
    """At most `limit` bytes of encoded bodies of one snapshot version; the least recently used go first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._version = -1
        self._size = 0
        self._bodies: OrderedDict[Hashable, bytes | bytearray] = OrderedDict()

    def get(self, version: int, key: Hashable) -> bytes | bytearray | None:
        """What was kept under `key` from the snapshot of this version."""
        if version != self._version:
            return None
        body = self._bodies.get(key)
        if body is not None:
            self._bodies.move_to_end(key)
        return body

    def put(self, version: int, key: Hashable, body: bytes | bytearray) -> None:
        """Keep a body; a newer version drops everything of the older one."""
        if version != self._version:
            self._version = version
            self._bodies.clear()
            self._size = 0
        if len(body) > self._limit:
            return
        self._size += len(body) - len(self._bodies.pop(key, b""))
        self._bodies[key] = body
        while self._size > self._limit:
            _, dropped = self._bodies.popitem(last=False)
            self._size -= len(dropped)
