"""The compose project under test: its own name, its own ports, and every container of it within reach."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from compose_test.engine import ROOT, call, docker, inspect, log_of

AGENTS = ("agent-1", "agent-2", "agent-3")
FOURTH = "agent-4"
ZOOKEEPERS = ("zookeeper-1", "zookeeper-2", "zookeeper-3")
STARTED = (*ZOOKEEPERS, *AGENTS, "prometheus", "load")
"""Everything but Grafana."""
PROFILES = ("load", "four")
HOST = "127.0.0.1"
UP_S = 180
DOWN_S = 180


class Project:
    """docker-compose.yml under a name of its own. Methods raise CommandFailed."""

    def __init__(self, name: str, compose: Sequence[str], image: str) -> None:
        ports = free_ports(len(AGENTS) + 2)
        self.name = name
        self.image = image
        self.agent_ports = dict(zip((*AGENTS, FOURTH), ports, strict=False))
        self.prometheus_port = ports[-1]
        self._compose = tuple(compose)
        numbered = {f"REGENCY_PORT_{number}": str(port) for number, port in enumerate(self.agent_ports.values(), 1)}
        self._env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("COMPOSE_", "REGENCY_"))},
            **numbered,
            "REGENCY_PROMETHEUS_PORT": str(self.prometheus_port),
            "REGENCY_IMAGE": image,
            "REGENCY_LOAD_RATE": "200",
        }

    @property
    def bootstrap_servers(self) -> str:
        """Where a client on this machine connects: the three agents that are always there."""
        return ",".join(f"{HOST}:{self.agent_ports[agent]}" for agent in AGENTS)

    def compose(self, *words: str, timeout_s: float = 60) -> str:
        profiles = [word for profile in PROFILES for word in ("--profile", profile)]
        options = ["--project-name", self.name, "--file", str(ROOT / "docker-compose.yml"), *profiles]
        return call((*self._compose, *options, *words), env=self._env, timeout_s=timeout_s)

    def up(self, *services: str) -> None:
        """Start services from images that are there, and what they depend on."""
        self.compose("up", "--detach", "--no-build", *services, timeout_s=UP_S)

    def replace(self, service: str) -> None:
        """A new container in place of a service's, on the same volumes."""
        self.compose("up", "--detach", "--no-build", "--no-deps", "--force-recreate", service, timeout_s=UP_S)

    def down(self, *, volumes: bool = False) -> None:
        """End and remove all containers, and with `volumes` what they kept."""
        self.compose("down", "--remove-orphans", *(["--volumes"] if volumes else []), timeout_s=DOWN_S)

    def container(self, service: str) -> str:
        """Id of a service's container, running or not."""
        [found] = self._containers(f"label=com.docker.compose.service={service}")
        return found

    def left(self) -> list[str]:
        """What is there of the project: containers, volumes, networks."""
        label = f"label=com.docker.compose.project={self.name}"
        volumes = docker("volume", "ls", "--quiet", "--filter", label).split()
        networks = docker("network", "ls", "--quiet", "--filter", label).split()
        return [*self._containers(), *volumes, *networks]

    def health(self, service: str) -> str:
        """`healthy`, `unhealthy`, `starting`, or the container's state where it does not run."""
        state = inspect("container", self.container(service))["State"]
        if state["Status"] != "running":
            return str(state["Status"])
        return str(state.get("Health", {}).get("Status", "running"))

    def kill(self, service: str) -> None:
        docker("kill", self.container(service))

    def start(self, service: str) -> None:
        """Start a container again that was killed or stopped."""
        docker("start", self.container(service))

    def stop(self, service: str) -> int:
        """SIGTERM, with the time that the compose file gives; the exit status."""
        container = self.container(service)
        docker("stop", container, timeout_s=DOWN_S)
        return int(inspect("container", container)["State"]["ExitCode"])

    def pause(self, service: str) -> None:
        docker("pause", self.container(service))

    def resume(self, service: str) -> None:
        docker("unpause", self.container(service))

    def disconnect(self, service: str) -> str:
        """Take a container off its network, whose name is returned for `connect`."""
        container = self.container(service)
        [network] = inspect("container", container)["NetworkSettings"]["Networks"]
        docker("network", "disconnect", network, container)
        return str(network)

    def connect(self, service: str, network: str) -> None:
        """Undo `disconnect`. The name others know it by has to be given anew."""
        docker("network", "connect", "--alias", service, network, self.container(service))

    def run_in(self, service: str, *command: str) -> str:
        """Run a command in a container; its stdout."""
        return docker("exec", self.container(service), *command)

    def log(self, service: str) -> str:
        """What a service has written since its container was made."""
        return log_of(self.container(service))

    def network(self) -> str:
        """Name of the network that the containers share."""
        [network] = inspect("container", self.container(AGENTS[0]))["NetworkSettings"]["Networks"]
        return str(network)

    def leave_evidence(self, directory: Path) -> list[Path]:
        """Write the log of each container to `directory`; the files."""
        directory.mkdir(parents=True, exist_ok=True)
        files = []
        for container in self._containers():
            name = str(inspect("container", container)["Config"]["Labels"]["com.docker.compose.service"])
            files.append(directory / f"{name}.log")
            files[-1].write_text(log_of(container))
        return files

    def _containers(self, *filters: str) -> list[str]:
        labels = [f"label=com.docker.compose.project={self.name}", "label=com.docker.compose.oneoff=False", *filters]
        return docker("ps", "--all", "--quiet", *(word for label in labels for word in ("--filter", label))).split()


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody has now."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind((HOST, 0))
        return [int(each.getsockname()[1]) for each in sockets]
