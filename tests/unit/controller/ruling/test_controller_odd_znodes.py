"""Znodes nobody should have written: each is reported once, and everything else goes on."""

from __future__ import annotations

import pytest

from regency.controller.topics.config_changes import AlterConfigs, ConfigAlteration, ResourceType
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.history.files import HistoryWriter, read_history
from regency.model import znodes
from regency.model.facts import ReplicaAssignment, TopicAssignment
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import ConfigChange, Operation
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Create, Delete

T0 = TopicPartition("t", 0)


@pytest.mark.parametrize("name", ["a b", "né", "x" * 250])
def test_a_topic_that_cannot_name_a_folder_is_reported_once_and_left_out(ruled, caplog, name):
    ruled.write_topic(name, {0: [1, 2]})
    ruled.write_topic("t", {0: [3, 2]})
    ruled.start_broker(4)

    assert list(ruled.candidates[0].term.context.topics) == ["t"]
    assert caplog.text.count("no topic may have this name") == 1
    assert all(name not in {topic.topic for topic in m.topics} for m in ruled.agents[1].of(pb.LeaderAndIsrRequest))


def test_what_is_no_broker_below_brokers_ids_is_reported_once(ruled, caplog):
    for name in ("seven", "-1", "007"):
        ruled.ensemble.put(f"{paths.BROKER_IDS}/{name}", b"{}")
        ruled.settle()
    ruled.start_broker(4)

    assert sorted(ruled.candidates[0].controller.view.brokers) == [1, 2, 3, 4]
    assert caplog.text.count("a broker is registered under its number") == 3


def test_topic_without_partitions_and_one_with_gaps_are_taken_as_they_are(ruled):
    ruled.ensemble.put(paths.topic("none"), b'{"version":1,"partitions":{}}')
    ruled.write_topic("gaps", {0: [1], 7: [2, 3]})

    term = ruled.candidates[0].term
    assert list(term.context.partitions()) == [TopicPartition("gaps", 0), TopicPartition("gaps", 7)]
    assert ruled.state("gaps", 7) == (2, (2, 3), 0, 1)
    assert "none" in term.context.topics


def test_state_far_beyond_every_controller_epoch_is_reported_once_and_its_partition_left_alone(world, caplog):
    world.start_brokers(1, 2)
    world.write_topic("t", {0: [1, 2]})
    world.write_topic("u", {0: [1, 2]})
    world.write_state("t", 0, 1, [1, 2], controller=2_000_000_000)

    candidate = world.candidate(1)
    world.start_broker(3)

    assert candidate.rules
    assert world.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"1"
    assert world.state("u") == (1, (1, 2), 0, 1)
    assert world.state("t") == (1, (1, 2), 0, 2_000_000_000)
    assert caplog.text.count("far beyond") == 1


def test_epoch_that_was_deleted_is_followed_beyond_what_agents_have_seen(ruled):
    candidate = ruled.candidates[0]
    for agent in ruled.agents.values():
        agent.seen = (0, 0)
    refusal = pb.ControlResponse(error_code=ErrorCode.STALE_CONTROLLER_EPOCH, controller_epoch=5)
    ruled.agents[2].answers.append(refusal)

    ruled.ensemble.multi(0, [Delete(paths.CONTROLLER_EPOCH, None)])
    ruled.settle()
    ruled.clock.advance(100)
    ruled.settle()

    assert candidate.rules
    assert candidate.controller.view.epoch == 6


def test_topic_znode_without_room_for_an_id_costs_nobody_the_controller(ruled):
    content = znodes.encode_topic(TopicAssignment("huge", {0: ReplicaAssignment((1, 2))}))
    ruled.ensemble.put(paths.topic("huge"), content[:-1] + b',"unknown":"' + b"x" * 1_047_400 + b'"}')
    ruled.settle()

    candidate = ruled.candidates[0]
    assert candidate.rules
    assert candidate.controller.view.epoch == 1
    assert ruled.state("huge") == (1, (1, 2), 0, 1)
    assert candidate.term.context.topic_id("huge").int != 0


def test_settings_written_by_another_tool_at_that_moment_do_not_mean_that_the_topic_exists(ruled):
    candidate = ruled.candidates[0]
    candidate.session.before_write = lambda: ruled.ensemble.put(paths.topic_config("t"), znodes.encode_config({}))

    (created,) = candidate.ask(CreateTopics((NewTopic("t", 1, 1),), validate_only=False))

    assert created.error is ErrorCode.REQUEST_TIMED_OUT
    assert "its settings changed meanwhile" in created.message
    assert paths.topic("t") not in ruled.ensemble.nodes


def test_member_that_was_taken_in_before_it_restarted_is_taken_out_and_follows_again(ruled):
    ruled.write_topic("t", {0: [2, 3]})
    ruled.kill_broker(3)
    _, _, epoch, controller = ruled.state("t")
    ruled.write_state("t", 0, 2, (2, 3), epoch=epoch, controller=controller)

    ruled.start_broker(3)
    assert ruled.state("t")[1] == (2, 3)
    create = Create(paths.isr_change_prefix(), znodes.encode_isr_change([T0]), sequential=True)
    ruled.ensemble.multi(0, [create])
    ruled.settle()

    assert ruled.state("t") == (2, (2,), epoch + 1, controller)
    assert ruled.candidates[0].term.context.offline(T0) == ()
    assert ruled.agents[3].states[T0] == (2, epoch + 1, (2,))


def test_broker_whose_listener_is_lost_and_found_is_spoken_to_again(ruled):
    ruled.write_topic("t", {0: [2, 3]})
    right = ruled.ensemble.nodes[paths.broker(3)].data

    ruled.ensemble.put(paths.broker(3), right.replace(b"CONTROL", b"OTHER"))
    ruled.settle()
    assert ruled.state("t")[:2] == (2, (2,))
    ruled.ensemble.put(paths.broker(3), right)
    ruled.settle()

    assert ruled.agents[3].states[T0] == (2, 1, (2,))
    assert ruled.candidates[0].term.channels.unacknowledged == 0


def test_why_a_new_partition_waits_for_a_leader_is_in_the_history(world, tmp_path):
    world.start_brokers(1, 2)
    world.candidate(1, HistoryWriter(tmp_path, "controller"))

    world.write_topic("t", {0: [1, 2], 1: [88]})

    (record,) = [each for each in read_history([tmp_path]) if each.subject == "t-1"]
    assert (record.to, record.why) == ("waits for a leader", "no replica of [88] is live")


@pytest.mark.parametrize(
    "deleted",
    [
        (paths.DELETE_TOPICS, paths.ADMIN),
        (paths.CONFIG_CHANGES,),
        (paths.ISR_CHANGE_NOTIFICATION,),
        (paths.LOG_DIR_EVENT_NOTIFICATION,),
    ],
)
def test_parents_of_requests_that_somebody_cleans_away_are_made_again(ruled, caplog, deleted):
    """`deleteall /admin/delete_topics` is a folk remedy; Kafka makes them again when it writes below them."""
    ruled.write_topic("t", {0: [2, 3]})
    for path in deleted:
        ruled.ensemble.delete(path)
    ruled.settle()

    assert all(path in ruled.ensemble.nodes for path in deleted)
    assert caplog.text.count("deleted by hand: it is made again") == 1
    alteration = ConfigAlteration(ResourceType.TOPIC, "t", (ConfigChange("retention.ms", Operation.SET, "7"),))
    (outcome,) = ruled.candidates[0].ask(AlterConfigs((alteration,), incremental=True, validate_only=False))
    assert outcome.error == ErrorCode.NONE
    ruled.ensemble.put(paths.delete_topic("t"), b"")
    ruled.settle()
    assert paths.topic("t") not in ruled.ensemble.nodes


@pytest.mark.parametrize("content", [None, b"0"])
def test_no_epoch_is_used_twice_by_those_who_knew_it(ruled, content):
    other = ruled.candidate(2)
    ruled.ensemble.delete(paths.CONTROLLER)
    ruled.settle()
    assert ruled.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"2"

    if content is None:
        ruled.ensemble.delete(paths.CONTROLLER_EPOCH)
    else:
        ruled.ensemble.put(paths.CONTROLLER_EPOCH, content)
    ruled.settle()

    assert ruled.candidates[0].rules != other.rules
    assert ruled.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"3"


def test_an_epoch_nobody_can_follow_is_said_once_while_it_lasts(ruled, caplog):
    ruled.ensemble.put(paths.CONTROLLER_EPOCH, b"seven")
    for _ in range(12):
        ruled.clock.advance(10_000)
        ruled.settle()
    assert not ruled.candidates[0].rules
    assert caplog.text.count("b'seven'") == 1

    ruled.ensemble.put(paths.CONTROLLER_EPOCH, b"1")
    ruled.clock.advance(10_000)
    ruled.settle()

    assert ruled.candidates[0].controller.view.epoch == 2
