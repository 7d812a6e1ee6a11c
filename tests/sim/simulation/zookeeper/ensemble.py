"""The ensemble in virtual time: the model, with servers that lag, sessions that expire, and servers that fail."""

from __future__ import annotations

from typing import Final

from regency.runtime.zookeeper.session import Create, Delete, Op, SetData, Znode
from simulation.kernel.scheduler import Scheduler
from simulation.zookeeper.model import LONGEST_SESSION_MS, TICK_MS, CommitCallback, Model, Session
from simulation.zookeeper.server import Server, ServerConnection
from simulation.zookeeper.transactions import OK, Txn

USUAL_LAG_US: Final = 2_000
"""A follower applies a commit up to so many microseconds after the leader, where nothing is wrong."""
ELECTION_US: Final = 400_000
"""How long there is no leader after it has failed."""


class Ensemble:
    """Three servers, of which number 0 leads at first. Clients come through a ZkLink."""

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        servers: int = 3,
        tick_ms: int = TICK_MS,
        longest_session_ms: int = LONGEST_SESSION_MS,
        usual_lag_us: int = USUAL_LAG_US,
    ) -> None:
        self.model = Model(servers, tick_ms=tick_ms, longest_session_ms=longest_session_ms)
        self._scheduler = scheduler
        self._usual_lag_us = usual_lag_us
        self._lag_us = [usual_lag_us] * servers
        self._admin: Session | None = None
        self._electing = False
        for server in self.model.servers:
            server.on_backlog = lambda server=server: self._apply_later(server)
        self._set_lags()
        self.model.on_commit(self._note)

    def on_commit(self, callback: CommitCallback) -> None:
        """Call `callback` with every committed transaction, in order, before any client can see it."""
        self.model.on_commit(callback)

    # Faults

    def lag(self, server: int, lag_us: int) -> None:
        """Let a server apply commits up to `lag_us` microseconds late; 0: as usual. No effect while it leads."""
        self._lag_us[server] = lag_us or self._usual_lag_us
        self._set_lags()
        if not lag_us:
            self.model.servers[server].apply(self.model.zxid)

    def stop_server(self, server: int) -> None:
        """A server crashes: its connections end, and all, where it led or no majority is left."""
        failed = self.model.servers[server]
        if failed.up:
            self._scheduler.trace.note("zk", f"zk-{server}", "stops")
            self.model.stop_server(failed)
            self._elect_later()

    def start_server(self, server: int) -> None:
        """A server is back; it catches up at its usual pace."""
        back = self.model.servers[server]
        if not back.up:
            self._scheduler.trace.note("zk", f"zk-{server}", "starts")
            self.model.start_server(back)
            back.apply(self.model.zxid)
            self._elect_later()

    def expire(self, session_id: int) -> None:
        session = self.model.sessions.live.get(session_id)
        if session is not None:
            self._end(session)

    def heal(self) -> None:
        """Every server runs, and none lags more than usual."""
        for number in range(len(self.model.servers)):
            self.start_server(number)
            self.lag(number, 0)

    # What administrators and observers do

    def read(self, path: str) -> Znode | None:
        node = self.model.tree.nodes.get(path)
        return None if node is None else Znode(path, node.data, node.stat)

    def children(self, path: str) -> tuple[str, ...]:
        """Sorted names of the children that are committed; none where there is no such node."""
        return self.model.tree.names(path)

    def delete_as_admin(self, path: str) -> bool:
        """Delete a znode at whichever version, as another tool might; whether that was possible."""
        return self._as_admin(Delete(path, None))

    def write_as_admin(self, path: str, data: bytes, *, new: bool = False) -> bool:
        """Create or overwrite a znode, as another tool might; whether that was possible. `new`: a sequential one."""
        if new:
            return self._as_admin(Create(path, data, sequential=True))
        node = self.model.tree.nodes.get(path)
        return self._as_admin(Create(path, data) if node is None else SetData(path, data, node.version))

    def _as_admin(self, op: Op) -> bool:
        if self._admin is None:
            _, self._admin = self.model.open_session(0, self._now_ms())
        return self.model.multi(self._admin, [op])[1][0].error == OK

    # What links do

    def connect(self, server: int, session_id: int, seen_zxid: int, timeout_ms: int) -> ServerConnection | None:
        if self._electing:
            return None
        target = self.model.servers[server]
        connection = self.model.connect(target, session_id, seen_zxid, timeout_ms, self._now_ms())
        if connection is not None and connection.session is not None and not session_id:
            self._expire_later(connection.session)
        return connection

    def heard_of(self, connection: ServerConnection) -> None:
        if connection.session is not None:
            self.model.sessions.touch(connection.session, self._now_ms())

    # What time brings

    def _now_ms(self) -> int:
        return self._scheduler.now_us // 1000

    def _set_lags(self) -> None:
        for server in self.model.servers:
            server.lags = server is not self.model.leader and self._lag_us[server.number] > 0

    def _apply_later(self, server: Server) -> None:
        zxid, scheduler = server.backlog[-1].zxid, self._scheduler
        delay = int(scheduler.random.random() * self._lag_us[server.number])
        scheduler.at(delay, lambda: server.apply(zxid))

    def _expire_later(self, session: Session) -> None:
        delay = session.deadline_ms * 1000 - self._scheduler.now_us
        self._scheduler.at(max(delay, 0), lambda: self._expire_if_due(session))

    def _expire_if_due(self, session: Session) -> None:
        if session.id not in self.model.sessions.live:
            return
        if session.deadline_ms > self._now_ms():
            self._expire_later(session)
        elif self._electing or not self.model.serving:
            self._scheduler.at(self.model.tick_ms * 1000, lambda: self._expire_if_due(session))
        else:
            self._end(session)

    def _end(self, session: Session) -> None:
        self._scheduler.trace.note("zk", "ensemble", "session %x expires", session.id)
        self.model.expire_session(session)

    def _elect_later(self) -> None:
        if not self.model.leader.up and not self._electing and self.model.serving:
            self._electing = True
            self._scheduler.at(ELECTION_US, self._elect)

    def _elect(self) -> None:
        self._electing = False
        if self.model.leader.up or not self.model.serving:
            return
        leader = max((server for server in self.model.servers if server.up), key=lambda server: server.zxid)
        self._scheduler.trace.note("zk", f"zk-{leader.number}", "leads")
        self.model.elect(leader, self._now_ms())
        self._set_lags()

    def _note(self, txn: Txn) -> None:
        self._scheduler.trace.note("commit", "zookeeper", "%s", txn)
