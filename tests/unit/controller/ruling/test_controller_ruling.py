"""A candidate rules: topics, brokers that die and return, and what agents are told."""

from __future__ import annotations

import pytest

from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.controller.events import BrokersChanged
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.model import znodes
from regency.model.facts import Broker, Endpoint
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Create, Delete, ZkConnectionLost

T0 = TopicPartition("t", 0)


def test_first_controller_rules_in_epoch_1(ruled):
    assert ruled.candidates[0].controller.view.epoch == 1
    assert ruled.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"1"
    assert znodes.decode_controller(paths.CONTROLLER, ruled.ensemble.nodes[paths.CONTROLLER].data) == 1


def test_topic_written_by_another_tool_gets_an_id_and_a_leader(ruled):
    ruled.write_topic("t", {0: [2, 3, 1]})

    assert ruled.state("t") == (2, (2, 3, 1), 0, 1)
    read = znodes.decode_topic("", ruled.ensemble.nodes["/brokers/topics/t"].data, topic="t", zk_version=0, czxid=0)
    assert read.topic_id is not None
    for broker in (1, 2, 3):
        assert ruled.agents[broker].states[T0] == (2, 0, (2, 3, 1))


def test_topic_created_while_a_replica_is_dead_starts_without_it(ruled):
    ruled.kill_broker(2)

    ruled.write_topic("t", {0: [2, 3]})

    assert ruled.state("t") == (3, (3,), 0, 1)


def test_partitions_without_a_live_replica_wait_for_one(ruled):
    ruled.kill_broker(2)
    ruled.write_topic("t", {0: [2]})
    assert paths.partition_state(T0) not in ruled.ensemble.nodes

    ruled.start_broker(2)

    assert ruled.state("t") == (2, (2,), 0, 1)
    assert ruled.agents[2].states[T0] == (2, 0, (2,))


def test_added_partitions_are_created_and_known_ones_left_alone(ruled):
    ruled.write_topic("t", {0: [1, 2]})

    ruled.write_topic("t", {0: [3, 1], 1: [3, 2]})

    assert ruled.state("t", 1) == (3, (3, 2), 0, 1)
    assert ruled.candidates[0].term.context.assignment(T0).replicas == (1, 2)


def test_leader_moves_when_its_broker_dies_and_epoch_grows_by_one(ruled):
    ruled.write_topic("t", {0: [3, 2, 1]})

    ruled.kill_broker(3)

    assert ruled.state("t") == (2, (2, 1), 1, 1)
    assert ruled.agents[1].states[T0] == (2, 1, (2, 1))


def test_isr_shrinks_when_a_follower_dies(ruled):
    ruled.write_topic("t", {0: [3, 2, 1]})

    ruled.kill_broker(1)

    assert ruled.state("t") == (3, (3, 2), 1, 1)


def test_last_member_stays_in_the_isr_and_leads_again_when_it_returns(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    ruled.kill_broker(3)
    ruled.kill_broker(2)
    assert ruled.state("t") == (-1, (2,), 2, 1)
    ruled.start_broker(3)
    assert ruled.state("t") == (-1, (2,), 2, 1)

    ruled.start_broker(2)

    assert ruled.state("t") == (2, (2,), 3, 1)


def test_unclean_election_happens_only_where_the_topic_allows_it(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    ruled.kill_broker(3)
    ruled.kill_broker(2)
    ruled.start_broker(3)

    ruled.ensemble.put(paths.topic_config("t"), znodes.encode_config({"unclean.leader.election.enable": "true"}))
    ruled.ensemble.put(paths.config_change_prefix() + "0000000000", znodes.encode_config_change("topics/t"))
    ruled.settle()

    assert ruled.state("t") == (3, (3,), 3, 1)


def test_bounced_broker_loses_its_leadership_and_gets_a_full_request(ruled):
    ruled.write_topic("t", {0: [3, 2, 1]})
    old = ruled.agents[3]

    ruled.ensemble.multi(0, [Delete(paths.broker(3), None)])  # nobody looks in between
    ruled.start_broker(3)

    assert ruled.state("t") == (2, (2, 1), 1, 1)
    first = ruled.agents[3].of(pb.LeaderAndIsrRequest)[0]
    assert first.full and first.last_chunk and first.header.seq == 1
    assert ruled.agents[3].states[T0] == (2, 1, (2, 1))
    assert ruled.agents[3] is not old


def test_everybody_is_told_that_a_bounced_broker_is_back_also_where_new_leaders_were_told_first(ruled, monkeypatch):
    monkeypatch.setattr("regency.controller.term.MANY_WRITES", 1)
    ruled.write_topic("t", {0: [3, 2, 1]})

    ruled.ensemble.multi(0, [Delete(paths.broker(3), None)])  # nobody looks in between
    ruled.start_broker(3)

    told = [delta for update in ruled.agents[2].of(pb.UpdateMetadataRequest) for delta in update.deltas]
    named = [delta for delta in map(pb.MetadataDelta.FromString, told) if delta.brokers_present]
    assert [broker.broker_id for broker in named[-1].live_brokers] == [1, 2, 3]


def test_bounced_member_leads_where_the_leader_died_at_the_same_time(ruled):
    ruled.write_topic("t", {0: [2, 1, 3]})

    registered = {broker: ruled.ensemble.nodes[paths.broker(broker)].data for broker in (1, 3)}
    for broker in (1, 2, 3):  # nobody looks in between
        ruled.ensemble.multi(0, [Delete(paths.broker(broker), None)])
    for broker, data in registered.items():
        ruled.agents[broker] = type(ruled.agents[broker])()
        again = Create(paths.broker(broker), data, ephemeral=True)
        ruled.ensemble.multi(broker, [again, ruled.mark_of(broker, whole=broker == 1)])
    ruled.settle()

    assert ruled.state("t")[:2] == (1, (1,))


def test_broker_that_changes_its_endpoints_is_told_about_and_reached_there(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    endpoints = (Endpoint("PLAINTEXT", "elsewhere", 1), Endpoint("CONTROL", "elsewhere", 2))

    ruled.ensemble.put(paths.broker(3), znodes.encode_broker(Broker(3, 0, endpoints), timestamp_ms=0))
    ruled.settle()

    assert ruled.state("t") == (3, (3, 2), 0, 1)
    first, again = (each for each in ruled.agents[3].of(pb.LeaderAndIsrRequest) if each.full)
    assert (list(first.topics), again.topics[0].topic) == ([], "t")
    last = pb.MetadataDelta.FromString(ruled.agents[1].of(pb.UpdateMetadataRequest)[-1].deltas[-1])
    assert [each.endpoints[0].host for each in last.live_brokers] == ["host1", "host2", "elsewhere"]


def test_starting_broker_without_partitions_still_gets_a_full_request(ruled):
    ruled.start_broker(4)

    (request,) = ruled.agents[4].of(pb.LeaderAndIsrRequest)
    assert request.full and request.last_chunk and not request.topics
    parts = ruled.agents[4].of(pb.UpdateMetadataRequest)
    assert parts[0].snapshot and parts[0].first_chunk
    last = next(index for index, part in enumerate(parts) if part.last_chunk)
    deltas = [pb.MetadataDelta.FromString(each) for part in parts[: last + 1] for each in part.deltas]
    named = [each.broker_id for each in [delta for delta in deltas if delta.brokers_present][-1].live_brokers]
    assert 4 in named, "it shows its clients a cluster of an earlier time"


def test_leader_and_isr_names_where_the_leader_is_reached(ruled):
    ruled.write_topic("t", {0: [3, 2]})

    request = ruled.agents[2].of(pb.LeaderAndIsrRequest)[-1]
    (leader,) = request.leaders
    epoch = ruled.ensemble.nodes[paths.broker(3)].czxid
    assert (leader.broker_id, leader.broker_epoch, leader.host, leader.port) == (3, epoch, "host3", 9003)
    assert list(request.topics[0].is_new) == [True]
    assert request.header.controller_endpoint == "host1:9999"


def test_everybody_learns_of_every_change_by_deltas(ruled):
    ruled.write_topic("t", {0: [3]})

    last = ruled.agents[1].of(pb.UpdateMetadataRequest)[-1]
    delta = pb.MetadataDelta.FromString(last.deltas[-1])
    assert not last.snapshot
    assert (delta.topics[0].topic, list(delta.topics[0].leader)) == ("t", [3])


def test_metadata_names_offline_replicas_of_a_dead_broker(ruled):
    ruled.write_topic("t", {0: [3, 2]})

    ruled.kill_broker(2)

    deltas = [pb.MetadataDelta.FromString(d) for m in ruled.agents[1].of(pb.UpdateMetadataRequest) for d in m.deltas]
    last = [delta.topics[0] for delta in deltas if delta.topics][-1]
    assert (list(last.isr), list(last.offline)) == ([3], [2])
    assert [broker.broker_id for broker in deltas[-1].live_brokers] == [1, 3]


def test_isr_change_of_a_leader_is_read_and_told_to_all(ruled):
    ruled.write_topic("t", {0: [3, 2, 1]})

    ruled.write_state("t", 0, 3, [3, 2], epoch=0)
    ruled.notify_isr_change(T0)

    assert ruled.ensemble.names(paths.ISR_CHANGE_NOTIFICATION) == ()
    known = ruled.candidates[0].term.context.leadership(T0).leader_and_isr
    assert (known.isr, known.zk_version) == ((3, 2), 1)
    assert ruled.candidates[0].rules


def test_dead_member_that_a_leader_took_in_again_is_taken_out_again(ruled):
    ruled.write_topic("t", {0: [3, 2, 1]})
    ruled.kill_broker(1)

    ruled.write_state("t", 0, 3, [3, 2, 1], epoch=1)  # decided before the leader heard of it
    ruled.notify_isr_change(T0)

    assert ruled.state("t") == (3, (3, 2), 2, 1)
    assert ruled.ensemble.names(paths.ISR_CHANGE_NOTIFICATION) == ()


def test_member_that_a_leader_took_in_a_moment_ago_is_taken_out_when_it_dies(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    ruled.kill_broker(2)
    ruled.start_broker(2)
    ruled.write_state("t", 0, 3, [3, 2], epoch=1)  # its notification is not written yet

    ruled.kill_broker(2)

    assert ruled.state("t") == (3, (3,), 2, 1)


def test_member_that_a_leader_took_in_a_moment_ago_is_elected_when_the_leader_dies(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    ruled.kill_broker(2)
    ruled.start_broker(2)
    ruled.write_state("t", 0, 3, [3, 2], epoch=1)  # its notification is not written yet

    ruled.kill_broker(3)

    assert ruled.state("t") == (2, (2,), 2, 1)


def test_leaving_leader_without_a_successor_leads_until_it_has_gone(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    for broker in (2, 3):
        ruled.candidates[0].ask(ControlledShutdown(broker, -1))
    assert ruled.state("t") == (3, (3,), 1, 1)

    ruled.write_state("t", 0, 3, [3, 2], epoch=1)
    ruled.notify_isr_change(T0)

    assert ruled.state("t") == (3, (3,), 2, 1)


def test_election_uses_the_isr_a_leader_wrote_a_moment_ago(ruled):
    ruled.write_topic("t", {0: [3, 2, 1]})
    ruled.write_state("t", 0, 3, [3, 1], epoch=0)  # its notification is not written yet

    ruled.kill_broker(3)

    assert ruled.state("t") == (1, (1,), 1, 1)


def test_controlled_shutdown_moves_leaders_and_reports_what_it_cannot_move(ruled):
    ruled.write_topic("t", {0: [3, 2], 1: [3], 2: [2, 3]})
    epoch = ruled.ensemble.nodes[paths.broker(3)].czxid

    outcome = ruled.candidates[0].ask(ControlledShutdown(3, epoch))

    assert (outcome.error, outcome.remaining) == (ErrorCode.NONE, ())
    assert ruled.state("t", 0) == (2, (2,), 1, 1)
    assert ruled.state("t", 1) == (3, (3,), 0, 1)
    assert ruled.state("t", 2) == (2, (2,), 1, 1)
    stops = [topic for request in ruled.agents[3].of(pb.StopReplicaRequest) for topic in request.topics]
    assert [(stop.topic, list(stop.partition), list(stop.delete_partition)) for stop in stops] == [("t", [2], [False])]


def test_controlled_shutdown_of_the_last_in_sync_replica_leaves_its_partition(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    for broker, remaining in ((2, ()), (3, (T0,))):
        epoch = ruled.ensemble.nodes[paths.broker(broker)].czxid
        assert ruled.candidates[0].ask(ControlledShutdown(broker, epoch)).remaining == remaining


def test_controlled_shutdown_asked_for_before_the_word_of_a_restart_came_is_of_the_new_incarnation(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    candidate = ruled.candidates[0]
    data = ruled.ensemble.nodes[paths.broker(3)].data
    watches, candidate.session._watches = candidate.session._watches, {}
    path = paths.broker(3)
    ruled.ensemble.multi(3, [Delete(path, None), Create(path, data, ephemeral=True)])
    candidate.session._watches = watches
    ruled.agents[3].seen = (0, 0)

    outcome = candidate.ask(ControlledShutdown(3, ruled.ensemble.nodes[path].czxid))
    candidate.queue.put(BrokersChanged())
    ruled.settle()

    assert (outcome.error, outcome.remaining) == (ErrorCode.NONE, ())
    assert candidate.term.context.shutting_down == {3}
    assert ruled.state("t")[:2] == (2, (2,))


@pytest.mark.parametrize(
    ("broker", "epoch", "error"),
    [(9, 1, "BROKER_NOT_AVAILABLE"), (3, 1, "STALE_BROKER_EPOCH"), (3, 10**6, "STALE_BROKER_EPOCH")],
)
def test_controlled_shutdown_of_an_unknown_incarnation_is_refused(ruled, broker, epoch, error):
    assert ruled.candidates[0].ask(ControlledShutdown(broker, epoch)).error.name == error


def test_created_topic_has_leaders_when_the_answer_comes(ruled):
    (created,) = ruled.candidates[0].ask(
        CreateTopics((NewTopic("t", 6, 3, configs={"min.insync.replicas": "2"}),), validate_only=False)
    )

    assert (created.error, created.num_partitions, created.replication_factor) == (ErrorCode.NONE, 6, 3)
    leaders = sorted(ruled.state("t", partition)[0] for partition in range(6))
    assert leaders == [1, 1, 2, 2, 3, 3]
    assert created.topic_id == ruled.candidates[0].term.context.topic_id("t")
    config = ruled.ensemble.nodes[paths.topic_config("t")].data
    assert znodes.decode_config("", config) == {"min.insync.replicas": "2"}


def test_broker_without_control_listener_is_left_out(ruled):
    ruled.start_broker(4, control=False)

    assert sorted(ruled.candidates[0].controller.view.brokers) == [1, 2, 3]
    ruled.write_topic("t", {0: [4, 1]})
    assert ruled.state("t") == (1, (1,), 0, 1)


def test_contact_lost_while_a_topic_is_watched_costs_nobody_the_controller(ruled):
    candidate = ruled.candidates[0]
    watch_many = candidate.session.watch_many

    def lose(wanted, mode, callback):
        watch_many(wanted, mode, callback)
        candidate.session.watch_many = watch_many
        raise ZkConnectionLost("No contact.")

    candidate.session.watch_many = lose
    ruled.write_topic("t", {0: [3, 2]})
    ruled.write_topic("t", {0: [3, 2], 1: [2]})

    assert candidate.controller.view.epoch == 1
    assert ruled.state("t", 1) == (2, (2,), 0, 1)
