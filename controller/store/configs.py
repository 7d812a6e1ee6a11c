"""Settings of topics and brokers below /config: read as they stand, written together with the word of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.controller.store.access import LARGEST_OPERATION, StoreAccess, WriteCode, WriteResult, result_of
from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import FencedItem
from regency.runtime.zookeeper.ops import op_size
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
    results: dict[str, WriteResult] = {}
    items: dict[str, FencedItem] = {}
    for entity, (before, config) in changes.items():
        path = paths.config_of(entity)
        data = znodes.encode_config(config, previous=before.content or None)
        write: Op = Create(path, data) if before.content is None else SetData(path, data, before.version)
        if op_size(write) > LARGEST_OPERATION:
            results[entity] = WriteResult(WriteCode.FAILED, why="its znode would be too large")
            continue
        word = Create(paths.config_change_prefix(), znodes.encode_config_change(entity), sequential=True)
        items[entity] = FencedItem((write, word))
    for entity, outcome in zip(items, access.write(list(items.values())), strict=True):
        result = result_of(outcome)
        if result.code in (WriteCode.EXISTS, WriteCode.MISSING):
            result = WriteResult(WriteCode.CONFLICT, why=result.why)
        results[entity] = result
    return results


def notifications(access: StoreAccess) -> tuple[str, ...]:
    """Names of the notifications of changed settings there are, in order."""
    prefix = paths.config_change_prefix().rpartition("/")[2]
    return tuple(name for name in access.children(paths.CONFIG_CHANGES) if name.startswith(prefix))


def delete_notifications(access: StoreAccess, names: Sequence[str]) -> None:
    """Delete these; those already gone do not matter."""
    access.write([FencedItem((Delete(f"{paths.CONFIG_CHANGES}/{name}", None),)) for name in names])
