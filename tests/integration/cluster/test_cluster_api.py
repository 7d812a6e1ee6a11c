"""The Python API on real brokers: what it says of the cluster is so, and what it breaks can be mended."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.cluster.cluster import Cluster
from regency.cluster.errors import ClusterError, ClusterTimeout
from regency.cluster.process.processes import ProcessState

pytestmark = pytest.mark.integration
Eventually = Callable[..., object]
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> object:
    """Three brokers with a ZooKeeper of their own; every test leaves them healthy."""
    with Cluster(3, directory=tmp_path_factory.mktemp("shared") / "cluster") as cluster:
        cluster.wait_healthy(TIMEOUT_S)
        yield cluster


def test_started_cluster_has_registered_brokers_and_a_controller(shared: Cluster) -> None:
    snapshot = shared.snapshot()
    assert list(snapshot.brokers) == shared.broker_ids == [1, 2, 3]
    assert shared.controller_id() in shared.broker_ids
    assert shared.controller_epoch() >= 1
    assert all(directory.is_dir() for broker in shared.broker_ids for directory in shared.log_dirs(broker))


def test_killed_broker_is_missing_until_it_is_started(shared: Cluster) -> None:
    shared.kill(3)
    with pytest.raises(ClusterTimeout, match="the agent of broker 3 is dead"):
        shared.wait_healthy(0.2)
    shared.start(3)
    shared.wait_healthy(TIMEOUT_S)


def test_a_partition_stands_for_the_broker_that_leads_it(shared: Cluster) -> None:
    shared.create_topic("led", partitions=1, replication_factor=2)
    leader = shared.wait_leader("led", 0)
    with shared.paused("led-0"):
        assert shared.broker_state(leader) is ProcessState.PAUSED
    with pytest.raises(ClusterTimeout, match=r"there is no partition lde-0 \(did you mean led-0\?\)"):
        shared.wait_leader("lde", 0, 0.1)
    with pytest.raises(ClusterError, match=r"There is no partition lde-0\. Did you mean led-0\?"):
        shared.pause("lde-0")
    with pytest.raises(ClusterError, match=r"There is no partition agent-2\. Did you mean 2\?"):
        shared.pause("agent-2")
    shared.wait_healthy()


def test_killed_controller_is_replaced_and_its_agent_lives_on(shared: Cluster) -> None:
    epoch = shared.controller_epoch()
    pids = [shared.pid(broker) for broker in shared.broker_ids]
    shared.kill_controller()
    shared.wait_healthy(TIMEOUT_S)
    assert shared.controller_epoch() > epoch, "what the dead one left in ZooKeeper is no controller"
    assert [shared.pid(broker) for broker in shared.broker_ids] == pids


def test_broker_paused_past_its_session_is_gone_and_comes_back(shared: Cluster, eventually: Eventually) -> None:
    shared.pause(2)
    eventually(lambda: 2 not in shared.snapshot().brokers, within=TIMEOUT_S, what="its session expires")
    assert shared.broker_state(2) is ProcessState.PAUSED
    shared.resume(2)
    shared.wait_healthy(TIMEOUT_S)


def test_cluster_outlives_a_restart_and_a_pause_of_zookeeper(shared: Cluster) -> None:
    shared.restart_zookeeper()
    shared.wait_healthy(TIMEOUT_S)
    shared.pause_zookeeper()
    with pytest.raises(ClusterTimeout, match="ZooKeeper does not answer"):
        shared.wait_healthy(0.2)
    shared.resume_zookeeper()
    shared.wait_healthy(TIMEOUT_S)


def test_restarted_broker_keeps_its_address(shared: Cluster) -> None:
    before = shared.snapshot().brokers
    servers = shared.bootstrap_servers
    shared.restart(1)
    shared.wait_healthy(TIMEOUT_S)
    assert shared.snapshot().brokers[1] > before[1]
    assert shared.bootstrap_servers == servers
