"""Settings of topics as this agent knows them: read from /config/topics, kept fresh through /config/changes.

A topic's settings are read before its first log is created, and again when a notification names it; after every
reconnect all that are known are read again. Settings nobody can read are logged and leave the broker's defaults.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence

import msgspec

from regency.broker_agent.ports import Worker
from regency.model import znode_paths, znodes
from regency.model.errors import ZnodeMalformed
from regency.model.log_config import LogConfig
from regency.model.settings import SettingsInvalid, topic_log_config
from regency.runtime.zk_session import WatchEvent, WatchEventType, WatchMode, ZkError, ZkSession, Znode

logger = logging.getLogger(__name__)

RETRY_MS = 1000
TOPICS_PREFIX = "topics/"


class _Held(msgspec.Struct, frozen=True):
    mzxid: int
    config: LogConfig


class TopicConfigs:
    """What logs are configured with. `of` belongs to the data loop, `load` blocks and belongs to other threads.

    `changed` is called on the data loop with a topic and its new settings.
    """

    def __init__(
        self,
        base: LogConfig,
        session: ZkSession,
        worker: Worker,
        post: Callable[[Callable[[], None]], None],
        later: Callable[[int, Callable[[], None]], object],
        changed: Callable[[str, LogConfig], None],
    ) -> None:
        self._base = base
        self._session = session
        self._worker = worker
        self._post = post
        self._later = later
        self._changed = changed
        self._lock = threading.Lock()
        self._held: dict[str, _Held] = {}
        self._seen_notification = ""
        self._busy = False
        self._again = False
        self._everything = False

    def of(self, topic: str) -> LogConfig:
        """Settings of a topic: the broker's where the topic has none or they were not read."""
        held = self._held.get(topic)
        return held.config if held is not None else self._base

    def watch(self) -> None:
        """Follow /config/changes from now on; before anything is loaded. Blocks. Raises ZkError."""
        self._session.watch(znode_paths.CONFIG_CHANGES, WatchMode.PERSISTENT_RECURSIVE, self._on_event)
        children = self._session.children(znode_paths.CONFIG_CHANGES)
        self._seen_notification = max(children.names, default="") if children is not None else ""

    def load(self, topics: Iterable[str]) -> None:
        """Read the settings of topics, whether or not they are known; blocks. Raises ZkError."""
        self._read(list(topics))

    def _read(self, topics: Sequence[str]) -> list[str]:
        """Read and keep; the topics whose settings are not what they were."""
        znode_of = self._session.read_many([znode_paths.topic_config(topic) for topic in topics])
        different: list[str] = []
        with self._lock:
            for topic, znode in zip(topics, znode_of, strict=True):
                before = self._held.get(topic)
                held = _Held(znode.stat.mzxid if znode is not None else 0, self._parse(topic, znode))
                if before is not None and 0 < held.mzxid < before.mzxid:
                    continue
                self._held[topic] = held
                if before is None or before.config != held.config:
                    different.append(topic)
        return different

    def _parse(self, topic: str, znode: Znode | None) -> LogConfig:
        if znode is None:
            return self._base
        try:
            return topic_log_config(self._base, znodes.decode_config(znode.path, znode.data))
        except (ZnodeMalformed, SettingsInvalid) as error:
            logger.warning("settings of topic %s are ignored: %s", topic, error)
            return self._base

    def _on_event(self, event: WatchEvent) -> None:
        everything = event.type is WatchEventType.LOOK_AGAIN
        if event.type is not WatchEventType.DELETED:
            self._post(lambda: self._look(everything=everything))

    def _look(self, *, everything: bool) -> None:
        self._everything = self._everything or everything
        if self._busy:
            self._again = True
            return
        self._busy = True
        whole, self._everything = self._everything, False
        self._worker.submit(lambda: self._refresh(everything=whole), lambda outcome: self._refreshed(outcome, whole))

    def _refresh(self, *, everything: bool) -> list[str]:
        children = self._session.children(znode_paths.CONFIG_CHANGES)
        names = children.names if children is not None else ()
        fresh = [name for name in names if name > self._seen_notification]
        if everything:
            topics = sorted(self._held)
        else:
            named = self._named([f"{znode_paths.CONFIG_CHANGES}/{name}" for name in fresh])
            topics = [topic for topic in named if topic in self._held]
        different = self._read(topics)
        if fresh:
            self._seen_notification = fresh[-1]
        return different

    def _named(self, notifications: Sequence[str]) -> list[str]:
        topics: dict[str, None] = {}
        for znode in self._session.read_many(notifications):
            if znode is None:
                continue
            try:
                entity = znodes.decode_config_change(znode.path, znode.data)
            except ZnodeMalformed as error:
                logger.warning("a notification of changed settings is ignored: %s", error)
                continue
            if entity.startswith(TOPICS_PREFIX):
                topics[entity.removeprefix(TOPICS_PREFIX)] = None
        return list(topics)

    def _refreshed(self, outcome: list[str] | BaseException, everything: bool) -> None:
        self._busy = False
        if isinstance(outcome, ZkError):
            logger.info("changed settings cannot be read yet: %s", outcome)
            self._everything = self._everything or everything
            self._later(RETRY_MS, lambda: self._look(everything=False))
        elif isinstance(outcome, BaseException):
            raise outcome
        else:
            for topic in outcome:
                logger.info("settings of topic %s changed", topic)
                self._changed(topic, self.of(topic))
        if self._again:
            self._again = False
            self._look(everything=False)
