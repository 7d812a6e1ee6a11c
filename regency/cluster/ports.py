"""Ports for processes on this machine: 20000 to 29999, each reserved for the directory of the cluster that uses it.

A reservation lives as long as that directory, so a stopped agent finds its port free when it returns. The register is
one file per user in the temporary directory, changed under a lock.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from regency.cluster.errors import NoFreePorts

FIRST_PORT = 20_000
LAST_PORT = 29_999
_HOST = "127.0.0.1"


class _Register(msgspec.Struct):
    """Who has which port (directory by port), and where to look on: a port just given back is not given out at once.

    A new register starts anywhere, so that users (or containers) who know nothing of each other rarely choose the same.
    """

    next_port: int = msgspec.field(default_factory=lambda: FIRST_PORT + secrets.randbelow(LAST_PORT - FIRST_PORT + 1))
    reserved: dict[int, str] = {}


def reserve_ports(count: int, *, owner: Path, register: Path | None = None) -> list[int]:
    """Reserve `count` free ports (1 or more) for the directory `owner`, which must exist as long as they are needed.

    `register` is the folder of the register, for tests. Raises NoFreePorts.
    """
    folder = register or Path(tempfile.gettempdir(), f"regency-ports-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    owner.mkdir(parents=True, exist_ok=True)
    with _locked(folder / "lock"):
        state = _read(folder / "ports.json")
        state.reserved = {port: name for port, name in state.reserved.items() if Path(name).is_dir()}
        size = LAST_PORT - FIRST_PORT + 1
        start = max(state.next_port, FIRST_PORT)
        candidates = (FIRST_PORT + (start - FIRST_PORT + step) % size for step in range(size))
        chosen: list[int] = []
        for port in candidates:
            if port not in state.reserved and is_free(port):
                chosen.append(port)
            if len(chosen) == count:
                break
        else:
            raise NoFreePorts(
                f"{len(chosen)} of {count} ports are free between {FIRST_PORT} and {LAST_PORT}.",
                hint=f"Stop other clusters, or remove {folder} when none runs.",
            )
        state.reserved.update(dict.fromkeys(chosen, str(owner.resolve())))
        state.next_port = FIRST_PORT + (chosen[-1] + 1 - FIRST_PORT) % size
        _write(folder / "ports.json", state)
    return chosen


def is_free(port: int, host: str = _HOST) -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _read(path: Path) -> _Register:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Register)
    except (FileNotFoundError, msgspec.DecodeError):
        return _Register()  # only a hint about others' ports: the loser of a reservation still finds its port bound


def _write(path: Path, state: _Register) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_bytes(msgspec.json.encode(state))
    draft.replace(path)
