"""Partitions move between brokers under load: by Kafka's protocol, by Kafka's znode, past deaths and cancellations."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from kafka import TopicPartition as ClientPartition
from kafka.admin import KafkaAdminClient
from kafka.errors import InvalidReplicationAssignmentError, NoReassignmentInProgressError, UnknownTopicOrPartitionError

from regency.cluster.cluster import Cluster
from regency.model import znodes
from regency.model.facts import ReplicaAssignment
from regency.model.znodes import paths
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.session import Create, SetData, ZkSession

pytestmark = [
    pytest.mark.integration,
    # kafka-python drops sockets of connections that were being opened to a broker that died, without closing them.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

T0, T1, T2 = (ClientPartition("t", number) for number in range(3))


@pytest.fixture
def four(new_cluster: Callable[..., Cluster]) -> Cluster:
    return new_cluster(brokers=4, settings={"replica.lag.time.max.ms": "2000"})


@pytest.fixture
def session(four: Cluster) -> Iterator[ZkSession]:
    opened = connect(four.zookeeper_connect, session_timeout_ms=10_000)
    yield opened
    opened.close()


@pytest.fixture
def admin(four: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=four.bootstrap_servers.split(","))
    yield client
    client.close()


@contextmanager
def admin_without(four: Cluster, dead: int, eventually: Any) -> Iterator[KafkaAdminClient]:
    """A client that never hears of a broker that was killed: kafka-python gives up where it picks one that is dead."""
    servers = zip(four.broker_ids, four.bootstrap_servers.split(","), strict=True)
    living = [server for broker, server in servers if broker != dead]

    def known(server: str) -> Collection[int]:
        return AdminClient({"bootstrap.servers": server, "log_level": 0}).list_topics(timeout=5).brokers.keys()

    eventually(lambda: not any(dead in known(server) for server in living), what="nobody names the dead broker")
    client = KafkaAdminClient(bootstrap_servers=living)
    yield client
    client.close()


def assigned(session: ZkSession) -> dict[int, ReplicaAssignment]:
    znode = session.read(paths.topic("t"))
    assert znode is not None
    return znodes.decode_topic(znode.path, znode.data, topic="t", zk_version=0, czxid=0).partitions


def hold(cluster: Cluster, number: int) -> list[int]:
    """Brokers with a log of t-NUMBER, under whatever name."""
    return [
        broker
        for broker in cluster.broker_ids
        if any(
            list(data.glob(f"t-{number}")) or list(data.glob(f"t-{number}.*-stray"))
            for data in cluster.log_dirs(broker)
        )
    ]


def test_partitions_move_as_asked_and_leave_nothing_behind(
    four: Cluster,
    session: ZkSession,
    admin: KafkaAdminClient,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    eventually: Any,
) -> None:
    """ReassignPartitionsClusterTest, over kafka-python's admin client and over the znode, with a producer at work."""
    create_topic(four, partitions=3, replication=2)
    kept = books(four, "t")
    kept.write(1_000)
    before = {number: each.replicas for number, each in assigned(session).items()}
    targets = {number: tuple(each for each in four.broker_ids if each not in before[number]) for number in before}

    def move() -> None:
        asked = admin.alter_partition_reassignments({T0: targets[0], T1: [*targets[1], before[1][0]]})
        assert asked == {T0: None, T1: None}
        by_tool = {"version": 1, "partitions": [{"topic": "t", "partition": 2, "replicas": targets[2]}]}
        session.multi([Create(paths.REASSIGN_PARTITIONS, json.dumps(by_tool).encode())])

    kept.write(4_000, midway=move)
    wanted = {0: targets[0], 1: (*targets[1], before[1][0]), 2: targets[2]}
    eventually(lambda: {n: each.replicas for n, each in assigned(session).items()} == wanted, what="all have moved")
    eventually(lambda: session.read(paths.REASSIGN_PARTITIONS) is None, what="the request is taken away")
    eventually(
        lambda: all(each == ReplicaAssignment(wanted[n]) for n, each in assigned(session).items()),
        what="every broker has confirmed its deletions",
    )
    assert admin.list_partition_reassignments() == {}
    for number, replicas in wanted.items():
        assert hold(four, number) == sorted(replicas)
    four.wait_healthy(20)
    kept.write(1_000)
    kept.assert_nothing_lost()


def test_a_dead_target_is_waited_for_cancelled_and_replaced(
    four: Cluster,
    session: ZkSession,
    admin: KafkaAdminClient,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(four, partitions=1, replication=2)
    kept = books(four, "t")
    kept.write(500)
    first, second = assigned(session)[0].replicas
    # A dead controller's agent is nobody to ask: kafka-python gives up at once where it takes a dead broker for it.
    third, fourth = sorted(set(four.broker_ids) - {first, second}, key=lambda each: each != four.controller_id())

    nosuch = ClientPartition("nosuch", 0)
    refused = admin.alter_partition_reassignments({T0: [first, 99], T1: [first], nosuch: [first]})
    assert refused == {
        T0: InvalidReplicationAssignmentError,
        T1: UnknownTopicOrPartitionError,
        nosuch: UnknownTopicOrPartitionError,
    }
    assert admin.alter_partition_reassignments({T0: None}) == {T0: NoReassignmentInProgressError}

    four.kill(fourth)
    asked = znodes.encode_asked_moves([(T0, (fourth, first))])
    session.multi([Create(paths.REASSIGN_PARTITIONS, asked)])
    going = {"replicas": [fourth, first, second], "adding_replicas": [fourth], "removing_replicas": [second]}
    with admin_without(four, fourth, eventually) as beside:
        eventually(lambda: beside.list_partition_reassignments([T0]) == {T0: going}, what="it has begun, and waits")
        assert beside.alter_partition_reassignments({T0: None}) == {T0: None}
    assert set(assigned(session)[0].replicas) == {first, second}
    assert session.read(paths.REASSIGN_PARTITIONS) is None

    session.multi([Create(paths.REASSIGN_PARTITIONS, asked)])
    eventually(lambda: assigned(session)[0].adding == (fourth,), what="it has begun again")
    four.kill_controller()
    edited = znodes.encode_asked_moves([(T0, (third, fourth))])
    session.multi([SetData(paths.REASSIGN_PARTITIONS, edited, 0)])
    eventually(lambda: assigned(session)[0].target == (third, fourth), what="the edit counts, whoever rules")
    kept.write(500)
    four.restart(fourth)
    eventually(lambda: assigned(session)[0] == ReplicaAssignment((third, fourth)), what="it is done and tidied up")
    assert hold(four, 0) == sorted((third, fourth))
    four.wait_healthy(20)
    kept.assert_nothing_lost()


def test_a_former_replica_on_a_dead_broker_is_deleted_when_that_returns(
    four: Cluster, session: ZkSession, create_topic: Callable[..., None], eventually: Any
) -> None:
    """Kafka forgets it, and its log stays for ever."""
    create_topic(four, partitions=1, replication=2)
    first, second = sorted(assigned(session)[0].replicas, key=lambda each: each != four.controller_id())
    spare = next(each for each in four.broker_ids if each not in (first, second))
    four.kill(second)
    with admin_without(four, second, eventually) as admin:
        admin.alter_partition_reassignments({T0: [first, spare]})
        eventually(
            lambda: assigned(session)[0] == ReplicaAssignment((first, spare), deleting=(second,)), what="it has moved"
        )
        assert admin.list_partition_reassignments() == {}
    four.restart(second)
    eventually(lambda: assigned(session)[0] == ReplicaAssignment((first, spare)), what="the deletion is confirmed")
    assert hold(four, 0) == sorted((first, spare))
