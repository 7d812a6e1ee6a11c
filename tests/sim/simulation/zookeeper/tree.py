"""Znodes as one server holds them. Passive: what may be written is decided in `transactions`.

A node never changes: a write puts another one in its place, so that servers that lag share all nodes but those they
have not seen written.
"""

from __future__ import annotations

import re
from typing import Final

from regency.runtime.zookeeper.session import Stat

ROOT: Final = "/"
SPECIAL_PATHS: Final = frozenset({"/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"})
"""What no client may delete."""

_NAME: Final = "(?!\\.\\.?(?:/|\\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]+"
_VALID: Final = re.compile(f"/(?:{_NAME}(?:/{_NAME})*)?\\Z")


def is_valid(path: str) -> bool:
    """Whether a znode can have this path (PathUtils.validatePath)."""
    return _VALID.match(path) is not None


def split(path: str) -> tuple[str, str]:
    parent, _, name = path.rpartition("/")
    return parent or ROOT, name


class Node:
    """A znode at some zxid. `creates` counts children ever created: the sequence counter, which deletions leave."""

    __slots__ = ("_stat", "creates", "czxid", "data", "mzxid", "num_children", "owner", "pzxid", "version")

    def __init__(
        self, data: bytes, czxid: int, mzxid: int, pzxid: int, version: int, owner: int, creates: int, num_children: int
    ) -> None:
        self.data = data
        self.czxid = czxid
        self.mzxid = mzxid
        self.pzxid = pzxid
        self.version = version
        self.owner = owner
        self.creates = creates
        self.num_children = num_children
        self._stat: Stat | None = None

    @property
    def stat(self) -> Stat:
        if self._stat is None:
            self._stat = Stat(self.czxid, self.mzxid, self.version, self.owner, self.num_children, self.pzxid)
        return self._stat

    @property
    def cversion(self) -> int:
        """Changes of the children as the Stat on the wire counts them: creations and deletions."""
        return 2 * self.creates - self.num_children

    def with_data(self, data: bytes, zxid: int) -> Node:
        """The node after a write of its data."""
        return Node(data, self.czxid, zxid, self.pzxid, self.version + 1, self.owner, self.creates, self.num_children)

    def with_child(self, zxid: int) -> Node:
        """The node after the creation of a child."""
        return Node(
            self.data, self.czxid, self.mzxid, zxid, self.version, self.owner, self.creates + 1, self.num_children + 1
        )

    def without_child(self, zxid: int) -> Node:
        """The node after the deletion of a child."""
        return Node(
            self.data, self.czxid, self.mzxid, zxid, self.version, self.owner, self.creates, self.num_children - 1
        )


class Tree:
    """Paths to nodes, and parents to the names of their children."""

    __slots__ = ("_names", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {
            "/": Node(b"", 0, 0, 0, 0, 0, 0, 1),
            "/zookeeper": Node(b"", 0, 0, 0, 0, 0, 0, 2),
            "/zookeeper/config": Node(b"", 0, 0, 0, -1, 0, 0, 0),
            "/zookeeper/quota": Node(b"", 0, 0, 0, 0, 0, 0, 0),
        }
        self._names: dict[str, dict[str, None]] = {
            "/": {"zookeeper": None},
            "/zookeeper": {"config": None, "quota": None},
        }

    def names(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(self._names.get(path, ())))

    def put(self, path: str, node: Node | None) -> None:
        """Put a node in place of what was there; None: delete it."""
        if node is not None:
            if path not in self.nodes:
                parent, name = split(path)
                self._names.setdefault(parent, {})[name] = None
            self.nodes[path] = node
        elif path in self.nodes:
            del self.nodes[path]
            parent, name = split(path)
            siblings = self._names[parent]
            del siblings[name]
            if not siblings:
                del self._names[parent]
