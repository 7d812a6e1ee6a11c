"""Connections of the control plane that the network has forgotten, as firewalls and NAT do: new ones work."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from breaking.tcp_proxy import TcpProxy
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cluster.agent import AGENT_COMMAND, HOST
from regency.cluster.cluster import Cluster
from regency.cluster.plan import plan_cluster, with_ports
from regency.cluster.state import CONTROL_LISTENER, CONTROLLER_LISTENER, BrokerPorts, write_state
from regency.cluster.zookeeper import EmbeddedZooKeeper

pytestmark = pytest.mark.integration

HEARD_WITHIN_S = 15


@pytest.fixture
def wires(
    request: pytest.FixtureRequest,
    zookeeper: EmbeddedZooKeeper,
    tmp_path: Path,
    leave_evidence: Callable[[pytest.Item, Cluster], None],
) -> Iterator[tuple[Cluster, list[TcpProxy]]]:
    """A cluster whose agents and controllers reach each other through proxies only."""
    script = tmp_path / "agent.sh"
    with ExitStack() as stack:
        directory, chroot = tmp_path / "cluster", f"{zookeeper.connect_string}/{tmp_path.name}"
        directory.mkdir()
        write_state(directory, with_ports(directory, plan_cluster(directory, brokers=3, zookeeper_connect=chroot)))
        cluster = Cluster(directory=directory, agent_command=["/bin/sh", str(script)])
        proxies, cases = [], []
        for broker in cluster.state.brokers:
            ways = {
                name: stack.enter_context(TcpProxy((HOST, broker.ports[name])))
                for name in (CONTROL_LISTENER, CONTROLLER_LISTENER)
            }
            proxies += ways.values()
            advertised = ",".join(f"{name}://{proxy.address}" for name, proxy in ways.items())
            cases.append(f"{broker.id}) reached={advertised};;")
        script.write_text(
            "#!/bin/sh\n"
            f'directory=$(dirname "$2"); case "${{directory##*-}}" in {" ".join(cases)} esac\n'
            f'exec {shlex.join(AGENT_COMMAND)} "$@" --override "advertised.listeners=$reached"\n'
        )
        yield stack.enter_context(cluster), proxies
        leave_evidence(request.node, cluster)


def is_created(broker: BrokerPorts) -> bool:
    """Whether the broker had topic u created; not where its connection with the controller is found forgotten by it."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_server, "log_level": 0})
    topic = NewTopic("u", num_partitions=1, replication_factor=2)
    try:
        admin.create_topics([topic], operation_timeout=20, request_timeout=25)["u"].result(timeout=30)
    except KafkaException as error:
        assert error.args[0].code() == KafkaError.REQUEST_TIMED_OUT, error
        assert "No answer from the controller" in error.args[0].str(), error
        return False
    return True


@pytest.mark.timeout(120)
def test_leaders_are_elected_and_topics_created_although_every_connection_is_forgotten(
    wires: tuple[Cluster, list[TcpProxy]],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    cluster, proxies = wires
    create_topic(cluster, partitions=6)
    kept = books(cluster, "t")
    kept.write(500)
    assert sum(proxy.connections > 0 for proxy in proxies) == 4, "three agents and the ruling controller are spoken to"
    victim = next(broker for broker in cluster.broker_ids if broker != cluster.controller_id())
    for proxy in proxies:
        proxy.black_hole_established()
    cluster.kill(victim)
    others = [broker for broker in cluster.state.brokers if broker.id != victim]

    def has_heard(broker: BrokerPorts) -> bool:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_server, "log_level": 0})
        partitions = admin.list_topics("t", timeout=5).topics["t"].partitions.values()
        return all(partition.leader not in (-1, victim) for partition in partitions)

    eventually(
        lambda: all(has_heard(each) for each in others), within=HEARD_WITHIN_S, what="all have heard of new leaders"
    )
    kept.write(500)
    assert is_created(others[0]) or is_created(others[0]), "the second attempt takes a new channel"
    kept.assert_nothing_lost()
