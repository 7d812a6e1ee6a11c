"""Registers this broker in ZooKeeper, and again with every new session; the czxid of its znode is its broker epoch.

The same multi writes the broker's znode in /brokers/incarnations, by which others can tell one registration from the
next in a multi of theirs (incarnations.py).

`register` blocks and belongs to a pool thread; `Registration` decides when to call it and belongs to the data loop.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar, Protocol
from uuid import uuid4

import msgspec

from regency.broker_agent.ports import Worker
from regency.broker_agent.registry import incarnations
from regency.kafka.logfiles.checkpoints import replace_file
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError, ZnodeMalformed
from regency.model.facts import Broker
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId
from regency.model.znodes import paths as znode_paths
from regency.runtime.disk import Disk, OsDisk
from regency.runtime.zookeeper.session import (
    Create,
    Delete,
    Op,
    SessionEvent,
    WatchEvent,
    WatchMode,
    ZkAuthFailed,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkSession,
    ZkSessionLost,
    Znode,
)

logger = logging.getLogger(__name__)

REMEMBERED_SESSIONS = 16
LOOK_AGAIN_MS = 100
"""How often a foreign registration is looked at while it is waited out."""

RETRY_MS = 500


class BrokerIdTaken(RegencyError):
    """Another process is registered under this broker's id, and still is after its session had time to expire."""

    code: ClassVar[str] = "broker_id_taken"


class Registered(msgspec.Struct, frozen=True):
    """A registration: the session generation that owns it and the broker epoch."""

    generation: int
    epoch: BrokerEpoch


class SessionFile:
    """Ids of ZooKeeper sessions that processes of this log directory had, newest last, in the file `session`.

    The directory is locked, so a registration owned by one of them is a leftover of a process that is gone.
    """

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self._path = directory / "session"
        self._disk = disk or OsDisk()

    def read(self) -> tuple[int, ...]:
        """The ids; none where the file is missing or damaged (then a leftover is waited out)."""
        try:
            return tuple(int(line, 16) for line in self._disk.read_file(self._path).decode("ascii").split())
        except (OSError, ValueError):
            return ()

    def add(self, session_id: int) -> None:
        """Remember one more, durably. Raises OSError."""
        known = [each for each in self.read() if each != session_id]
        known.append(session_id)
        text = "".join(f"{each:#x}\n" for each in known[-REMEMBERED_SESSIONS:])
        replace_file(self._disk, self._path, text.encode("ascii"), sync=True)


def ensure_parents(session: ZkSession) -> None:
    """Create the persistent znodes every broker expects, where they are missing. Raises ZkError."""
    held = session.read_many(znode_paths.PERSISTENT_PARENTS)
    for path, znode in zip(znode_paths.PERSISTENT_PARENTS, held, strict=True):
        if znode is None:
            outcome = session.multi([Create(path)])
            if outcome.results[0].code not in (ZkCode.OK, ZkCode.NODE_EXISTS):
                raise ZkError(f"ZooKeeper refused to create {path}: {outcome.results[0].code.value}.")


def ensure_cluster_id(session: ZkSession) -> str:
    """The cluster's id; the first broker of a cluster makes one up. Raises ZkError, ZnodeMalformed."""
    held = session.read(znode_paths.CLUSTER_ID)
    if held is None:
        session.multi([Create(znode_paths.CLUSTER_ID, znodes.encode_cluster_id(znodes.new_cluster_id(uuid4())))])
        held = session.read(znode_paths.CLUSTER_ID)
    if held is None:
        raise ZkError(f"ZooKeeper refused to create {znode_paths.CLUSTER_ID}.")
    return znodes.decode_cluster_id(held.path, held.data)


def register(
    session: ZkSession,
    broker: Broker,
    generation: int,
    sessions: SessionFile,
    clock: Clock,
    stopping: threading.Event,
    *,
    whole: bool,
    process: str = "",
) -> Registered:
    """Create /brokers/ids/N under the session of that generation; blocks, at most about one session timeout.

    With it, all or nothing, the incarnation's znode is written: its mzxid is the epoch of the registration that stands,
    also after a lost reply, where what is found registered is taken and nothing is written again. `whole`: this broker
    has lost nothing of its logs since the registration before. `process`: see `incarnations.mark`.

    A registration left by an earlier process of the same log directory is replaced. One of another broker is waited
    out, and so is one left by ourselves where the directory no longer takes the session's id.

    Raises BrokerIdTaken, ZkSessionLost when the session is no longer that generation, other ZkError.
    """
    path = znode_paths.broker(broker.id)
    ensure_parents(session)
    own = _own_sessions(session.session_id, sessions)
    give_up_ms = clock.monotonic_ms() + session.session_timeout_ms * 3 // 2
    while True:
        held, incarnation = _look(session, broker.id)
        if held is not None and held.stat.ephemeral_owner == session.session_id and session.generation == generation:
            return Registered(generation, BrokerEpoch(held.stat.czxid))
        data = znodes.encode_broker(broker, timestamp_ms=clock.wall_ms())
        mark = incarnations.mark(broker.id, incarnation, whole=whole, process=process)
        ops: list[Op] = [Create(path, data, ephemeral=True), mark]
        if held is not None:
            if held.stat.ephemeral_owner not in own:
                if clock.monotonic_ms() >= give_up_ms or stopping.is_set():
                    raise _taken(broker.id, held)
                stopping.wait(LOOK_AGAIN_MS / 1000)
                continue
            logger.info("replaces the registration an earlier session of this broker left")
            ops.insert(0, Delete(path, held.stat.version))
        crash_point("agent.registration.before_create")
        try:
            outcome = session.multi(ops, generation=generation)
        except ZkConnectionLost:
            if stopping.wait(LOOK_AGAIN_MS / 1000) or clock.monotonic_ms() >= give_up_ms:
                raise
            continue
        code = outcome.results[outcome.failed_index].code
        if code is ZkCode.NO_AUTH:
            raise ZkAuthFailed(
                f"ZooKeeper does not let us register this broker at {path}.",
                hint="Correct regency.zookeeper.digest.auth, or who may write there.",
            )
        if code not in (ZkCode.OK, ZkCode.NODE_EXISTS, ZkCode.NO_NODE, ZkCode.BAD_VERSION):
            raise ZkError(f"ZooKeeper refused to register this broker at {path}: {code.value}.")


def _own_sessions(session_id: int, sessions: SessionFile) -> frozenset[int]:
    known = sessions.read()
    if session_id and known[-1:] != (session_id,):
        try:
            sessions.add(session_id)
        except OSError as error:
            logger.warning("the ZooKeeper session cannot be noted for the next start, which may wait for it: %s", error)
    return frozenset({*known, session_id} - {0})


def _look(session: ZkSession, broker: BrokerId) -> Sequence[Znode | None]:
    """The registration, and the znode of its incarnation."""
    session.sync(znode_paths.broker(broker))
    return session.read_many((znode_paths.broker(broker), znode_paths.incarnation(broker)))


def _taken(broker: BrokerId, held: Znode) -> BrokerIdTaken:
    try:
        other = znodes.decode_broker(held.path, held.data, id=broker, epoch=BrokerEpoch(held.stat.czxid))
        where = ", ".join(f"{endpoint.host}:{endpoint.port}" for endpoint in other.endpoints[:1]) or "an unknown host"
    except ZnodeMalformed:
        where = "an unknown host"
    return BrokerIdTaken(
        f"Broker id {broker} is taken: {where} is registered at {held.path} by session {held.stat.ephemeral_owner:#x}.",
        hint="Give this broker another broker.id, or stop the other one.",
    )


class Logs(Protocol):
    """Says whether the logs are whole. Any thread."""

    @property
    def whole(self) -> bool:
        """Whether nothing of them was lost since the last registration."""
        ...

    def note_registered(self) -> None:
        """The cluster knows now whether something was. May block."""
        ...


class Registration:
    """Keeps this broker registered. Data loop only, but for `start`, and what any thread may read: `owner_generation`
    and `epoch`.
    """

    def __init__(
        self,
        session: ZkSession,
        broker: Callable[[], Broker],
        sessions: SessionFile,
        logs: Logs,
        clock: Clock,
        worker: Worker,
        post: Callable[[Callable[[], None]], None],
        later: Callable[[int, Callable[[], None]], object],
        on_registered: Callable[[Registered], None],
        on_refused: Callable[[BaseException], None],
    ) -> None:
        self._session = session
        self._broker = broker
        self._sessions = sessions
        self._logs = logs
        self._clock = clock
        self._worker = worker
        self._post = post
        self._later = later
        self._on_registered = on_registered
        self._on_refused = on_refused
        self._current: Registered | None = None
        self._newest_epoch = NO_BROKER_EPOCH
        self._busy = False
        self._again = False
        self._stopping = threading.Event()
        self._told = ""
        self._process = ""
        """The first session with which it registers: no other process ever had that. One pool thread at a time."""

    def owner_generation(self) -> int | None:
        """Generation of the session that owns the registration; None while this broker is not registered."""
        current = self._current
        return current.generation if current is not None else None

    def epoch(self) -> BrokerEpoch:
        """Newest broker epoch, kept while a session is lost; -1 before the first registration."""
        return self._newest_epoch

    def start(self) -> None:
        """Register, and from now on again whenever the registration is gone. Blocks; not for the data loop."""
        self._session.listen(self._on_session)
        path = znode_paths.broker(self._broker().id)
        with contextlib.suppress(ZkConnectionLost, ZkSessionLost):  # then it is armed with the next contact
            self._session.watch(path, WatchMode.PERSISTENT, self._on_watch)
        self._post(self._register)

    def stop(self) -> None:
        """Register no more. The znode goes with the session."""
        self._stopping.set()

    def _on_session(self, event: SessionEvent, generation: int) -> None:
        if event is SessionEvent.LOST:
            self._post(lambda: self._lost(generation))
        elif event is SessionEvent.CONNECTED:
            self._post(self._register)

    def _on_watch(self, event: WatchEvent) -> None:
        del event
        self._post(self._register)

    def _lost(self, generation: int) -> None:
        if self._current is not None and self._current.generation == generation:
            crash_point("agent.registration.before_loss_known")
            self._current = None
            logger.warning("the ZooKeeper session that registered this broker is lost; serving goes on")

    def _register(self) -> None:
        if self._stopping.is_set():
            return
        if self._busy:
            self._again = True
            return
        self._busy = True
        generation = self._session.generation
        broker = self._broker()
        self._worker.submit(lambda: self._enter(broker, generation), self._done)

    def _enter(self, broker: Broker, generation: int) -> Registered:
        session, logs = self._session, self._logs
        if not self._process and session.session_id:
            self._process = f"{session.session_id:#x}"
        entered = register(
            session,
            broker,
            generation,
            self._sessions,
            self._clock,
            self._stopping,
            whole=logs.whole,
            process=self._process,
        )
        crash_point("agent.registration.before_continuity")
        logs.note_registered()
        return entered

    def _tell(self, error: ZkError) -> None:
        """Log why this broker is not registered, once: it is tried again twice a second."""
        if str(error) != self._told:
            self._told = str(error)
            logger.log(logging.INFO if error.retriable else logging.WARNING, "not registered yet: %s", error)

    def _done(self, outcome: Registered | BaseException) -> None:
        self._busy = False
        again, self._again = self._again, False
        if self._stopping.is_set():
            return
        if isinstance(outcome, Registered):
            self._told = ""
            if outcome != self._current:
                crash_point("agent.registration.before_publication")
                self._current = outcome
                self._newest_epoch = outcome.epoch
                logger.info("registered under broker epoch %d", outcome.epoch)
                crash_point("agent.registration.after_publication")
                self._on_registered(outcome)
        elif isinstance(outcome, ZkSessionLost):
            again = True
        elif isinstance(outcome, ZkError):
            self._tell(outcome)
            self._later(RETRY_MS, self._register)
        else:
            self._on_refused(outcome)
            return
        if again:
            if isinstance(outcome, Registered):
                self._register()
            else:
                self._later(RETRY_MS, self._register)
