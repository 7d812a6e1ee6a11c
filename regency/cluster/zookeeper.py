"""A real ZooKeeper server of one node, on 127.0.0.1, from the jars that the PySpark package carries."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from regency.cluster import java
from regency.cluster.errors import ClusterNotRunning, ClusterStartFailed
from regency.cluster.ports import is_free, reserve_ports
from regency.cluster.process.processes import ProcessRef, ProcessState
from regency.cluster.process.spawner import ManagedProcess, Spawner

HOST = "127.0.0.1"
TICK_MS = 500
"""Shortest session is two ticks: 1 s; sessions of 3 s are the default of a Cluster."""
LONGEST_SESSION_MS = 120_000
HEAP_MB = 256
"""Java's heap: enough for some 20,000 partitions."""

_READY_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 5.0
_POLL_S = 0.02
_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"

# Java reads both files as Latin-1 and takes \ and $ in them as special, so they name files only relative to the
# directory that the server is started in.
_CONFIG_FILE = "zoo.cfg"
_LOG_CONFIG_FILE = "log4j2.properties"
_LOG_FILE = "zookeeper.log"
_DATA = "data"
_ENVIRONMENT = {"LC_ALL": "C.UTF-8"}
"""In the C locale Java opens no file whose path has other than ASCII letters."""

_LOG_CONFIG = f"""\
status = error
appender.file.type = File
appender.file.name = file
appender.file.fileName = {_LOG_FILE}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{{ISO8601}} %-5p %c{{1}}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
"""


class EmbeddedZooKeeper:
    """One ZooKeeper server as a process. Keeps its port and its data over restarts; also a context manager.

    `directory` receives configuration, data and log. Without `spawner` it starts its process itself, which then dies
    with this one. `heap_mb` is what its data may need, MB. Not thread-safe.
    """

    def __init__(
        self, directory: Path, *, port: int | None = None, spawner: Spawner | None = None, heap_mb: int = HEAP_MB
    ) -> None:
        self.directory = directory.resolve()
        self.port = port if port is not None else reserve_ports(1, owner=self.directory)[0]
        self._own_spawner = Spawner() if spawner is None else None
        self._spawner = spawner or self._own_spawner
        self._process: ManagedProcess | None = None
        self._heap_mb = heap_mb
        self._log_begin = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connect_string(self) -> str:
        """What clients connect to: host and port, no chroot."""
        return f"{HOST}:{self.port}"

    @property
    def log(self) -> Path:
        """The server's log: warnings and worse."""
        return self.directory / _LOG_FILE

    @property
    def process(self) -> ManagedProcess:
        """The running server. Raises ClusterNotRunning before `start` and after `stop`."""
        if self._process is None:
            raise ClusterNotRunning(f"The ZooKeeper of {self.directory} is not started.", hint="Call start() first.")
        return self._process

    @property
    def state(self) -> ProcessState:
        """Running, paused or dead."""
        return ProcessState.DEAD if self._process is None else self._process.state

    def adopt(self, ref: ProcessRef) -> None:
        """Take a server that runs from this directory already, started by another program."""
        self._process = ManagedProcess(ref, None, self._console, directory=self.directory)

    def start(self, timeout_s: float = _READY_TIMEOUT_S) -> None:
        """Start on what is in the directory and wait until it answers. Harmless while it runs.

        Raises EmbeddedZooKeeperMissing, and ClusterStartFailed with the end of its log.
        """
        self.launch()
        self.wait_ready(timeout_s)

    def launch(self) -> None:
        """Start the process without waiting for it."""
        if self.state is not ProcessState.DEAD:
            return
        command = self._command()
        self._write_config()
        if self._spawner is None:
            raise ClusterNotRunning(f"The ZooKeeper of {self.directory} is closed.", hint="Make a new one.")
        if not is_free(self.port, HOST):
            raise ClusterStartFailed(
                f"Port {self.port} of ZooKeeper is taken by another program.", hint="Stop that, or choose another port."
            )
        self._log_begin = self.log.stat().st_size if self.log.exists() else 0
        self._process = self._spawner.spawn(
            "zookeeper", command, directory=self.directory, log=self._console, environment=_ENVIRONMENT
        )

    def wait_ready(self, timeout_s: float = _READY_TIMEOUT_S) -> None:
        """Wait until it serves clients. Raises ClusterStartFailed when it ended or `timeout_s` seconds passed."""
        deadline = time.monotonic() + timeout_s
        while not is_serving(HOST, self.port):
            if self.process.how_it_ended() is not None:
                self.process.wait_noted()
                raise ClusterStartFailed(f"ZooKeeper {self.process.how_it_ended()}.", hint=self._ends_of_logs())
            if time.monotonic() >= deadline:
                raise ClusterStartFailed(
                    f"ZooKeeper did not answer on {self.connect_string} within {timeout_s:g} s.",
                    hint=self._ends_of_logs(),
                )
            time.sleep(_POLL_S)

    def stop(self) -> None:
        """SIGTERM, and SIGKILL when that takes more than 5 s. Harmless when it does not run."""
        if self._process is not None:
            self._process.stop(_STOP_TIMEOUT_S)
            self._process = None

    def kill(self) -> None:
        """SIGKILL, as a machine that loses power."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def restart(self, timeout_s: float = _READY_TIMEOUT_S) -> None:
        """Stop and start again on the same port and data."""
        self.stop()
        self.start(timeout_s)

    def pause(self) -> None:
        """SIGSTOP: connections stay open and nothing is answered. Raises ClusterNotRunning."""
        self.process.pause()

    def resume(self) -> None:
        """SIGCONT. Raises ClusterNotRunning."""
        self.process.resume()

    def close(self) -> None:
        """Stop, and end what it started its process with. It cannot be started again. Harmless twice."""
        self.stop()
        if self._own_spawner is not None:
            self._own_spawner.close()
            self._own_spawner = self._spawner = None

    @property
    def _console(self) -> Path:
        return self.directory / "zookeeper.out"

    def _command(self) -> list[str]:
        class_path = os.pathsep.join(str(jar) for jar in java.find_jars())
        options = [f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC", "-XX:-UsePerfData", "-XX:TieredStopAtLevel=1"]
        properties = {
            "java.awt.headless": "true",
            "log4j2.configurationFile": _LOG_CONFIG_FILE,
            "log4j2.disableJmx": "true",
            "zookeeper.jmx.log4j.disable": "true",
            "zookeeper.preAllocSize": "4096",
        }
        defined = [f"-D{key}={value}" for key, value in sorted(properties.items())]
        return [str(java.find_java()), *options, *defined, "-cp", class_path, _MAIN, f"./{_CONFIG_FILE}"]

    def _write_config(self) -> None:
        self.directory.joinpath(_DATA).mkdir(parents=True, exist_ok=True)
        config = {
            "tickTime": TICK_MS,
            "minSessionTimeout": 2 * TICK_MS,
            "maxSessionTimeout": LONGEST_SESSION_MS,
            "dataDir": f"./{_DATA}",
            "clientPort": self.port,
            "clientPortAddress": HOST,
            "maxClientCnxns": 0,
            "maxCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr,ruok,mntr",
            "autopurge.snapRetainCount": 3,
            "autopurge.purgeInterval": 1,
        }
        text = "".join(f"{key}={value}\n" for key, value in config.items())
        self.directory.joinpath(_CONFIG_FILE).write_text(text, encoding="utf-8")
        self.directory.joinpath(_LOG_CONFIG_FILE).write_text(_LOG_CONFIG, encoding="utf-8")

    def _ends_of_logs(self) -> str:
        begins = {self.log: self._log_begin, self._console: 0 if self._process is None else self._process.log_begin}
        tails = [f"End of {path}:\n{tail}" for path, begin in begins.items() if (tail := _tail(path, begin))]
        return "\n".join(tails) or f"It has written nothing to its logs in {self.directory}."


def is_serving(host: str, port: int, timeout_s: float = 0.5) -> bool:
    """Whether a ZooKeeper there answers the four-letter word `srvr` as one that serves clients."""
    try:
        with socket.create_connection((host, port), timeout_s) as connection:
            connection.settimeout(timeout_s)
            connection.sendall(b"srvr")
            answer = b""
            while block := connection.recv(4096):
                answer += block
    except OSError:
        return False
    return b"Mode:" in answer


def _tail(path: Path, begin: int, lines: int = 20) -> str:
    if not path.is_file():
        return ""
    return "\n".join(path.read_bytes()[begin:].decode(errors="replace").splitlines()[-lines:])
