"""Sessions as the leader knows them. Passive: time is a parameter, in milliseconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from simulation.zookeeper.server import ServerConnection

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
