"""Topics that are deleted, by clients and by markers of other tools, while all is well and while brokers are down."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka.admin import KafkaAdminClient

from regency.cli.exits import Exit
from regency.cluster.cluster import Cluster
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete, ZkSession

pytestmark = pytest.mark.integration


def delete_by_confluent(cluster: Cluster, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic], operation_timeout=20, request_timeout=25)[topic].result(timeout=30)


def delete_by_kafka_python(cluster: Cluster, topic: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers)
    try:
        admin.delete_topics([topic], timeout_ms=20_000)
    finally:
        admin.close()


def by_command(cluster: Cluster, topic: str) -> subprocess.CompletedProcess[str]:
    return regency(cluster, "topics", "delete", topic, "--yes", "-o", "json")


def regency(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "regency", *words, "--bootstrap-server", cluster.bootstrap_servers]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def known_topics(cluster: Cluster) -> set[str]:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    return set(admin.list_topics(timeout=10).topics)


def logs_of(cluster: Cluster, broker: int, topic: str) -> list[str]:
    """Directories of the topic's logs in use on a broker."""
    found: list[Path] = [path for data in cluster.log_dirs(broker) for path in data.glob(f"{topic}-*")]
    return sorted(path.name for path in found if path.name.rpartition("-")[2].isdigit())


def is_gone(cluster: Cluster, session: ZkSession, topic: str) -> bool:
    wanted = [paths.topic(topic), paths.topic_config(topic), paths.delete_topic(topic)]
    if any(znode is not None for znode in session.read_many(wanted)):
        return False
    return not any(logs_of(cluster, broker, topic) for broker in cluster.broker_ids)


def remove_znodes(session: ZkSession, path: str) -> None:
    children = session.children(path)
    for name in children.names if children else ():
        remove_znodes(session, f"{path}/{name}")
    session.multi([Delete(path, None)])


def test_topics_deleted_by_clients_and_made_anew_have_no_old_data(
    cluster: Cluster, create_topic: Any, books: Any, eventually: Any
) -> None:
    create_topic(cluster, retention_ms="86400000")
    create_topic(cluster, "kept")
    kept = books(cluster, "kept")
    kept.write(500)
    session = cluster.session()
    for delete in (delete_by_confluent, delete_by_kafka_python):
        books(cluster, "t").write(1_000)

        delete(cluster, "t")

        # who has answered knows it; another broker, which may be asked here, is told at the same time
        eventually(lambda: "t" not in known_topics(cluster), what="every broker has heard of it")
        eventually(lambda: is_gone(cluster, session, "t"), what="nothing of t is left")
        create_topic(cluster)
        anew = books(cluster, "t")
        anew.write(300)
        anew.assert_nothing_lost()
    kept.write(500)
    kept.assert_nothing_lost()


def test_a_deletion_waits_for_a_dead_broker_over_a_change_of_controllers(
    cluster: Cluster, create_topic: Any, books: Any, eventually: Any
) -> None:
    # DeleteTopicTest.testResumeDeleteTopicOnControllerFailover
    create_topic(cluster)
    create_topic(cluster, "kept")
    books(cluster, "t").write(1_000)
    dead = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    alive = [each for each in cluster.broker_ids if each != dead]
    session = cluster.session()
    cluster.kill(dead)
    eventually(lambda: session.read(paths.broker(dead)) is None, what="the broker's registration is gone")

    session.multi([Create(paths.delete_topic("t")), Create(paths.delete_topic("nobody"))])

    eventually(lambda: not any(logs_of(cluster, each, "t") for each in alive), what="the others delete their logs")
    eventually(lambda: session.children(paths.DELETE_TOPICS).names == ("t",), what="only what waits is still marked")
    cluster.kill_controller()
    cluster.controller_id()
    told = by_command(cluster, "t")
    assert told.returncode == Exit.IN_PROGRESS, told.stderr
    assert f"broker {dead} holds replicas and is not live" in told.stderr
    assert [row["offline_replicas"] for row in json.loads(told.stdout)] == [[dead]]
    assert session.read(paths.topic("t")) is not None
    assert logs_of(cluster, dead, "t") == ["t-0", "t-1", "t-2"]
    cluster.start(dead)
    eventually(lambda: is_gone(cluster, session, "t"), what="nothing of t is left")
    assert not any(logs_of(cluster, each, "t") for each in alive)
    kept = books(cluster, "kept")
    kept.write(500)
    kept.assert_nothing_lost()
    assert by_command(cluster, "kept").returncode == Exit.DONE
    assert is_gone(cluster, session, "kept")


def test_a_broker_with_data_of_a_topic_that_was_made_anew_serves_none_of_it(
    cluster: Cluster, create_topic: Any, books: Any, eventually: Any
) -> None:
    create_topic(cluster)
    books(cluster, "t").write(2_000)
    dead = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    session = cluster.session()
    cluster.kill(dead)
    eventually(lambda: session.read(paths.broker(dead)) is None, what="the broker's registration is gone")
    session.multi([Create(paths.delete_topic("t"))])
    alive = [each for each in cluster.broker_ids if each != dead]
    eventually(lambda: not any(logs_of(cluster, each, "t") for each in alive), what="the others delete their logs")

    remove_znodes(session, paths.topic("t"))  # somebody does not want to wait
    eventually(lambda: session.read(paths.delete_topic("t")) is None, what="the request for it is gone")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    assignment = [[alive[0], alive[1]], [alive[1], alive[0]], [alive[0], alive[1]]]
    admin.create_topics([NewTopic("t", num_partitions=3, replica_assignment=assignment)])["t"].result(timeout=30)
    anew = books(cluster, "t")
    anew.write(200)
    cluster.start(dead)
    cluster.wait_healthy(30)
    eventually(lambda: not logs_of(cluster, dead, "t"), what="the old logs are out of the way")
    anew.assert_nothing_lost()


def test_nothing_waits_for_a_forgotten_broker_and_when_it_returns_it_serves_nothing_of_before(
    cluster: Cluster, books: Any, eventually: Any
) -> None:
    gone = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    first, second = (each for each in cluster.broker_ids if each != gone)
    assert regency(cluster, "topics", "create", "t", "--assignment", f"{gone}:{first}").returncode == Exit.DONE
    books(cluster, "t").write(1_000)
    session = cluster.session()
    cluster.kill(gone)
    eventually(lambda: session.read(paths.broker(gone)) is None, what="the broker's registration is gone")
    assert regency(cluster, "brokers", "forget", str(gone)).returncode == Exit.REFUSED

    assert regency(cluster, "brokers", "drain", str(gone)).returncode == Exit.DONE
    told = by_command(cluster, "t")
    assert told.returncode == Exit.IN_PROGRESS, told.stderr
    assert f"`regency brokers forget {gone}`" in told.stderr
    forgotten = regency(cluster, "brokers", "forget", str(gone), "-o", "json")
    assert json.loads(forgotten.stdout) == {"broker": gone, "replicas_given_up": 1}, forgotten.stderr
    assert regency(cluster, "topics", "create", "t", "--assignment", f"{first}:{second}").returncode == Exit.DONE
    anew = books(cluster, "t")
    anew.write(200)

    cluster.start(gone)
    cluster.wait_healthy(30)
    eventually(lambda: not logs_of(cluster, gone, "t"), what="the old log is out of the way")
    moved = regency(cluster, "topics", "set-rf", "t", "3")
    assert moved.returncode == Exit.DONE, moved.stderr
    cluster.stop(first)
    cluster.stop(second)
    anew.assert_nothing_lost()


def test_deletion_can_be_forbidden(new_cluster: Any, create_topic: Any, eventually: Any) -> None:
    # DeleteTopicTest.testDisableDeleteTopic
    cluster = new_cluster(brokers=1, settings={"delete.topic.enable": "false"})
    create_topic(cluster, partitions=1, replication=1)
    with pytest.raises(Exception, match="TOPIC_DELETION_DISABLED"):
        delete_by_confluent(cluster, "t")
    session = cluster.session()
    session.multi([Create(paths.delete_topic("t"))])
    eventually(lambda: session.read(paths.delete_topic("t")) is None, what="the marker is removed")
    assert session.read(paths.topic("t")) is not None
