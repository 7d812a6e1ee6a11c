"""Topic znodes read with all that stands in them, to be written again at the version they were read at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.controller.store.access import LARGEST_OPERATION, StoreAccess, WriteCode, WriteResult, result_of
from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.facts import TopicAssignment
from regency.model.ids import ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import FencedItem
from regency.runtime.zookeeper.ops import op_size
from regency.runtime.zookeeper.session import SetData


class StoredTopic(msgspec.Struct, frozen=True):
    """A topic znode: what is understood of it, and its bytes, of which unknown fields must survive."""

    assignment: TopicAssignment
    content: bytes


def read_assignments(access: StoreAccess, names: Sequence[str]) -> dict[str, StoredTopic]:
    """These topics as they are now; those that do not exist or cannot be read are left out, the latter reported."""
    stored: dict[str, StoredTopic] = {}
    for name, znode in zip(names, access.read_many([paths.topic(name) for name in names]), strict=True):
        if znode is None:
            continue
        version, czxid = ZkVersion(znode.stat.version), znode.stat.czxid
        try:
            topic = znodes.decode_topic(znode.path, znode.data, topic=name, zk_version=version, czxid=czxid)
        except ZnodeMalformed as error:
            access.report(error, znode)
            continue
        stored[name] = StoredTopic(topic, znode.data)
    return stored


def write_assignments(
    access: StoreAccess, changes: Mapping[str, tuple[StoredTopic, TopicAssignment]]
) -> dict[str, WriteResult]:
    """Replace topic znodes, each at the version it was read at. FAILED where one would be too large for ZooKeeper."""
    results: dict[str, WriteResult] = {}
    items: dict[str, FencedItem] = {}
    for name, (before, after) in changes.items():
        data = znodes.encode_topic(after, previous=before.content)
        write = SetData(paths.topic(name), data, before.assignment.zk_version)
        if op_size(write) > LARGEST_OPERATION:
            results[name] = WriteResult(WriteCode.FAILED, why="its znode would be too large")
        else:
            items[name] = FencedItem((write,))
    for name, outcome in zip(items, access.write(list(items.values())), strict=True):
        results[name] = result_of(outcome)
    return results
