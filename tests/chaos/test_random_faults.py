"""A cluster under load is broken at random, mended, and asked to account for everything."""

from __future__ import annotations

import itertools
import re
import shlex
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from breaking.faults import HEAL_TIMEOUT_S, Breaker, plan_rounds
from breaking.replicas import compare_replicas
from breaking.tail import Tail, first_difference
from breaking.tcp_proxy import TcpProxy
from breaking.watch import InvariantWatcher

from regency.cluster import zookeeper as zookeeper_server
from regency.cluster.agent import AGENT_COMMAND
from regency.cluster.cluster import Cluster
from regency.cluster.plan import SESSION_TIMEOUT_MS
from regency.cluster.process import processes
from regency.cluster.process.processes import ProcessState
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.demo.ledger import Ledger
from regency.demo.workload import careful_producer, produce, read_back
from regency.history.files import read_history

pytestmark = pytest.mark.chaos
TOPIC = "t"
PARTITIONS = 4
KEYS = 16
PAUSE_S = 0.002
SEGMENT_BYTES = 1_048_576
TROUBLE = re.compile(r"Traceback| ERROR | CRITICAL ")
MORE_THREADS, MORE_DESCRIPTORS = 8, 16
"""More than these, after everything healed, is a leak: pools and connections are opened on demand."""


class Load:
    """Produces numbered records until closed."""

    def __init__(self, cluster: Cluster) -> None:
        self.ledger = Ledger()
        self._closed = threading.Event()
        self._cluster = cluster
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Hand nothing over any more and wait until everything was acknowledged or given up."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        produce(
            careful_producer(self._cluster.bootstrap_servers),
            TOPIC,
            self._records(),
            self.ledger,
            on_sent=lambda _: None,
        )

    def _records(self) -> Iterator[tuple[bytes, bytes]]:
        for number in itertools.count():
            yield b"key-%d" % (number % KEYS), b"record %d " % number + b"x" * 400
            if number % KEYS == 0 and self._closed.wait(PAUSE_S * KEYS):
                return


class Story:
    """What was done when, for whoever reads about a failure."""

    def __init__(self, seed: int, rounds: int) -> None:
        self.lines = [f"seed {seed}: ./dev test chaos --seed {seed} --rounds {rounds}"]

    def __call__(self, words: str) -> None:
        self.lines.append(f"{stamp(time.time())} {words}")

    def outages(self, ledger: Ledger) -> None:
        """The longest time in which each partition took nothing."""
        since_boot = time.time() - time.monotonic()
        self.lines += [
            f"{stamp(since_boot + outage.began_s)} partition {outage.partition} takes nothing for "
            f"{outage.milliseconds} ms"
            for outage in ledger.outages()
        ]


def stamp(wall_s: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(wall_s)) + f".{int(wall_s * 1000) % 1000:03d}Z"


def sizes(cluster: Cluster) -> dict[int, tuple[int, int, int]]:
    """Pid, threads, and open sockets and pipes of every agent. Log files are held open on purpose, within a limit."""
    found = {}
    for broker in cluster.broker_ids:
        pid = cluster.pid(broker)
        threads = len(list(Path("/proc", str(pid), "task").iterdir()))
        descriptors = [target_of(entry) for entry in Path("/proc", str(pid), "fd").iterdir()]
        found[broker] = (pid, threads, sum(not target.startswith("/") for target in descriptors))
    return found


def target_of(descriptor: Path) -> str:
    try:
        return str(descriptor.readlink())
    except FileNotFoundError:
        return "/closed meanwhile"


def leaks(before: dict[int, tuple[int, int, int]], after: dict[int, tuple[int, int, int]]) -> list[str]:
    return [
        f"broker {broker} had {before[broker][1:]} threads and sockets, has {now[1:]}"
        for broker, now in after.items()
        if before[broker][0] == now[0]
        and (now[1] > before[broker][1] + MORE_THREADS or now[2] > before[broker][2] + MORE_DESCRIPTORS)
    ]


def stopped_in_order(cluster: Cluster) -> list[str]:
    """Stop every broker; what did not go by itself."""
    return [f"broker {broker} had to be killed" for broker in cluster.broker_ids if not cluster.stop(broker)]


def troubles_in_logs(cluster: Cluster) -> list[str]:
    return [
        f"agent-{broker}: {line}"
        for broker in cluster.broker_ids
        for line in cluster.log(broker).read_text(errors="replace").splitlines()
        if TROUBLE.search(line)
    ]


def two_leaders_in_history(cluster: Cluster) -> list[str]:
    """Leader epochs of a partition for which the controllers' own records name two leaders."""
    leaders: dict[tuple[str, str], str] = {}
    found = []
    for decision in read_history(cluster.history_dirs):
        match = re.match(r"leader (-?\d+), isr .*, leader epoch (\d+)", decision.to)
        if match and leaders.setdefault((decision.subject, match[2]), match[1]) != match[1]:
            found.append(f"{decision.subject} had two leaders in leader epoch {match[2]}: {decision}")
    return found


@pytest.fixture
def own_zookeeper(tmp_path: Path) -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(tmp_path / "zookeeper") as server:
        yield server
        if server.state is ProcessState.PAUSED:
            server.resume()


@pytest.fixture
def wires(own_zookeeper: EmbeddedZooKeeper) -> Iterator[dict[int, TcpProxy]]:
    target = (zookeeper_server.HOST, own_zookeeper.port)
    with TcpProxy(target) as first, TcpProxy(target) as second, TcpProxy(target) as third:
        proxies = {1: first, 2: second, 3: third}
        yield proxies
        for proxy in proxies.values():
            proxy.heal()


@pytest.fixture
def agent_command(tmp_path: Path, wires: dict[int, TcpProxy]) -> list[str]:
    """Starts an agent that speaks to ZooKeeper through its broker's wire: it is told its config's path last."""
    script = tmp_path / "agent.sh"
    addresses = " ".join(f"{broker}) wire={proxy.address};;" for broker, proxy in wires.items())
    script.write_text(
        "#!/bin/sh\n"
        f'directory=$(dirname "$2"); case "${{directory##*-}}" in {addresses} esac\n'
        f'exec {shlex.join(AGENT_COMMAND)} "$@" --override "zookeeper.connect=$wire"\n'
    )
    return ["/bin/sh", str(script)]


@pytest.mark.timeout(240)
def test_nothing_is_lost_reordered_or_taken_back_whatever_breaks(
    own_zookeeper: EmbeddedZooKeeper,
    wires: dict[int, TcpProxy],
    agent_command: list[str],
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    seed: int,
    rounds: int,
) -> None:
    cluster = new_cluster(
        zookeeper_connect=own_zookeeper.connect_string,
        agent_command=agent_command,
        settings={"replica.lag.time.max.ms": "2000"},
    )
    create_topic(cluster, TOPIC, partitions=PARTITIONS, min_insync_replicas="2", segment_bytes=str(SEGMENT_BYTES))
    story = Story(seed, rounds)
    watcher = InvariantWatcher(own_zookeeper.connect_string, session_timeout_ms=SESSION_TIMEOUT_MS)
    load, tail = Load(cluster), Tail(cluster.bootstrap_servers, TOPIC, PARTITIONS)
    breaker = Breaker(cluster, own_zookeeper, wires, story)
    before = sizes(cluster)
    try:
        breaker.run(plan_rounds(seed, rounds, cluster.broker_ids))
        story("the last fault is mended")
        cluster.wait_healthy(HEAL_TIMEOUT_S)
        story("whole again")
        load.close()
        read_back(cluster.bootstrap_servers, TOPIC, load.ledger, on_read=lambda _: None)
        cluster.wait_healthy(HEAL_TIMEOUT_S)
        story(f"threads and sockets were {before}, are {sizes(cluster)}")
        broken = [*breaker.troubles, *tail_troubles(cluster, tail), *leaks(before, sizes(cluster))]
        refs = [reference for reference in cluster.state.processes if reference.name.startswith("agent-")]
        broken += stopped_in_order(cluster)
        broken += [f"{reference.name} left processes" for reference in refs if processes.members(reference)]
    finally:
        load.close()
        tail.close()
        watcher.close()
        story.outages(load.ledger)
        print(story.lines[0], *sorted(story.lines[1:]), load.ledger.verdict(), load.ledger.failures, sep="\n")
    directories = {broker: cluster.log_dirs(broker)[0] for broker in cluster.broker_ids}
    broken += compare_replicas(directories, [f"{TOPIC}-{partition}" for partition in range(PARTITIONS)])
    broken += watcher.invariants.broken + two_leaders_in_history(cluster) + troubles_in_logs(cluster)
    print("\n".join(broken))
    verdict = load.ledger.verdict()
    assert broken == []
    assert load.ledger.failures == {}
    assert verdict.acked == load.ledger.sent_count
    assert verdict.clean, (verdict, load.ledger.missing())


def tail_troubles(cluster: Cluster, tail: Tail) -> list[str]:
    """What the tailing consumer was told in vain: it reads on to the end, and a second one reads the same."""
    replay = Tail(cluster.bootstrap_servers, TOPIC, PARTITIONS)
    try:
        ends = {partition: len(digests) for partition, digests in tail.seen.items()}
        late = replay.wait_for(ends, 30)
        late += tail.wait_for({partition: len(digests) for partition, digests in replay.seen.items()}, 30)
    finally:
        replay.close()
    return [*tail.broken, *late, *first_difference(tail.seen, replay.seen)]
