"""One plain watch per topic znode, armed before the znode is read, gone with the term."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence

from regency.model.znodes import paths
from regency.runtime.zookeeper.session import WatchEvent, WatchMode, ZkConnectionLost, ZkError, ZkSession

logger = logging.getLogger(__name__)


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
