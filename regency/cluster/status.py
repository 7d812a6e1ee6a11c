"""How the cluster of a directory is doing, from its processes and from ZooKeeper, and its end, however it began."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from regency.cluster import processes
from regency.cluster.errors import ClusterError, ClusterNotRunning
from regency.cluster.health import ClusterSnapshot, missing, why_unreadable
from regency.cluster.observer import ClusterObserver
from regency.cluster.processes import ProcessRef, ProcessState, state_of
from regency.cluster.state import ClusterState, agent_name, command_for, read_state, write_state
from regency.model.errors import RegencyError
from regency.model.ids import BrokerId

_CONNECT_TIMEOUT_MS = 3000


class ZooKeeperStatus(msgspec.Struct, frozen=True):
    """`state` is running, paused, dead, or external where the ZooKeeper is not the cluster's own."""

    connect: str
    state: str
    pid: int | None


class BrokerStatus(msgspec.Struct, frozen=True):
    """`registered` is None where ZooKeeper cannot be asked.

    `agent_http` and `controller_http` are where these two processes serve metrics and probes, host:port.
    """

    id: BrokerId
    pid: int | None
    state: str
    registered: bool | None
    address: str
    agent_http: str
    controller_http: str


class ControllerStatus(msgspec.Struct, frozen=True):
    """The ruling controller: `id` is None while there is none."""

    id: BrokerId | None
    epoch: int


class ClusterStatus(msgspec.Struct, frozen=True):
    """Everything `regency status` shows. Controller and counts are None where ZooKeeper cannot be asked."""

    directory: str
    healthy: bool
    missing: list[str]
    bootstrap_servers: str
    zookeeper: ZooKeeperStatus
    brokers: list[BrokerStatus]
    controller: ControllerStatus | None = None
    topics: int | None = None
    partitions: int | None = None
    under_replicated: int | None = None
    leaderless: int | None = None


def cluster_status(directory: Path) -> ClusterStatus:
    """Look at processes and ZooKeeper once. Raises ClusterNotRunning without a cluster, ClusterFileMalformed."""
    state = read_state(directory)
    if state is None:
        raise ClusterNotRunning(
            f"There is no cluster in {directory}.", hint=f"Start one with {command_for(directory, 'up --detach')}."
        )
    refs = {ref.name: ref for ref in (*state.processes, *state.alive(directory))}
    zookeeper = _zookeeper(state, refs)
    snapshot: ClusterSnapshot | None = None
    if zookeeper.state in ("running", "external"):
        try:
            snapshot = _read(state)
            unread: list[str] = []
        except RegencyError as error:
            unread = [why_unreadable(error)]
    else:
        unread = [f"ZooKeeper is {zookeeper.state}"]
    return _judge(directory, state, refs, zookeeper, snapshot, unread)


def _judge(
    directory: Path,
    state: ClusterState,
    refs: dict[str, ProcessRef],
    zookeeper: ZooKeeperStatus,
    snapshot: ClusterSnapshot | None,
    found: list[str],
) -> ClusterStatus:
    brokers = [_broker(state, refs, number, snapshot) for number in range(len(state.brokers))]
    found = [*found, *(f"broker {broker.id} is {broker.state}" for broker in brokers if broker.state != "running")]
    if snapshot is not None:
        found += missing(snapshot, [broker.id for broker in brokers])
    status = ClusterStatus(
        directory=str(directory),
        healthy=not found,
        missing=found,
        bootstrap_servers=state.bootstrap_servers,
        zookeeper=zookeeper,
        brokers=brokers,
    )
    if snapshot is None:
        return status
    return msgspec.structs.replace(
        status,
        controller=ControllerStatus(snapshot.controller, snapshot.controller_epoch),
        topics=len(snapshot.topics),
        partitions=len(snapshot.partitions),
        under_replicated=len(snapshot.under_replicated),
        leaderless=len(snapshot.leaderless),
    )


def _zookeeper(state: ClusterState, refs: dict[str, ProcessRef]) -> ZooKeeperStatus:
    if state.zookeeper_port == 0:
        return ZooKeeperStatus(state.zookeeper_connect, "external", None)
    found, pid = _process(refs.get(ZOOKEEPER))
    return ZooKeeperStatus(state.zookeeper_connect, found, pid)


def _broker(
    state: ClusterState, refs: dict[str, ProcessRef], number: int, snapshot: ClusterSnapshot | None
) -> BrokerStatus:
    broker = state.brokers[number]
    found, pid = _process(refs.get(agent_name(broker.id)))
    registered = None if snapshot is None else broker.id in snapshot.brokers
    return BrokerStatus(
        broker.id, pid, found, registered, broker.bootstrap_server, broker.agent_http, broker.controller_http
    )


def _process(ref: ProcessRef | None) -> tuple[str, int | None]:
    if ref is None:
        return ProcessState.DEAD.value, None
    state = state_of(ref)
    return state.value, None if state is ProcessState.DEAD else ref.pid


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


GRACE_S = 15.0
_ZOOKEEPER_GRACE_S = 5.0
ZOOKEEPER = "zookeeper"


class Ended(msgspec.Struct, frozen=True):
    """A process that was ended. `killed`: it did not go in time by itself."""

    name: str
    pid: int
    killed: bool


def end_cluster(directory: Path, *, grace_s: float = GRACE_S) -> list[Ended]:
    """End agents, then ZooKeeper, asked first, killed after `grace_s` seconds; what was ended, possibly nothing.

    The directory stays, and the cluster can be started again in it. Raises ClusterFileMalformed, and ClusterError for
    another user's cluster.
    """
    state = read_state(directory)
    if state is None:
        return []
    alive = state.alive(directory)
    agents = [ref for ref in alive if ref.name != ZOOKEEPER]
    zookeepers = [ref for ref in alive if ref.name == ZOOKEEPER]
    try:
        killed = processes.end(agents, grace_s=grace_s)
        killed += processes.end(zookeepers, grace_s=min(grace_s, _ZOOKEEPER_GRACE_S))
    except PermissionError as error:
        raise ClusterError(
            f"The cluster in {directory} was started by another user.", hint="End it as that user."
        ) from error
    if state.processes:
        with suppress(ClusterError):  # on a full disk: processes that are gone do no harm by being remembered
            write_state(directory, msgspec.structs.replace(state, processes=()))
    return [Ended(ref.name, ref.pid, ref in killed) for ref in agents + zookeepers]
