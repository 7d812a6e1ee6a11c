"""The port to ZooKeeper: what controller and agents may ask of it. Simulation replaces what is behind it.

An implementation owns one client session at a time, replaces an expired one by a new one, and never hides that it
did: `generation` grows by one with every new session, and a write is only ever sent under the generation its caller
expected.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import ClassVar, Protocol

import msgspec

from regency.model.errors import RegencyError


class ZkError(RegencyError):
    """Something between us and ZooKeeper failed."""

    code: ClassVar[str] = "zookeeper"
    retriable: ClassVar[bool] = True


class ZkConnectionLost(ZkError):
    """The reply was lost: a read did not happen, a write may or may not have. `sync`, then read, to find out."""

    code = "zk_connection_lost"


class ZkSessionLost(ZkError):
    """The session is expired, or its deadline passed while ZooKeeper was away, or it is not the generation expected.

    Nothing was written under the new session. Ephemerals of the old one are gone or will be.
    """

    code = "zk_session_lost"
    retriable = False


class ZkRequestTooLarge(ZkError):
    """The request is larger than ZooKeeper takes (jute.maxbuffer); nothing was sent."""

    code = "zk_request_too_large"
    retriable = False


class ZkAuthFailed(ZkError):
    """ZooKeeper refused our credentials or the access."""

    code = "zk_auth_failed"
    retriable = False


class ZkCode(Enum):
    """Outcome of one operation of a multi."""

    OK = "ok"
    NO_NODE = "no_node"
    NODE_EXISTS = "node_exists"
    BAD_VERSION = "bad_version"
    NOT_EMPTY = "not_empty"
    NO_CHILDREN_FOR_EPHEMERALS = "no_children_for_ephemerals"
    NO_AUTH = "no_auth"
    ROLLED_BACK = "rolled_back"
    """Not tried, or undone, because another operation of the same multi failed."""


class Stat(msgspec.Struct, frozen=True, gc=False):
    """What ZooKeeper knows of a znode. zxids order all writes of a ZooKeeper ensemble."""

    czxid: int
    mzxid: int
    version: int
    ephemeral_owner: int
    """Session that owns an ephemeral; 0 for a persistent znode."""
    num_children: int
    pzxid: int = 0
    """zxid of the last change of the children."""


class Znode(msgspec.Struct, frozen=True, gc=False):
    """Content and Stat of a znode, read together."""

    path: str
    data: bytes
    stat: Stat


class Children(msgspec.Struct, frozen=True, gc=False):
    """Names of a znode's children, sorted, without the parent's path."""

    path: str
    names: tuple[str, ...]


class Check(msgspec.Struct, frozen=True):
    """Fails the multi unless the znode has this version; None: unless it exists."""

    path: str
    version: int | None


class Create(msgspec.Struct, frozen=True):
    """Creates a znode. `sequential` appends ten digits to the path; the outcome tells the whole path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


class SetData(msgspec.Struct, frozen=True):
    """Replaces the data of a znode at exactly this version (0 or more)."""

    path: str
    data: bytes
    version: int


class Delete(msgspec.Struct, frozen=True):
    """Deletes a znode at exactly this version; None: at whichever (only for notifications and own leftovers)."""

    path: str
    version: int | None


Op = Check | Create | SetData | Delete


class OpOutcome(msgspec.Struct, frozen=True):
    """Outcome of one operation. `path` of a create; `stat` of a set (a create's Stat is read separately)."""

    code: ZkCode
    path: str = ""
    stat: Stat | None = None

    @property
    def ok(self) -> bool:
        """Whether the operation took effect."""
        return self.code is ZkCode.OK


class MultiOutcome(msgspec.Struct, frozen=True):
    """Outcomes of a multi in the order of its operations: all OK, or none took effect."""

    results: tuple[OpOutcome, ...]

    @property
    def ok(self) -> bool:
        """Whether the multi took effect."""
        return all(result.ok for result in self.results)

    @property
    def failed_index(self) -> int:
        """Index of the operation that made the multi fail (the first that is neither OK nor rolled back); -1 if ok."""
        for index, result in enumerate(self.results):
            if result.code not in (ZkCode.OK, ZkCode.ROLLED_BACK):
                return index
        return -1


class WatchMode(Enum):
    """How a watch covers a path (ZooKeeper 3.6, addWatch)."""

    PERSISTENT = 0
    """The znode itself: created, deleted, data changed, children changed."""
    PERSISTENT_RECURSIVE = 1
    """The znode and all below it: created, deleted, data changed, with the full path."""


class WatchEventType(Enum):
    """What a watch saw. LOOK_AGAIN: after a reconnect, anything may have changed."""

    CREATED = "created"
    DELETED = "deleted"
    DATA_CHANGED = "data_changed"
    CHILDREN_CHANGED = "children_changed"
    LOOK_AGAIN = "look_again"


class WatchEvent(msgspec.Struct, frozen=True):
    """Says "look again" at `path`. `watched` is the path the watch was set on."""

    type: WatchEventType
    path: str
    watched: str


class SessionEvent(Enum):
    """What happened to the session."""

    CONNECTED = "connected"
    """A session is usable: a new generation, or the same one after SUSPENDED. Every watch is armed again and has
    been told LOOK_AGAIN before this event is delivered."""
    SUSPENDED = "suspended"
    """No contact; the session may live on. Reads and writes fail with ZkConnectionLost at once until CONNECTED."""
    LOST = "lost"
    """The session expired or must be assumed to have: its deadline passed without contact. Once per generation."""


WatchCallback = Callable[[WatchEvent], None]
SessionCallback = Callable[[SessionEvent, int], None]
"""Called with the event and the generation it concerns."""


class ZkSession(Protocol):
    """A session with ZooKeeper. Paths are absolute below the chroot of the connect string, which callers never see.

    Thread-safe. Callbacks run on the adapter's own thread and must only hand on a mark (queue.put,
    call_soon_threadsafe): a call back into the session from a callback raises RuntimeError.

    Every call takes part in the current generation; where `generation` is given and is not current, ZkSessionLost is
    raised and nothing is sent. Every call is bounded in time: none waits for an answer longer than the session timeout.

    Raises, all calls: ZkConnectionLost, ZkSessionLost, ZkAuthFailed.
    """

    @property
    def generation(self) -> int:
        """How many sessions there have been: 1 for the first. 0 before the first."""
        ...

    @property
    def session_id(self) -> int:
        """ZooKeeper's id of the current session; 0 when there is none."""
        ...

    @property
    def session_timeout_ms(self) -> int:
        """Negotiated session timeout in milliseconds."""
        ...

    @property
    def connected(self) -> bool:
        """Whether calls can succeed now."""
        ...

    def read(self, path: str) -> Znode | None:
        """The znode, or None where there is none."""
        ...

    def read_many(self, paths: Sequence[str]) -> list[Znode | None]:
        """Many znodes by pipelined MultiReads, in the order of `paths`. Each is atomic with its Stat, all are not."""
        ...

    def children(self, path: str) -> Children | None:
        """Names of the children, or None where the znode does not exist."""
        ...

    def children_many(self, paths: Sequence[str]) -> list[Children | None]:
        """Children of many znodes, by pipelined MultiReads."""
        ...

    def multi(self, ops: Sequence[Op], *, generation: int | None = None) -> MultiOutcome:
        """All or nothing.

        Raises ZkRequestTooLarge before sending more than 501 operations or 512 KiB (nearly 1 MiB where one operation
        alone is larger, as the znode of a topic of very many partitions).
        """
        ...

    def multi_pipelined(
        self, batches: Sequence[Sequence[Op]], *, generation: int | None = None
    ) -> list[MultiOutcome | ZkError]:
        """Several multis without waiting in between, applied in order. A lost reply is an item of the result."""
        ...

    def sync(self, path: str) -> None:
        """Wait until the server we are connected to has seen every write acknowledged before this call.

        The one call that waits while suspended and is sent again, for about the session timeout: after a lost reply,
        sync, then read.
        """
        ...

    def watch(self, path: str, mode: WatchMode, callback: WatchCallback) -> None:
        """Arm a watch that stays, also over reconnects and new sessions. A second one for a path replaces the first.

        Where this raises, the watch is registered all the same, and armed before anything else on the next connection.
        """
        ...

    def watch_many(self, paths: Sequence[str], mode: WatchMode, callback: WatchCallback) -> None:
        """Arm a watch on each of many paths, pipelined. All are registered, whatever is raised, as with `watch`."""
        ...

    def unwatch(self, path: str) -> None:
        """Forget a watch; harmless where there is none."""
        ...

    def listen(self, callback: SessionCallback) -> None:
        """Be told of session events from now on."""
        ...

    def close(self) -> None:
        """End the session, so that its ephemerals vanish at once; bounded in time, never raises, harmless twice."""
        ...
