"""What is set aside as a stray: only what nobody named and ZooKeeper says is not this broker's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import pytest

from regency.broker_agent.control.strays import Strays, why_stray
from regency.broker_agent.replication.api import PartitionState, ReplicaDescription
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import (
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
    ZkVersion,
)
from regency.model.znodes import paths as znode_paths

ME = BrokerId(1)
OLD, NEW = (TopicId(UUID(bytes=bytes([each]) * 16)) for each in (1, 2))


class OneLog:
    def __init__(self, topic_id: TopicId | None) -> None:
        self.topic_id = topic_id

    def set_topic_id(self, topic_id: TopicId) -> None:
        self.topic_id = topic_id


class Disk:
    """Logs by name, and which were set aside."""

    def __init__(self) -> None:
        self.logs: dict[TopicPartition, OneLog] = {}
        self.strays: list[TopicPartition] = []

    def get(self, topic_partition: TopicPartition) -> OneLog | None:
        return self.logs.get(topic_partition)

    def all(self) -> dict[TopicPartition, OneLog]:
        return self.logs

    def mark_stray(self, topic_partitions: Sequence[TopicPartition]) -> None:
        self.strays += topic_partitions
        for topic_partition in topic_partitions:
            del self.logs[topic_partition]


class Served:
    """Partitions this broker serves."""

    def __init__(self) -> None:
        self.held: set[TopicPartition] = set()

    def describe(self, tps: Iterable[TopicPartition] | None = None) -> list[ReplicaDescription]:
        return [
            ReplicaDescription(
                each, OLD, ME, LeaderEpoch(0), ZkVersion(0), (), Offset(0), Offset(0), Offset(0), LeaderEpoch(0), ""
            )
            for each in tps or ()
            if each in self.held
        ]

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        self.held.difference_update(tps)


class AtOnce:
    """A data loop that is never busy."""

    def call(self, work: Any, *, timeout_ms: int) -> Any:
        return work()


class World:
    def __init__(self, session: Any) -> None:
        self.session, self.disk, self.served = session, Disk(), Served()
        self.reminders = 0
        self.strays = Strays(AtOnce(), ME, session, self.disk, self.served, self._remind)

    def _remind(self) -> None:
        self.reminders += 1

    def topic(self, name: str, *replicas: int, topic_id: TopicId = OLD) -> None:
        assignment = ReplicaAssignment(tuple(BrokerId(replica) for replica in replicas))
        data = znodes.encode_topic(TopicAssignment(name, {0: assignment}, topic_id))
        self.session.server.put(znode_paths.topic(name), data)

    def log(self, name: str, partition: int = 0, topic_id: TopicId | None = OLD) -> TopicPartition:
        topic_partition = TopicPartition(name, partition)
        self.disk.logs[topic_partition] = OneLog(topic_id)
        return topic_partition


@pytest.fixture
def world(session: Any) -> World:
    return World(session)


def state(topic_partition: TopicPartition, topic_id: TopicId = OLD) -> PartitionState:
    replicas = (ME, BrokerId(2))
    return PartitionState(
        topic_partition, topic_id, ControllerEpoch(1), ME, LeaderEpoch(0), replicas, ZkVersion(0), replicas
    )


def test_a_log_whose_topic_is_gone_is_set_aside_after_the_last_piece(world: World) -> None:
    kept, gone = world.log("kept"), world.log("gone")
    world.topic("kept", 1, 2)
    world.strays.named([state(kept)])
    assert world.disk.strays == []
    world.strays.all_named()
    assert world.disk.strays == [gone]


def test_a_log_of_a_partition_that_moved_elsewhere_is_set_aside(world: World) -> None:
    moved = world.log("t")
    world.topic("t", 2, 3)
    world.strays.all_named()
    assert world.disk.strays == [moved]


def test_a_log_the_controller_forgot_but_zookeeper_assigns_here_stays(world: World) -> None:
    world.log("t")
    world.topic("t", 1, 2)
    world.strays.all_named()
    assert world.disk.strays == []


def test_what_zookeeper_cannot_be_asked_about_is_looked_into_again(world: World) -> None:
    gone = world.log("gone")
    world.session.suspend()
    world.strays.all_named()
    world.strays.look_again()
    assert (world.disk.strays, world.reminders) == ([], 2)

    world.session.resume()
    world.strays.look_again()
    world.strays.look_again()

    assert (world.disk.strays, world.reminders) == ([gone], 2)


def test_a_log_made_anew_meanwhile_is_no_stray(world: World) -> None:
    world.log("gone")
    world.session.suspend()
    world.strays.all_named()
    world.log("gone", topic_id=NEW)
    world.session.resume()
    world.strays.look_again()
    assert world.disk.strays == []


def test_a_log_whose_topic_cannot_be_read_stays(world: World) -> None:
    world.log("t")
    world.session.server.put(znode_paths.topic("t"), b"{")
    world.strays.all_named()
    assert world.disk.strays == []


def test_while_zookeeper_is_away_everything_stays(world: World) -> None:
    world.log("t")
    world.session.suspend()
    world.strays.all_named()
    assert world.disk.strays == []


def test_a_log_that_is_served_stays_whatever_was_left_out(world: World) -> None:
    world.served.held.add(world.log("t"))
    world.strays.all_named()
    assert world.disk.strays == []


def test_the_log_of_an_earlier_topic_of_the_same_name_is_set_aside_before_the_new_one_is_made(world: World) -> None:
    log = world.log("t", topic_id=OLD)
    world.topic("t", 1, 2, topic_id=NEW)
    world.strays.set_earlier_aside([state(log, NEW)])
    assert world.disk.strays == [log]


def flipped(topic_id: TopicId, *bits: int) -> TopicId:
    return TopicId(UUID(int=topic_id.int ^ sum(1 << bit for bit in bits)))


@pytest.mark.parametrize("bit", range(128))
def test_a_log_whose_id_has_a_flipped_bit_is_the_topics_and_stays(world: World, bit: int, caplog: Any) -> None:
    """Where it is the only replica, an empty log would be led in its place."""
    log = world.log("t", topic_id=flipped(OLD, bit))
    world.topic("t", 1, 2, topic_id=OLD)
    world.strays.set_earlier_aside([state(log, OLD)])
    assert (world.disk.strays, world.disk.logs[log].topic_id) == ([], OLD)
    assert "partition.metadata of t-0 is damaged" in caplog.text


def test_a_log_whose_damaged_id_nobody_named_yet_stays(world: World) -> None:
    log = world.log("t", topic_id=flipped(OLD, 3))
    world.topic("t", 1, 2, topic_id=OLD)
    world.strays.all_named()
    assert (world.disk.strays, list(world.disk.logs)) == ([], [log])


def test_an_id_that_differs_in_more_than_two_characters_is_another_topics(world: World) -> None:
    log = world.log("t", topic_id=flipped(OLD, 3, 50, 100))
    world.topic("t", 1, 2, topic_id=OLD)
    world.strays.set_earlier_aside([state(log, OLD)])
    assert world.disk.strays == [log]


def test_what_is_served_of_an_earlier_topic_is_given_up_for_the_new_one(world: World) -> None:
    log, other = world.log("t", topic_id=OLD), world.log("u", topic_id=OLD)
    world.served.held |= {log, other}
    world.topic("t", 1, 2, topic_id=NEW)
    world.topic("u", 1, 2, topic_id=OLD)
    world.strays.set_earlier_aside([state(log, NEW), state(other, NEW)])
    assert world.served.held == {other}
    assert world.disk.strays == [log]


def test_a_controller_with_another_id_than_zookeeper_changes_nothing(world: World) -> None:
    log = world.log("t", topic_id=OLD)
    world.topic("t", 1, 2, topic_id=OLD)
    world.strays.named([state(log, NEW)])
    world.strays.set_earlier_aside([state(log, NEW)])
    world.strays.all_named()
    assert world.disk.strays == []


def test_what_an_older_controller_named_does_not_count_for_the_next(world: World) -> None:
    gone = world.log("gone")
    world.strays.named([state(gone)])
    world.strays.begin()
    world.strays.all_named()
    assert world.disk.strays == [gone]


def test_a_former_replica_is_left_to_who_has_it_deleted() -> None:
    """The controller asks for that as soon as the broker has been told all it hosts."""
    former = ReplicaAssignment((BrokerId(2),), deleting=(ME,))
    assert why_stray(ME, 0, OLD, TopicAssignment("t", {0: former}, OLD)) is None


@pytest.mark.parametrize(
    ("partition", "topic_id", "replicas", "stray"),
    [
        (0, OLD, (1, 2), None),
        (0, None, (1, 2), None),
        (0, NEW, (1, 2), "it belongs to an earlier topic of the same name"),
        (1, OLD, (1, 2), "its topic has no such partition"),
        (0, OLD, (2, 3), "the partition is assigned to [2, 3], not to this broker"),
    ],
)
def test_why_a_log_is_a_stray(
    partition: int, topic_id: TopicId | None, replicas: tuple[int, ...], stray: str | None
) -> None:
    assignment = ReplicaAssignment(tuple(BrokerId(replica) for replica in replicas))
    assert why_stray(ME, partition, topic_id, TopicAssignment("t", {0: assignment}, OLD)) == stray


def test_a_server_that_lags_is_not_believed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = world.log("t")
    world.topic("t", 2, 3)
    session = world.session
    read_many, lagging = session.read_many, [session.read(znode_paths.topic("t"))]
    world.topic("t", 1, 2)
    synced: list[str] = []
    monkeypatch.setattr(session, "sync", synced.append)
    monkeypatch.setattr(session, "read_many", lambda paths: read_many(paths) if synced else lagging)
    world.strays.all_named()
    assert (world.disk.strays, list(world.disk.logs)) == ([], [mine])
