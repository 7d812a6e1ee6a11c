"""What is done and looked at, in order. Every step says what it saw."""

from __future__ import annotations

import time
from collections.abc import Sequence

from compose_test import image, watching
from compose_test.clients import Clients
from compose_test.faults import Faults
from compose_test.project import AGENTS, FOURTH, STARTED, ZOOKEEPERS, Project
from compose_test.prometheus import Prometheus
from compose_test.steps import Steps
from compose_test.stream import PARTITIONS, Stream
from compose_test.waiting import expect

TOPIC = "compose"


def run(steps: Steps, project: Project, build_options: Sequence[str] | None) -> None:
    """Every step. `build_options`: None where the image is there already. Raises StepFailed."""
    if build_options is not None:
        steps.run("build the image", lambda: image.build(project.image, build_options))
    steps.run("the image is small and not root's", lambda: image.check_image(project.image), needed=False)
    steps.run("it says what it misses", lambda: image.check_words(project.image), needed=False)
    started_s = time.time()
    steps.run("up", lambda: _up(project))
    clients, prometheus = Clients(project.bootstrap_servers), Prometheus(project.prometheus_port)
    steps.run("it says where it may not write", lambda: image.check_unwritable(project), needed=False)
    steps.run("Prometheus reaches every target", lambda: watching.check_targets(prometheus), needed=False)
    steps.run("no alert on a healthy cluster", lambda: watching.check_calm(prometheus), needed=False)
    _stop_agents(steps, project, clients, prometheus)  # first: some alerts look back over minutes, and none is excused
    stream = _break(steps, project, clients)
    steps.run("every panel has data", lambda: watching.check_dashboards(prometheus, started_s), needed=False)
    steps.run("down and up keep the data", lambda: _down_and_up(project, clients, stream))
    steps.run("a fourth agent joins", lambda: _fourth(project, clients, prometheus))


def _up(project: Project) -> str:
    started = time.monotonic()
    project.up(*STARTED)
    image.wait_healthy(project, [*ZOOKEEPERS, *AGENTS])
    seen = Clients(project.bootstrap_servers).wait_healthy()
    return f"healthy after {time.monotonic() - started:.1f} s, broker {seen.controller} rules"


def _break(steps: Steps, project: Project, clients: Clients) -> Stream:
    """Break what runs, one thing after the other, while records are written; then read all of them back."""
    clients.create_topic(TOPIC, PARTITIONS)
    clients.wait_healthy()
    with Stream(project.bootstrap_servers, TOPIC) as stream:
        steps.run("the host produces to every partition", lambda: f"after {stream.wait_for_progress('at all'):.1f} s")
        faults = Faults(project, clients, stream)
        steps.run("kill the ruling container", faults.kill_the_ruling)
        steps.run("pause another", faults.pause_another)
        steps.run("disconnect a third", faults.disconnect_a_third)
        steps.run("stop a ZooKeeper server", faults.stop_a_zookeeper)
        steps.run("replace the containers one by one", faults.replace_one_by_one)
    steps.run("nothing is lost", lambda: _verdict(stream))
    return stream


def _verdict(stream: Stream) -> str:
    verdict = stream.check()
    return (
        f"acked={verdict.acked} consumed={verdict.consumed} lost={verdict.lost} duplicated={verdict.duplicated} "
        f"unavailable_ms={verdict.unavailable_ms}"
    )


def _stop_agents(steps: Steps, project: Project, clients: Clients, prometheus: Prometheus) -> None:
    """Stop one agent and then another, with SIGTERM: they leave in order, and the alerts say what is missing."""
    first, second, left = AGENTS
    down, under_min = "KafkaBrokerDown", "KafkaUnderMinIsrPartitions"
    steps.run("SIGTERM is a controlled shutdown", lambda: image.check_end(project, first))
    wanted = {(down, first)}
    steps.run(
        "an alert for a broker that is down",
        lambda: watching.wait_for_alerts(prometheus, wanted, f"{first} is stopped"),
        needed=False,
    )
    steps.run("another one too", lambda: image.check_end(project, second))
    both = {*wanted, (down, second), (under_min, left)}
    steps.run(
        "an alert for too few replicas in sync",
        lambda: watching.wait_for_alerts(prometheus, both, f"{second} is stopped as well"),
        needed=False,
    )

    def back() -> str:
        project.start(first)
        project.start(second)
        clients.wait_healthy()
        watching.wait_for_relief(prometheus, {down, under_min})
        return "and no alert of these fires any more"

    steps.run("both come back", back)


def _down_and_up(project: Project, clients: Clients, stream: Stream) -> str:
    before = clients.wait_healthy()
    project.down()
    expect(clients.look() is None, "a broker answers after `down`")
    project.up(*STARTED)
    after = clients.wait_healthy()
    expect(after.cluster_id == before.cluster_id, f"cluster id {after.cluster_id}, was {before.cluster_id}")
    verdict = stream.check()
    return f"{verdict.consumed} of {verdict.acked} records read again, cluster {after.cluster_id}"


def _fourth(project: Project, clients: Clients, prometheus: Prometheus) -> str:
    project.up(FOURTH)
    clients.wait_healthy(brokers=(1, 2, 3, 4))
    watching.check_targets(prometheus, (*AGENTS, FOURTH))
    return project.run_in(FOURTH, "regency", "controller", "status").strip().splitlines()[-1]
