"""The cluster at a glance: counts that follow what changes, the worst partitions, what brokers report, old answers."""

from __future__ import annotations

import random

import pytest

from regency.controller.doctor.summary import SETTINGS_LAST_MS, Summariser
from regency.controller.machines.partition_state_machine import PartitionStateMachine
from regency.controller.reassignment.requests import AlterReassignments
from regency.controller.state.reconcile_rules import expected
from regency.controller.state.reports import ReplicaReport, Taken
from regency.controller.state.topic_copies import TopicCopies
from regency.controller.term import Resign
from regency.history.files import HistoryWriter
from regency.history.records import decode_decision
from regency.model import znodes
from regency.model.hosting import HostedRole
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.protos import inspection_pb2 as pb

T0 = TopicPartition("t", 0)


class Summarised:
    """A ruling candidate, a summariser, and agents that report as they should."""

    def __init__(self, world, candidate=None) -> None:
        self.world, self.candidate = world, candidate or world.candidates[0]
        self.summariser = Summariser(
            self.candidate.controller,
            self.candidate.queue,
            self.candidate.loop,
            self.candidate.session,
            broker=self.candidate.broker,
            defaults=self.candidate.config.log_config(),
            clock=world.clock,
        )
        self.number = 0

    def ask(self, *, worst: int = 10, decisions: int = 10) -> pb.SummariseResponse:
        """Summarise while the candidate's thread does nothing for it."""
        return self.summariser.summarise(pb.SummariseRequest(worst=worst, decisions=decisions))

    def report(self, *brokers: int, full: bool = True, log_end: int = 7) -> None:
        context = self.candidate.term.context
        for broker in brokers or sorted(context.brokers):
            replicas = {}
            for partition in context.partitions():
                want = expected(context, broker, partition)
                if want is not None:
                    replicas[partition] = ReplicaReport(
                        want.topic_id, want.role, want.leader, want.leader_epoch, want.zk_version, 5, log_end, 0, (), ""
                    )
            self.number += 1
            now = self.world.clock.monotonic_ms()
            taken = Taken(broker, context.brokers[broker].epoch, self.number, 0, full, now)
            self.candidate.controller.reports.take(taken, replicas.items())


def counts(answer: pb.SummariseResponse) -> tuple[int, int, int, int]:
    assert answer.error_code == ErrorCode.NONE, answer.message
    assert answer.uncounted_topics == 0
    return answer.partitions, answer.offline, answer.under_replicated, answer.under_min_isr


@pytest.fixture
def summarised(ruled):
    ruled.write_topic("t", {0: (1, 2, 3), 1: (2, 3, 1)})
    return Summarised(ruled)


def test_a_cluster_in_which_all_is_well(summarised):
    answer = summarised.ask()
    assert counts(answer) == (2, 0, 0, 0)
    assert (answer.broker_id, answer.incumbent, answer.controller_epoch, answer.topics) == (1, 1, 1, 1)
    assert list(answer.worst) == []
    assert [(each.broker_id, each.host, each.port) for each in answer.brokers] == [
        (1, "host1", 9001),
        (2, "host2", 9002),
        (3, "host3", 9003),
    ]
    assert answer.in_contact


def test_counts_follow_a_broker_that_dies_and_returns(summarised, ruled):
    summarised.ask()
    ruled.kill_broker(3)
    answer = summarised.ask()
    assert counts(answer) == (2, 0, 2, 0)
    assert [(each.topic, each.partition, each.kind, each.leader, list(each.isr)) for each in answer.worst] == [
        ("t", 0, "under_replicated", 1, [1, 2]),
        ("t", 1, "under_replicated", 2, [2, 1]),
    ]
    assert [(each.broker_id, each.broker_epoch >= 0) for each in answer.brokers] == [(1, True), (2, True), (3, False)]
    ruled.start_broker(3)
    ruled.rejoin("t", (1, 2, 3), 2)
    assert counts(summarised.ask()) == (2, 0, 0, 0)


def test_the_worst_come_first_and_no_more_than_asked_for(summarised, ruled):
    ruled.write_topic("alone", {0: (3,), 1: (3,)})
    ruled.ensemble.put(paths.topic_config("t"), znodes.encode_config({"min.insync.replicas": "3"}))
    ruled.kill_broker(3)
    answer = summarised.ask(worst=3)
    assert counts(answer) == (4, 2, 4, 2)
    assert [(each.topic, each.partition, each.kind) for each in answer.worst] == [
        ("alone", 0, "offline"),
        ("alone", 1, "offline"),
        ("t", 0, "under_min_isr"),
    ]


def test_the_worst_of_many_topics_are_those_of_all_of_them(ruled):
    rng = random.Random(1)
    summarised = Summarised(ruled)
    for number in range(12):
        ruled.write_topic(f"t{number}", {n: rng.sample((1, 2, 3), rng.randint(1, 3)) for n in range(4)})
        config = znodes.encode_config({"min.insync.replicas": str(rng.randint(1, 3))})
        ruled.ensemble.put(paths.topic_config(f"t{number}"), config)
    ruled.kill_broker(3)
    ruled.kill_broker(2)
    everything = [(each.kind, each.topic, each.partition) for each in summarised.ask(worst=100).worst]
    assert len({kind for kind, _, _ in everything}) == 3
    for most in (1, 2, 5, 17):
        assert [(each.kind, each.topic, each.partition) for each in summarised.ask(worst=most).worst] == everything[
            :most
        ]


def test_settings_of_all_brokers_count_where_a_topic_says_nothing_and_are_read_again(summarised, ruled):
    ruled.kill_broker(3)
    assert counts(summarised.ask()) == (2, 0, 2, 0)
    everybody = paths.config_of(f"brokers/{paths.EVERY_BROKER}")
    ruled.ensemble.put(everybody, znodes.encode_config({"min.insync.replicas": "3"}))
    ruled.clock.advance(SETTINGS_LAST_MS + 1)
    assert counts(summarised.ask()) == (2, 0, 2, 2)


def test_a_min_isr_above_the_replication_factor_needs_all_replicas(summarised, ruled):
    ruled.ensemble.put(paths.topic_config("t"), znodes.encode_config({"min.insync.replicas": "9"}))
    assert counts(summarised.ask()) == (2, 0, 0, 0)
    ruled.kill_broker(3)
    assert counts(summarised.ask()) == (2, 0, 2, 2)


def test_a_replica_that_is_being_added_is_not_missed(summarised, ruled):
    ruled.start_broker(4)
    summarised.candidate.ask(AlterReassignments(((T0, (1, 2, 4)),)))
    answer = summarised.ask()
    assert counts(answer) == (2, 0, 0, 0)
    assert answer.reassigning == 1


def test_a_topic_that_is_deleted_is_in_no_count(summarised, ruled):
    ruled.kill_broker(3)
    assert counts(summarised.ask()) == (2, 0, 2, 0)
    ruled.mark("t")
    answer = summarised.ask()
    assert (answer.deleting, answer.under_replicated, list(answer.worst)) == (1, 0, [])
    ruled.start_broker(3)
    ruled.settle()
    assert ruled.is_gone("t")
    answer = summarised.ask()
    assert (counts(answer), answer.deleting) == ((0, 0, 0, 0), 0)


def test_counting_is_spread_over_questions_and_says_what_is_left(summarised, ruled, monkeypatch):
    for name in "abc":
        ruled.write_topic(name, {0: (1, 2, 3)})
    ruled.kill_broker(3)
    monkeypatch.setattr("regency.controller.doctor.summary.WORK_MS", 0)
    left = []
    while not left or left[-1]:
        answer = summarised.ask()
        left.append(answer.uncounted_topics)
        assert (answer.topics, answer.partitions, answer.offline) == (4, 5, 0), "what needs no copies is told at once"
    assert left == [3, 2, 1, 0]
    assert counts(summarised.ask()) == (5, 0, 5, 0)
    ruled.start_broker(3)
    ruled.kill_broker(2)
    ruled.kill_broker(1)
    assert summarised.ask().uncounted_topics == 3, "what is known of the others is old"


def test_what_brokers_report_in_numbers(summarised, ruled):
    assert [each.report_age_ms for each in summarised.ask().brokers] == [-1, -1, -1]
    summarised.report()
    ruled.clock.advance(400)
    summarised.report(1, full=False, log_end=17)
    told = {each.broker_id: each for each in summarised.ask().brokers}
    assert [(each.leads, each.follows, each.appended) for each in told.values()] == [(1, 1, 10), (1, 1, 0), (0, 2, 0)]
    assert [each.report_age_ms for each in told.values()] == [0, 400, 400]


def test_growth_is_kept_over_a_full_report_and_a_change_of_leaders_is_no_growth(summarised, ruled):
    summarised.report(log_end=100)
    summarised.report(1, full=False, log_end=150)
    summarised.report(1, full=True, log_end=160)
    ruled.kill_broker(2)
    summarised.report(1, 3, full=False, log_end=500)
    told = {each.broker_id: each for each in summarised.ask().brokers}
    assert [(told[each].leads, told[each].follows) for each in (1, 3)] == [(1, 1), (1, 1)]
    assert told[1].appended == 50 + 340
    assert told[3].appended == 0, "it followed when it reported before"


def test_the_last_decisions_with_their_reasons(ruled, tmp_path):
    ruled.candidate(2, HistoryWriter(tmp_path, "controller"))
    ruled.candidates[0].ask(Resign())
    ruled.settle()
    candidate = ruled.candidates[1]
    assert candidate.rules
    ruled.write_topic("t", {0: (1, 2, 3)})
    ruled.kill_broker(1)
    answer = Summarised(ruled, candidate).ask(decisions=2)
    decided = [decode_decision(line) for line in answer.decisions]
    assert len(decided) == 2
    assert [each.subject for each in decided if each.leader == 2] == ["t-0"]
    assert all(each.why for each in decided)
    assert list(Summarised(ruled, candidate).ask(decisions=0).decisions) == []


def test_one_that_does_not_rule_names_who_does(ruled):
    other = ruled.candidate(2)
    answer = Summarised(ruled, other).ask()
    assert (answer.error_code, answer.incumbent, answer.message) == (ErrorCode.NOT_CONTROLLER, 1, "")


def test_one_that_knows_why_nobody_can_rule_says_it(world):
    world.start_brokers(1)
    world.ensemble.put(paths.CONTROLLER, b"{")
    answer = Summarised(world, world.candidate(1)).ask()
    assert answer.error_code == ErrorCode.NOT_CONTROLLER
    assert paths.CONTROLLER in answer.message


def test_a_new_term_is_counted_anew(summarised, ruled):
    ruled.kill_broker(3)
    assert counts(summarised.ask()) == (2, 0, 2, 0)
    summarised.candidate.ask(Resign())
    assert summarised.ask().error_code == ErrorCode.NOT_CONTROLLER
    ruled.start_broker(3)
    ruled.rejoin("t", (1, 2, 3), 2)
    ruled.pass_time(60_000)
    ruled.settle()
    assert summarised.candidate.rules
    answer = summarised.ask()
    assert (counts(answer), answer.controller_epoch) == ((2, 0, 0, 0), 2)


def test_a_term_that_began_between_two_questions_is_counted_anew(summarised, ruled):
    ruled.kill_broker(3)
    assert counts(summarised.ask()) == (2, 0, 2, 0)
    summarised.candidate.ask(Resign())
    ruled.pass_time(60_000)
    assert summarised.candidate.rules
    assert counts(summarised.ask()) == (2, 0, 2, 0)


def test_a_session_that_is_over_ends_the_answers_before_the_controllers_thread_comes_to_it(summarised):
    summarised.ask()
    summarised.candidate.session.expire()
    assert summarised.ask().error_code == ErrorCode.NOT_CONTROLLER


def test_while_the_controllers_thread_is_busy_the_answer_is_what_it_has_come_to(summarised, ruled, monkeypatch):
    """It is asked in the middle of an event: after the leaderships of a broker that died are lost, before they are
    elected for."""
    seen = []
    elect = PartitionStateMachine._elect

    def asked_before(machine, *arguments, **named):
        seen.append(summarised.ask())
        return elect(machine, *arguments, **named)

    monkeypatch.setattr(PartitionStateMachine, "_elect", asked_before)
    ruled.kill_broker(1)
    assert [(counts(each), each.state) for each in seen] == [((2, 1, 1, 0), "BrokerChange")]
    assert [(each.topic, each.partition, each.kind) for each in seen[0].worst] == [("t", 0, "offline")]
    assert counts(summarised.ask()) == (2, 0, 2, 0)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.timeout(20)
def test_counts_kept_by_changes_are_those_of_a_count_from_scratch(ruled, seed):
    rng = random.Random(seed)
    summarised = Summarised(ruled)
    topics = [f"t{number}" for number in range(4)]
    live = {1, 2, 3}
    for _ in range(12):
        match rng.randrange(4):
            case 0 if len(live) > 1:
                gone = rng.choice(sorted(live))
                live.discard(gone)
                ruled.kill_broker(gone)
            case 1 if len(live) < 3:
                back = rng.choice(sorted({1, 2, 3} - live))
                live.add(back)
                ruled.start_broker(back)
            case 2:
                name = rng.choice(topics)
                if paths.topic(name) not in ruled.ensemble.nodes:
                    ruled.write_topic(name, {n: rng.sample((1, 2, 3), rng.randint(1, 3)) for n in range(3)})
            case _:
                there = [name for name in topics if paths.topic(name) in ruled.ensemble.nodes]
                if there:
                    ruled.mark(rng.choice(there))
        context = summarised.candidate.term.context
        answer = summarised.ask(worst=100)
        found = [copy.health for copy in TopicCopies(context).take().topics if copy.health is not None]
        assert answer.uncounted_topics == 0
        assert answer.under_replicated == sum(each.under_replicated for each in found)
        assert len(answer.worst) == answer.under_replicated
        offline = [each for each in answer.worst if each.kind == "offline"]
        assert len(offline) == answer.offline == context.offline_partitions()


def test_roles_are_counted_as_they_change(summarised, ruled):
    reports, epoch = summarised.candidate.controller.reports, summarised.candidate.term.context.brokers[2].epoch
    summarised.report()
    replica = reports.replica(2, T0)
    for number, role, seen in (
        (100, HostedRole.UNFED, (1, 1, 0)),
        (101, HostedRole.OFFLINE, (1, 0, 1)),
        (102, HostedRole.LEADER, (2, 0, 0)),
        (103, HostedRole.NONE, (1, 0, 0)),
        (104, HostedRole.NONE, (1, 0, 0)),
    ):
        taken = Taken(2, epoch, number, 0, False, 0)
        reports.take(taken, [(T0, ReplicaReport(replica.topic_id, role, 2, 0, 0, 0, 0, 0, (), ""))])
        tally = reports.tally(2, epoch)
        assert (tally.leads, tally.follows, tally.offline) == seen
