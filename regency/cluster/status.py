"""How the cluster of a directory is doing, from its processes and from ZooKeeper, and its end, however it began."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from regency.cluster.errors import ClusterError, ClusterNotRunning, ClusterRunning
from regency.cluster.health import ClusterSnapshot, missing, why_unreadable
from regency.cluster.observer import ClusterObserver
from regency.cluster.process import processes
from regency.cluster.process.endings import Ending, LastLife, ending, noted
from regency.cluster.process.processes import ProcessRef, ProcessState, state_of
from regency.cluster.record import LabRecord
from regency.cluster.state import (
    ZOOKEEPER,
    ClusterState,
    agent_name,
    command_for,
    local_time,
    read_state,
    stopped_words,
)
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId

_CONNECT_TIMEOUT_MS = 3000


class ZooKeeperStatus(msgspec.Struct, frozen=True, rename={"ended": "ending"}):
    """`state` is running, paused, dead, stopped (in order), or external where it is not the cluster's own."""

    connect: str
    state: str
    pid: int | None
    ended: Ending | None = None


class BrokerStatus(msgspec.Struct, frozen=True, rename={"ended": "ending"}):
    """`registered` is None where ZooKeeper cannot be asked. `ended` tells of the last life of one that does not run;
    None where it never ran. `state` is running, paused, dead or stopped (in order).

    `agent_http` and `controller_http` are where these two processes serve metrics and probes, host:port.
    """

    broker: BrokerId
    pid: int | None
    state: str
    registered: bool | None
    address: str
    agent_http: str
    controller_http: str
    ended: Ending | None = None


class WhenStopped(msgspec.Struct, frozen=True):
    """The end of a whole cluster, as `regency.cluster.state.Stopped` has it."""

    by: str
    time_ms: int


class ClusterStatus(msgspec.Struct, frozen=True):
    """Everything `regency status` shows. Epoch and counts are None where ZooKeeper cannot be asked; `controller` is the
    broker whose controller rules, None also where none does.

    `stopped` is how the whole cluster ended, None unless it did; then nothing else is a problem.
    """

    directory: str
    healthy: bool
    problems: list[str]
    bootstrap_servers: str
    zookeeper: ZooKeeperStatus
    brokers: list[BrokerStatus]
    controller: BrokerId | None = None
    controller_epoch: int | None = None
    topics: int | None = None
    partitions: int | None = None
    under_replicated: int | None = None
    leaderless: int | None = None
    stopped: WhenStopped | None = None


def cluster_status(directory: Path) -> ClusterStatus:
    """Look at processes and ZooKeeper once. Raises ClusterNotRunning without a cluster, ClusterFileMalformed."""
    state = read_state(directory)
    if state is None:
        raise ClusterNotRunning(
            f"There is no cluster in {directory}.", hint=f"Start one with {command_for(directory, 'up --detach')}."
        )
    alive = state.alive(directory)
    refs = {ref.name: ref for ref in (*state.processes, *alive)}
    zookeeper = _zookeeper(directory, state, refs)
    if state.stopped is not None and not alive:
        return _judge(directory, state, refs, zookeeper, None, [])
    snapshot: ClusterSnapshot | None = None
    if zookeeper.state in ("running", "external"):
        try:
            snapshot = _read(state)
            unread: list[str] = []
        except RegencyError as error:
            unread = [why_unreadable(error)]
    else:
        unread = [f"ZooKeeper {_how(zookeeper)}"]
    return _judge(directory, state, refs, zookeeper, snapshot, unread)


def _judge(
    directory: Path,
    state: ClusterState,
    refs: dict[str, ProcessRef],
    zookeeper: ZooKeeperStatus,
    snapshot: ClusterSnapshot | None,
    found: list[str],
) -> ClusterStatus:
    brokers = [_broker(directory, state, refs, number, snapshot) for number in range(len(state.brokers))]
    runs = zookeeper.pid is not None or any(each.pid is not None for each in brokers)
    over = None if runs else state.stopped
    if over is not None:
        found = [stopped_words(over)]
    else:
        found += [f"broker {each.broker} {_how(each)}" for each in brokers if each.state != "running"]
    if snapshot is not None:
        found += missing(snapshot, [each.broker for each in brokers])
    status = ClusterStatus(
        directory=str(directory),
        healthy=not found,
        problems=found,
        bootstrap_servers=state.bootstrap_servers,
        zookeeper=zookeeper,
        brokers=brokers,
        stopped=None if over is None else WhenStopped(over.by, over.at_ms),
    )
    if snapshot is None:
        return status
    return msgspec.structs.replace(
        status,
        controller=snapshot.controller,
        controller_epoch=snapshot.controller_epoch,
        topics=len(snapshot.topics),
        partitions=len(snapshot.partitions),
        under_replicated=len(snapshot.under_replicated),
        leaderless=len(snapshot.leaderless),
    )


def _zookeeper(directory: Path, state: ClusterState, refs: dict[str, ProcessRef]) -> ZooKeeperStatus:
    if state.zookeeper_port == 0:
        return ZooKeeperStatus(state.zookeeper_connect, "external", None)
    return ZooKeeperStatus(state.zookeeper_connect, *_process(directory, state, ZOOKEEPER, refs.get(ZOOKEEPER)))


def _broker(
    directory: Path, state: ClusterState, refs: dict[str, ProcessRef], number: int, snapshot: ClusterSnapshot | None
) -> BrokerStatus:
    broker = state.brokers[number]
    found, pid, ended = _process(directory, state, broker.name, refs.get(broker.name))
    registered = None if snapshot is None else broker.id in snapshot.brokers
    address = broker.bootstrap_server if broker.ports else ""
    return BrokerStatus(broker.id, pid, found, registered, address, broker.agent_http, broker.controller_http, ended)


def _process(
    directory: Path, state: ClusterState, name: str, ref: ProcessRef | None
) -> tuple[str, int | None, Ending | None]:
    now = ProcessState.DEAD if ref is None else state_of(ref)
    if ref is not None and now is not ProcessState.DEAD:
        return now.value, ref.pid, None
    last = state.ended.get(name)
    gone = ref or (None if last is None else last.ref) or noted(directory / name, name)
    if gone is None:
        return now.value, None, None
    life = last if last is not None and last.ref == gone else LastLife(gone)
    ended = ending(life, directory / name)
    if state.stopped is not None and state.stopped.by != "failure" and not life.by:
        return "stopped", None, msgspec.structs.replace(ended, how=f"was {stopped_words(state.stopped)}")
    in_order = life.by == "stop" or ended.exit_status == 0
    return "stopped" if in_order else now.value, None, ended


def _how(status: ZooKeeperStatus | BrokerStatus) -> str:
    """`is paused`, or for what does not run how it ended."""
    if status.ended is None:
        return f"is {status.state}" + (": it was never started" if status.state == ProcessState.DEAD.value else "")
    at = "" if status.ended.at_ms is None else f" at {local_time(status.ended.at_ms)}"
    return f"is {status.state}: it {status.ended.how}{at}"


def _read(state: ClusterState) -> ClusterSnapshot:
    observer = ClusterObserver(
        state.zookeeper_connect,
        session_timeout_ms=state.session_timeout_ms,
        digest_auth=state.settings.get("regency.zookeeper.digest.auth", ""),
        connect_timeout_ms=_CONNECT_TIMEOUT_MS,
    )
    try:
        return observer.snapshot()
    finally:
        observer.close()


def ruler(state: ClusterState) -> str:
    """The agent whose controller rules, which is to be ended last: it moves leadership away from the others.

    Empty where ZooKeeper does not say.
    """
    try:
        found = _read(state).controller
    except RegencyError:
        return ""
    return "" if found is None else agent_name(found)


GRACE_S = 15.0
_ZOOKEEPER_GRACE_S = 5.0
_LOCK_WAIT_S = 10.0


class Ended(msgspec.Struct, frozen=True, rename={"name": "process"}):
    """A process that was ended. `killed`: it did not go in time by itself."""

    name: str
    pid: int
    killed: bool


def end_cluster(directory: Path, *, grace_s: float = GRACE_S) -> list[Ended]:
    """End agents, then ZooKeeper, asked first, killed after `grace_s` seconds; what was ended, possibly nothing.

    The directory stays, and the cluster can be started again in it. Waits up to 10 s for a command that is starting
    something there. Raises ClusterFileMalformed, and ClusterError for another user's cluster.
    """
    if read_state(directory) is None:
        return []
    record = LabRecord(directory)
    try:
        with record.locked(_LOCK_WAIT_S):
            return _end(record, grace_s)
    except ClusterRunning:
        return _end(record, grace_s)  # what that command waits for is ended, so it ends too
    except OSError as error:
        raise ClusterError(f"{directory}: {error.strerror}.", hint="End it as the user who started it.") from error


def _end(record: LabRecord, grace_s: float) -> list[Ended]:
    state = record.read()
    if state is None:
        return []
    alive = state.alive(record.directory)
    agents = [ref for ref in alive if ref.name != ZOOKEEPER]
    zookeepers = [ref for ref in alive if ref.name == ZOOKEEPER]
    try:
        killed = processes.end(agents, grace_s=grace_s, last=ruler(state) if grace_s > 0 else "")
        killed += processes.end(zookeepers, grace_s=min(grace_s, _ZOOKEEPER_GRACE_S))
    except PermissionError as error:
        raise ClusterError(
            f"The cluster in {record.directory} was started by another user.", hint="End it as that user."
        ) from error
    if alive:
        with suppress(ClusterError):  # on a full disk: processes that are gone do no harm by being remembered
            record.stopped("down")
    return [Ended(ref.name, ref.pid, ref in killed) for ref in agents + zookeepers]
