"""Who reaches a broker's ports and makes epochs up: he is neither obeyed nor believed, and locks nobody out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest

from regency.cluster.agent import HOST
from regency.cluster.cluster import Cluster
from regency.cluster.state import CONTROL_LISTENER, KAFKA_LISTENER
from regency.kafka.codec import FetchRequest
from regency.kafka.peer import PeerConnection
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths as znode_paths
from regency.protos import control_pb2
from regency.runtime.grpc.channels import AgentControlClient

pytestmark = pytest.mark.integration

T0 = TopicPartition("t", 0)


def test_a_controller_epoch_that_nobody_won_is_refused_and_a_failover_goes_on(
    cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any]
) -> None:
    create_topic(cluster)
    ruler, epoch, before = cluster.controller_id(), cluster.controller_epoch(), cluster.snapshot()
    header = control_pb2.Header(controller_id=ruler, controller_epoch=2**31 - 1, broker_epoch=-1, seq=1)
    for broker in cluster.state.brokers:
        with grpc.insecure_channel(f"{HOST}:{broker.ports[CONTROL_LISTENER]}") as channel:
            agent = AgentControlClient(channel)
            answers = [
                agent.leader_and_isr(control_pb2.LeaderAndIsrRequest(header=header), timeout=10),
                agent.stop_replica(control_pb2.StopReplicaRequest(header=header), timeout=10),
                agent.shut_down(control_pb2.ShutDownRequest(header=header), timeout=10),
            ]
        assert {answer.error_code for answer in answers} == {ErrorCode.STALE_CONTROLLER_EPOCH}
        why = f"ZooKeeper says that broker {ruler} rules, in controller epoch {epoch}, not broker {ruler} in 2147483647"
        assert {answer.message for answer in answers} == {why}
    assert cluster.snapshot() == before
    cluster.kill_controller()
    cluster.wait_healthy(30)
    kept = books(cluster, "t")
    kept.write(1_000)
    kept.assert_nothing_lost()


def test_a_fetch_in_a_followers_name_moves_nothing_and_the_follower_is_taken_back(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    eventually: Callable[..., object],
) -> None:
    cluster = new_cluster(2, session_timeout_ms=20_000, settings={"replica.lag.time.max.ms": "20000"})
    create_topic(cluster, partitions=1, replication=2)
    kept = books(cluster, "t", {"acks": 1, "enable.idempotence": "false"})
    kept.write(100)
    leader, follower = cluster.snapshot().partitions[T0].leadership.isr
    eventually(
        lambda: fetch_as(cluster, follower, leader, offset=100).high_watermark == 100, what="the follower has all"
    )
    cluster.pause(follower)
    kept.write(100)
    for _ in range(3):
        forged = fetch_as(cluster, follower, leader, offset=200)
        assert (forged.error_code, forged.high_watermark) == (ErrorCode.NONE, 100)
    cluster.resume(follower)
    kept.write(100)
    kept.assert_nothing_lost()
    assert cluster.snapshot().partitions[T0].leadership.isr == (leader, follower)


def fetch_as(cluster: Cluster, follower: int, leader: int, *, offset: int) -> Any:
    """Fetch what is in the leader's log as a follower in an incarnation that there never was."""
    topic = cluster.session().read(znode_paths.topic("t"))
    known = znodes.decode_topic(topic.path, topic.data, topic="t", zk_version=0, czxid=topic.stat.czxid)
    partition = FetchRequest.FetchTopic.FetchPartition(
        partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=0
    )
    request = FetchRequest(
        replica_state=FetchRequest.ReplicaState(version=17, replica_id=follower, replica_epoch=2**62),
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic_id=known.topic_id, partitions=[partition])],
    )
    port = next(each for each in cluster.state.brokers if each.id == leader).ports[KAFKA_LISTENER]
    peer = PeerConnection(HOST, port, client_id="stranger", connect_timeout_ms=5_000, request_timeout_ms=5_000)
    try:
        return peer.exchange(request, 17).responses[0].partitions[0]
    finally:
        peer.close()
