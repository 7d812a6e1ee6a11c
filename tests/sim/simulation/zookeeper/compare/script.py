"""Random scripts, and what the model answers to them. A script's number and seed determine it."""

from __future__ import annotations

import random
from typing import Final

import msgspec

from regency.runtime.zookeeper.session import Check, Create, Delete, Op, SetData
from simulation.zookeeper.compare.wire import FullStat, Request, Seen, Zxid, seen_stat
from simulation.zookeeper.model import Model, Session
from simulation.zookeeper.server import ServerConnection
from simulation.zookeeper.transactions import NO_NODE, OK, Node, Result

CLIENTS: Final = 3
TIMEOUT_MS: Final = 60_000
_NAMES: Final = ("a", "b", "c")


class Burst(msgspec.Struct, frozen=True):
    """Requests sent at once on one client's connection."""

    client: int
    requests: tuple[Request, ...]


class Renew(msgspec.Struct, frozen=True):
    """The client's session ends, and it opens another. `how`: close, or expire."""

    client: int
    how: str


class Reconnect(msgspec.Struct, frozen=True):
    """The client loses its connection and continues its session on another one.

    `since`: the watches are armed as of that write of the script, counted from 0; -1: as of the beginning of time.
    """

    client: int
    since: int
    watches: tuple[tuple[str, ...], ...]


Step = Burst | Renew | Reconnect


class Script(msgspec.Struct):
    """What is done, and what every client sees of it."""

    number: int
    root: str
    steps: list[Step]
    expected: list[list[Seen]]
    owners: dict[int, tuple[int, int]]
    """Session ids of the model: client, and which of its sessions."""


def marker(root: str, client: int, generation: int) -> str:
    return f"{root}/s{client}-{generation}"


class Author:
    """Writes one script while the model plays it, so that what it tries often succeeds."""

    def __init__(self, seed: int, number: int, *, root: str | None = None) -> None:
        self._random = random.Random(f"{seed}:{number}")
        self._model = Model(1)
        self._root = f"/{seed}-{number}" if root is None else root
        self._clients: list[ServerConnection] = []
        self._generations = [0] * CLIENTS
        self._zxids: list[int] = []
        self.script = Script(number, self._root, [], [[] for _ in range(CLIENTS)], {})

    def write(self, length: int) -> Script:
        for client in range(CLIENTS):
            self._clients.append(self._open(client))
        self._play(Burst(0, (Request("write", ops=(Create(self._root),)),)))
        for client in range(CLIENTS):
            self._begin(client)
        for _ in range(length):
            self._play(self._step())
        for client in range(CLIENTS):
            self._play(Burst(client, (Request("children2", (self._root,)),)))
        return self.script

    # What is done

    def _step(self) -> Step:
        chance = self._random.random()
        client = self._random.randrange(CLIENTS)
        if chance < 0.02:
            return Renew(client, "expire" if self._random.random() < 0.25 else "close")
        if chance < 0.05:
            watches = tuple(tuple(self._some_paths(3)) for _ in range(5))
            since = self._random.randrange(-1, len(self._zxids))
            return Reconnect(client, since, watches)
        count = self._random.choice((1, 1, 1, 2, 4))
        return Burst(client, tuple(self._request() for _ in range(count)))

    def _request(self) -> Request:
        choice = self._random.choices(
            ("write", "write2", "multi", "read", "many", "add_watch", "remove_watches", "sync"),
            (30, 3, 20, 22, 8, 10, 2, 2),
        )[0]
        if choice in ("write", "write2"):
            op = self._op()
            while isinstance(op, Check):
                op = self._op()
            return Request(choice if isinstance(op, Create) else "write", ops=(op,))
        if choice == "multi":
            return Request("multi", ops=tuple(self._op() for _ in range(self._random.choice((1, 2, 2, 3, 5)))))
        if choice == "read":
            kind = self._random.choice(("data", "exists", "children", "children2"))
            return Request(kind, (self._path(),), watch=self._random.random() < 0.6)
        if choice == "many":
            kind = self._random.choice(("read_many", "children_many"))
            return Request(kind, tuple(self._some_paths(4)) or (self._path(),))
        return Request(choice, (self._path(),), watch=self._random.random() < 0.5)

    def _op(self) -> Op:
        chance = self._random.random()
        if chance < 0.02:  # what all scripts share, they do not change
            return self._random.choice((Delete("/", None), Delete("/zookeeper", 0), Create("/"), Check("/", None)))
        if chance < 0.5:
            return self._create()
        path = self._known(self._root) if self._random.random() < 0.75 else self._path()
        if chance < 0.68:
            return SetData(path, self._random.randbytes(self._random.randrange(4)), self._version(path))
        if chance < 0.86:
            return Delete(path, self._version(path))
        return Check(path, self._version(path))

    def _create(self) -> Create:
        path = self._path()
        if self._random.random() < 0.6:
            path = f"{self._known(self._root)}/{self._random.choice(_NAMES)}"
        sequential = self._random.random() < 0.3
        if sequential:
            path += self._random.choice(("", "-", "/", "/q-"))
        data = bytes(self._random.randrange(3))
        return Create(path, data, ephemeral=self._random.random() < 0.35, sequential=sequential)

    def _version(self, path: str) -> int:
        node = self._model.tree.nodes.get(path)
        if node is None or self._random.random() < 0.15:
            return self._random.choice((-1, 0, 1, 2))
        return self._random.choice((-1, node.version, node.version))

    def _some_paths(self, most: int) -> list[str]:
        return [self._path() for _ in range(self._random.randrange(most + 1))]

    def _path(self) -> str:
        chance = self._random.random()
        if chance < 0.01:
            return self._root + self._random.choice(("/a//b", "/.", "/a/../b", "/a\x01", "/...", "/\u00fc\u20ac"))
        if chance < 0.25:
            return self._known(self._path())
        depth = self._random.choice((1, 1, 2, 2, 3))
        return "/".join((self._root, *(self._random.choice(_NAMES) for _ in range(depth))))

    def _known(self, otherwise: str) -> str:
        """A node there is, apart from the markers; `otherwise` where there is none."""
        below, marks = self._root + "/", self._root + "/s"
        known = [path for path in self._model.tree.nodes if path.startswith(below) and not path.startswith(marks)]
        return self._random.choice(known) if known else otherwise

    # What the model makes of it

    def _play(self, step: Step) -> None:
        self.script.steps.append(step)
        client = step.client
        if isinstance(step, Burst):
            for request in step.requests:
                self._ask(client, request)
        elif isinstance(step, Renew):
            connection = self._clients[client]
            session = connection.session
            assert session is not None
            if step.how == "close":
                connection.close_session(lambda zxid, _: self._see(client, ("close", Zxid(zxid))))
            else:
                connection.close()
                self._model.expire_session(session)
            self._clients[client] = self._open(client)
            self._begin(client)
        else:
            self._reconnect(step)

    def _begin(self, client: int) -> None:
        path = marker(self._root, client, self._generations[client])
        self._play(Burst(client, (Request("write", ops=(Create(path, ephemeral=True),)),)))

    def _open(self, client: int) -> ServerConnection:
        connection = self._model.connect(self._model.leader, 0, 0, TIMEOUT_MS, 0)
        assert connection is not None
        assert connection.session is not None
        self._generations[client] += 1
        self.script.owners[connection.session.id] = client, self._generations[client]
        self._listen(client, connection)
        return connection

    def _reconnect(self, step: Reconnect) -> None:
        before = self._clients[step.client]
        session: Session | None = before.session
        assert session is not None
        before.close()
        connection = self._model.connect(self._model.leader, session.id, 0, TIMEOUT_MS, 0)
        assert connection is not None
        self._clients[step.client] = connection
        self._listen(step.client, connection)
        data, exist, child, persistent, recursive = step.watches
        self._model.leader.watches.rearm(
            self._model.leader.tree,
            connection.notify,
            self._zxids[step.since] if step.since >= 0 else 0,
            data=data,
            exist=exist,
            child=child,
            persistent=persistent,
            recursive=recursive,
        )
        self._see(step.client, ("armed",))

    def _listen(self, client: int, connection: ServerConnection) -> None:
        connection.on_event = lambda kind, path, zxid: self._see(client, ("event", kind, path, Zxid(zxid)))

    def _see(self, client: int, seen: Seen) -> None:
        self.script.expected[client].append(seen)

    def _ask(self, client: int, request: Request) -> None:
        connection, kind = self._clients[client], request.kind

        def see(*parts: object) -> None:
            self._see(client, (kind, *parts))

        if kind in ("write", "write2", "multi"):
            connection.multi(request.ops, lambda zxid, results: self._written(client, request, zxid, results))
        elif kind == "read_many":
            connection.read_many(request.paths, lambda _, nodes: see(OK, *map(_seen_node, nodes)))
        elif kind == "children_many":
            connection.children_many(
                request.paths, lambda _, found: see(OK, *(NO_NODE if names is None else names for names in found))
            )
        elif kind == "add_watch":
            connection.add_watch(request.paths[0], recursive=request.watch, reply=lambda _, error: see(error))
        elif kind == "remove_watches":
            connection.remove_watches(request.paths[0], lambda _, error: see(error))
        elif kind == "sync":
            connection.sync(lambda *_: see(OK))
        else:
            self._read(connection, client, request)

    def _read(self, connection: ServerConnection, client: int, request: Request) -> None:
        kind, (path,) = request.kind, request.paths
        nodes: list[Node | None] = []
        if request.watch:
            connection.read_once(kind.rstrip("2"), path, lambda _, node: nodes.append(node))
        else:
            connection.read_many((path,), lambda _, found: nodes.extend(found))
        (node,) = nodes
        if node is None:
            self._see(client, (kind, NO_NODE))
            return
        stat = FullStat(node.stat, node.cversion, len(node.data)).seen()
        names = self._model.leader.tree.names(path)
        parts: dict[str, Seen] = {
            "data": (node.data, stat),
            "exists": (stat,),
            "children": (names,),
            "children2": (names, stat),
        }
        self._see(client, (kind, OK, *parts[kind]))

    def _written(self, client: int, request: Request, zxid: int, results: list[Result]) -> None:
        self._zxids.append(zxid)
        if request.kind == "multi":
            failed = any(result.error for result in results)
            parts = (_seen_result(op, result, failed) for op, result in zip(request.ops, results, strict=True))
            self._see(client, ("multi", OK, Zxid(zxid), *parts))
            return
        (op,), (result,) = request.ops, results
        head: Seen = (request.kind, result.error, Zxid(zxid))
        node = result.node
        if result.error or node is None:
            self._see(client, head)
            return
        stat = FullStat(node.stat, node.cversion, len(node.data)).seen()
        if isinstance(op, SetData):
            self._see(client, (*head, stat))
        elif request.kind == "write2":
            self._see(client, (*head, result.path.encode(), stat))
        else:
            self._see(client, (*head, result.path.encode()))


def _seen_node(node: Node | None) -> object:
    return NO_NODE if node is None else (node.data, seen_stat(node.stat))


def _seen_result(op: Op, result: Result, failed: bool) -> Seen:
    if failed:
        return (True, result.error, "", None)
    path = result.path if isinstance(op, Create) else ""
    stat = seen_stat(result.node.stat) if isinstance(op, SetData) and result.node is not None else None
    return (False, 0, path, stat)
