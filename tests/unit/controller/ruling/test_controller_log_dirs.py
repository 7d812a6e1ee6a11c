"""Log directories of live brokers that fail, told by notifications (LogDirFailureTest)."""

from __future__ import annotations

import pytest

from regency.controller.state.states import ReplicaState
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Create

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class DyingAgent:
    """Answers KAFKA_STORAGE_ERROR for what it lost."""

    def __init__(self, agent) -> None:
        self._agent = agent
        self.lost: set[TopicPartition] = set()
        self.asked: list[TopicPartition] = []

    def __getattr__(self, name):
        return getattr(self._agent, name)

    def call(self, message):
        if isinstance(message, pb.LeaderAndIsrRequest):
            refused = []
            for topic in message.topics:
                numbers = [each for each in topic.partition if TopicPartition(topic.topic, each) in self.lost]
                self.asked += [TopicPartition(topic.topic, each) for each in topic.partition]
                refused.append(
                    pb.PartitionErrors(
                        topic=topic.topic, partition=numbers, error_code=[ErrorCode.KAFKA_STORAGE_ERROR] * len(numbers)
                    )
                )
            self._agent.answers.append(pb.ControlResponse(topics=refused))
        return self._agent.call(message)


@pytest.fixture
def failing(ruled):
    """Three partitions of which broker 2 leads one and follows two; its agent can lose directories."""
    ruled.write_topic("t", {0: [2, 3], 1: [3, 2], 2: [3, 2]})
    ruled.agents[2] = DyingAgent(ruled.agents[2])
    return ruled


def notify(world, broker=2, data=None) -> None:
    content = znodes.encode_log_dir_event(broker) if data is None else data
    world.ensemble.multi(0, [Create(paths.log_dir_event_prefix(), content, sequential=True)])
    world.settle()


def notifications(world) -> list[str]:
    return [path for path in world.ensemble.nodes if path.startswith(paths.LOG_DIR_EVENT_NOTIFICATION + "/")]


def state_of(world, partition, broker=2):
    return world.candidates[0].term.context.replica_state(partition, broker)


def test_failed_directory_moves_leaders_and_shrinks_isrs(failing):
    """LogDirFailureTest.testIOExceptionDuringLogRoll: new leader, no notification left, the replica is offline."""
    failing.agents[2].lost = {T0, T1}

    notify(failing)

    assert failing.state("t", 0)[:2] == (3, (3,))
    assert failing.state("t", 1)[:2] == (3, (3,))
    assert failing.state("t", 2)[:2] == (3, (3, 2))
    assert [state_of(failing, each) for each in (T0, T1, T2)] == [
        ReplicaState.OFFLINE,
        ReplicaState.OFFLINE,
        ReplicaState.ONLINE,
    ]
    assert notifications(failing) == []


def test_second_failure_does_not_bring_back_the_first_ones_replicas(failing):
    """In Kafka all replicas of the broker were taken to be online first."""
    agent = failing.agents[2]
    agent.lost = {T0}
    notify(failing)
    agent.lost = {T0, T1}
    agent.asked.clear()

    notify(failing)

    assert T0 not in agent.asked
    assert [state_of(failing, each) for each in (T0, T1, T2)] == [
        ReplicaState.OFFLINE,
        ReplicaState.OFFLINE,
        ReplicaState.ONLINE,
    ]
    assert failing.candidates[0].term.context.offline_replicas == {2: {T0, T1}}


def test_restart_heals(failing):
    failing.agents[2].lost = {T0, T1}
    notify(failing)
    failing.kill_broker(2)

    failing.start_broker(2)

    context = failing.candidates[0].term.context
    assert not context.offline_replicas
    assert {state_of(failing, each) for each in (T0, T1, T2)} == {ReplicaState.ONLINE}
    assert set(failing.agents[2].states) == {T0, T1, T2}


def test_only_replica_on_the_directory_leaves_the_partition_without_a_leader(failing):
    failing.write_topic("single", {0: [2]})
    single = TopicPartition("single", 0)
    failing.agents[2].lost = {single}

    notify(failing)

    assert failing.state("single")[:2] == (-1, (2,))


def test_several_notifications_ask_each_broker_once_and_all_are_removed(failing):
    agent = failing.agents[2]
    agent.lost = {T0}
    for broker in (2, 2, 3):
        data = znodes.encode_log_dir_event(broker)
        failing.ensemble.multi(0, [Create(paths.log_dir_event_prefix(), data, sequential=True)])
    agent.asked.clear()
    failing.settle()

    assert agent.asked.count(T0) == 1
    assert failing.state("t", 0)[:2] == (3, (3,))
    assert notifications(failing) == []


@pytest.mark.parametrize("data", [b"", b"{", b'{"version":1}', b'{"version":1,"broker":"x","event":1}'])
def test_malformed_notification_is_reported_and_removed(failing, caplog, data):
    notify(failing, data=data)

    assert notifications(failing) == []
    (told,) = (each.getMessage() for each in caplog.records if paths.LOG_DIR_EVENT_NOTIFICATION in each.getMessage())
    assert told.startswith(f"{paths.log_dir_event_prefix()}0")
    assert told.endswith(". It is removed; a directory that failed is not looked for because of it.")


def test_notification_of_a_broker_that_is_gone_is_removed(failing):
    before = [failing.state("t", number) for number in range(3)]

    notify(failing, broker=77)

    assert notifications(failing) == []
    assert [failing.state("t", number) for number in range(3)] == before


def test_failover_removes_notifications_and_finds_out_anyway(failing):
    """Every broker is told all it hosts by a new controller, so the failed ones answer for themselves."""
    failing.agents[2].lost = {T0}
    failing.candidates[0].session.expire()
    data = znodes.encode_log_dir_event(2)
    failing.ensemble.multi(0, [Create(paths.log_dir_event_prefix(), data, sequential=True)])

    failing.settle()

    assert notifications(failing) == []
    assert failing.state("t", 0)[:2] == (3, (3,))
