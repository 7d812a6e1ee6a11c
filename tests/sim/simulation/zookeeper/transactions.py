"""What one request writes, decided as the leader decides it: all of it, or an error and nothing. Pure.

Source: PrepRequestProcessor and DataTree of ZooKeeper 3.9.5.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from regency.runtime.zookeeper.session import Check, Create, Delete, Op, SetData, Stat

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


OK: Final = 0
RUNTIME_INCONSISTENCY: Final = -2
BAD_ARGUMENTS: Final = -8
NO_NODE: Final = -101
BAD_VERSION: Final = -103
NO_CHILDREN_FOR_EPHEMERALS: Final = -108
NODE_EXISTS: Final = -110
NOT_EMPTY: Final = -111
NO_WATCHER: Final = -121

CREATED: Final = 1
DELETED: Final = 2
DATA_CHANGED: Final = 3
CHILDREN_CHANGED: Final = 4
"""Types of watch events, as on the wire."""


class TxnKind(Enum):
    """What a transaction is for."""

    WRITE = "write"
    FAILED = "failed"
    """A write that failed: it takes a zxid and changes nothing."""
    OPEN_SESSION = "open session"
    CLOSE_SESSION = "close session"


class Write:
    """One change. `kind`: create, set or delete; `node`: what it left, None for a delete."""

    __slots__ = ("kind", "node", "path", "replaced")

    def __init__(self, kind: str, path: str, node: Node | None, replaced: Node | None) -> None:
        self.kind = kind
        self.path = path
        self.node = node
        self.replaced = replaced
        """What was there before; None for a create."""

    @property
    def data(self) -> bytes:
        return b"" if self.node is None else self.node.data

    @property
    def stat(self) -> Stat | None:
        """Stat right after the write; None for a delete."""
        return None if self.node is None else self.node.stat


class Txn:
    """One entry of the commit log."""

    __slots__ = ("checks", "kind", "nodes", "session_id", "writes", "zxid")

    def __init__(self, zxid: int, session_id: int, kind: TxnKind) -> None:
        self.zxid = zxid
        self.session_id = session_id
        self.kind = kind
        self.writes: list[Write] = []
        self.checks: list[tuple[str, int | None]] = []
        """Paths and versions that the same multi checked."""
        self.nodes: dict[str, Node | None] = {}
        """What every path it touched holds afterwards, parents included; None: nothing."""

    def __str__(self) -> str:
        writes = ", ".join(f"{write.kind} {write.path}" for write in self.writes)
        return f"{self.zxid} of session {self.session_id:x}: {self.kind.value} {writes}".rstrip()


class Result:
    """Outcome of one operation, as on the wire: 0 also for what was rolled back before the failing one."""

    __slots__ = ("error", "node", "path")

    def __init__(self, error: int, path: str = "", node: Node | None = None) -> None:
        self.error = error
        self.path = path
        self.node = node


_DONE: Final = Result(OK)
_AFTER: Final = Result(RUNTIME_INCONSISTENCY)


class Refused(Exception):
    """An operation cannot be done."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


class Draft:
    """A transaction while it is decided: the tree as it would be."""

    __slots__ = ("_nodes", "txn")

    def __init__(self, tree: Tree, txn: Txn) -> None:
        self._nodes = tree.nodes
        self.txn = txn

    def apply(self, op: Op) -> Result:
        if isinstance(op, SetData):
            return self._set(op)
        if isinstance(op, Check):
            return self._check(op)
        if isinstance(op, Create):
            return self._create(op)
        return self.delete(op)

    def _node(self, path: str) -> Node:
        changed = self.txn.nodes
        node = changed[path] if path in changed else self._nodes.get(path)
        if node is None:
            raise Refused(NO_NODE)
        return node

    def _check(self, op: Check) -> Result:
        if not is_valid(op.path):
            raise Refused(BAD_ARGUMENTS)
        _match(self._node(op.path), op.version)
        self.txn.checks.append((op.path, op.version))
        return _DONE

    def _set(self, op: SetData) -> Result:
        path = op.path
        if not is_valid(path):
            raise Refused(BAD_ARGUMENTS)
        before = self._node(path)
        _match(before, op.version)
        node = before.with_data(op.data, self.txn.zxid)
        self.txn.nodes[path] = node
        self.txn.writes.append(Write("set", path, node, before))
        return Result(OK, path, node)

    def _create(self, op: Create) -> Result:
        path, zxid = op.path, self.txn.zxid
        if "/" not in path or "\0" in path:
            raise Refused(BAD_ARGUMENTS)
        parent_path = split(path)[0]
        parent = self._node(parent_path)
        if op.sequential:
            path = f"{path}{parent.creates:010d}"
        if not is_valid(path):
            raise Refused(BAD_ARGUMENTS)
        changed = self.txn.nodes
        if (changed[path] if path in changed else self._nodes.get(path)) is not None:
            raise Refused(NODE_EXISTS)
        if parent.owner:
            raise Refused(NO_CHILDREN_FOR_EPHEMERALS)
        node = Node(op.data, zxid, zxid, zxid, 0, self.txn.session_id if op.ephemeral else 0, 0, 0)
        changed[parent_path] = parent.with_child(zxid)
        changed[path] = node
        self.txn.writes.append(Write("create", path, node, None))
        return Result(OK, path, node)

    def delete(self, op: Delete) -> Result:
        path = op.path
        if "/" not in path or "\0" in path or path in SPECIAL_PATHS:
            raise Refused(BAD_ARGUMENTS)
        parent_path = split(path)[0]
        parent = self._node(parent_path)
        node = self._node(path)
        _match(node, op.version)
        if node.num_children:
            raise Refused(NOT_EMPTY)
        self.txn.nodes[parent_path] = parent.without_child(self.txn.zxid)
        self.txn.nodes[path] = None
        self.txn.writes.append(Write("delete", path, None, node))
        return _DONE


def prepare(tree: Tree, zxid: int, session_id: int, ops: Sequence[Op]) -> tuple[Txn, list[Result]]:
    """The transaction of a multi, and an outcome for each of its operations. A single write is a multi of one."""
    txn = Txn(zxid, session_id, TxnKind.WRITE)
    draft = Draft(tree, txn)
    results: list[Result] = []
    try:
        for op in ops:
            results.append(draft.apply(op))
    except Refused as refusal:
        done = len(results)
        rest = len(ops) - done - 1
        return Txn(zxid, session_id, TxnKind.FAILED), [_DONE] * done + [Result(refusal.error)] + [_AFTER] * rest
    return txn, results


def prepare_close(tree: Tree, zxid: int, session_id: int, ephemerals: Iterable[str], buckets: int) -> Txn:
    """The end of a session: its ephemerals are deleted, in the order that the real server takes (java_set_order)."""
    txn = Txn(zxid, session_id, TxnKind.CLOSE_SESSION)
    draft = Draft(tree, txn)
    for path in java_set_order(ephemerals, buckets):
        draft.delete(Delete(path, None))
    return txn


def java_set_order(paths: Iterable[str], buckets: int = 16) -> list[str]:
    """The order of a clone of a java.util.HashSet of so many buckets, into which strings were put in this order."""
    hashes = {path: _java_hash(path) for path in paths}
    in_set = sorted(hashes, key=lambda path: hashes[path] & (buckets - 1))
    cloned = 1
    while cloned < int(len(hashes) / 0.75 + 1.0):
        cloned *= 2
    return sorted(in_set, key=lambda path: hashes[path] & (cloned - 1))


def _java_hash(text: str) -> int:
    code = 0
    for unit in memoryview(text.encode("utf-16-le")).cast("H"):
        code = (code * 31 + unit) & 0xFFFFFFFF
    return code ^ (code >> 16)


def events_of(write: Write) -> tuple[int, str, str]:
    """Type of the event at the node itself, its path, and the parent whose children changed; "" where they did not."""
    if write.kind == "set":
        return DATA_CHANGED, write.path, ""
    return CREATED if write.kind == "create" else DELETED, write.path, split(write.path)[0] or ROOT


def _match(node: Node, version: int | None) -> None:
    if version is not None and version != -1 and version != node.version:
        raise Refused(BAD_VERSION)
