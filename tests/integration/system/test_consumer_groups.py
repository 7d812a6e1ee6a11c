"""Consumer groups of the clients people have: members come and go, brokers die, and no committed offset is lost."""

from __future__ import annotations

import asyncio
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import aiokafka
import kafka
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from regency.cluster.cluster import Cluster
from regency.kafka.apis import ApiKey
from regency.kafka.codec import (
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    JoinGroupRequest,
    SyncGroupRequest,
    decode_response,
    encode_request,
)
from regency.kafka.groups.placement import OFFSETS_TOPIC, partition_of
from regency.model.ids import TopicPartition as Partition
from regency.model.kafka_errors import ErrorCode

pytestmark = pytest.mark.integration

PARTITIONS = 6
COUNT = 300
SETTINGS = {"replica.lag.time.max.ms": "2000", "group.initial.rebalance.delay.ms": "300"}
WITHIN_S = 60


def produce(servers: str, topic: str = "t", count: int = COUNT) -> None:
    producer = Producer({"bootstrap.servers": servers, "acks": "all"})
    for number in range(count):
        producer.produce(topic, f"{number}", partition=number % PARTITIONS)
    assert producer.flush(30) == 0


class Members:
    """What the members of a group have been assigned, and the values they have read; each in its own thread or loop."""

    def __init__(self) -> None:
        self.assigned: dict[str, set[int]] = {}
        self.values: list[str] = []
        self.failures: list[BaseException] = []
        self.lock = threading.Lock()

    def owns(self, name: str, partitions: Iterator[int] | set[int]) -> None:
        with self.lock:
            self.assigned[name] = set(partitions)

    def took(self, value: bytes) -> None:
        with self.lock:
            self.values.append(value.decode())

    @property
    def is_shared(self) -> bool:
        """Whether every partition has exactly one owner, and every member some."""
        with self.lock:
            owned = sorted(each for partitions in self.assigned.values() for each in partitions)
            return owned == list(range(PARTITIONS)) and all(self.assigned.values())

    def owners(self) -> list[str]:
        with self.lock:
            return sorted(name for name, partitions in self.assigned.items() if partitions)


def wait_for(condition: Callable[[], Any], what: str, members: Members | None = None) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        if members is not None and members.failures:
            raise members.failures[0]
        assert time.monotonic() < deadline, f"waited in vain until {what}: {members and members.assigned}"
        time.sleep(0.05)


Run = Callable[[str, str, Members, threading.Event], None]


def confluent_member(servers: str, name: str, members: Members, stop: threading.Event, **settings: Any) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "g",
            "client.id": name,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
            **settings,
        }
    )

    def tell(*_: Any) -> None:
        members.owns(name, {each.partition for each in consumer.assignment()})

    consumer.subscribe(["t"])
    while not stop.is_set():
        message = consumer.poll(0.1)
        tell()
        if message is not None and message.error() is None:
            members.took(message.value())
    consumer.close()


def kafka_python_member(servers: str, name: str, members: Members, stop: threading.Event) -> None:
    consumer = kafka.KafkaConsumer(
        "t",
        bootstrap_servers=servers,
        group_id="g",
        client_id=name,
        auto_offset_reset="earliest",
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )
    while not stop.is_set():
        for records in consumer.poll(timeout_ms=100).values():
            for record in records:
                members.took(record.value)
        members.owns(name, {each.partition for each in consumer.assignment()})
    consumer.close()


def aiokafka_member(servers: str, name: str, members: Members, stop: threading.Event) -> None:
    async def run() -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=servers,
            group_id="g",
            client_id=name,
            auto_offset_reset="earliest",
            session_timeout_ms=6_000,
            heartbeat_interval_ms=500,
        )
        await consumer.start()
        try:
            while not stop.is_set():
                for records in (await consumer.getmany(timeout_ms=100)).values():
                    for record in records:
                        members.took(record.value)
                members.owns(name, {each.partition for each in consumer.assignment()})
        finally:
            await consumer.stop()

    asyncio.run(run())


@contextmanager
def running(run: Run, servers: str, name: str, members: Members, **options: Any) -> Iterator[threading.Event]:
    """A member in a thread of its own, until the event is set or the block ends."""
    stop = threading.Event()

    def guarded() -> None:
        try:
            run(servers, name, members, stop, **options)
        except BaseException as error:  # noqa: BLE001
            members.failures.append(error)
        members.owns(name, set())

    thread = threading.Thread(target=guarded, name=name)
    thread.start()
    try:
        yield stop
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


@pytest.mark.parametrize("run", [confluent_member, kafka_python_member, aiokafka_member])
def test_members_share_a_topic_and_take_over_from_one_that_leaves(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None], run: Run
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS)
    servers = cluster.bootstrap_servers
    produce(servers)
    members = Members()
    with running(run, servers, "one", members):
        wait_for(lambda: len(members.values) == COUNT, "the first member has read everything", members)
        with running(run, servers, "two", members):
            wait_for(lambda: members.is_shared and len(members.owners()) == 2, "both share the partitions", members)
            produce(servers)
            wait_for(lambda: len(set(members.values)) == COUNT and len(members.values) >= 2 * COUNT, "read", members)
        wait_for(lambda: members.owners() == ["one"] and len(members.assigned["one"]) == PARTITIONS, "taken", members)
    assert members.failures == []


def committed(cluster: Cluster, group: str = "g") -> dict[int, int]:
    """What the group has committed of topic t, by partition."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    asked = [ConsumerGroupTopicPartitions(group)]
    found = admin.list_consumer_group_offsets(asked, request_timeout=20)[group].result(timeout=30)
    return {each.partition: each.offset for each in found.topic_partitions or ()}


def coordinator_of(cluster: Cluster, group: str = "g") -> int:
    home = Partition(OFFSETS_TOPIC, partition_of(group, 50))
    leadership = cluster.snapshot().partitions[home].leadership
    assert leadership is not None
    return leadership.leader


def test_commits_survive_the_death_of_the_coordinator_and_of_the_controller(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0})
    offsets = dict.fromkeys(range(PARTITIONS), 0)

    def commit() -> None:
        for number in offsets:
            offsets[number] += 7
        wanted = [TopicPartition("t", number, offset) for number, offset in offsets.items()]
        for each in consumer.commit(offsets=wanted, asynchronous=False):
            assert each.error is None, each

    commit()
    for target in ("coordinator", "controller"):
        victim = coordinator_of(cluster) if target == "coordinator" else cluster.controller_id()
        cluster.kill(victim)
        commit()
        assert committed(cluster) == offsets
        cluster.start(victim)
        cluster.wait_healthy(30)
        assert committed(cluster) == offsets
    consumer.close()


def test_a_group_reads_on_when_its_coordinator_dies(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS)
    servers = cluster.bootstrap_servers
    members = Members()
    with running(confluent_member, servers, "one", members), running(confluent_member, servers, "two", members):
        wait_for(lambda: members.is_shared, "both share the partitions", members)
        cluster.kill(coordinator_of(cluster))
        produce(servers)
        wait_for(lambda: len(set(members.values)) == COUNT, "everything is read", members)
        wait_for(lambda: members.is_shared, "both share the partitions again", members)


@pytest.mark.long
def test_members_share_all_after_coordinators_died_while_they_joined_and_while_groups_were_loaded(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS)
    servers = cluster.bootstrap_servers
    tool = Consumer({"bootstrap.servers": servers, "group.id": "g", "log_level": 0})
    tool.commit(offsets=[TopicPartition("t", number, 0) for number in range(PARTITIONS)], asynchronous=False)
    members = Members()
    names = ("one", "two", "three")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(running(confluent_member, servers, name, members))
        first = coordinator_of(cluster)
        cluster.kill(first)  # they join
        wait_for(lambda: coordinator_of(cluster) not in (first, -1), "another one coordinates", members)
        second = coordinator_of(cluster)
        cluster.kill(second)  # it loads the group, or has just done so
        cluster.start(first, second)
        cluster.wait_healthy(60)
        produce(servers)
        cluster.kill(cluster.controller_id())
        wait_for(lambda: len(set(members.values)) == COUNT, "everything is read", members)
        wait_for(lambda: members.is_shared and members.owners() == sorted(names), "all share", members)
    assert members.failures == []


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_a_member_that_is_paused_beyond_its_session_loses_its_share_and_gets_one_when_it_goes_on(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS)
    servers = cluster.bootstrap_servers
    members = Members()
    words = ["kcat", "-b", servers, "-q", "-G", "g", "-X", "session.timeout.ms=6000", "t"]
    with running(confluent_member, servers, "one", members):
        wait_for(lambda: len(members.assigned.get("one", ())) == PARTITIONS, "the first has all", members)
        paused = subprocess.Popen(words, stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: len(members.assigned["one"]) == PARTITIONS // 2, "both share", members)
            paused.send_signal(signal.SIGSTOP)
            wait_for(lambda: len(members.assigned["one"]) == PARTITIONS, "the first has all again", members)
            produce(servers)
            wait_for(lambda: len(set(members.values)) == COUNT, "everything is read", members)
            paused.send_signal(signal.SIGCONT)
            wait_for(lambda: len(members.assigned["one"]) == PARTITIONS // 2, "both share again", members)
        finally:
            paused.kill()
            paused.wait()
    assert committed(cluster) == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)


def test_a_static_member_comes_back_without_a_rebalance(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS)
    servers = cluster.bootstrap_servers
    members = Members()
    one = {"group.instance.id": "instance-1", "session.timeout.ms": 20_000}
    two = {"group.instance.id": "instance-2", "session.timeout.ms": 20_000}
    with running(confluent_member, servers, "two", members, **two):
        with running(confluent_member, servers, "one", members, **one):
            wait_for(lambda: members.is_shared, "both share the partitions", members)
            shares = {name: set(partitions) for name, partitions in members.assigned.items()}
        time.sleep(1)
        assert members.assigned["two"] == shares["two"], "nobody took what the other left"
        with running(confluent_member, servers, "one", members, **one):
            wait_for(lambda: members.is_shared, "both share the partitions", members)
            assert members.assigned == shares


def test_cooperative_members_keep_what_they_have_while_others_join(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS)
    servers = cluster.bootstrap_servers
    members = Members()
    sticky = {"partition.assignment.strategy": "cooperative-sticky"}
    with running(confluent_member, servers, "one", members, **sticky):
        wait_for(lambda: members.is_shared, "the first has all", members)
        fewest = PARTITIONS

        def shared() -> bool:
            nonlocal fewest
            fewest = min(fewest, len(members.assigned["one"]))
            return members.is_shared and len(members.owners()) == 2

        with running(confluent_member, servers, "two", members, **sticky):
            wait_for(shared, "both share the partitions", members)
        assert fewest == PARTITIONS // 2, "never without"


@pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed")
def test_kcat_reads_as_a_member_and_goes_on_where_it_ended(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(brokers=1, settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS, replication=1)
    servers = cluster.bootstrap_servers

    def read() -> list[str]:
        words = ["kcat", "-b", servers, "-G", "g", "-e", "-q", "-X", "auto.offset.reset=earliest", "t"]
        return subprocess.run(words, capture_output=True, text=True, timeout=WITHIN_S, check=True).stdout.split()

    produce(servers)
    assert sorted(read(), key=int) == [str(number) for number in range(COUNT)]
    produce(servers, count=PARTITIONS)
    assert sorted(read(), key=int) == [str(number) for number in range(PARTITIONS)]


def test_a_registry_elects_its_leader_by_a_protocol_of_its_own(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(brokers=1, settings=SETTINGS)
    identity = b'{"host":"a","port":8081,"master_eligibility":true}'
    deadline = time.monotonic() + WITHIN_S

    def ask(request: Any, version: int) -> Any:
        with socket.create_connection(("127.0.0.1", int(cluster.bootstrap_servers.rpartition(":")[2])), 10) as wire:
            wire.sendall(encode_request(version, 1, "sr-1", request))
            stream = wire.makefile("rb")
            size = int.from_bytes(stream.read(4), "big")
            return decode_response(ApiKey(request.API_KEY), version, stream.read(size))[1]

    while ask(FindCoordinatorRequest(key="schema-registry", key_type=0), 3).error_code:
        assert time.monotonic() < deadline, "no coordinator was found"
        time.sleep(0.1)
    joining = JoinGroupRequest(
        group_id="schema-registry",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="sr",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="v0", metadata=identity)],
    )
    while (joined := ask(joining, 2)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        assert time.monotonic() < deadline, "the group was not loaded"
        time.sleep(0.1)
    assert (joined.error_code, joined.protocol_name, joined.leader) == (0, "v0", joined.member_id)
    assert [each.metadata for each in joined.members] == [identity]
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"not Kafka's")
    synced = ask(
        SyncGroupRequest(
            group_id="schema-registry",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            assignments=[assignment],
        ),
        1,
    )
    assert (synced.error_code, synced.assignment) == (0, b"not Kafka's")
    cluster.restart(1)
    (described,) = ask(DescribeGroupsRequest(groups=["schema-registry"]), 1).groups
    while described.error_code:
        assert time.monotonic() < deadline, ErrorCode(described.error_code)
        (described,) = ask(DescribeGroupsRequest(groups=["schema-registry"]), 1).groups
    (member,) = described.members
    assert (described.group_state, described.protocol_type) == ("Stable", "sr"), "what was stored came back"
    assert (member.member_metadata, member.member_assignment) == (identity, b"not Kafka's")


def test_tools_see_reset_and_delete_groups(
    new_cluster: Callable[..., Cluster], create_topic: Callable[..., None]
) -> None:
    cluster = new_cluster(brokers=1, settings=SETTINGS)
    create_topic(cluster, partitions=PARTITIONS, replication=1)
    servers = cluster.bootstrap_servers
    produce(servers)
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    members = Members()
    with running(confluent_member, servers, "one", members):
        wait_for(lambda: len(members.values) == COUNT, "everything is read", members)
        group = admin.describe_consumer_groups(["g"])["g"].result(30)
        assert (group.state.name, [each.client_id for each in group.members]) == ("STABLE", ["one"])
    listed = admin.list_consumer_groups().result(30).valid
    assert [each.group_id for each in listed] == ["g"]
    assert committed(cluster) == dict.fromkeys(range(PARTITIONS), COUNT // PARTITIONS)
    wanted = ConsumerGroupTopicPartitions("g", [TopicPartition("t", 0, 3)])
    admin.alter_consumer_group_offsets([wanted])["g"].result(30)
    assert committed(cluster)[0] == 3
    admin.delete_consumer_groups(["g"])["g"].result(30)
    assert admin.list_consumer_groups().result(30).valid == []
    assert committed(cluster) == {}
