"""Reconcile: what agents report against what they shall host, and what is done about it."""

from __future__ import annotations

from uuid import UUID

import msgspec
import pytest

from regency.controller.state.reconcile_rules import HostedDigests, expected
from regency.controller.state.reports import ReplicaReport, Taken
from regency.history.files import HistoryWriter, read_history
from regency.model import znodes
from regency.model.hosting import HostedRole, replaced
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.protos import control_pb2 as pb
from regency.runtime.zookeeper.session import Delete

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
INTERVAL, CONFIRM = 30_000, 3_000


class Reporters:
    """Agents that report what the controller wants of them, but for what a test changes."""

    def __init__(self, world) -> None:
        self.world = world
        self.odd: dict[tuple[int, TopicPartition], ReplicaReport | None] = {}
        self.digest_off: set[int] = set()
        self.number = 0

    @property
    def reports(self):
        return self.world.candidates[0].controller.reports

    def hosted(self, broker: int) -> dict[TopicPartition, ReplicaReport]:
        context = self.world.term.context
        replicas = {}
        for partition in context.partitions():
            want = expected(context, broker, partition)
            if want is not None:
                replicas[partition] = ReplicaReport(
                    want.topic_id, want.role, want.leader, want.leader_epoch, want.zk_version, 5, 7, 0, (1, 2), "/d"
                )
        for (at, partition), report in self.odd.items():
            if at == broker:
                replicas.pop(partition, None)
                if report is not None:
                    replicas[partition] = report
        return replicas

    def change(self, broker: int, partition: TopicPartition, **changes: object) -> None:
        self.odd[broker, partition] = msgspec.structs.replace(self.hosted(broker)[partition], **changes)

    def report(self, *brokers: int) -> None:
        for broker in brokers or sorted(self.world.term.context.brokers):
            replicas = self.hosted(broker)
            digest = int(broker in self.digest_off)
            for partition, replica in replicas.items():
                digest = replaced(digest, 0, replica.number(partition.partition))
            self.number += 1
            epoch = self.world.term.context.brokers[broker].epoch
            self.reports.take(Taken(broker, epoch, self.number, digest, True, 0), replicas.items())

    def round(self) -> None:
        """One comparison and what follows from it."""
        self.report()
        self.pass_time(INTERVAL)
        self.report()
        self.pass_time(CONFIRM)

    def pass_time(self, ms: int) -> None:
        self.world.clock.advance(ms)
        self.world.settle()


@pytest.fixture
def reporters(world, tmp_path):
    """Brokers 1 and 2 with topic t: partition 0 led by 1, partition 1 by 2."""
    world.start_brokers(1, 2)
    world.candidate(1, HistoryWriter(tmp_path, "controller"))
    world.write_topic("t", {0: (1, 2), 1: (2, 1)})
    made = Reporters(world)
    made.history = tmp_path
    yield made


def forget_requests(world) -> None:
    for agent in world.agents.values():
        agent.received.clear()


def hosted_again(world, broker: int) -> list[TopicPartition]:
    return [
        TopicPartition(topic.topic, number)
        for message in world.agents[broker].of(pb.LeaderAndIsrRequest)
        for topic in message.topics
        for number in topic.partition
    ]


def repairs(reporters) -> dict[str, int]:
    return dict(reporters.world.candidates[0].controller.counters.repairs)


def test_equal_digests_are_the_end_of_it(reporters, world):
    forget_requests(world)
    reporters.round()
    reporters.round()
    assert [agent.received for agent in world.agents.values()] == [[], []]
    assert repairs(reporters) == {}


@pytest.mark.parametrize(
    "odd",
    [None, {"role": HostedRole.UNFED}, {"role": HostedRole.NONE}, {"leader_epoch": -1}, {"topic_id": UUID(int=9)}],
)
def test_a_replica_a_role_a_fetcher_that_was_lost_is_told_again(reporters, world, odd):
    if odd is None:
        reporters.odd[2, T0] = None
    else:
        reporters.change(2, T0, **odd)
    forget_requests(world)
    reporters.round()
    assert (hosted_again(world, 1), hosted_again(world, 2)) == ([], [T0])
    assert repairs(reporters) == {"told again": 1}
    (record,) = [each for each in read_history([reporters.history]) if each.event == "reconcile"]
    assert (record.subject, record.from_, record.to) == ("t-0", "on broker 2", "told again")
    assert record.why.startswith(("it ", "what it "))


def test_a_leader_that_lost_its_role_is_told_again(reporters, world):
    reporters.change(1, T0, role=HostedRole.NONE)
    forget_requests(world)
    reporters.round()
    assert (hosted_again(world, 1), hosted_again(world, 2)) == ([T0], [])


def test_a_leader_that_lost_its_role_is_told_the_version_it_wrote_last(reporters, world):
    """Found by simulation: its last ISR change was not notified, and an older version came back with its role."""
    path = paths.partition_state(T0)
    world.ensemble.put(path, world.ensemble.nodes[path].data)
    reporters.change(1, T0, role=HostedRole.NONE)
    forget_requests(world)
    reporters.round()
    versions = [
        list(topic.zk_version) for message in world.agents[1].of(pb.LeaderAndIsrRequest) for topic in message.topics
    ]
    assert versions == [[world.ensemble.nodes[path].version]]


def test_what_is_well_again_when_it_is_looked_at_again_is_left_alone(reporters, world):
    reporters.odd[2, T0] = None
    forget_requests(world)
    reporters.report()
    reporters.pass_time(INTERVAL)
    reporters.odd.clear()
    reporters.report()
    reporters.pass_time(CONFIRM)
    assert hosted_again(world, 2) == []
    assert repairs(reporters) == {}


def test_a_difference_that_lasts_is_repaired_with_every_round(reporters, world):
    reporters.odd[2, T0] = None
    reporters.round()
    reporters.round()
    assert repairs(reporters) == {"told again": 2}


def test_what_a_broker_is_being_told_anyway_is_not_repaired(reporters, world):
    reporters.odd[2, T0] = None
    world.agents[2].call = lambda _: pb.ControlResponse(error_code=-1)
    reporters.pass_time(0)
    context, batch = world.term.context, world.term.batch
    batch.host((2,), T0)
    batch.hand_over(world.term.channels)
    assert world.term.channels.owed(2) == {T0}
    reporters.report()
    reporters.pass_time(INTERVAL)
    reporters.report()
    reporters.pass_time(CONFIRM)
    assert repairs(reporters) == {}
    assert context.assignment(T0).replicas == (1, 2)


def test_a_newer_version_of_a_leader_is_read_from_zookeeper(reporters, world):
    world.ensemble.put(paths.partition_state(T0), world.ensemble.nodes[paths.partition_state(T0)].data)
    version = world.ensemble.nodes[paths.partition_state(T0)].version
    reporters.change(1, T0, zk_version=version)
    forget_requests(world)
    reporters.round()
    assert world.term.context.leadership(T0).leader_and_isr.zk_version == version
    assert repairs(reporters) == {"read again": 1}
    assert world.state("t")[2] == 0  # nobody was fenced
    assert hosted_again(world, 1) == [T0]


def test_a_reassignment_is_finished_although_no_notification_told_that_all_are_in_sync(reporters, world):
    world.start_broker(3)
    world.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (1, 3))]))
    world.settle()
    leader, _, epoch, controller = world.state("t")
    world.write_state("t", 0, leader, (1, 2, 3), epoch=epoch, controller=controller)
    reporters.change(leader, T0, zk_version=world.ensemble.nodes[paths.partition_state(T0)].version)
    reporters.round()
    assert world.state("t")[:2] == (1, (1, 3))
    assert not world.term.context.reassigning
    assert paths.REASSIGN_PARTITIONS not in world.ensemble.nodes


def test_a_dead_member_is_taken_out_although_no_notification_told_that_it_is_in_sync_again(reporters, world):
    world.kill_broker(2)
    leader, isr, epoch, controller = world.state("t")
    assert (leader, isr) == (1, (1,))
    world.write_state("t", 0, leader, (1, 2), epoch=epoch, controller=controller)
    reporters.change(1, T0, zk_version=world.ensemble.nodes[paths.partition_state(T0)].version)
    reporters.round()
    assert world.state("t")[:3] == (1, (1,), epoch + 1)


def test_a_leader_epoch_that_zookeeper_does_not_have_is_overtaken(reporters, world):
    reporters.change(2, T0, leader_epoch=6)
    reporters.round()
    assert world.state("t")[2] == 7
    assert world.agents[2].states[T0][:2] == (1, 7)


def test_a_broker_that_leads_against_what_zookeeper_says_gets_a_new_leader_epoch(reporters, world):
    reporters.change(2, T0, role=HostedRole.LEADER, leader=2)
    reporters.round()
    assert world.state("t")[::2] == (1, 2)
    assert world.agents[2].states[T0][:2] == (1, 2)


def test_a_version_that_zookeeper_does_not_have_is_overtaken(reporters, world):
    reporters.change(1, T0, zk_version=50)
    reporters.round()
    assert world.state("t")[2] == 2
    assert world.agents[1].states[T0][:2] == (1, 2)


def test_what_is_not_assigned_is_stopped_and_not_deleted(reporters, world):
    stranger = TopicPartition("t", 7)
    reporters.odd[2, stranger] = reporters.hosted(2)[T0]
    forget_requests(world)
    reporters.round()
    (stop,) = world.agents[2].of(pb.StopReplicaRequest)
    (topic,) = stop.topics
    assert (topic.topic, list(topic.partition), list(topic.delete_partition)) == ("t", [7], [False])
    assert topic.topic_id == world.term.context.topic_id("t").bytes
    assert repairs(reporters) == {"stopped": 1}


def test_a_topic_that_is_unknown_is_stopped_unless_it_has_a_znode(reporters, world):
    gone, unreadable = TopicPartition("gone", 0), TopicPartition("odd", 0)
    for partition in (gone, unreadable):
        reporters.odd[2, partition] = reporters.hosted(2)[T0]
    world.ensemble.put(paths.topic("odd"), b"not json")
    world.settle()
    forget_requests(world)
    reporters.round()
    assert [topic.topic for stop in world.agents[2].of(pb.StopReplicaRequest) for topic in stop.topics] == ["gone"]
    assert repairs(reporters) == {"stopped": 1}


def test_a_report_that_does_not_add_up_is_asked_for_again(reporters, world):
    reporters.digest_off.add(2)
    reporters.report()
    reporters.pass_time(INTERVAL)
    epoch = world.term.context.brokers[2].epoch
    assert reporters.reports.last(2, epoch) is None
    assert reporters.reports.take(Taken(2, epoch, 100, 0, False, 0), [])
    assert not reporters.reports.take(Taken(2, epoch, 101, 0, True, 0), [])


def test_a_late_report_does_not_replace_a_newer_one(reporters, world):
    reporters.report(2)
    epoch = world.term.context.brokers[2].epoch
    before = reporters.reports.replica(2, T0)
    reporters.reports.take(Taken(2, epoch, 0, 99, False, 0), [(T0, msgspec.structs.replace(before, leader_epoch=44))])
    assert reporters.reports.replica(2, T0) == before
    assert reporters.reports.last(2, epoch).digest != 99


def test_brokers_that_never_reported_leave_or_died_are_left_alone(reporters, world):
    forget_requests(world)
    reporters.report(1)
    reporters.odd[2, T0] = None
    reporters.report(2)
    world.kill_broker(2)
    for _ in range(4):
        reporters.report(1)
        reporters.pass_time(INTERVAL)
    assert repairs(reporters) == {}


def test_many_replicas_are_looked_at_in_steps(reporters, world, monkeypatch):
    monkeypatch.setattr("regency.controller.brokers.reconcile.STEP", 2)
    world.write_topic("many", dict.fromkeys(range(9), (1, 2)))
    lost, unfed = TopicPartition("many", 8), TopicPartition("many", 3)
    reporters.odd[2, lost] = None
    reporters.change(2, unfed, role=HostedRole.UNFED)
    forget_requests(world)
    reporters.round()
    assert (hosted_again(world, 1), sorted(hosted_again(world, 2))) == ([], [unfed, lost])


def test_a_broker_that_dies_between_two_steps_is_left_alone(reporters, world, monkeypatch):
    monkeypatch.setattr("regency.controller.brokers.reconcile.STEP", 1)
    reporters.digest_off.add(1)
    reporters.report()
    copy = type(reporters.reports).copy

    def copied_while_another_dies(self, broker, epoch):
        world.ensemble.multi(0, [Delete(paths.broker(2), None)])
        monkeypatch.setattr(type(reporters.reports), "copy", copy)
        return copy(self, broker, epoch)

    monkeypatch.setattr(type(reporters.reports), "copy", copied_while_another_dies)
    reporters.pass_time(INTERVAL)
    assert sorted(world.term.context.brokers) == [1]
    assert repairs(reporters) == {}


def test_the_digests_follow_whatever_happens_to_topics(reporters, world):
    world.start_broker(3)
    digests = HostedDigests(world.term.context)

    def right() -> bool:
        list(digests.refresh())
        fresh = {}
        for broker in (1, 2, 3):
            fresh[broker] = 0
            for partition, replica in reporters.hosted(broker).items():
                fresh[broker] = replaced(fresh[broker], 0, replica.number(partition.partition))
        return fresh == {broker: digests.of(broker) for broker in (1, 2, 3)}

    world.term.context.touched.update(dict.fromkeys(world.term.context.topics))
    assert right()
    world.write_topic("u", {0: (3, 1), 1: (1,)})
    assert right()
    world.kill_broker(1)
    assert right()
    world.start_broker(1)
    assert right()
    world.ensemble.multi(0, [Delete(paths.partition_state(TopicPartition("u", 0)), None)])
    world.mark("u")
    assert right()
    assert world.is_gone("u")
