"""The lag of groups: which leaders are asked, what is told of what is not known, and when it is looked at."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, cast
from uuid import UUID

import msgspec
import pytest

from regency.broker_agent.control.metadata_cache import (
    EMPTY,
    BrokerNode,
    MetadataCache,
    MetadataSnapshot,
    PartitionMetadata,
    TopicMetadata,
)
from regency.broker_agent.groups.api import Survey
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.metrics import group_lag
from regency.broker_agent.metrics.group_lag import GroupLag
from regency.kafka.codec import ListOffsetsResponse
from regency.kafka.peer import PeerConnection, PeerUnavailable
from regency.model.clock import ManualClock
from regency.model.facts import Endpoint
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition, ZkVersion
from regency.model.settings import BrokerSettings
from regency.runtime.metrics import table_agent as names
from regency.runtime.metrics.families import Block, MetricName

Told = dict[str, float]
ROW = ListOffsetsResponse.ListOffsetsTopicResponse


def at(topic: str, partition: int) -> TopicPartition:
    return TopicPartition(topic, partition)


class Brokers:
    """Brokers 1 and 2 at ports 1 and 2; they lead partitions as the test says, and tell where those end."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.ends: dict[TopicPartition, int] = {}
        self.errors: dict[TopicPartition, int] = {}
        self.silent: set[int] = set()
        self.asked: list[tuple[int, int]] = []
        """Ports, and of how many partitions each was asked."""
        self.opened: list[int] = []
        self.closed: list[int] = []

    def view(self) -> MetadataSnapshot:
        listener = BrokerSettings(broker_id=BrokerId(1), zookeeper_connect="z:1").inter_broker_listener_name
        nodes = {
            BrokerId(number): BrokerNode(BrokerId(number), BrokerEpoch(1), (Endpoint(listener, "h", number),))
            for number in (1, 2)
        }
        topics: dict[str, dict[int, PartitionMetadata]] = {}
        for (topic, number), leader in self.leaders.items():
            topics.setdefault(topic, {})[number] = PartitionMetadata(
                number, BrokerId(leader), LeaderEpoch(0), ZkVersion(0), (), ()
            )
        told = {name: TopicMetadata(name, TopicId(UUID(int=1)), each) for name, each in topics.items()}
        return msgspec.structs.replace(EMPTY, brokers=nodes, topics=told)

    def connect(self, _: str, port: int) -> PeerConnection:
        self.opened.append(port)
        return cast(PeerConnection, Peer(self, port))


class Peer:
    def __init__(self, brokers: Brokers, port: int) -> None:
        self._brokers, self._port = brokers, port

    def exchange(self, message: Any, version: int) -> Any:
        brokers = self._brokers
        if self._port in brokers.silent:
            raise PeerUnavailable("silent")
        assert (message.replica_id, version) == (-1, 7)
        topics = []
        for topic in message.topics:
            rows = []
            for each in topic.partitions:
                name = at(topic.name, each.partition_index)
                assert (brokers.leaders[name], each.timestamp) == (self._port, -1)
                rows.append(
                    ROW.ListOffsetsPartitionResponse(
                        version=7,
                        partition_index=each.partition_index,
                        error_code=brokers.errors.get(name, 0),
                        timestamp=-1,
                        offset=brokers.ends.get(name, -1),
                        leader_epoch=0,
                    )
                )
            topics.append(ROW(version=7, name=topic.name, partitions=rows))
        brokers.asked.append((self._port, sum(len(topic.partitions) for topic in message.topics)))
        return ListOffsetsResponse(version=7, topics=topics)

    def close(self) -> None:
        self._brokers.closed.append(self._port)


class Loop:
    def post(self, work: Callable[[], None]) -> None:
        work()

    def call(self, work: Callable[[], Any], *, timeout_ms: int) -> Any:
        return work()


class Coordinator:
    def __init__(self) -> None:
        self.found = Survey()
        self.asked_for: list[int] = []

    def survey(self, most: int, done: Callable[[Survey], None]) -> None:
        self.asked_for.append(most)
        done(self.found)


class World:
    def __init__(self) -> None:
        self.brokers, self.coordinator, self.clock = Brokers(), Coordinator(), ManualClock()
        self.settings = BrokerSettings(broker_id=BrokerId(1), zookeeper_connect="z:1", regency_group_metrics_max=99)
        world = self

        class Metadata:
            @property
            def current(self) -> MetadataSnapshot:
                return world.brokers.view()

        self.lag = GroupLag(
            self.settings,
            Loop(),
            cast(GroupCoordinator, self.coordinator),
            cast(MetadataCache, Metadata()),
            self.clock,
            self.brokers.connect,
        )

    def commit(self, group: str, offsets: dict[TopicPartition, int], members: int = 0) -> None:
        self.coordinator.found.members[group] = members
        self.coordinator.found.offsets[group] = {name: Offset(offset) for name, offset in offsets.items()}

    def scrape(self, wanted: Callable[[MetricName], bool] = lambda _: True) -> Told:
        """Series of what was looked at now."""
        self.lag._looked = self.lag.look()
        return self.told(wanted)

    def told(self, wanted: Callable[[MetricName], bool] = lambda _: True) -> Told:
        found: Told = {}
        for family in self.lag.families(wanted):
            if isinstance(family, Block):
                for line in family.lines.splitlines():
                    series, _, number = line.rpartition(" ")
                    found[series.replace('"', "")] = float(number)
            else:
                for sample in family.samples:
                    labels = ",".join(f"{name}={text}" for name, text in sample.labels.items())
                    found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_leaders_tell_where_logs_end_each_asked_once(world: World) -> None:
    world.brokers.leaders = {at("t", 0): 1, at("t", 1): 2, at("u", 0): 2}
    world.brokers.ends = {at("t", 0): 30, at("t", 1): 40, at("u", 0): 7}
    world.commit("a", {at("t", 0): 10, at("t", 1): 40}, members=2)
    world.commit("b", {at("u", 0): 9, at("t", 0): 30})
    told = world.scrape()
    age = told.pop("regency_consumergroup_age_seconds")
    assert age == 0
    assert told == {
        "regency_consumergroup_left_out_offsets": 0,
        "regency_consumergroup_lag_unknown_partitions": 0,
        "kafka_consumergroup_members{consumergroup=a}": 2,
        "kafka_consumergroup_members{consumergroup=b}": 0,
        "kafka_consumergroup_current_offset{consumergroup=a,topic=t,partition=0}": 10,
        "kafka_consumergroup_current_offset{consumergroup=a,topic=t,partition=1}": 40,
        "kafka_consumergroup_current_offset{consumergroup=b,topic=t,partition=0}": 30,
        "kafka_consumergroup_current_offset{consumergroup=b,topic=u,partition=0}": 9,
        "kafka_consumergroup_lag{consumergroup=a,topic=t,partition=0}": 20,
        "kafka_consumergroup_lag{consumergroup=a,topic=t,partition=1}": 0,
        "kafka_consumergroup_lag{consumergroup=b,topic=t,partition=0}": 0,
        "kafka_consumergroup_lag{consumergroup=b,topic=u,partition=0}": 0,  # its log was cut: never negative
        "kafka_consumergroup_current_offset_sum{consumergroup=a,topic=t}": 50,
        "kafka_consumergroup_current_offset_sum{consumergroup=b,topic=t}": 30,
        "kafka_consumergroup_current_offset_sum{consumergroup=b,topic=u}": 9,
        "kafka_consumergroup_lag_sum{consumergroup=a,topic=t}": 20,
        "kafka_consumergroup_lag_sum{consumergroup=b,topic=t}": 0,
        "kafka_consumergroup_lag_sum{consumergroup=b,topic=u}": 0,
    }
    assert sorted(world.brokers.asked) == [(1, 1), (2, 2)]
    assert world.coordinator.asked_for == [99]


def test_what_no_leader_tells_is_no_lag_and_no_sum(world: World) -> None:
    world.brokers.leaders = {at("t", 0): 1, at("t", 1): 2, at("t", 2): -1, at("u", 0): 1, at("u", 1): 1}
    world.brokers.ends = {at("t", 0): 30, at("t", 1): 40, at("u", 0): 5, at("u", 1): 5}
    world.brokers.silent = {2}
    world.brokers.errors = {at("u", 1): 6}
    world.commit("a", {at("t", 0): 10, at("t", 1): 10, at("t", 2): 10, at("u", 0): 1, at("gone", 0): 1})
    world.commit("b", {at("u", 1): 1})
    told = world.scrape()
    assert {series: lag for series, lag in told.items() if "_lag" in series} == {
        "kafka_consumergroup_lag{consumergroup=a,topic=t,partition=0}": 20,
        "kafka_consumergroup_lag{consumergroup=a,topic=u,partition=0}": 4,
        "kafka_consumergroup_lag_sum{consumergroup=a,topic=u}": 4,
        "regency_consumergroup_lag_unknown_partitions": 4,
    }
    assert told["kafka_consumergroup_current_offset_sum{consumergroup=a,topic=t}"] == 30


def test_a_leader_with_very_many_is_asked_in_pieces(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "PARTITIONS_AT_ONCE", 2)
    some = [at("t", number) for number in range(5)]
    world.brokers.leaders = dict.fromkeys(some, 1)
    world.commit("a", dict.fromkeys(some, 0))
    world.scrape()
    assert (world.brokers.asked, world.brokers.opened) == ([(1, 2), (1, 2), (1, 1)], [1])


def test_connections_last_as_long_as_their_broker_leads(world: World) -> None:
    world.commit("a", {at("t", 0): 0})
    for leader in (1, 1, 2):
        world.brokers.leaders = {at("t", 0): leader}
        world.scrape()
    assert (world.brokers.opened, world.brokers.closed) == ([1, 2], [1])


def test_what_does_not_fit_is_counted(world: World) -> None:
    world.coordinator.found.left_out = 12
    assert world.scrape()["regency_consumergroup_left_out_offsets"] == 12


def test_what_is_left_out_is_logged_once(world: World, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(group_lag, "LOOK_EVERY_S", 0.01)
    world.coordinator.found.left_out = 12
    thread = threading.Thread(target=world.lag.run, daemon=True)
    thread.start()
    world.told()
    settled(lambda: len(world.coordinator.asked_for) > 3)
    world.lag.stop()
    thread.join(5)
    assert caplog.messages == [
        "groups with 12 committed offsets have no metrics: raise regency.group.metrics.max above 99"
    ]


def test_names_of_groups_are_escaped(world: World) -> None:
    world.brokers.leaders = {at("t", 0): 1}
    world.commit('a "b"\\\n', {at("t", 0): 0})
    assert r"kafka_consumergroup_current_offset_sum{consumergroup=a \b\\\\n,topic=t}" in world.scrape()


def test_nothing_is_looked_at_until_somebody_asks_for_groups(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "LOOK_EVERY_S", 0.01)
    thread = threading.Thread(target=world.lag.run, daemon=True)
    thread.start()
    try:
        assert world.told(lambda name: name is names.LEADER_COUNT) == {}
        assert world.coordinator.asked_for == []
        assert world.told() == {}  # the first scrape waits for nobody
        settled(lambda: len(world.coordinator.asked_for) > 2)
        assert "regency_consumergroup_age_seconds" in world.told()
        world.clock.advance(int(group_lag.ASKED_FOR_S * 1000) + 1)
        settled(lambda: world.lag._looked is None)
        looks = len(world.coordinator.asked_for)
        threading.Event().wait(0.1)
        assert len(world.coordinator.asked_for) == looks
    finally:
        world.lag.stop()
        thread.join(5)
    assert not thread.is_alive()


def test_a_look_that_fails_ends_nothing(world: World, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(group_lag, "LOOK_EVERY_S", 0.01)
    looks: list[int] = []

    def fail() -> None:
        looks.append(1)
        raise ValueError("a defect")

    monkeypatch.setattr(world.lag, "look", fail)
    thread = threading.Thread(target=world.lag.run, daemon=True)
    thread.start()
    world.told()
    settled(lambda: len(looks) >= 12)
    world.lag.stop()
    thread.join(5)
    assert (thread.is_alive(), len([each for each in caplog.messages if "a defect" in each])) == (False, 2)


def test_a_data_loop_that_does_not_get_to_it_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_lag, "SURVEY_TIMEOUT_S", 0.01)
    late: list[Callable[[Survey], None]] = []
    monkeypatch.setattr(world.coordinator, "survey", lambda _, done: late.append(done))
    with pytest.raises(TimeoutError):
        world.lag.look()
    late[0](Survey())  # an answer that comes later does no harm


def settled(is_so: Callable[[], bool]) -> None:
    waited = threading.Event()
    for _ in range(500):
        if is_so():
            return
        waited.wait(0.01)
    raise AssertionError("it did not come to be within 5 s")
