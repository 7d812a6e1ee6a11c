"""What nobody should have written into ZooKeeper: before a cluster starts, and under its feet.

Nothing crashes or spins, each znode is named in the log once, and every other topic works.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from regency.cli.exits import Exit
from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.cluster.zookeeper import EmbeddedZooKeeper
from regency.model.facts import LeaderAndIsr
from regency.model.ids import TopicPartition
from regency.model.znodes import decode_state, paths
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.session import Create, Delete, SetData, ZkCode, ZkSession

pytestmark = pytest.mark.integration

WHOLE = b'{"version":1,"partitions":{"0":[1,2,3]}}'
STATE = b'{"controller_epoch":%d,"leader":1,"version":1,"leader_epoch":0,"isr":[1,2,3]}'
ODD: Mapping[str, bytes] = {
    f"{paths.BROKER_IDS}/seven": b"{}",
    f"{paths.BROKER_IDS}/97": b"{",
    f"{paths.BROKER_IDS}/98": b'{"version":99,"endpoints":["PLAINTEXT://nowhere:1"],"news":[]}',
    f"{paths.TOPICS}/broken": b"{",
    f"{paths.TOPICS}/no topic name": WHOLE,
    f"{paths.TOPICS}/{'x' * 250}": WHOLE,
    f"{paths.TOPICS}/torn/partitions/0/state": b'{"leader":1,',
    f"{paths.TOPICS}/torn": WHOLE,
    f"{paths.TOPICS}/ahead/partitions/0/state": STATE % 2_000_000_000,
    f"{paths.TOPICS}/ahead": WHOLE,
    f"{paths.ISR_CHANGE_NOTIFICATION}/isr_change_nonsense": b"{",
    f"{paths.CONFIG_CHANGES}/zebra": b"\xff",
    paths.topic_config("torn"): b"[]",
    f"{paths.TOPICS}/empty": b'{"version":1,"partitions":{}}',
    f"{paths.TOPICS}/gaps": b'{"version":2,"partitions":{"0":[1,2,3],"7":[2,3,1]}}',
}
NAMED_ONCE = (
    f"{paths.BROKER_IDS}/seven:",
    f"{paths.BROKER_IDS}/97:",
    "broker 98 has no listener",
    f"{paths.TOPICS}/broken:",
    f"{paths.TOPICS}/no topic name:",
    f"{paths.TOPICS}/{'x' * 250}:",
    f"{paths.TOPICS}/torn/partitions/0/state:",
    f"{paths.TOPICS}/ahead/partitions/0/state:",
)


def put(session: ZkSession, path: str, data: bytes) -> None:
    """Write as an administrator does, with the parents."""
    for depth in range(2, path.count("/") + 1):
        session.multi([Create("/".join(path.split("/")[:depth]))])
    code = ZkCode.BAD_VERSION
    while code is ZkCode.BAD_VERSION:  # the controller may give it an id at that moment
        held = session.read(path)
        outcome = session.multi([Create(path, data) if held is None else SetData(path, data, held.stat.version)])
        code = outcome.results[0].code
    assert code is ZkCode.OK, (path, code)


def state_of(session: ZkSession, topic: str, partition: int) -> LeaderAndIsr | None:
    path = paths.partition_state(TopicPartition(topic, partition))
    znode = session.read(path)
    return None if znode is None else decode_state(path, znode.data, zk_version=0).leader_and_isr


def create(cluster: Cluster, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    topic = NewTopic(name, num_partitions=3, replication_factor=3)
    admin.create_topics([topic], operation_timeout=20, request_timeout=25)[name].result(timeout=30)


def whole(session: ZkSession, topic: str, partitions: tuple[int, ...]) -> bool:
    states = [state_of(session, topic, each) for each in partitions]
    return all(state is not None and state.has_leader and set(state.isr) == {1, 2, 3} for state in states)


def mentions(cluster: Cluster, text: str) -> int:
    return sum(cluster.log(broker).read_text(errors="replace").count(text) for broker in cluster.broker_ids)


def test_a_cluster_starts_over_znodes_nobody_should_have_written(
    zookeeper: EmbeddedZooKeeper, new_cluster: Callable[..., Cluster], books: Any, eventually: Any, tmp_path: Path
) -> None:
    where = f"{zookeeper.connect_string}/odd-{tmp_path.name}"
    writer = connect(where, session_timeout_ms=6000)
    for path, data in ODD.items():
        put(writer, path, data)
    writer.close()

    cluster = new_cluster(zookeeper_connect=where)
    create(cluster, "t")
    session = connect(where, session_timeout_ms=30_000)  # its own: this process is what is slow on a busy machine
    eventually(lambda: whole(session, "t", (0, 1, 2)) and whole(session, "gaps", (0, 7)), what="the others are whole")
    kept = books(cluster, "t")
    kept.write(2_000)
    epoch = cluster.controller_epoch()
    cluster.kill_controller()
    # A request that was under way to the one that died may have been done or not: its client is told so, and no more.
    eventually(lambda: cluster.controller_epoch() > epoch, what="a successor rules")
    create(cluster, "after")
    kept.write(1_000)
    kept.assert_nothing_lost()

    assert session.read(f"{paths.TOPICS}/broken").data == b"{"
    assert session.children(paths.ISR_CHANGE_NOTIFICATION).names == ()
    for text in NAMED_ONCE:
        assert 1 <= mentions(cluster, text) <= 2, (text, mentions(cluster, text))  # once in each of two terms
    assert mentions(cluster, "Traceback") == 0
    session.close()


def test_znodes_nobody_should_have_written_harm_nothing_under_a_running_cluster(
    cluster: Cluster, books: Any, eventually: Any
) -> None:
    create(cluster, "t")
    session, epoch = cluster.session(), cluster.controller_epoch()
    kept = books(cluster, "t")

    def write_all() -> None:
        for path, data in ODD.items():
            put(session, path, data)

    kept.write(2_000, midway=write_all)
    create(cluster, "during")
    eventually(lambda: whole(session, "gaps", (0, 7)), what="the topic with gaps is whole")
    kept.write(1_000)
    eventually(lambda: session.children(paths.ISR_CHANGE_NOTIFICATION).names == (), what="notifications are deleted")

    assert cluster.controller_epoch() == epoch
    for text in NAMED_ONCE:
        assert mentions(cluster, text) == 1, (text, mentions(cluster, text))

    put(session, f"{paths.TOPICS}/broken", WHOLE)
    eventually(lambda: whole(session, "broken", (0,)), what="the corrected topic is whole")
    kept.assert_nothing_lost()
    assert mentions(cluster, "Traceback") == 0


def test_a_controller_epoch_that_is_garbage_or_gone_stops_elections_only(
    cluster: Cluster, books: Any, eventually: Any
) -> None:
    create(cluster, "t")
    session, epoch = cluster.session(), cluster.controller_epoch()
    kept = books(cluster, "t")
    kept.write(1_000)

    put(session, paths.CONTROLLER_EPOCH, b"seven")
    eventually(lambda: session.read(paths.CONTROLLER) is None, what="nobody rules")
    kept.write(1_000)
    put(session, paths.CONTROLLER_EPOCH, b"%d" % epoch)
    eventually(lambda: cluster.snapshot().controller is not None, what="somebody rules again")
    create(cluster, "corrected")

    epoch = cluster.controller_epoch()
    assert session.multi([Delete(paths.CONTROLLER_EPOCH, None)]).ok
    eventually(lambda: cluster.controller_epoch() > epoch, what="an epoch that nobody has seen")
    create(cluster, "found")
    kept.write(1_000)
    kept.assert_nothing_lost()
    assert mentions(cluster, "Traceback") == 0


def test_a_command_is_told_at_once_of_the_znode_that_keeps_everybody_from_ruling(
    cluster: Cluster, eventually: Any
) -> None:
    create(cluster, "t")
    session = cluster.session()
    ruling = cluster.controller_id()
    held = session.read(paths.CONTROLLER)
    garbage = [Delete(paths.CONTROLLER, held.stat.version), Create(paths.CONTROLLER, b'{"host":"of somebody"}')]
    assert session.multi(garbage).ok
    agent = cluster.log(ruling)
    told = "rules until it is deleted"
    eventually(lambda: told in agent.read_text(errors="replace"), what="who ruled has seen it")

    began = time.monotonic()
    words = ["topics", "create", "u", "--bootstrap-server", cluster.bootstrap_servers]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert time.monotonic() - began < 15
    assert (done.exit_code, done.stdout) == (Exit.TIMED_OUT, "")
    assert f"Error: {paths.CONTROLLER}: " in done.stderr
    assert "No controller rules until that znode is deleted." in done.stderr

    assert session.multi([Delete(paths.CONTROLLER, None)]).ok
    eventually(lambda: cluster.snapshot().controller is not None, what="somebody rules again")
    create(cluster, "u")
    assert mentions(cluster, "Traceback") == 0


def test_a_state_that_is_lost_is_written_anew_beyond_what_its_replicas_remember(
    cluster: Cluster, books: Any, eventually: Any
) -> None:
    create(cluster, "t")
    kept = books(cluster, "t")
    kept.write(1_000)
    for broker in cluster.broker_ids:
        cluster.restart(broker)
        cluster.wait_healthy(30)
    session = cluster.session()
    before = state_of(session, "t", 0)
    assert before is not None and before.leader_epoch > 1

    assert session.multi([Delete(paths.partition_state(TopicPartition("t", 0)), None)]).ok
    cluster.kill_controller()

    eventually(lambda: whole(session, "t", (0,)), what="the partition is led by somebody")
    eventually(lambda: state_of(session, "t", 0).leader_epoch > before.leader_epoch, what="a higher leader epoch")
    kept.write(1_000)
    kept.assert_nothing_lost()


def test_a_state_that_is_lost_while_all_are_down_goes_to_the_longest_log_whoever_starts_first(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], books: Any, look: Any, eventually: Any
) -> None:
    cluster = new_cluster()
    create_topic(cluster, partitions=1, min_insync_replicas="1")
    kept = books(cluster, "t")
    kept.write(100)
    first = look(cluster).leaders()[0]
    assert cluster.stop(first)
    eventually(lambda: look(cluster).in_no_isr(first), what="the others go on without the first replica")
    kept.write(400)
    others = [each for each in cluster.broker_ids if each != first]
    for broker in others:
        cluster.kill(broker)
    session = cluster.session()
    assert session.multi([Delete(paths.partition_state(TopicPartition("t", 0)), None)]).ok
    cluster.start(first)
    waits = "of which nothing is heard, may have the longest log"
    eventually(lambda: waits in cluster.log(first).read_text(), what="the first replica leads nothing alone", within=40)
    for broker in others:
        cluster.start(broker)
    cluster.wait_healthy(40)
    assert look(cluster).leaders()[0] in others
    kept.write(100)
    kept.assert_nothing_lost()
