"""The watches of one server: who is told what. Source: WatchManager and DataTree of ZooKeeper 3.9.5.

There are two tables, as in the real server: of nodes and of children. A connection is told of a change once per table
at most, and of a deletion by one of them only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from simulation.zookeeper.transactions import CHILDREN_CHANGED, CREATED, DATA_CHANGED, DELETED, Tree, Write, events_of

ONCE: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4

Notify = Callable[[int, str, int], None]
"""Takes the type, the path and the zxid of an event."""

_Table = dict[str, dict[Notify, int]]


class WatchTable:
    """Watchers are told in the order in which they came to a path, parents' after the node's own."""

    __slots__ = ("_children", "_nodes", "_recursive")

    def __init__(self) -> None:
        self._nodes: _Table = {}
        self._children: _Table = {}
        self._recursive = 0

    def on_node(self, path: str, watcher: Notify) -> None:
        """Tell `watcher` once: of a read of the data, or of whether the node exists."""
        self._add(self._nodes, path, watcher, ONCE)

    def on_children(self, path: str, watcher: Notify) -> None:
        """Tell `watcher` once: of a read of the children."""
        self._add(self._children, path, watcher, ONCE)

    def add(self, path: str, watcher: Notify, *, recursive: bool) -> None:
        if recursive:
            self._add(self._nodes, path, watcher, RECURSIVE)
        else:
            self._add(self._nodes, path, watcher, PERSISTENT)
            self._add(self._children, path, watcher, PERSISTENT)

    def remove(self, path: str, watcher: Notify) -> bool:
        """Forget all watches of `watcher` on exactly `path`; whether there was one (removeWatches, of any type)."""
        removed = False
        for table in (self._children, self._nodes):
            watchers = table.get(path)
            if watchers and watcher in watchers:
                self._drop(watchers.pop(watcher))
                removed = True
                if not watchers:
                    del table[path]
        return removed

    def forget(self, watcher: Notify) -> None:
        """Forget everything about a connection that is gone."""
        for table in (self._children, self._nodes):
            for path in [path for path, watchers in table.items() if watcher in watchers]:
                watchers = table[path]
                self._drop(watchers.pop(watcher))
                if not watchers:
                    del table[path]

    def rearm(
        self,
        tree: Tree,
        watcher: Notify,
        seen_zxid: int,
        *,
        data: Sequence[str] = (),
        exist: Sequence[str] = (),
        child: Sequence[str] = (),
        persistent: Sequence[str] = (),
        recursive: Sequence[str] = (),
    ) -> None:
        """Arm watches on a new connection (setWatches2). One that would have fired once since `seen_zxid` fires now."""
        nodes = tree.nodes
        for path in data:
            node = nodes.get(path)
            if node is None:
                watcher(DELETED, path, -1)
            elif node.mzxid > seen_zxid:
                watcher(DATA_CHANGED, path, -1)
            else:
                self.on_node(path, watcher)
        for path in exist:
            if path in nodes:
                watcher(CREATED, path, -1)
            else:
                self.on_node(path, watcher)
        for path in child:
            node = nodes.get(path)
            if node is None:
                watcher(DELETED, path, -1)
            elif node.pzxid > seen_zxid:
                watcher(CHILDREN_CHANGED, path, -1)
            else:
                self.on_children(path, watcher)
        for path in persistent:
            self.add(path, watcher, recursive=False)
        for path in recursive:
            self.add(path, watcher, recursive=True)

    def fire(self, write: Write, zxid: int) -> None:
        if not self._nodes and not self._children:
            return
        kind, path, parent = events_of(write)
        told = self._told_of_node(path)
        for watcher in told:
            watcher(kind, path, zxid)
        if kind == DELETED:
            for watcher in self._told(self._children, path):
                if watcher not in told:
                    watcher(kind, path, zxid)
        if parent:
            for watcher in self._told(self._children, parent):
                watcher(CHILDREN_CHANGED, parent, zxid)

    def _told_of_node(self, path: str) -> dict[Notify, None]:
        told = dict.fromkeys(self._told(self._nodes, path))
        above = path
        while self._recursive and above != "/":
            above = above.rpartition("/")[0] or "/"
            for watcher, modes in self._nodes.get(above, {}).items():
                if modes & RECURSIVE:
                    told[watcher] = None
        return told

    def _told(self, table: _Table, path: str) -> list[Notify]:
        """Everybody who watches exactly `path`; who wanted to be told once is forgotten."""
        watchers = table.get(path)
        if not watchers:
            return []
        told = list(watchers)
        for watcher in told:
            modes = watchers[watcher] & ~ONCE
            if modes:
                watchers[watcher] = modes
            else:
                del watchers[watcher]
        if not watchers:
            del table[path]
        return told

    def _add(self, table: _Table, path: str, watcher: Notify, mode: int) -> None:
        watchers = table.setdefault(path, {})
        before = watchers.get(watcher, 0)
        watchers[watcher] = before | mode
        if mode == RECURSIVE and not before & RECURSIVE:
            self._recursive += 1

    def _drop(self, modes: int) -> None:
        if modes & RECURSIVE:
            self._recursive -= 1
