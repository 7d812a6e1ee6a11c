"""Settings of topics and brokers below /config: read as they stand, written with notifications, which grow old."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from regency.controller.store.access import (
    StoreAccess,
    WriteCode,
    WriteResult,
)
from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import FencedItem
from regency.runtime.zookeeper.session import Create, Delete, Op, SetData


class StoredConfig(msgspec.Struct, frozen=True):
    """What stands at one path below /config; `config` None: it cannot be read, `content` None: nothing stands there."""

    config: Mapping[str, str] | None
    content: bytes | None
    version: int = -1


def read_configs(access: StoreAccess, entities: Sequence[str]) -> dict[str, StoredConfig]:
    """Settings of these entities, such as `topics/t` or `brokers/1`. Malformed ones are reported."""
    stored: dict[str, StoredConfig] = {}
    found = access.read_many([paths.config_of(entity) for entity in entities])
    for entity, znode in zip(entities, found, strict=True):
        if znode is None:
            stored[entity] = StoredConfig({}, None)
            continue
        try:
            config: Mapping[str, str] | None = znodes.decode_config(znode.path, znode.data)
        except ZnodeMalformed as error:
            access.report(error, znode)
            config = None
        stored[entity] = StoredConfig(config, znode.data, znode.stat.version)
    return stored


def write_configs(
    access: StoreAccess, changes: Mapping[str, tuple[StoredConfig, Mapping[str, str]]]
) -> dict[str, WriteResult]:
    """Replace settings, each at the version it was read at and in one piece with its notification.

    CONFLICT also where one was created or deleted meanwhile. FAILED where it would be too large for ZooKeeper.
    """
    writes: dict[str, tuple[Op, ...]] = {}
    for entity, (before, config) in changes.items():
        path = paths.config_of(entity)
        data = znodes.encode_config(config, previous=before.content or None)
        write: Op = Create(path, data) if before.content is None else SetData(path, data, before.version)
        word = Create(paths.config_change_prefix(), znodes.encode_config_change(entity), sequential=True)
        writes[entity] = (write, word)
    results = access.write_each(writes, too_large="its znode would be too large")
    conflicts = (WriteCode.EXISTS, WriteCode.MISSING)
    return {
        entity: WriteResult(WriteCode.CONFLICT, why=result.why) if result.code in conflicts else result
        for entity, result in results.items()
    }


def notifications(access: StoreAccess) -> tuple[str, ...]:
    """Names of the notifications of changed settings there are, in order."""
    prefix = paths.config_change_prefix().rpartition("/")[2]
    return tuple(name for name in access.children(paths.CONFIG_CHANGES) if name.startswith(prefix))


def delete_notifications(access: StoreAccess, names: Sequence[str]) -> None:
    """Delete these; those already gone do not matter."""
    access.write([FencedItem((Delete(f"{paths.CONFIG_CHANGES}/{name}", None),)) for name in names])


LASTS_MS = 15 * 60 * 1000
"""So long a notification stays, at least, once this controller has seen it. Kafka goes by ZooKeeper's time instead."""


class NotificationAges:
    """Names of notifications and when they were first seen; milliseconds of a monotonic clock."""

    def __init__(self) -> None:
        self.awaited = False
        """Whether an event will come when the oldest is to be removed."""
        self._since: dict[str, int] = {}

    @property
    def oldest_ms(self) -> int | None:
        """When the oldest was first seen; None: there is none."""
        return min(self._since.values(), default=None)

    def overdue(self, names: Iterable[str], now_ms: int) -> list[str]:
        """Which of those there are now have been known for too long."""
        self._since = {name: self._since.get(name, now_ms) for name in names}
        return [name for name, since in self._since.items() if now_ms - since >= LASTS_MS]

    def forget(self, names: Iterable[str]) -> None:
        """These are removed."""
        for name in names:
            self._since.pop(name, None)
