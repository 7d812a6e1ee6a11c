"""Decides what a cluster in a directory consists of: what cluster.json remembers, changed as asked; then its ports."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from regency.cluster.errors import ClusterError, NoFreePorts, UnknownBroker
from regency.cluster.ports import is_free, reserve_ports
from regency.cluster.state import PORTS, ZOOKEEPER, BrokerPorts, ClusterState, command_for, read_state
from regency.cluster.zookeeper import HOST
from regency.model.ids import BrokerId

DEFAULT_BROKERS = 3
MOST_BROKERS = 100
MOST_LOG_DIRS = 16
SESSION_TIMEOUT_MS = 3000
PORT_STEP = 100
"""From a broker's port for Kafka clients to that of the next broker, where the ports are chosen."""
ZOOKEEPER_OFFSET = 9
"""From the port of broker 1 to that of ZooKeeper, where the ports are chosen. Its other four follow the first."""
_LAST_PORT = 65_535

Setting = str | int | float | bool
Settings = Mapping[str, Setting]
"""Keys of server.properties with their values, as text or as what that text means: 2, 0.5, True."""


def plan_cluster(
    directory: Path,
    *,
    brokers: int | None = None,
    settings: Settings | None = None,
    broker_settings: Mapping[int, Settings] | None = None,
    zookeeper_connect: str | None = None,
    session_timeout_ms: int | None = None,
    log_dirs: int | None = None,
    port: int | None = None,
) -> ClusterState:
    """The cluster to be started in `directory`, which is only read: brokers 1 to `brokers`, 1 to 100 of them (None: as
    before, else 3), ports where they are known already.

    Each has 1 to 16 `log_dirs` (None: as before, else 1). A cluster that was there keeps its ports, unless `port`
    chooses others, and its ZooKeeper; settings that are given replace the old ones; brokers and directories may be
    added, not taken away. Raises ClusterError, ClusterFileMalformed.
    """
    _refuse_name(directory)
    if zookeeper_connect == "":
        raise ClusterError("zookeeper_connect is empty.", hint="Name a ZooKeeper, or leave it out for an own one.")
    shared = None if settings is None else text_of(settings)
    own = None if broker_settings is None else {each: text_of(broker_settings[each]) for each in broker_settings}
    known = read_state(directory)
    count = brokers if brokers is not None else len(known.brokers) if known else DEFAULT_BROKERS
    if not isinstance(count, int) or not 1 <= count <= MOST_BROKERS:
        raise ClusterError(f"A cluster has 1 to {MOST_BROKERS} brokers, not {count!r}.")
    if unknown := sorted(set(own or {}) - set(range(1, count + 1))):
        raise UnknownBroker(
            f"broker_settings names broker {unknown[0]}.", hint=f"The cluster has the brokers 1 to {count}."
        )
    if known is None:
        known = ClusterState(
            zookeeper_connect=zookeeper_connect or "",
            zookeeper_port=0,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            brokers=(),
        )
    elif zookeeper_connect not in (None, known.zookeeper_connect):
        raise ClusterError(
            f"The cluster in {directory} belongs to ZooKeeper {known.zookeeper_connect}, not {zookeeper_connect}.",
            hint="Choose another directory.",
        )
    elif count < len(known.brokers):
        raise ClusterError(
            f"The cluster in {directory} has {len(known.brokers)} brokers, so it cannot be started with {count}.",
            hint="Leave the number out, or choose another directory.",
        )
    first_port = known.first_port if port is None else port
    if first_port:
        _refuse_ports(first_port, count)
    if first_port != known.first_port:  # all ports anew
        had_own = bool(known.zookeeper_port)
        known = msgspec.structs.replace(
            known,
            first_port=first_port,
            brokers=tuple(BrokerPorts(broker.id, {}) for broker in known.brokers),
            zookeeper_port=0,
            zookeeper_connect="" if had_own else known.zookeeper_connect,
        )
    added = (BrokerPorts(BrokerId(number), {}) for number in range(len(known.brokers) + 1, count + 1))
    return msgspec.structs.replace(
        known,
        brokers=(*known.brokers, *added),
        log_dirs=_directories(directory, known.log_dirs, log_dirs),
        session_timeout_ms=known.session_timeout_ms if session_timeout_ms is None else session_timeout_ms,
        settings=known.settings if shared is None else shared,
        broker_settings=known.broker_settings if own is None else dict(sorted(own.items())),
    )


def with_ports(directory: Path, state: ClusterState) -> ClusterState:
    """The same cluster with a port for everything, reserved for `directory`, which must exist. Raises NoFreePorts."""
    lacking = [(broker.id, name) for broker in state.brokers for name in PORTS if name not in broker.ports]
    own_zookeeper = not state.zookeeper_connect
    if state.first_port:
        chosen = [state.first_port + PORT_STEP * (broker - 1) + PORTS.index(name) for broker, name in lacking]
        zookeeper_port = state.first_port + ZOOKEEPER_OFFSET if own_zookeeper else 0
    else:
        wanted = len(lacking) + own_zookeeper
        found = reserve_ports(wanted, owner=directory) if wanted else []
        zookeeper_port, chosen = (found[0], found[1:]) if own_zookeeper else (0, found)
    given = dict(zip(lacking, chosen, strict=True))
    state = msgspec.structs.replace(
        state,
        brokers=tuple(
            BrokerPorts(
                broker.id,
                {**broker.ports, **{name: given[broker.id, name] for name in PORTS if (broker.id, name) in given}},
            )
            for broker in state.brokers
        ),
    )
    if not own_zookeeper:
        return state
    return msgspec.structs.replace(state, zookeeper_port=zookeeper_port, zookeeper_connect=f"{HOST}:{zookeeper_port}")


def refuse_taken_ports(directory: Path, state: ClusterState, starting: Collection[str]) -> None:
    """Raises NoFreePorts for the first port that another program has, of what is to be started, by name."""
    ports = [(broker.name, f"broker {broker.id}", each) for broker in state.brokers for each in broker.ports.values()]
    for name, words, port in [(ZOOKEEPER, "ZooKeeper", state.zookeeper_port), *ports]:
        if name in starting and port and not is_free(port):
            raise NoFreePorts(
                f"Port {port} of {words} is taken by another program.",
                hint=f"Stop that program, or choose other ports with --port N of {command_for(directory, 'up')}, "
                "where nothing of this cluster runs.",
            )


def _refuse_ports(first: int, brokers: int) -> None:
    reach = PORT_STEP * (brokers - 1) + ZOOKEEPER_OFFSET
    if not isinstance(first, int) or not 1 <= first <= _LAST_PORT - reach:
        raise ClusterError(
            f"{brokers} brokers cannot have their ports from {first!r} on.",
            hint=f"Choose a port from 1 to {_LAST_PORT - reach}: they need {reach} more.",
        )


def _directories(directory: Path, before: int, wanted: int | None) -> int:
    """Raises ClusterError for a number that cannot be, or that would leave the logs in some directories behind."""
    count = before if wanted is None else wanted
    if not isinstance(count, int) or not 1 <= count <= MOST_LOG_DIRS:
        raise ClusterError(f"A broker has 1 to {MOST_LOG_DIRS} log directories, not {count!r}.")
    if count < before:
        raise ClusterError(
            f"The brokers of the cluster in {directory} have {before} log directories each, so not {count}.",
            hint="Leave the number out, or choose another directory.",
        )
    return count


def text_of(settings: Mapping[str, object]) -> dict[str, str]:
    """Settings as server.properties spells them. Raises ClusterError for a value that is no text, number or bool."""
    spelled: dict[str, str] = {}
    for key, value in settings.items():
        if not isinstance(value, str | int | float):
            raise ClusterError(f"The setting {key} is {value!r}.", hint="Give text, a number, True or False.")
        spelled[key] = str(value).lower() if isinstance(value, bool) else str(value)
    return spelled


def _refuse_name(directory: Path) -> None:
    """Raises ClusterError for a directory that the brokers' log.dirs, a list in UTF-8, cannot name."""
    place = str(directory.resolve())
    if "," in place:
        raise ClusterError(
            f"{place} has a comma in its name, which separates directories in log.dirs.",
            hint="Choose another directory with --dir.",
        )
    try:
        place.encode()
    except UnicodeEncodeError as error:
        raise ClusterError(
            f"{place!r} is not UTF-8.", hint="Choose another directory with --dir, or a locale such as LC_ALL=C.UTF-8."
        ) from error
