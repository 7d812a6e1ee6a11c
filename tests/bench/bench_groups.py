"""What consumer groups cost their coordinator: `./dev bench groups --json FILE`.

Three brokers, replication factor 3; `__consumer_offsets` has one partition, so that one broker coordinates all groups.
Lean clients, in a process of their own, speak the protocol of Kafka's consumers:

    commits   how many a second, one partition each, from clients that have one under way; with the share of clients
    join      from the first JoinGroup of one group's members until each has its assignment
    moved     a million committed offsets, and the broker that has them stops in order: from the first answer that is
              no offset to the first that is one, from the next coordinator; with the longest step of its loop
    idle      members of many groups that send heartbeats every three seconds and nothing else
"""

from __future__ import annotations

import socket
import sys
import threading
import time
from typing import Any, Self
from urllib.request import urlopen

from data_plane.members import (
    FETCH,
    Address,
    Crowd,
    commit,
    commit_request,
    fetch_request,
    live,
    received,
)
from data_plane.topics import create_topic, until
from data_plane.usage import CpuWatch
from reporting import Figures, Progress, count, parser, repeat_and_report, run, say, seconds

from regency.cluster.cluster import Cluster
from regency.kafka import codec
from regency.kafka.apis import ApiKey

TOPIC = "read"
PARTITIONS = 1_000
STEP = 'regency_loop_step_seconds{clock="cpu",quantile="1"}'
LOOK_EVERY_S = 0.01
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
}


def main() -> None:
    options = parser(__doc__, runs=3)
    options.add_argument("--clients", type=count, default=500, help="that commit (default %(default)s)")
    options.add_argument("--members", type=count, default=500, help="of the one group (default %(default)s)")
    options.add_argument("--offsets", type=count, default=1_000_000, help="of the move (default %(default)s)")
    options.add_argument("--groups", type=count, default=1_000, help="of three idle members (default %(default)s)")
    options.add_argument("--seconds", type=seconds, default=10.0, help="of commits, and of idleness")
    arguments = options.parse_args()

    def measure() -> Figures:
        return {
            **_commits(arguments.clients, arguments.seconds),
            **_join(arguments.members),
            **_idle(arguments.groups, arguments.seconds),
            **_moved(arguments.offsets),
        }

    repeat_and_report(arguments, measure)


class Coordinated:
    """A cluster with one coordinator, and where that is."""

    def __init__(self, **settings: str) -> None:
        self.cluster = Cluster(brokers=3, settings={**SETTINGS, **settings})

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        create_topic(self.cluster, TOPIC, PARTITIONS, 1)
        first, port = self.cluster.bootstrap_servers.split(",")[0].rsplit(":", 1)
        found: Any = None

        def ask() -> bool:
            nonlocal found
            message = codec.FindCoordinatorRequest(version=1, key="any", key_type=0)
            with socket.create_connection((first, int(port))) as connection:
                connection.sendall(codec.encode_request(1, 1, "bench", message))
                found = codec.decode_response(ApiKey.FIND_COORDINATOR, 1, received(connection))[1]
            return found.error_code == 0 and offsets_of((found.host, found.port), "any") is not None

        until(ask, "the coordinator serves", 60)
        self.broker, self.address = int(found.node_id), (str(found.host), int(found.port))
        return self

    def __exit__(self, *_: object) -> None:
        self.cluster.close()

    @property
    def others(self) -> dict[int, Address]:
        """Brokers that do not coordinate, with their addresses."""
        servers = zip(self.cluster.broker_ids, self.cluster.bootstrap_servers.split(","), strict=True)
        split = {broker: server.rsplit(":", 1) for broker, server in servers if broker != self.broker}
        return {broker: (host, int(port)) for broker, (host, port) in split.items()}

    def agents(self) -> list[int]:
        return [self.cluster.pid(broker) for broker in self.cluster.broker_ids]


def offsets_of(address: Address, group: str) -> int | None:
    """How many offsets a group has committed, as this broker says; None where it says something else."""
    try:
        with socket.create_connection(address, timeout=5) as connection:
            connection.sendall(fetch_request(group))
            answer: Any = codec.decode_response(ApiKey.OFFSET_FETCH, FETCH, received(connection))[1]
    except (OSError, RuntimeError):
        return None
    return sum(len(topic.partitions) for topic in answer.topics) if answer.error_code == 0 else None


def _commits(clients: int, for_s: float) -> Figures:
    with Coordinated() as found, Crowd(commit, found.address, clients, PARTITIONS) as crowd:
        crowd.wait_ready(60)
        time.sleep(2)
        agents, coordinator = CpuWatch(*found.agents()), CpuWatch(found.cluster.pid(found.broker))
        own, answers, began = CpuWatch(crowd.pid), crowd.answers, time.monotonic()
        time.sleep(for_s)
        figures = {
            "commits_per_second": round((crowd.answers - answers) / (time.monotonic() - began)),
            "coordinator_cores": round(coordinator.share(), 2),
            "agents_cores": round(agents.share(), 2),
            "commit_clients_cores": round(own.share(), 2),
        }
        crowd.end()
        p50, p99, _ = crowd.latencies_ms
        return {**figures, "commit_p50_ms": p50, "commit_p99_ms": p99}


def _join(members: int) -> Figures:
    with Coordinated(**{"group.initial.rebalance.delay.ms": "0"}) as found:
        began = time.time()
        with Crowd(live, found.address, 1, members) as crowd:
            return {"join_to_stable_seconds": round(crowd.wait_ready(120) - began, 2)}


def _idle(groups: int, for_s: float) -> Figures:
    with Coordinated() as found, Crowd(live, found.address, groups, 3) as crowd:
        crowd.wait_ready(120)
        time.sleep(3)
        coordinator, own = CpuWatch(found.cluster.pid(found.broker)), CpuWatch(crowd.pid)
        time.sleep(for_s)
        return {"idle_coordinator_cores": round(coordinator.share(), 3), "idle_clients_cores": round(own.share(), 3)}


def _moved(offsets: int) -> Figures:
    groups, told = max(1, offsets // PARTITIONS), Progress("offsets", offsets)
    with Coordinated() as found:
        with socket.create_connection(found.address) as connection:
            for number in range(groups):
                connection.sendall(commit_request(f"group-{number}", list(range(PARTITIONS)), number))
                received(connection)
                told((number + 1) * PARTITIONS)
        last, others = f"group-{groups - 1}", found.others
        stopping = threading.Thread(target=lambda: found.cluster.stop(found.broker))
        stopping.start()
        until(lambda: offsets_of(found.address, last) is None, "the coordinator gives up", 60)
        began = time.monotonic()
        while not (serving := [each for each, address in others.items() if offsets_of(address, last) == PARTITIONS]):
            time.sleep(LOOK_EVERY_S)
        took = time.monotonic() - began
        stopping.join()
        say(f"broker {serving[0]} coordinates")
        port = found.cluster.state.brokers[serving[0] - 1].agent_http
        metrics = urlopen(f"http://{port}/metrics", timeout=20).read().decode()
        [step] = [float(line.split()[-1]) for line in metrics.splitlines() if line.startswith(STEP)]
        return {"moved_seconds": round(took, 2), "moved_longest_step_ms": round(1000 * step, 1)}


if __name__ == "__main__":
    sys.exit(run(main))
