"""What is done to the cluster while it is written to; each is healed before the next."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from compose_test import image
from compose_test.clients import Clients, answers
from compose_test.project import AGENTS, ZOOKEEPERS, Project
from compose_test.stream import Stream
from compose_test.waiting import eventually, expect

NOTICED_S = 30.0
"""A session of 6 s, two of ZooKeeper's ticks, and an election: the rest is slack for machines under load."""


class Faults:
    """Breaks a healthy cluster that `stream` writes to. Every method says what it saw, or raises CheckFailed."""

    def __init__(self, project: Project, clients: Clients, stream: Stream) -> None:
        self._project = project
        self._clients = clients
        self._stream = stream

    def kill_the_ruling(self) -> str:
        """`docker kill` the container whose controller rules: another one rules, and every partition takes records."""
        project, victim = self._project, self._clients.ruling()
        project.kill(victim)
        expect(project.health(victim) == "exited", f"{victim} is {project.health(victim)}")
        with _healed_by(lambda: project.start(victim)):
            took_s = self._others_serve(victim)
            successor = self._clients.ruling()
            expect(successor != victim, f"{victim} still rules")
        self._clients.wait_healthy()
        image.wait_healthy(project, [victim])  # the file that its HEALTHCHECK reads is the killed one's until it serves
        return f"{victim} killed, {successor} rules, all partitions served after {took_s:.1f} s"

    def pause_another(self) -> str:
        """`docker pause` a container that does not rule."""
        project, ruling = self._project, self._clients.ruling()
        victim = next(agent for agent in AGENTS if agent != ruling)
        project.pause(victim)
        with _healed_by(lambda: project.resume(victim)):
            took_s = self._others_serve(victim)
        self._clients.wait_healthy()
        return f"{victim} paused, all partitions served after {took_s:.1f} s"

    def disconnect_a_third(self) -> str:
        """`docker network disconnect` a container: nobody reaches it, not even from the host."""
        project, ruling = self._project, self._clients.ruling()
        victim = [agent for agent in AGENTS if agent != ruling][-1]
        port = project.agent_ports[victim]
        expect(answers(port), f"{victim} did not answer on {port} before")
        network = project.disconnect(victim)
        with _healed_by(lambda: project.connect(victim, network)):
            expect(not answers(port), f"{victim} is off its network and answers on {port}")
            took_s = self._others_serve(victim)
            expect(project.health(victim) != "exited", f"{victim} ended instead of waiting for its network")
        eventually(lambda: answers(port), within_s=NOTICED_S, what=f"{victim} answers on {port} again")
        self._clients.wait_healthy()
        return f"{victim} off the network, all partitions served after {took_s:.1f} s"

    def stop_a_zookeeper(self) -> str:
        """`docker stop` the ZooKeeper server that leads the ensemble: the sessions go on with the other two."""
        project = self._project
        before = self._clients.wait_healthy()
        victim = next(server for server in ZOOKEEPERS if "leader" in mode(project, server))
        project.stop(victim)
        with _healed_by(lambda: project.start(victim)):
            took_s = self._stream.wait_for_progress(f"without {victim}")
            others = [server for server in ZOOKEEPERS if server != victim]
            eventually(
                lambda: any("leader" in mode(project, server) for server in others),
                within_s=NOTICED_S,
                what="a new leader of the ensemble",
            )
        eventually(lambda: "follower" in mode(project, victim), within_s=NOTICED_S, what=f"{victim} follows")
        after = self._clients.wait_healthy()
        expect(after.brokers == before.brokers, f"brokers {after.brokers}")
        return f"{victim} led the ensemble and was stopped, all partitions served after {took_s:.1f} s"

    def replace_one_by_one(self) -> str:
        """What an upgrade does: a new container for each agent, one after the other; leadership moves away first."""
        for agent in AGENTS:
            before = self._project.container(agent)
            self._project.replace(agent)
            expect(self._project.container(agent) != before, f"{agent} is still container {before}")
            self._clients.wait_healthy()
        took_s = self._stream.wait_for_progress("in new containers")
        return f"three new containers on the old volumes, all partitions served after {took_s:.1f} s"

    def _others_serve(self, victim: str) -> float:
        """Wait until the broker is no longer counted on, and every partition takes records without it."""
        number = AGENTS.index(victim) + 1
        took_s = self._stream.wait_for_progress(f"without {victim}")

        def gone() -> bool:
            seen = self._clients.look()
            return seen is not None and number not in seen.brokers

        eventually(gone, within_s=NOTICED_S, what=f"metadata without broker {number}: {self._clients.look()}")
        return max(took_s, self._stream.wait_for_progress(f"without {victim}, which is known to be away"))


def mode(project: Project, server: str) -> str:
    """What a ZooKeeper server says of its part: leader, follower; empty while it serves nobody."""
    said = project.run_in(server, "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/2181 && echo srvr >&3 && cat <&3 || true")
    return next((line.partition(":")[2].strip() for line in said.splitlines() if line.startswith("Mode:")), "")


@contextmanager
def _healed_by(heal: Callable[[], None]) -> Iterator[None]:
    """Heal also where what was expected did not come."""
    try:
        yield
    finally:
        heal()
