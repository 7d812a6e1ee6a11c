"""Ends the cluster of a directory: what its cluster.json names, and agents that were started by hand."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec

from regency.cluster import processes
from regency.cluster.errors import ClusterError
from regency.cluster.state import read_state, write_state

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
