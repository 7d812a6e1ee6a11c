"""One server of the model: the part of the log it has applied, its watches, and the connections it serves. Passive."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from regency.runtime.zookeeper.session import Op
from simulation.zookeeper.transactions import NO_NODE, NO_WATCHER, OK, Node, Result, Tree, Txn
from simulation.zookeeper.watches import WatchTable

if TYPE_CHECKING:
    from simulation.zookeeper.model import Model, Session


class Server:
    """Applies what is committed at once, or, while it `lags`, when `apply` says so."""

    __slots__ = ("backlog", "connections", "lags", "model", "number", "on_backlog", "tree", "up", "watches", "zxid")

    def __init__(self, model: Model, number: int) -> None:
        self.model = model
        self.number = number
        self.up = True
        self.lags = False
        self.zxid = 0
        """The last transaction applied."""
        self.tree = Tree()
        self.watches = WatchTable()
        self.backlog: deque[Txn] = deque()
        """Committed and not applied."""
        self.connections: dict[ServerConnection, None] = {}
        self.on_backlog: Callable[[], None] | None = None
        """Called whenever something comes into the backlog."""

    def receive(self, txn: Txn) -> None:
        if not self.lags and not self.backlog:
            self._apply(txn)
            return
        self.backlog.append(txn)
        if self.on_backlog is not None:
            self.on_backlog()

    def apply(self, upto_zxid: int) -> None:
        """Apply what is waiting, up to and with `upto_zxid`; events go out, then the replies that waited for it."""
        while self.backlog and self.backlog[0].zxid <= upto_zxid:
            self._apply(self.backlog.popleft())
        for connection in list(self.connections):
            connection.drain()

    def drop_connections(self) -> None:
        for connection in list(self.connections):
            connection.close()

    def _apply(self, txn: Txn) -> None:
        self.zxid = txn.zxid
        tree, watches = self.tree, self.watches
        for path, node in txn.nodes.items():
            tree.put(path, node)
        for write in txn.writes:
            watches.fire(write, txn.zxid)


class ServerConnection:
    """A client's connection, as its server sees it. Requests are executed, and answered, in the order they arrive.

    A reply is a call of the function that came with the request, with the server's zxid and the outcome; an event is
    a call of `on_event`. What they are called with goes onto the connection in just this order.
    """

    __slots__ = ("_waiting", "notify", "on_close", "on_event", "opened_zxid", "server", "session")

    def __init__(self, server: Server) -> None:
        self.server = server
        self.session: Session | None = None
        self.opened_zxid = 0
        """Where the session is new: its first transaction."""
        self.on_event: Callable[[int, str, int], None] | None = None
        self.on_close: Callable[[], None] | None = None
        self.notify = self._notify
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()

    @property
    def open(self) -> bool:
        return self in self.server.connections

    def when_applied(self, zxid: int, action: Callable[[], None]) -> None:
        """Do `action` once everything before it is done and the server has applied `zxid`."""
        if not self._waiting and zxid <= self.server.zxid:
            action()
        else:
            self._waiting.append((zxid, action))

    def drain(self) -> None:
        """Do what waited for the server to get as far as it has."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= self.server.zxid:
            waiting.popleft()[1]()

    def close(self) -> None:
        """End it: watches are gone, nothing is answered any more. Harmless twice."""
        if self.server.connections.pop(self, 0) is None:
            self._waiting.clear()
            self.server.watches.forget(self.notify)
            if self.session is not None and self.session.connection is self:
                self.session.connection = None
            if self.on_close is not None:
                self.on_close()

    # Requests

    def multi(self, ops: Sequence[Op], reply: Callable[[int, list[Result]], None]) -> None:
        """A multi; a single write is a multi of one."""
        if self.session is None or self.session.id not in self.server.model.sessions.live:
            return
        zxid, results = self.server.model.multi(self.session, ops)
        self.when_applied(zxid, lambda: reply(self.server.zxid, results))

    def sync(self, reply: Callable[[int, None], None]) -> None:
        """Answered when the server has applied all that was committed when this came."""
        self.when_applied(self.server.model.zxid, lambda: reply(self.server.zxid, None))

    def ping(self, reply: Callable[[int, None], None]) -> None:
        self.when_applied(0, lambda: reply(self.server.zxid, None))

    def read_many(self, paths: Sequence[str], reply: Callable[[int, list[Node | None]], None]) -> None:
        def read() -> None:
            nodes = self.server.tree.nodes
            reply(self.server.zxid, [nodes.get(path) for path in paths])

        self.when_applied(0, read)

    def children_many(self, paths: Sequence[str], reply: Callable[[int, list[tuple[str, ...] | None]], None]) -> None:
        def read() -> None:
            tree = self.server.tree
            reply(self.server.zxid, [tree.names(path) if path in tree.nodes else None for path in paths])

        self.when_applied(0, read)

    def read_once(self, kind: str, path: str, reply: Callable[[int, Node | None], None]) -> None:
        """A read with a one-shot watch. `kind`: data, exists or children; only exists leaves one where nothing is."""

        def read() -> None:
            node = self.server.tree.nodes.get(path)
            if kind == "children" and node is not None:
                self.server.watches.on_children(path, self.notify)
            elif kind == "exists" or (kind == "data" and node is not None):
                self.server.watches.on_node(path, self.notify)
            reply(self.server.zxid, node)

        self.when_applied(0, read)

    def add_watch(self, path: str, *, recursive: bool, reply: Callable[[int, int], None]) -> None:
        def add() -> None:
            self.server.watches.add(path, self.notify, recursive=recursive)
            reply(self.server.zxid, OK)

        self.when_applied(0, add)

    def rearm(self, *, persistent: Sequence[str], recursive: Sequence[str], reply: Callable[[], None]) -> None:
        """Arm watches that stay on a new connection (setWatches2)."""

        def arm() -> None:
            server = self.server
            server.watches.rearm(server.tree, self.notify, 0, persistent=persistent, recursive=recursive)
            reply()

        self.when_applied(0, arm)

    def remove_watches(self, path: str, reply: Callable[[int, int], None]) -> None:
        """Forget every watch on a path; NO_WATCHER where there is none."""

        def remove() -> None:
            removed = self.server.watches.remove(path, self.notify)
            reply(self.server.zxid, OK if removed else NO_WATCHER)

        self.when_applied(0, remove)

    def close_session(self, reply: Callable[[int, None], None]) -> None:
        """End the session at its client's wish; the connection ends after the reply."""
        if self.session is None:
            return
        zxid = self.server.model.close_session(self.session)

        def end() -> None:
            reply(self.server.zxid, None)
            self.close()

        self.when_applied(zxid, end)

    def _notify(self, kind: int, path: str, zxid: int) -> None:
        if self.on_event is not None:
            self.on_event(kind, path, zxid)


def error_of(node: Node | None) -> int:
    return OK if node is not None else NO_NODE
