"""What every suite shares: the bounded wait on a condition, clusters, and what a failed test leaves to look at.

One ZooKeeper per session, one chroot per cluster.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.request import urlopen

import hypothesis
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.cluster import Cluster
from regency.cluster.process import processes
from regency.cluster.process.processes import ProcessState
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model.errors import RegencyError

hypothesis.settings.register_profile("default", deadline=None, print_blob=True)
hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("default"), derandomize=True)
hypothesis.settings.load_profile("ci" if os.environ.get("CI") else "default")

T = TypeVar("T")
OUT = Path(__file__).resolve().parent / "out"
LAST_LINES = 30
NewCluster = Callable[..., Cluster]
CreateTopic = Callable[..., None]
REPORT = pytest.StashKey[dict[str, pytest.TestReport]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes long is begun first, by all workers in turn: each gets as large a part of the list to begin with."""
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    long = [item for item in items if item.get_closest_marker("long")]
    others = iter([item for item in items if not item.get_closest_marker("long")])
    left, dealt = len(items), []
    for worker in range(workers):
        size = left // (workers - worker)
        left -= size
        first = long[worker::workers]
        dealt += [*first, *islice(others, max(size - len(first), 0))]
    items[:] = [*dealt, *others]


class Eventually(Protocol):
    """Waits until a condition holds."""

    def __call__(self, condition: Callable[[], T], *, within: float = 20.0, what: str = "") -> T:
        """The first true value of `condition`, asked again and again for `within` seconds; else the test fails."""
        ...


@pytest.fixture(scope="session")
def eventually() -> Eventually:
    def wait(condition: Callable[[], T], *, within: float = 20.0, what: str = "") -> T:
        deadline = time.monotonic() + within
        while True:
            value = condition()
            if value:
                return value
            if time.monotonic() >= deadline:
                pytest.fail(f"not within {within:g} s: {what or condition}; last: {value!r}")
            time.sleep(0.05)

    return wait


@pytest.fixture(scope="session")
def prometheus_tools() -> Path:
    """Folder of prometheus and promtool: what `./dev prometheus` has unpacked, or what the machine has."""
    unpacked = OUT.parent.parent / ".prometheus" / "usr" / "bin"
    if (unpacked / "promtool").exists():
        return unpacked
    installed = shutil.which("promtool")
    if installed is None or not Path(installed).with_name("prometheus").exists():
        pytest.skip("there is no Prometheus on this machine; `./dev prometheus` fetches it where apt-get is")
    return Path(installed).parent


@pytest.fixture(autouse=True)
def signals_of_a_terminal() -> Iterator[None]:
    """What a test starts hears SIGHUP and SIGINT, also where the run itself was told to ignore them (nohup, a job in
    the background of a script): an ignored signal stays ignored over fork and exec.
    """
    usual = {signal.SIGHUP: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    ignored = [number for number in usual if signal.getsignal(number) is signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, usual[number])
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    item.stash.setdefault(REPORT, {})[report.when] = report
    return report


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    """The session's ZooKeeper. Who pauses or restarts one starts its own (`new_cluster(own_zookeeper=True)`)."""
    server = EmbeddedZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.close()


@pytest.fixture
def new_cluster(request: pytest.FixtureRequest, zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[NewCluster]:
    """Starts clusters that end with the test: `new_cluster(brokers=3, settings={...})`."""
    clusters: list[Cluster] = []

    def start(
        brokers: int = 3, *, own_zookeeper: bool = False, zookeeper_connect: str | None = None, **options: object
    ) -> Cluster:
        chroot = f"/{tmp_path.name}-{len(clusters) + 1}"
        connect = zookeeper_connect or (None if own_zookeeper else zookeeper.connect_string + chroot)
        directory = tmp_path / f"cluster-{len(clusters) + 1}"
        cluster = Cluster(brokers=brokers, directory=directory, zookeeper_connect=connect, **options)
        clusters.append(cluster)
        cluster.start()
        return cluster

    yield start
    for cluster in clusters:
        _leave_evidence_of_failure(request.node, cluster)
        cluster.close()


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Cluster:
    """Three brokers with a follower's lag limit of 2 s."""
    return new_cluster(settings={"replica.lag.time.max.ms": "2000"})


@pytest.fixture
def create_topic() -> CreateTopic:
    """Creates a topic through Kafka's protocol and waits until every replica is in sync."""

    def create(cluster: Cluster, name: str = "t", partitions: int = 3, replication: int = 3, **config: str) -> None:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
        topic = NewTopic(
            name,
            num_partitions=partitions,
            replication_factor=replication,
            config={key.replace("_", "."): value for key, value in config.items()},
        )
        admin.create_topics([topic], operation_timeout=20, request_timeout=25)[name].result(timeout=30)
        cluster.wait_healthy(20)

    return create


@pytest.fixture(scope="session")
def leave_evidence() -> Callable[[pytest.Item, Cluster], None]:
    """Leaves what there is to look at if a test failed, for clusters that outlive it."""
    return _leave_evidence_of_failure


def _leave_evidence_of_failure(item: pytest.Item, cluster: Cluster) -> None:
    if any(report.failed for report in item.stash.get(REPORT, {}).values()):
        _leave_evidence(item.name, cluster)


def _leave_evidence(name: str, cluster: Cluster) -> None:
    """Copy logs, histories, metrics and thread stacks of a cluster to tests/out/NAME, and print the end of each log."""
    target = OUT / "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
    shutil.rmtree(target, ignore_errors=True)
    for broker in cluster.broker_ids:
        if cluster.broker_state(broker) is ProcessState.PAUSED:
            cluster.resume(broker)
    for reference in cluster.state.processes:
        if reference.name.startswith("agent-"):
            processes.send(reference, signal.SIGUSR1)
    with contextlib.suppress(RegencyError):
        (target / "znodes.txt").parent.mkdir(parents=True, exist_ok=True)
        (target / "znodes.txt").write_text("\n".join(_znodes(cluster, "/")) + "\n")
    shutil.copytree(
        cluster.directory, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns("data", "version-2", "*.index")
    )
    for broker in cluster.state.brokers:
        for process, address in (("agent", broker.agent_http), ("controller", broker.controller_http)):
            with contextlib.suppress(OSError), urlopen(f"http://{address}/metrics", timeout=5) as answer:
                (target / f"{process}-{broker.id}.metrics").write_bytes(answer.read())
    lines = [
        (line, broker)
        for broker in cluster.broker_ids
        for line in [
            each for each in cluster.log(broker).read_text(errors="replace").splitlines() if each[:1].isdigit()
        ][-LAST_LINES:]
    ]
    print(f"\nevidence in {target}; the last {LAST_LINES} lines of each log:")
    for line, broker in sorted(lines):
        print(f"agent-{broker} {line}")


def _znodes(cluster: Cluster, path: str) -> list[str]:
    session = cluster.session()
    znode, children = session.read(path), session.children(path)
    lines = [f"{path} v{znode.stat.version} {znode.data.decode(errors='replace')}"] if znode else []
    for child in children.names if children else ():
        lines += _znodes(cluster, f"{path.rstrip('/')}/{child}")
    return lines
