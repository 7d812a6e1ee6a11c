"""The doctor: ZooKeeper, the ruling controller and agents are compared, and what differs twice is told."""

from __future__ import annotations

import threading

import msgspec
import pytest

from regency.controller.channel.sender import Trouble
from regency.controller.doctor.examination import LIFE_MS, SILENT_MS, Examiner
from regency.controller.doctor.rules import ADVICE, RECONCILED
from regency.controller.events import AgentTroubled
from regency.controller.reassignment.requests import AlterReassignments
from regency.controller.request_gate import RequestGate
from regency.controller.state.reconcile_rules import expected
from regency.controller.state.reports import ReplicaReport, Taken
from regency.model import znodes
from regency.model.hosting import HostedRole
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import inspection_pb2 as pb
from regency.runtime.zookeeper.session import Delete

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Examined:
    """A ruling candidate whose loop runs on a thread, agents that report as they should, and an examiner."""

    def __init__(self, world) -> None:
        self.world, self.candidate = world, world.candidates[0]
        candidate = self.candidate
        gate = RequestGate(candidate.controller, candidate.queue, candidate.loop, timeout_ms=5_000)
        self.examiner = Examiner(candidate.controller, gate, candidate.session, candidate.broker, world.clock)
        self.number = 0

    def report(self, *brokers: int, **changes: object) -> None:
        """All is as it should be, but for `changes` of what is told about partition 0."""
        context = self.candidate.term.context
        for broker in brokers or sorted(context.brokers):
            replicas = {}
            for partition in context.partitions():
                want = expected(context, broker, partition)
                if want is not None:
                    isr = context.leadership(partition).leader_and_isr.isr if want.role is HostedRole.LEADER else ()
                    replicas[partition] = ReplicaReport(
                        want.topic_id, want.role, want.leader, want.leader_epoch, want.zk_version, 5, 7, 0, isr, "/d"
                    )
            if changes and T0 in replicas:
                replicas[T0] = msgspec.structs.replace(replicas[T0], **changes)
            self.number += 1
            now = self.world.clock.monotonic_ms()
            taken = Taken(broker, context.brokers[broker].epoch, self.number, 0, True, now)
            self.candidate.controller.reports.take(taken, replicas.items())

    def examine(self) -> pb.ExamineResponse:
        """Examine while the candidate's thread runs."""
        self.candidate.settle()
        running = threading.Event()
        answers: list[pb.ExamineResponse] = []

        def run() -> None:
            answers.append(self.examiner.examine(pb.ExamineRequest(confirm_ms=1)))
            running.set()

        asking = threading.Thread(target=run, daemon=True)
        asking.start()
        while not running.wait(0.001):
            self.candidate.settle()
        asking.join(1)
        return answers[0]

    def found(self) -> list[tuple[str, str, str]]:
        answer = self.examine()
        assert answer.error_code == ErrorCode.NONE, answer.message
        assert all(each.what and each.advice for each in answer.findings)
        return [(each.subject, each.kind, each.where) for each in answer.findings]


@pytest.fixture
def examined(ruled):
    ruled.write_topic("t", {0: (1, 2, 3), 1: (2, 3, 1)})
    made = Examined(ruled)
    made.report()
    return made


BETWEEN = "zookeeper and the controller"


def test_nothing_differs_where_all_is_well(examined):
    answer = examined.examine()
    assert (answer.controller_epoch, answer.topics, answer.partitions) == (1, 1, 2)
    assert [(each.broker_id, each.hosted, each.unacknowledged) for each in answer.brokers] == [
        (1, 2, 0),
        (2, 2, 0),
        (3, 2, 0),
    ]
    assert list(answer.findings) == []


def test_a_state_znode_that_somebody_wrote(examined, ruled):
    ruled.write_state("t", 0, 1, (1,))
    assert examined.found() == [("t-0", "state_differs", BETWEEN)]


def test_a_state_znode_that_is_gone_or_unreadable(examined, ruled):
    ruled.ensemble.put(paths.partition_state(T0), b"{")
    ruled.ensemble.multi(0, [Delete(paths.partition_state(T1), None)])
    assert examined.found() == [("t-0", "malformed", "zookeeper"), ("t-1", "state_missing", BETWEEN)]


def test_a_state_znode_whose_leader_epoch_leaves_none_for_an_election(examined, ruled):
    ruled.write_state("t", 0, 1, (1,), epoch=2**31 - 999)
    assert examined.found() == [("t-0", "malformed", "zookeeper")]
    (finding,) = examined.examine().findings
    assert "none is left for an election; write a lower one" in finding.what


def test_a_topic_that_no_watch_told_of(examined, ruled):
    examined.candidate.term.context.topics["u"] = examined.candidate.term.context.topics.pop("t")
    examined.candidate.term.context.topics["u"].name = "u"
    kinds = {(subject, kind) for subject, kind, _ in examined.found()}
    assert {("topic t", "topic_unknown"), ("topic u", "topic_gone")} <= kinds


def test_an_assignment_that_differs(examined, ruled):
    entry = examined.candidate.term.context.topics["t"]
    entry.assignments[0] = msgspec.structs.replace(entry.assignments[0], replicas=(1, 3, 2))
    assert examined.found() == [("t-0", "topic_differs", BETWEEN)]


def test_a_broken_invariant(examined, ruled):
    entry = examined.candidate.term.context.topics["t"]
    state = entry.leadership[0]
    wrong = msgspec.structs.replace(state.leader_and_isr, isr=(2, 3))
    entry.leadership[0] = msgspec.structs.replace(state, leader_and_isr=wrong)
    kinds = [(subject, kind) for subject, kind, _ in examined.found()]
    assert ("t-0", "invariant") in kinds and ("t-0", "state_differs") in kinds


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"role": HostedRole.UNFED}, "fetcher_missing"),
        ({"role": HostedRole.OFFLINE}, "replica_offline"),
        ({"leader_epoch": 9}, "epoch_newer"),
        ({"leader_epoch": 1_000_001}, "epoch_unbelievable"),
        ({"leader_epoch": -1}, "epoch_older"),
        ({"high_watermark": 8}, "offsets"),
        ({"log_start_offset": 6}, "offsets"),
        ({"damage": "/d/t-0/00000000000000000000.log holds no sound batch at byte 7"}, "damaged"),
    ],
)
def test_an_agent_that_differs(examined, changes, kind):
    examined.report(3, **changes)
    assert examined.found() == [("t-0", kind, "broker 3")]


def test_two_leaders_and_other_isrs(examined):
    examined.report(3, role=HostedRole.LEADER, leader=3)
    examined.report(1, isr=(1,))
    found = examined.found()
    assert ("t-0", "two_leaders", "agents") in found
    assert ("t-0", "isr_differs", "broker 1") in found


def test_a_log_in_sync_that_does_not_reach_the_high_watermark(examined, ruled):
    ruled.clock.advance(1)
    examined.report(2, log_end_offset=4, high_watermark=4)
    assert examined.found() == [("t-0", "behind_watermark", "broker 2")]


def test_a_frozen_follower_is_not_said_to_lack_what_it_has_had_no_time_to_tell(examined, ruled):
    examined.report(2, log_end_offset=4, high_watermark=4)
    ruled.clock.advance(LIFE_MS)
    examined.report(1, 3)
    assert examined.found() == []


def test_a_follower_that_is_only_slow_to_tell_is_waited_for(examined, ruled):
    examined.report(2, log_end_offset=4, high_watermark=4)
    ruled.clock.advance(1)
    examined.report(1, 3)

    def tell() -> None:
        ruled.clock.advance(1)
        examined.report(2, log_end_offset=4, high_watermark=4)

    threading.Timer(0.3, tell).start()
    assert examined.found() == [("t-0", "behind_watermark", "broker 2")]


def test_an_agent_that_hosts_what_nobody_knows(examined):
    examined.report()
    controller = examined.candidate.controller
    epoch = examined.candidate.term.context.brokers[2].epoch
    replica = controller.reports.replica(2, T0)
    examined.number += 1
    taken = Taken(2, epoch, examined.number, 0, False, examined.world.clock.monotonic_ms())
    controller.reports.take(taken, [(TopicPartition("gone", 3), replica), (TopicPartition("t", 9), replica)])
    (found,) = examined.examine().findings
    assert (found.subject, found.kind, found.where) == ("gone-3", "hosted_unknown", "broker 2")
    assert found.advice == RECONCILED, "its znode is not the matter: there is none"


def test_an_agent_that_says_nothing(examined, ruled):
    ruled.clock.advance(SILENT_MS)
    examined.report(1, 3)
    assert examined.found() == [("broker 2", "silent", "its agent")]


def test_a_broker_that_does_not_do_what_it_is_told(examined, ruled):
    batch, channels = examined.candidate.term.batch, examined.candidate.term.channels
    call = ruled.agents[2].call
    ruled.agents[2].call = lambda message: pb_error(call(message))
    batch.host((2,), T0)
    batch.hand_over(channels)
    examined.candidate.settle()
    ruled.clock.advance(11_000)
    examined.report()
    (finding,) = [each for each in examined.examine().findings if each.kind == "not_acknowledged"]
    assert (finding.subject, finding.where) == ("broker 2", "its agent")


def pb_error(answer):
    answer.error_code = -1
    return answer


def test_brokers_that_are_dead_or_unknown(examined, ruled):
    ruled.kill_broker(3)
    examined.report()
    ruled.ensemble.put(paths.broker(8), znodes.encode_controller_epoch(1))
    found = examined.found()
    assert ("broker 3", "broker_dead", "the cluster") in found
    assert ("broker 8", "broker_unknown", BETWEEN) in found


def test_what_stands_among_brokers_and_is_none_is_named_and_the_rest_is_examined(examined, ruled):
    for name in ("notanumber", "-1", "007", "99999999999"):
        ruled.ensemble.put(f"{paths.BROKER_IDS}/{name}", b"garbage")
    examined.report()
    wrong = {subject: kind for subject, kind, _ in examined.found()}
    assert wrong == dict.fromkeys(["broker notanumber", "broker -1", "broker 007", "broker 99999999999"], "malformed")


def test_a_reassignment_that_waits_for_a_dead_broker_is_named_with_it(examined, ruled):
    ruled.write_topic("moving", {0: [1, 2], 1: [1, 2]})
    partition = TopicPartition("moving", 0)
    ruled.candidates[0].ask(AlterReassignments(((partition, (1, 3)),)))
    examined.report()
    assert "reassignment_waits" not in {kind for _, kind, _ in examined.found()}
    ruled.kill_broker(3)
    examined.report()

    (waiting,) = (each for each in examined.examine().findings if each.kind == "reassignment_waits")

    assert (waiting.subject, waiting.where) == ("moving-0", "broker 3")
    assert waiting.what == "it is being reassigned from [1, 2] to [1, 3], and waits for broker 3, which is not live"
    assert "`regency partitions cancel`" in waiting.advice


def test_a_dead_broker_that_is_still_to_delete_and_a_topic_whose_deletion_waits_for_it(examined, ruled):
    ruled.write_topic("kept", {0: [1, 3]})
    ruled.write_topic("going", {0: [1, 3]})
    ruled.kill_broker(3)
    partition = TopicPartition("kept", 0)
    ruled.candidates[0].ask(AlterReassignments(((partition, (1, 2)),)))
    ruled.rejoin("kept", (1, 2))
    ruled.mark("going")
    examined.report()

    findings = {each.subject: each for each in examined.examine().findings if each.kind.startswith("deletion_")}

    assert {subject: each.kind for subject, each in findings.items()} == {
        "broker 3": "deletion_owed",
        "topic going": "deletion_waits",
    }
    assert findings["broker 3"].what.endswith("still to delete former replicas of 1 partition: kept-0")
    assert "`regency brokers forget 3`" in findings["broker 3"].advice
    assert "`regency brokers forget 3`" in findings["topic going"].what


def test_the_hint_for_a_dead_broker_is_to_drain_it(examined, ruled):
    ruled.kill_broker(3)

    (dead,) = (each for each in examined.examine().findings if each.kind == "broker_dead")

    assert "`regency brokers drain 3`" in dead.advice


def test_a_partition_nobody_leads_and_one_that_is_not_in_sync(examined, ruled):
    ruled.write_topic("alone", {0: (3,)})
    ruled.kill_broker(3)
    ruled.start_broker(3, control=True)
    examined.report()
    kinds = {(subject, kind, where) for subject, kind, where in examined.found()}
    assert ("t-0", "not_in_sync", "broker 3") in kinds
    ruled.kill_broker(3)
    examined.report()
    assert ("alone-0", "leaderless", "the cluster") in set(examined.found())


def test_replicas_of_a_failed_directory_are_told_as_such_and_not_as_late(examined, ruled):
    ruled.write_topic("alone", {0: (3,)})
    alone = TopicPartition("alone", 0)
    epoch = examined.candidate.term.context.brokers[3].epoch
    examined.candidate.queue.put(AgentTroubled(Trouble(3, epoch, failed_storage=(T1, alone)), 1))
    examined.candidate.settle()
    examined.report()

    findings = {(each.subject, each.kind, each.where): each for each in examined.examine().findings}

    assert sorted(findings) == [
        ("alone-0", "leaderless", "the cluster"),
        ("alone-0", "replica_offline", "broker 3"),
        ("t-1", "replica_offline", "broker 3"),
    ]
    assert "directory has failed" in findings["t-1", "replica_offline", "broker 3"].what
    assert "Repair the directory" in findings["t-1", "replica_offline", "broker 3"].advice


def test_a_controller_that_does_not_rule_or_cannot_read_says_so(examined, ruled):
    ruled.ensemble.put(paths.CONTROLLER, znodes.encode_controller(2, timestamp_ms=0))
    assert ("controller", "controller_differs", BETWEEN) in examined.found() or not examined.candidate.rules
    idle = ruled.candidate(2)
    gate = RequestGate(idle.controller, idle.queue, idle.loop, timeout_ms=100)
    examiner = Examiner(idle.controller, gate, idle.session, 2, ruled.clock)
    if not idle.rules:
        assert examiner.examine(pb.ExamineRequest()).error_code == ErrorCode.NOT_CONTROLLER


def test_every_kind_has_advice():
    assert all(advice.endswith(".") for advice in ADVICE.values())
