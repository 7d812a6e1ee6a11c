"""Real agents that forget what they host are found and repaired; the doctor sees what was damaged by hand.

An agent is made to forget by a module that Python imports into it at its start (`sitecustomize`): at SIGUSR2 it drops
the role, or the fetcher, or all it knows of the replicas that a file names.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete, SetData

pytestmark = pytest.mark.integration

SETTINGS = {
    "replica.lag.time.max.ms": "2000",
    "regency.reconcile.interval.ms": "1000",
    "regency.report.interval.ms": "200",
    "auto.leader.rebalance.enable": "false",
}

FORGETFUL = """
    import asyncio, gc, os, signal

    def forget(*_):
        from regency.broker_agent.replication.replica_manager import ReplicaManager
        from regency.model.ids import TopicPartition

        what, topic, number = open(os.environ["TEST_FORGET"]).read().split()
        name = TopicPartition(topic, int(number))
        for manager in [each for each in gc.get_objects() if type(each) is ReplicaManager]:
            with manager._hosting.completions:
                manager.fetchers.remove([name])
                if what == "role":
                    manager.partitions[name].stop()
                    manager._hosting.changed(name)
                elif what == "replica":
                    manager._control.forget([name])

    if "TEST_FORGET" in os.environ:
        signal.signal(signal.SIGUSR2, forget)
"""


def ask(cluster: Cluster, *words: str) -> tuple[int, Any]:
    """A command's status and the JSON it prints."""
    done = CliRunner().invoke(cli, [*words, "-o", "json", "--bootstrap-server", cluster.bootstrap_servers])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, json.loads(done.stdout) if done.stdout else done.stderr


def doctor(cluster: Cluster) -> tuple[int, dict[tuple[str, str], str], dict[str, Any]]:
    """Its status, what it found by subject and kind, and all of it."""
    status, told = ask(cluster, "doctor", "--confirm", "1.5")
    assert isinstance(told, dict), told
    return status, {(each["subject"], each["kind"]): each["where"] for each in told["problems"]}, told


def test_a_replica_a_role_and_a_fetcher_that_agents_forget_come_back(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(textwrap.dedent(FORGETFUL))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("TEST_FORGET", str(tmp_path / "forget"))
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=1)
    kept = books(cluster, "t")
    kept.write(500)
    leader = look(cluster).leaders()[0]
    follower = next(each for each in cluster.broker_ids if each != leader)

    def forget(broker: int, what: str) -> None:
        before = sum(doctor(cluster)[2]["repairs"].values())
        (tmp_path / "forget").write_text(f"{what} t 0")
        os.kill(cluster.pid(broker), signal.SIGUSR2)
        eventually(lambda: sum(doctor(cluster)[2]["repairs"].values()) > before, what=f"{what} of {broker} is repaired")

    for what in ("fetcher", "role", "replica"):
        forget(follower, what)
        kept.write(200)
        eventually(lambda: len(look(cluster).isrs()[0]) == 3, what=f"in sync again after the loss of its {what}")
    forget(leader, "role")
    kept.write(200)
    kept.assert_nothing_lost()
    assert look(cluster).leaders() == {0: leader}
    status, found, _ = doctor(cluster)
    assert (status, found) == (0, {})
    _, told = ask(cluster, "explain", "t", "0")
    events = [(each["event"], each["to"]) for each in told["decisions"]]
    assert events[0][0] == "create_topics"
    assert events.count(("reconcile", "told again")) >= 4
    versions = [each["version"] for each in told["decisions"] if "version" in each]
    assert versions == list(range(len(versions)))


def test_a_reassignment_ends_although_the_notification_of_its_last_isr_is_removed_unread(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], look: Callable[..., Any], eventually: Any
) -> None:
    late = dict.fromkeys(("regency.isr.notification.quiet.ms", "regency.isr.notification.max.delay.ms"), "5000")
    traced = {"regency.state.change.log": "true"}
    cluster = new_cluster(settings={**SETTINGS, **late, **traced}, session_timeout_ms=60_000)
    create_topic(cluster, partitions=1, replication=2)
    first, second = look(cluster).isrs()[0]
    third = next(each for each in cluster.broker_ids if each not in (first, second))
    session = cluster.session()
    asked = znodes.encode_asked_moves([(TopicPartition("t", 0), (second, third))])
    session.multi([Create(paths.REASSIGN_PARTITIONS, asked)])
    eventually(lambda: third in look(cluster).isrs()[0], what="the new replica is in sync")
    controller = cluster.controller_process(cluster.controller_id()).pid
    os.kill(controller, signal.SIGSTOP)
    try:
        eventually(lambda: session.children(paths.ISR_CHANGE_NOTIFICATION).names, what="the leader has notified")
        for name in session.children(paths.ISR_CHANGE_NOTIFICATION).names:
            session.multi([Delete(f"{paths.ISR_CHANGE_NOTIFICATION}/{name}", None)])
        assert set(look(cluster).isrs()[0]) == {first, second, third}
    finally:
        os.kill(controller, signal.SIGCONT)
    eventually(lambda: set(look(cluster).isrs()[0]) == {second, third}, what="it has ended")
    eventually(lambda: session.read(paths.REASSIGN_PARTITIONS) is None, what="nothing is asked for any more")
    _, told = ask(cluster, "explain", "t", "0")
    # by a report that is newer than what the controller knows, or, where it was stopped at once, by one that is older
    assert any(each["event"] == "reconcile" for each in told["decisions"])
    assert any(each["event"] == "isr_change" and "instead of" in each["why"] for each in told["decisions"])
    log = "".join(cluster.log(broker).read_text() for broker in cluster.broker_ids)
    assert f"Changed state of replica {third} for partition t-0 from NewReplica to OnlineReplica" in log
    assert f"[Broker id={third} controller epoch=1] Changed t-0 from none in leader epoch -1 to follower of" in log


def test_the_doctor_sees_what_was_damaged_by_hand(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], look: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster)
    eventually(lambda: doctor(cluster)[0] == 0, what="all is well")

    partition = TopicPartition("t", 0)
    view = look(cluster).views()[partition]
    leader = view.leadership.leader
    path = paths.partition_state(partition)
    session = cluster.session()
    znode = session.read(path)
    assert znode is not None
    content = json.loads(znode.data)
    session.multi([SetData(path, json.dumps({**content, "isr": [leader]}).encode(), znode.stat.version)])
    status, found, _ = doctor(cluster)
    assert (status, found) == (1, {("t-0", "state_differs"): "zookeeper and the controller"})
    session.multi([SetData(path, znode.data, znode.stat.version + 1)])
    assert (
        CliRunner().invoke(cli, ["controller", "resign", "--bootstrap-server", cluster.bootstrap_servers]).exit_code
        == 0
    )
    eventually(lambda: doctor(cluster)[:2] == (0, {}), what="all is well after another controller has read everything")

    victim = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    assert cluster.stop(victim)
    (data,) = cluster.log_dirs(victim)
    shutil.rmtree(data)
    status, found, _ = doctor(cluster)
    assert (status, found) == (1, {(f"broker {victim}", "broker_dead"): "the cluster"})
    cluster.start(victim)
    cluster.wait_healthy(30)
    eventually(lambda: doctor(cluster)[:2] == (0, {}), what="what was lost is copied again")

    paused = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    others = ",".join(each for each in cluster.bootstrap_servers.split(",") if f":{_port(cluster, paused)}" not in each)
    cluster.pause(paused)
    eventually(lambda: _dead(others, paused), what="the doctor names the paused one")
    cluster.resume(paused)
    eventually(lambda: doctor(cluster)[:2] == (0, {}), what="all is well again", within=40)
    status, told = ask(cluster, "history", "--since", "10m", "--subject", f"broker {paused}")
    assert status == 0
    assert {"dead", "live"} <= {each["to"].split(",")[0] for each in told["decisions"]}


def _port(cluster: Cluster, broker: int) -> int:
    znode = cluster.session().read(paths.broker(broker))
    assert znode is not None
    return znodes.decode_broker(znode.path, znode.data, id=broker, epoch=0).endpoints[0].port


def _dead(servers: str, broker: int) -> bool:
    done = CliRunner().invoke(cli, ["doctor", "--confirm", "0.5", "-o", "json", "--bootstrap-server", servers])
    told = json.loads(done.stdout) if done.stdout else {"problems": []}
    return (f"broker {broker}", "broker_dead") in {(each["subject"], each["kind"]) for each in told["problems"]}
