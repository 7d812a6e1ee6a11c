"""What the controller reads and writes in ZooKeeper to delete topics: markers, and everything a topic has there.

Bulk verbs, every write fenced. Each step may be the last one before another controller goes on: a topic's own znode
and its marker are removed last, in one piece with its settings.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from regency.controller.store.access import StoreAccess
from regency.model.crash_points import crash_point
from regency.model.ids import ZkVersion
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import FencedItem
from regency.runtime.zookeeper.session import Create, Delete, Op, Znode

logger = logging.getLogger(__name__)

ROUNDS = 5
"""How often a removal begins again because of writes below the topic meanwhile."""


class TopicZnode(msgspec.Struct, frozen=True):
    """A topic znode that exists, whatever it holds, and the numbers below its `partitions`."""

    czxid: int
    zk_version: ZkVersion
    partitions: tuple[int, ...]


class Removed(msgspec.Struct, frozen=True):
    """What became of topics that were to be removed; others were written meanwhile, again and again, and stay."""

    gone: tuple[str, ...]
    replaced: tuple[str, ...]
    """Another topic of the name stands there now: nothing was removed."""


class DeletionStore:
    """Verbs over StoreAccess. The controller's thread calls them."""

    def __init__(self, access: StoreAccess) -> None:
        self._access = access

    def markers(self) -> dict[str, int]:
        """Names of the topics whose deletion is asked for, each with the zxid that created its marker."""
        names = self._access.children(paths.DELETE_TOPICS)
        found = self._access.read_many([paths.delete_topic(name) for name in names])
        return {name: znode.stat.czxid for name, znode in zip(names, found, strict=True) if znode is not None}

    def mark(self, topics: Sequence[str]) -> None:
        """Ask for the deletion of these topics; harmless where it was asked for before."""
        self._access.write([FencedItem((Create(paths.delete_topic(name)),)) for name in topics])

    def remove_markers(self, topics: Iterable[str]) -> None:
        """Take these requests away; what stands below a marker stays, and the marker with it."""
        items = [FencedItem((Delete(paths.delete_topic(name), None),)) for name in topics]
        if items:
            self._access.write(items)

    def existing(self, topics: Sequence[str]) -> dict[str, TopicZnode]:
        """Those of these topics that have a znode, readable or not."""
        found = self._access.read_many([paths.topic(name) for name in topics])
        there = {name: znode for name, znode in zip(topics, found, strict=True) if znode is not None}
        below = self._access.children_many([paths.topic_partitions(name) for name in there])
        return {
            name: TopicZnode(znode.stat.czxid, ZkVersion(znode.stat.version), _numbers(children))
            for (name, znode), children in zip(there.items(), below, strict=True)
        }

    def remove_topics(self, topics: Mapping[str, int]) -> Removed:
        """Remove all that these topics have in ZooKeeper; each is named with the zxid that created its znode."""
        gone: list[str] = []
        replaced: list[str] = []
        pending = list(topics)
        for _ in range(ROUNDS):
            ends = self._ends(pending)
            replaced += [name for name in pending if _is_another(ends[name], topics[name])]
            pending = [name for name in pending if not _is_another(ends[name], topics[name])]
            self._remove_below([paths.topic(name) for name in pending])
            crash_point("controller.deletion.before_topics_removed")
            done = self._end({name: ends[name] for name in pending})
            gone += [name for name in pending if name in done]
            pending = [name for name in pending if name not in done]
            if not pending:
                break
        return Removed(tuple(gone), tuple(replaced))

    def _ends(self, topics: Sequence[str]) -> dict[str, list[Znode | None]]:
        """The znodes that go last: of each topic its own, its settings and its marker."""
        kinds = (paths.topic, paths.topic_config, paths.delete_topic)
        found = self._access.read_many([path(name) for name in topics for path in kinds])
        return {name: found[3 * at : 3 * at + 3] for at, name in enumerate(topics)}

    def _remove_below(self, parents: Sequence[str]) -> None:
        """Remove whatever stands below these znodes, the deepest first."""
        levels: list[list[str]] = []
        level = list(parents)
        while level:
            found = self._access.children_many(level)
            level = [f"{parent}/{name}" for parent, names in zip(level, found, strict=True) for name in names]
            levels.append(level)
        for level in reversed(levels):
            crash_point("controller.deletion.before_level_removed")
            self._access.write([FencedItem((Delete(path, None),)) for path in level])

    def _end(self, ends: Mapping[str, Sequence[Znode | None]]) -> frozenset[str]:
        """Remove what goes last, of each topic in one piece. Returns the topics of which nothing is left."""
        removals = {name: _removal(znodes) for name, znodes in ends.items()}
        items = {name: FencedItem(ops) for name, ops in removals.items() if ops}
        outcomes = dict(zip(items, self._access.write(list(items.values())), strict=True))
        return frozenset(name for name, ops in removals.items() if not ops or outcomes[name].ok)


def _removal(znodes: Sequence[Znode | None]) -> tuple[Op, ...]:
    return tuple(Delete(znode.path, ZkVersion(znode.stat.version)) for znode in znodes if znode is not None)


def _is_another(ends: Sequence[Znode | None], czxid: int) -> bool:
    topic = ends[0]
    return topic is not None and topic.stat.czxid != czxid


def _numbers(names: Iterable[str]) -> tuple[int, ...]:
    numbers = (paths.parse_number(name) for name in names)
    return tuple(sorted(number for number in numbers if number is not None))
