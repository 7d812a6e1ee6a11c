"""Who leads, asked for by ordinary clients, by Kafka's znode and from the command line, on real processes."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import ElectionType
from confluent_kafka import TopicPartition as Named
from confluent_kafka.admin import AdminClient
from kafka.admin import KafkaAdminClient
from kafka.errors import ElectionNotNeededError, UnknownTopicOrPartitionError

from regency.cli.main import cli
from regency.cluster.cluster import Cluster
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create

pytestmark = pytest.mark.integration

STILL = {"replica.lag.time.max.ms": "2000", "auto.leader.rebalance.enable": "false"}
CHECKPOINTS = (
    "replica.high.watermark.checkpoint.interval.ms",
    "log.flush.offset.checkpoint.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms",
)
PREFERRED_NOT_AVAILABLE, NOT_NEEDED, UNKNOWN = 80, 84, 3


def elect(cluster: Cluster, kind: ElectionType, *partitions: int, topic: str = "t") -> dict[int, int]:
    """Elect by librdkafka; the error code of each partition, 0 for none. No partitions: all that need it.

    Its binding (2.16) takes no timeouts here: any raises SystemError.
    """
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    named = [Named(topic, number) for number in partitions] or None
    result = admin.elect_leaders(kind, named).result(30)
    return {each.partition: 0 if error is None else error.code() for each, error in result.items()}


def run(cluster: Cluster, *words: str) -> tuple[int, Any]:
    """A command's status and the JSON it prints."""
    result = CliRunner().invoke(
        cli, ["leaders", "elect", *words, "-o", "json", "--bootstrap-server", cluster.bootstrap_servers]
    )
    return result.exit_code, json.loads(result.stdout) if result.stdout else result.stderr


def move_away(cluster: Cluster, look: Any, eventually: Any) -> int:
    """A broker restarts: it is in sync everywhere, and leads nothing. Returns its id."""
    broker = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    assert cluster.stop(broker)
    cluster.start(broker)
    cluster.wait_healthy(30)
    eventually(lambda: all(broker in isr for isr in look(cluster).isrs().values()), what="in sync everywhere")
    assert broker not in look(cluster).leaders().values()
    return broker


def preferred_by(cluster: Cluster, look: Any, broker: int) -> list[int]:
    views = look(cluster).views().items()
    return sorted(each.partition for each, view in views if view.assignment.replicas[0] == broker)


def test_preferred_leaders_by_both_clients_by_znode_and_from_the_command_line(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    look: Callable[..., Any],
    eventually: Any,
    tmp_path: Path,
) -> None:
    """PlaintextAdminIntegrationTest.testElectPreferredLeaders, and the same by every other way."""
    cluster = new_cluster(settings=STILL)
    create_topic(cluster, partitions=12)
    broker = move_away(cluster, look, eventually)
    first, second, third, *rest = preferred_by(cluster, look, broker)
    (other,) = [each for each in range(12) if each not in (first, second, third, *rest)][:1]

    def leads(*numbers: int) -> bool:
        return all(look(cluster).leaders()[each] == broker for each in numbers)

    assert elect(cluster, ElectionType.PREFERRED, first, other) == {first: 0, other: NOT_NEEDED}
    assert leads(first) and not leads(second)
    assert elect(cluster, ElectionType.PREFERRED, 77) == {77: UNKNOWN}

    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    admin.elect_leaders(0, {"t": [second]})
    assert leads(second)
    admin.elect_leaders(0, {"t": [second]})
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.elect_leaders(0, {"t": [77]})
    again = admin.elect_leaders(0, {"t": [second]}, raise_errors=False)
    admin.close()
    assert ElectionNotNeededError.errno == NOT_NEEDED
    assert str(NOT_NEEDED) in str(again)

    session = cluster.session()
    session.multi([Create(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([TopicPartition("t", third)]))])
    eventually(lambda: leads(third) and session.read(paths.PREFERRED_ELECTION) is None, what="elected by znode")

    file = tmp_path / "election.json"
    file.write_bytes(znodes.encode_preferred_election([TopicPartition("t", rest[0])]))
    status, rows = run(cluster, "--path-to-json-file", str(file))
    assert (status, [(row["partition"], row["result"], row["leader"]) for row in rows]) == (
        0,
        [(rest[0], "elected", broker)],
    )
    assert elect(cluster, ElectionType.PREFERRED) == {}
    assert run(cluster, "--all") == (0, [])


def test_unavailable_leaders_and_the_longest_log(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
) -> None:
    """…testElectUncleanLeadersForOnePartition: of two that were not in sync, the one that has more leads."""
    cluster = new_cluster(settings=STILL)
    create_topic(cluster, partitions=1, min_insync_replicas="1")
    kept = books(cluster, "t")
    kept.write(50)
    last = look(cluster).leaders()[0]
    more, less = (each for each in cluster.broker_ids if each != last)
    for gone in (less, more):
        assert cluster.stop(gone)
        assert look(cluster).in_no_isr(gone)
        kept.write(50)
    assert cluster.stop(last)
    for back in (less, more):
        cluster.start(back)
    eventually(lambda: look(cluster).leaders()[0] == -1, what="nobody leads")
    eventually(lambda: len(cluster.snapshot().brokers) == 2, what="two are back")

    assert elect(cluster, ElectionType.PREFERRED, 0) == {0: PREFERRED_NOT_AVAILABLE}
    status, words = run(cluster, "t", "--type", "unclean")
    assert (status, "--yes" in words) == (6, True)
    assert elect(cluster, ElectionType.UNCLEAN, 0) == {0: 0}

    assert look(cluster).leaders()[0] == more
    assert elect(cluster, ElectionType.UNCLEAN, 0) == {0: NOT_NEEDED}
    status, rows = run(cluster, "t", "0", "--type", "unclean", "--yes")
    assert (status, rows[0]["result"], rows[0]["leader"]) == (0, "not needed", more)


def test_leaders_come_back_by_themselves(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], look: Callable[..., Any], eventually: Any
) -> None:
    cluster = new_cluster(settings={"leader.imbalance.check.interval.seconds": "1", "replica.lag.time.max.ms": "2000"})
    create_topic(cluster, partitions=6)
    broker = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    own = preferred_by(cluster, look, broker)
    assert cluster.stop(broker)
    assert broker not in look(cluster).leaders().values()

    cluster.start(broker)

    eventually(lambda: all(look(cluster).leaders()[each] == broker for each in own), what="it leads its own again")


def test_no_produce_fails_while_brokers_leave_one_after_another(
    cluster: Cluster, create_topic: Callable[..., None], books: Callable[..., Any]
) -> None:
    create_topic(cluster, partitions=6, min_insync_replicas="2")
    kept = books(cluster, "t")
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            kept.write(500)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for broker in cluster.broker_ids:
            assert cluster.stop(broker), f"broker {broker} did not leave in order"
            cluster.start(broker)
            cluster.wait_healthy(30)
    finally:
        done.set()
        writer.join(60)
    assert kept.ledger.sent_count > 500
    kept.assert_nothing_lost()


def write_little_by_little(kept: Any, count: int) -> None:
    """In batches that fit into the smallest segments."""
    for _ in range(count // 20):
        kept.write(20)


@pytest.mark.parametrize("at", ["checkpoint", "roll"])
def test_failed_log_directory_costs_its_replicas_alone_and_a_restart_heals(
    new_cluster: Callable[..., Cluster],
    create_topic: Callable[..., None],
    books: Callable[..., Any],
    look: Callable[..., Any],
    eventually: Any,
    at: str,
) -> None:
    """LogDirFailureTest.testIOExceptionDuringCheckpoint, …DuringLogRoll: others lead, no notification is left."""
    often, never = {"replica.high.watermark.checkpoint.interval.ms": "500"}, dict.fromkeys(CHECKPOINTS, "600000")
    settings = {**STILL, **(often if at == "checkpoint" else {**never, "log.segment.bytes": "4096"})}
    cluster = new_cluster(settings=settings, log_dirs=2)
    create_topic(cluster, partitions=6, min_insync_replicas="1")
    broker = next(each for each in cluster.broker_ids if each != cluster.controller_id())
    kept_dir, lost_dir = (cluster.log_dirs(broker)[0].parent / each for each in ("data", "data-2"))

    def partitions(directory: Path) -> set[int]:
        return {int(each.name.rpartition("-")[2]) for each in directory.iterdir() if each.name.startswith("t-")}

    eventually(lambda: len(partitions(kept_dir) | partitions(lost_dir)) == 6, what="the broker has made all its logs")
    lost = partitions(lost_dir)
    assert 0 < len(lost) < 6
    kept = books(cluster, "t")
    write_little_by_little(kept, 500)

    lost_dir.rename(lost_dir.with_name("away"))
    lost_dir.write_text("no directory any more")
    if at == "roll":
        write_little_by_little(kept, 1_000)

    def without(numbers: set[int]) -> bool:
        isrs = look(cluster).isrs()
        return {each for each, isr in isrs.items() if broker not in isr} == numbers

    eventually(lambda: without(lost), what="what was in the directory is out of the ISRs, nothing else")
    assert all(look(cluster).leaders()[each] not in (broker, -1) for each in lost)
    children = cluster.session().children(paths.LOG_DIR_EVENT_NOTIFICATION)
    assert children is not None and children.names == ()
    write_little_by_little(kept, 500)

    lost_dir.unlink()
    lost_dir.with_name("away").rename(lost_dir)
    cluster.restart(broker)
    eventually(lambda: without(set()), what="all are in sync again")
    kept.assert_nothing_lost()
