"""The model of an ensemble: one log of commits, and servers that apply it, each up to where it has got.

Passive: no clock (time is a parameter, in milliseconds), no chance, no waiting. What lags, when a session expires and
how long a message takes is decided elsewhere. A real server answers the same: tests/sim/test_zookeeper_model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from regency.runtime.zookeeper.session import Op
from simulation.zookeeper.server import Server, ServerConnection
from simulation.zookeeper.transactions import Result, Tree, Txn, TxnKind, prepare, prepare_close

FIRST_SESSION_ID: Final = 0x1000_0000_0000_0001


class Session:
    """One session. `deadline_ms`: it expires then unless it is heard of; always a whole number of ticks."""

    __slots__ = ("buckets", "connection", "deadline_ms", "ephemerals", "id", "timeout_ms")

    def __init__(self, session_id: int, timeout_ms: int) -> None:
        self.id = session_id
        self.timeout_ms = timeout_ms
        self.deadline_ms = 0
        self.connection: ServerConnection | None = None
        """The one it was last seen on; requests on any other are refused."""
        self.ephemerals: dict[str, None] = {}
        self.buckets = 16
        """Of the real server's hash set of them, which grows and never shrinks."""

    def owns(self, path: str) -> None:
        self.ephemerals[path] = None
        if len(self.ephemerals) > self.buckets * 3 // 4:
            self.buckets *= 2


class SessionTable:
    """All sessions that have not ended."""

    __slots__ = ("_next_id", "_tick_ms", "live")

    def __init__(self, tick_ms: int) -> None:
        self.live: dict[int, Session] = {}
        self._tick_ms = tick_ms
        self._next_id = FIRST_SESSION_ID

    def open(self, timeout_ms: int, now_ms: int) -> Session:
        session = Session(self._next_id, timeout_ms)
        self._next_id += 1
        self.live[session.id] = session
        self.touch(session, now_ms)
        return session

    def touch(self, session: Session, now_ms: int) -> None:
        """The session was heard of: it lives on for its timeout, rounded up to the next tick."""
        tick = self._tick_ms
        session.deadline_ms = max(session.deadline_ms, ((now_ms + session.timeout_ms) // tick + 1) * tick)


TICK_MS: Final = 500
LONGEST_SESSION_MS: Final = 120_000

CommitCallback = Callable[[Txn], None]


class Model:
    """`servers` servers, of which one leads: it never lags. A majority must be up for anybody to be served."""

    def __init__(
        self, servers: int = 3, *, tick_ms: int = TICK_MS, longest_session_ms: int = LONGEST_SESSION_MS
    ) -> None:
        self.tree = Tree()
        """What is committed."""
        self.zxid = 0
        self.tick_ms = tick_ms
        self.longest_session_ms = longest_session_ms
        self.sessions = SessionTable(tick_ms)
        self.servers = [Server(self, number) for number in range(servers)]
        self.leader = self.servers[0]
        self._callbacks: list[CommitCallback] = []

    def on_commit(self, callback: CommitCallback) -> None:
        """Call `callback` with every transaction from now on, in the order of the log, before any server shows it."""
        self._callbacks.append(callback)

    @property
    def serving(self) -> bool:
        return sum(server.up for server in self.servers) * 2 > len(self.servers)

    # Writes

    def multi(self, session: Session, ops: Sequence[Op]) -> tuple[int, list[Result]]:
        """Do all of `ops` or none: zxid and an outcome for each."""
        txn, results = prepare(self.tree, self.zxid + 1, session.id, ops)
        self._commit(txn)
        return txn.zxid, results

    def open_session(self, timeout_ms: int, now_ms: int) -> tuple[int, Session]:
        """A new session: zxid of its beginning, and it. Its timeout is kept within what is allowed."""
        granted_ms = min(max(timeout_ms, 2 * self.tick_ms), self.longest_session_ms)
        session = self.sessions.open(granted_ms, now_ms)
        self._commit(Txn(self.zxid + 1, session.id, TxnKind.OPEN_SESSION))
        return self.zxid, session

    def close_session(self, session: Session) -> int:
        """End a session, because its client says so or because it has expired: zxid. Its ephemerals are deleted."""
        if self.sessions.live.pop(session.id, None) is None:
            return self.zxid
        self._commit(prepare_close(self.tree, self.zxid + 1, session.id, session.ephemerals, session.buckets))
        return self.zxid

    def expire_session(self, session: Session) -> None:
        """End a session of which nothing was heard, and its connection, if it has one."""
        self.close_session(session)
        if session.connection is not None:
            session.connection.close()

    def _commit(self, txn: Txn) -> None:
        self.zxid = txn.zxid
        for write in txn.writes:
            node = write.node or write.replaced
            if node is not None and node.owner:
                owner = self.sessions.live.get(node.owner)
                if owner is not None and write.kind == "create":
                    owner.owns(write.path)
                elif owner is not None and write.kind == "delete":
                    owner.ephemerals.pop(write.path, None)
        for path, node in txn.nodes.items():
            self.tree.put(path, node)
        for callback in self._callbacks:
            callback(txn)
        for server in self.servers:
            server.receive(txn)

    # Connections

    def connect(
        self, server: Server, session_id: int, seen_zxid: int, timeout_ms: int, now_ms: int
    ) -> ServerConnection | None:
        """A connection with a session: a new one where `session_id` is 0, else that one again.

        None where the server refuses: it is down, or has not seen all that the client has. A connection whose
        `session` is None: the session has expired.
        """
        if not server.up or not self.serving or seen_zxid > server.zxid:
            return None
        connection = ServerConnection(server)
        if not session_id:
            connection.opened_zxid, session = self.open_session(timeout_ms, now_ms)
        else:
            known = self.sessions.live.get(session_id)
            if known is None:
                return connection
            session = known
            session.timeout_ms = min(max(timeout_ms, 2 * self.tick_ms), self.longest_session_ms)
            self.sessions.touch(session, now_ms)
            if session.connection is not None:
                session.connection.close()
        session.connection = connection
        connection.session = session
        server.connections[connection] = None
        return connection

    # Servers

    def stop_server(self, server: Server) -> None:
        """It crashes; its connections end. Where it led or the majority is gone, every connection ends."""
        server.up = False
        everybody = server is self.leader or not self.serving
        for each in self.servers:
            if everybody or each is server:
                each.drop_connections()

    def start_server(self, server: Server) -> None:
        """It is back, with all that it has missed yet to be applied."""
        server.up = True

    def elect(self, leader: Server, now_ms: int) -> None:
        """`leader` leads from now on: who is up has applied everything, and every session is heard of anew."""
        self.leader = leader
        for server in self.servers:
            if server.up:
                server.apply(self.zxid)
        for session in self.sessions.live.values():
            self.sessions.touch(session, now_ms)
