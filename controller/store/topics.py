"""Topic znodes: read with all that stands in them, written again at the version they were read at, and watched."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence

import msgspec

from regency.controller.store.access import (
    StoreAccess,
    WriteResult,
)
from regency.model import znodes
from regency.model.errors import ZnodeMalformed
from regency.model.facts import TopicAssignment
from regency.model.ids import ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import (
    Op,
    SetData,
    WatchEvent,
    WatchMode,
    ZkConnectionLost,
    ZkError,
    ZkSession,
    Znode,
)

logger = logging.getLogger(__name__)


class StoredTopic(msgspec.Struct, frozen=True):
    """A topic znode: what is understood of it, and its bytes, of which unknown fields must survive."""

    assignment: TopicAssignment
    content: bytes


def decode_topic(name: str, znode: Znode) -> TopicAssignment:
    """What a topic znode holds. Raises ZnodeMalformed."""
    version = ZkVersion(znode.stat.version)
    return znodes.decode_topic(znode.path, znode.data, topic=name, zk_version=version, czxid=znode.stat.czxid)


def read_assignments(access: StoreAccess, names: Sequence[str]) -> dict[str, StoredTopic]:
    """These topics as they are now; those that do not exist or cannot be read are left out, the latter reported."""
    stored: dict[str, StoredTopic] = {}
    for name, znode in zip(names, access.read_many([paths.topic(name) for name in names]), strict=True):
        if znode is None:
            continue
        try:
            topic = decode_topic(name, znode)
        except ZnodeMalformed as error:
            access.report(error, znode)
            continue
        stored[name] = StoredTopic(topic, znode.data)
    return stored


def write_assignments(
    access: StoreAccess, changes: Mapping[str, tuple[StoredTopic, TopicAssignment]]
) -> dict[str, WriteResult]:
    """Replace topic znodes, each at the version it was read at. FAILED where one would be too large for ZooKeeper."""
    writes: dict[str, tuple[Op, ...]] = {}
    for name, (before, after) in changes.items():
        data = znodes.encode_topic(after, previous=before.content)
        writes[name] = (SetData(paths.topic(name), data, before.assignment.zk_version),)
    return access.write_each(writes, too_large="its znode would be too large")


class TopicWatches:
    """Watches of topic znodes; `on_change` is called with the topic, on the session's own thread."""

    def __init__(self, session: ZkSession, on_change: Callable[[str], None]) -> None:
        self._session = session
        self._on_change = on_change
        self._armed: set[str] = set()

    def arm(self, topics: Sequence[str]) -> None:
        """Watch these topics' znodes from now on; harmless twice. Raises ZkError.

        Without contact they are armed before anything can be read again, so there is nothing to wait for.
        """
        new = [topic for topic in topics if topic not in self._armed]
        self._armed.update(new)
        with contextlib.suppress(ZkConnectionLost):
            self._session.watch_many([paths.topic(topic) for topic in new], WatchMode.PERSISTENT, self._changed)

    def disarm(self, topic: str) -> None:
        """Watch it no more."""
        if topic in self._armed:
            self._armed.discard(topic)
            try:
                self._session.unwatch(paths.topic(topic))
            except ZkError as error:
                logger.debug("the watch of topic %s ends with its session: %s", topic, error)

    def disarm_all(self) -> None:
        """Watch none any more."""
        for topic in sorted(self._armed):
            self.disarm(topic)

    def _changed(self, event: WatchEvent) -> None:
        topic = paths.parse_topic(event.watched)
        if topic is not None:
            self._on_change(topic)
