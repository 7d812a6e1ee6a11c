"""Decides what a cluster in a directory consists of: what cluster.json remembers, changed as asked, ports reserved."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from regency.cluster.errors import ClusterError, UnknownBroker
from regency.cluster.ports import reserve_ports
from regency.cluster.state import PORTS, BrokerPorts, ClusterState, read_state
from regency.cluster.zookeeper import HOST
from regency.model.ids import BrokerId

DEFAULT_BROKERS = 3
MOST_BROKERS = 100
MOST_LOG_DIRS = 16


def plan_cluster(
    directory: Path,
    *,
    brokers: int | None,
    settings: Mapping[str, str] | None,
    broker_settings: Mapping[int, Mapping[str, str]] | None,
    zookeeper_connect: str | None,
    session_timeout_ms: int,
    log_dirs: int | None = None,
) -> ClusterState:
    """The cluster to be started in `directory`: brokers 1 to `brokers`, 1 to 100 of them (None: as before, else 3).

    Each has 1 to 16 `log_dirs` (None: as before, else 1). A cluster that was there keeps its ports and ZooKeeper;
    settings that are given replace the old ones; brokers and directories may be added, not taken away. Raises
    ClusterError, ClusterFileMalformed, NoFreePorts.
    """
    _refuse_name(directory)
    if zookeeper_connect == "":
        raise ClusterError("zookeeper_connect is empty.", hint="Name a ZooKeeper, or leave it out for an own one.")
    for given in (settings or {}, *(broker_settings or {}).values()):
        _refuse_other_than_text(given)
    known = read_state(directory)
    count = brokers if brokers is not None else len(known.brokers) if known else DEFAULT_BROKERS
    if not isinstance(count, int) or not 1 <= count <= MOST_BROKERS:
        raise ClusterError(f"A cluster has 1 to {MOST_BROKERS} brokers, not {count!r}.")
    if unknown := sorted(set(broker_settings or {}) - set(range(1, count + 1))):
        raise UnknownBroker(
            f"broker_settings names broker {unknown[0]}.", hint=f"The cluster has the brokers 1 to {count}."
        )
    if known is None:
        ports = _reserve(directory, count, own_zookeeper=zookeeper_connect is None)
        known = ClusterState(
            zookeeper_connect=zookeeper_connect or f"{HOST}:{ports[0]}",
            zookeeper_port=0 if zookeeper_connect else ports[0],
            session_timeout_ms=session_timeout_ms,
            brokers=_number(1, ports[1:]),
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
    elif count > len(known.brokers):
        added = reserve_ports((count - len(known.brokers)) * len(PORTS), owner=directory)
        known = msgspec.structs.replace(known, brokers=(*known.brokers, *_number(len(known.brokers) + 1, added)))
    known = _complete(directory, known)
    return msgspec.structs.replace(
        known,
        log_dirs=_directories(directory, known.log_dirs, log_dirs),
        session_timeout_ms=session_timeout_ms,
        settings=known.settings if settings is None else dict(settings),
        broker_settings=known.broker_settings
        if broker_settings is None
        else {broker: dict(own) for broker, own in sorted(broker_settings.items())},
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


def _refuse_other_than_text(settings: Mapping[str, object]) -> None:
    """Raises ClusterError for a value such as 2 or True: server.properties holds text, and `True` is none of its."""
    for key, value in settings.items():
        if not isinstance(value, str):
            raise ClusterError(f"The setting {key} is {value!r}, not text.", hint=f"Write {str(value).lower()!r}.")


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


def _reserve(directory: Path, brokers: int, *, own_zookeeper: bool) -> list[int]:
    """Port of ZooKeeper (0 where it is not ours), then those of each broker."""
    ports = reserve_ports(brokers * len(PORTS) + own_zookeeper, owner=directory)
    return ports if own_zookeeper else [0, *ports]


def _complete(directory: Path, known: ClusterState) -> ClusterState:
    """The same cluster with a port for everything, where it was made by a version that had fewer."""
    brokers = []
    for broker in known.brokers:
        lacking = [name for name in PORTS if name not in broker.ports]
        added = reserve_ports(len(lacking), owner=directory) if lacking else []
        brokers.append(BrokerPorts(broker.id, {**broker.ports, **dict(zip(lacking, added, strict=True))}))
    return msgspec.structs.replace(known, brokers=tuple(brokers))


def _number(first: int, ports: list[int]) -> tuple[BrokerPorts, ...]:
    width = len(PORTS)
    groups = [ports[start : start + width] for start in range(0, len(ports), width)]
    return tuple(
        BrokerPorts(BrokerId(number), dict(zip(PORTS, group, strict=True)))
        for number, group in enumerate(groups, first)
    )
