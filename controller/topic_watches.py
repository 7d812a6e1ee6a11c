"""One plain watch per topic znode, armed before the znode is read, gone with the term."""

from __future__ import annotations

import logging
from collections.abc import Callable

from regency.model import znode_paths as paths
from regency.runtime.zk_session import WatchEvent, WatchMode, ZkError, ZkSession

logger = logging.getLogger(__name__)


class TopicWatches:
    """Watches of topic znodes; `on_change` is told the topic, on the session's own thread."""

    def __init__(self, session: ZkSession, on_change: Callable[[str], None]) -> None:
        self._session = session
        self._on_change = on_change
        self._armed: set[str] = set()

    def arm(self, topic: str) -> None:
        """Watch a topic's znode from now on; harmless twice. Raises ZkError."""
        if topic not in self._armed:
            self._session.watch(paths.topic(topic), WatchMode.PERSISTENT, self._changed)
            self._armed.add(topic)

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
