"""A cluster with few descriptors, under more clients than it has places for: it turns them away and goes on."""

from __future__ import annotations

import resource
import selectors
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from regency.cluster.agent import AGENT_COMMAND, HOST
from regency.cluster.cluster import Cluster
from regency.cluster.process.processes import members
from regency.kafka.codec import MetadataRequest, encode_request

pytestmark = pytest.mark.integration

LIMIT = 256
REFUSED = 'regency_closed_connections_total{reason="no_descriptors"} '


class Crowd:
    """Clients that come again as soon as they are sent away; every other one asks for something."""

    def __init__(self, ports: Sequence[int], count: int = 500) -> None:
        self._ports = ports
        self._count = count
        self._selector = selectors.DefaultSelector()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._press)

    @contextmanager
    def pressing(self) -> Iterator[None]:
        """Have them come, until the end of the block."""
        self._thread.start()
        try:
            yield
        finally:
            self._over.set()
            self._thread.join()

    def _press(self) -> None:
        for number in range(self._count):
            self._come(number)
        while not self._over.wait(0.02):
            for key, events in self._selector.select(0.1):
                if events & selectors.EVENT_WRITE:
                    self._selector.modify(key.fileobj, selectors.EVENT_READ, key.data)
                    with suppress(OSError):
                        key.fileobj.send(encode_request(9, 1, "crowd", MetadataRequest(topics=[])))
                    continue
                with suppress(OSError):
                    if key.fileobj.recv(1 << 16):
                        continue
                self._selector.unregister(key.fileobj)
                key.fileobj.close()
                self._come(key.data)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()

    def _come(self, number: int) -> None:
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex((HOST, self._ports[number % len(self._ports)]))
        asks = selectors.EVENT_WRITE if number % 2 else 0
        self._selector.register(client, selectors.EVENT_READ | asks, number)


@pytest.fixture
def few(new_cluster: Callable[..., Cluster], roomy: None) -> Cluster:
    """Three brokers whose agents and controllers may have 256 descriptors, of which a shell would give them 100."""
    command = f'ulimit -Sn 100 && ulimit -Hn {LIMIT} && exec {shlex.join(AGENT_COMMAND)} "$@"'
    return new_cluster(
        own_zookeeper=True,
        agent_command=["/bin/sh", "-c", command, "agent"],
        settings={"log.flush.scheduler.interval.ms": "200", "replica.lag.time.max.ms": "5000"},
    )


@pytest.fixture
def roomy() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def metric(cluster: Cluster, broker: int, name: str) -> float:
    [address] = [each.agent_http for each in cluster.state.brokers if each.id == broker]
    with urlopen(f"http://{address}/metrics", timeout=20) as answer:
        [line] = [line for line in answer.read().decode().splitlines() if line.startswith(name)]
    return float(line.rpartition(" ")[2])


def processes(cluster: Cluster) -> dict[int, int]:
    """Descriptors of every agent and controller, by process id."""
    pids = [row.pid for ref in cluster.state.processes if ref.name.startswith("agent-") for row in members(ref)]
    return {pid: len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in pids}


def nothing_is_offline(cluster: Cluster) -> bool:
    return all("is offline" not in cluster.log(broker).read_text() for broker in cluster.broker_ids)


@pytest.mark.timeout(300)
def test_more_clients_than_there_are_descriptors_for_are_turned_away_and_the_others_lose_nothing(
    few: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(few, partitions=400, flush_ms="500", min_insync_replicas="2")
    before = processes(few)
    kept = books(few, "t", keys=4_000)
    kept.write(4_000)
    with Crowd([each.ports["PLAINTEXT"] for each in few.state.brokers]).pressing():
        eventually(lambda: all(metric(few, each, REFUSED) > 100 for each in few.broker_ids), what="many are refused")
        kept.write(4_000)
        few.restart(1)
        eventually(lambda: all(len(isr) == 3 for isr in look(few).isrs().values()), within=60, what="all are in sync")
        assert max(processes(few).values()) < LIMIT
    kept.write(4_000)
    kept.assert_nothing_lost()
    assert not any(metric(few, each, "regency_shortages_total ") for each in few.broker_ids), "all logs had theirs"
    assert len(processes(few).keys() & before.keys()) == 4, "only broker 1 and its controller are new"
    assert nothing_is_offline(few)


@pytest.mark.timeout(300)
def test_processes_without_a_descriptor_left_go_on_when_there_are_some_again(
    few: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(few, partitions=60, flush_ms="500", min_insync_replicas="2")
    before = processes(few)
    kept = books(few, "t", keys=600)
    kept.write(1_000)
    ports = [port for each in few.state.brokers for name, port in each.ports.items() if name != "PLAINTEXT"]
    with Crowd(ports, 300 * len(ports)).pressing():
        eventually(lambda: min(processes(few).values()) >= LIMIT - 2, what="none has a descriptor left")
        few.restart_zookeeper()
        kept.write(1_000)
    few.wait_healthy(60)
    kept.write(1_000)
    kept.assert_nothing_lost()
    assert processes(few).keys() == before.keys()
    assert nothing_is_offline(few)
