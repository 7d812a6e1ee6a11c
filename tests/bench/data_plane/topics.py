"""Topics of a bench's cluster, and waiting for something to become so."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.cluster import Cluster

TIMEOUT_S = 120.0


def create_topic(cluster: Cluster, name: str, partitions: int, replication: int) -> None:
    """Create a topic, and wait until all of it is led and in sync."""
    _create(cluster, [NewTopic(name, partitions, replication)])


def create_assigned(cluster: Cluster, name: str, replicas: Sequence[Sequence[int]]) -> None:
    """The same with replicas that the caller chooses, by partition."""
    _create(cluster, [NewTopic(name, len(replicas), replica_assignment=[list(each) for each in replicas])])


def create_many(cluster: Cluster, prefix: str, topics: int, partitions: int, replication: int) -> list[str]:
    """The same for several topics at once; their names."""
    names = [f"{prefix}-{number:03d}" for number in range(topics)]
    _create(cluster, [NewTopic(name, partitions, replication) for name in names])
    return names


def _create(cluster: Cluster, topics: list[NewTopic]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    for future in admin.create_topics(topics, operation_timeout=60, request_timeout=60).values():
        future.result(timeout=60)
    cluster.wait_healthy(TIMEOUT_S)


def until(condition: Callable[[], bool], what: str, timeout_s: float = TIMEOUT_S, every_s: float = 0.02) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(every_s)
