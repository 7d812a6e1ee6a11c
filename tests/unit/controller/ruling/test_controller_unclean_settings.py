"""Which settings allow a leader that was not in sync, and when that is noticed."""

from __future__ import annotations

import pytest

from regency.controller.channel.log_questions import ANSWER_WITHIN_MS
from regency.controller.state.election import LogEnd
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create

T0 = TopicPartition("t", 0)
KEY = "unclean.leader.election.enable"


def configure(world, path, value) -> None:
    """Set the key and tell everybody, as Kafka's tools do."""
    world.ensemble.put(path, znodes.encode_config({KEY: value}) if value is not None else b"{")
    entity = path.removeprefix("/config/")
    create = Create(paths.config_change_prefix(), znodes.encode_config_change(entity), sequential=True)
    world.ensemble.multi(0, [create])
    world.settle()


def knows(world, **ends) -> None:
    for broker, end in ends.items():
        agent = world.agents[int(broker.removeprefix("b"))]
        if end is None:
            agent.silent = True
        else:
            agent.log_ends[T0] = LogEnd(*end)


def wait(world, ms=ANSWER_WITHIN_MS) -> None:
    world.pass_time(ms)


@pytest.fixture
def four(world):
    """Brokers 1 to 4, and a candidate of broker 4 that rules."""
    world.start_brokers(1, 2, 3, 4)
    world.candidate(4)
    return world


@pytest.mark.parametrize("path", [paths.topic_config("t"), paths.DEFAULT_BROKER_CONFIG, paths.broker_config(4)])
def test_topic_unclean_leader_election_enable(four, path):
    """UncleanLeaderElectionTest.testTopicUncleanLeaderElectionEnable: no other event is needed.

    The same for settings of all brokers, and of the one that rules.
    """
    knows(four, b2=(4, 100), b3=(4, 120))
    four.leaderless(allowed=False)

    configure(four, path, "true")

    assert four.state("t")[:2] == (3, (3,))


def test_topic_decides_before_brokers_and_one_broker_before_all(four):
    four.leaderless(allowed=False)
    configure(four, paths.topic_config("t"), "false")
    configure(four, paths.DEFAULT_BROKER_CONFIG, "true")
    assert four.state("t")[0] == -1
    four.ensemble.delete(paths.topic_config("t"))
    configure(four, paths.broker_config(4), "false")
    assert four.state("t")[0] == -1

    configure(four, paths.broker_config(4), "true")

    wait(four)
    assert four.state("t")[0] == 2


@pytest.mark.parametrize("path", [paths.topic_config("t"), paths.DEFAULT_BROKER_CONFIG])
def test_settings_that_cannot_be_read_allow_nothing(world, path):
    world.start_brokers(1, 2, 3, 4)
    world.candidate(4)
    world.leaderless(allowed=False)

    configure(world, path, None)

    assert world.state("t")[0] == -1


@pytest.mark.parametrize("allowed", [True, False])
def test_leader_and_isr_when_entire_isr_offline(four, allowed):
    """ControllerIntegrationTest.testLeaderAndIsrWhenEntireIsrOfflineAndUncleanLeaderElection{Disabled,Enabled}."""
    four.leaderless(allowed=allowed, replicas=(2,))

    assert four.state("t")[:2] == (-1, (2,))


@pytest.mark.parametrize("where", ["all brokers", "topic"])
def test_unclean_leader_election_enabled(world, where):
    """UncleanLeaderElectionTest.testUncleanLeaderElectionEnabled and …EnabledByTopicOverride."""
    world.start_brokers(1, 2)
    world.candidate(2, unclean_leader_election_enable=where == "all brokers")
    world.leaderless(allowed=where == "topic", replicas=(1, 2))

    assert world.state("t")[:2] == (2, (2,))


@pytest.mark.parametrize("where", ["all brokers", "topic"])
def test_clean_leader_election_where_unclean_is_disabled(world, where):
    """UncleanLeaderElectionTest.testUncleanLeaderElectionDisabled and …DisabledByTopicOverride."""
    world.start_brokers(1, 2)
    world.candidate(2, unclean_leader_election_enable=where == "topic")
    if where == "topic":
        world.ensemble.put(paths.topic_config("t"), znodes.encode_config({KEY: "false"}))
    world.leaderless(allowed=False, replicas=(1, 2))
    assert world.state("t")[:2] == (-1, (1,))

    world.start_broker(1)
    world.write_state("t", 0, 1, (1, 2), epoch=world.state("t")[2])
    world.notify_isr_change(T0)
    world.kill_broker(1)

    assert world.state("t")[:2] == (2, (2,)), "a clean move"


def test_unclean_leader_election_invalid_topic_config(four):
    """UncleanLeaderElectionTest.testUncleanLeaderElectionInvalidTopicConfig."""
    topic = NewTopic("t", 1, 1, configs={KEY: "invalid"})

    (refused,) = four.candidates[0].ask(CreateTopics((topic,), validate_only=False))

    assert refused.error.name == "INVALID_CONFIG"
    assert KEY in refused.message
    assert paths.topic("t") not in four.ensemble.nodes


def test_leave_taken_back_while_logs_are_asked_for_ends_it(four):
    knows(four, b2=None, b3=(4, 120))
    four.leaderless(allowed=True)
    configure(four, paths.topic_config("t"), "false")

    wait(four)

    assert four.state("t")[:2] == (-1, (1,))
    assert not four.candidates[0].term.context.inquiries
