"""A ruler that slept through its own deposition: nothing it still says or writes has any effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import pytest
from confluent_kafka.admin import AdminClient

from regency.cluster.cluster import Cluster
from regency.model.errors import ControllerMoved
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths as znode_paths
from regency.protos import control_pb2
from regency.runtime.grpc.channels import AgentControlClient
from regency.runtime.zookeeper.fenced import FencedItem, fenced_write
from regency.runtime.zookeeper.session import Create

pytestmark = pytest.mark.integration


def control_address(cluster: Cluster, broker: int) -> str:
    ports = next(plan.ports for plan in cluster.state.brokers if plan.id == broker)
    return f"127.0.0.1:{ports['CONTROL']}"


def test_a_ruler_paused_past_its_session_resigns_and_changes_nothing(
    cluster: Cluster,
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    create_topic(cluster, partitions=6)
    kept = books(cluster, "t", {"socket.timeout.ms": 3_000})  # how long it waits for a broker that is paused
    kept.write(2_000)
    ruler, epoch = cluster.controller_id(), cluster.controller_epoch()
    cluster.pause(ruler)
    eventually(lambda: cluster.controller_epoch() == epoch + 1, what="a successor rules")
    eventually(lambda: look(cluster).in_no_isr(ruler), what="the successor took its partitions away")
    taken_away = cluster.snapshot()
    kept.write(2_000)
    states = {partition: view.leadership for partition, view in taken_away.partitions.items()}
    cluster.resume(ruler)
    cluster.wait_healthy(30)
    after = cluster.snapshot()
    assert after.controller_epoch == epoch + 1, "the old ruler did not take the term back"
    for partition, leadership in states.items():
        assert after.partitions[partition].leadership.leader_epoch >= leadership.leader_epoch
    kept.write(2_000)
    kept.assert_nothing_lost()


def test_requests_and_writes_of_an_older_term_are_refused_by_everyone(
    cluster: Cluster, create_topic: Callable[..., None], look: Callable[..., Any], eventually: Any
) -> None:
    create_topic(cluster)
    epoch = cluster.controller_epoch()
    cluster.kill_controller()
    eventually(
        lambda: cluster.controller_epoch() == epoch + 1 and cluster.snapshot().controller is not None, what="a new term"
    )
    create_topic(cluster, "announced-by-the-new-term")
    for server in cluster.bootstrap_servers.split(","):
        admin = AdminClient({"bootstrap.servers": server, "log_level": 0})
        eventually(
            lambda admin=admin: "announced-by-the-new-term" in admin.list_topics(timeout=10).topics,
            what=f"the broker at {server} has heard the new term",
        )
    before = cluster.snapshot()
    header = control_pb2.Header(controller_id=1, controller_epoch=epoch, broker_epoch=-1, seq=1_000_000)
    for broker in cluster.broker_ids:
        with grpc.insecure_channel(control_address(cluster, broker)) as channel:
            agent = AgentControlClient(channel)
            stale = [
                agent.leader_and_isr(control_pb2.LeaderAndIsrRequest(header=header), timeout=10),
                agent.update_metadata(control_pb2.UpdateMetadataRequest(header=header), timeout=10),
                agent.stop_replica(control_pb2.StopReplicaRequest(header=header), timeout=10),
            ]
        assert {answer.error_code for answer in stale} == {ErrorCode.STALE_CONTROLLER_EPOCH}
        assert {answer.controller_epoch for answer in stale} == {epoch + 1}
    session = cluster.session()
    current = session.read(znode_paths.CONTROLLER_EPOCH)
    assert current is not None
    with pytest.raises(ControllerMoved):
        fenced_write(
            session,
            [FencedItem((Create(znode_paths.topic("zombie")),))],
            epoch_path=znode_paths.CONTROLLER_EPOCH,
            epoch_version=current.stat.version - 1,
            generation=session.generation,
        )
    assert cluster.snapshot() == before
