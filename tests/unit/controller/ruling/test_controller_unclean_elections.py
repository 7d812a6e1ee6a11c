"""Elections of a leader that was not in sync: by the longest log of those that live, asked for without waiting.

Source: UncleanLeaderElectionTest; docs/internals/architecture.md.
"""

from __future__ import annotations

import pytest

from regency.controller.channel.log_questions import ANSWER_WITHIN_MS
from regency.controller.elections.leader_elections import ElectionOutcome, ElectionType, ElectLeaders
from regency.controller.events import NotController
from regency.controller.state.election import LogEnd
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)
KEY = "unclean.leader.election.enable"


def knows(world, **ends) -> None:
    for broker, end in ends.items():
        agent = world.agents[int(broker.removeprefix("b"))]
        if end is None:
            agent.silent = True
        else:
            agent.log_ends[T0] = LogEnd(*end)


def restart(world, broker, end) -> None:
    """A dead broker returns, and says this of its log; None: nothing."""
    agent = type(world.agents[broker])(silent=end is None)
    agent.log_ends.update({} if end is None else {T0: end})
    world.start_broker(broker, agent=agent)


def wait(world, ms=ANSWER_WITHIN_MS) -> None:
    world.pass_time(ms)


@pytest.fixture
def four(world):
    """Brokers 1 to 4, and a candidate of broker 4 that rules."""
    world.start_brokers(1, 2, 3, 4)
    world.candidate(4)
    return world


@pytest.mark.parametrize(
    ("two", "three", "leader"),
    [
        ((4, 100), (4, 120), 3),
        ((4, 120), (4, 100), 2),
        ((5, 10), (4, 100), 2),
        ((4, 100), (5, 10), 3),
        ((4, 100), (4, 100), 2),
        ((-1, 0), (0, 1), 3),
    ],
)
def test_longest_log_leads_by_epoch_then_end_then_order(four, two, three, leader):
    knows(four, b2=two, b3=three)

    four.leaderless(allowed=True)

    now, isr, _, _ = four.state("t")
    assert (now, isr) == (leader, (leader,))


def test_reason_says_which_rule_decided_and_by_what(four, caplog):
    knows(four, b2=(4, 100), b3=(4, 120))
    caplog.set_level("INFO")

    four.leaderless(allowed=True)

    (line,) = [each for each in caplog.messages if each.startswith("elected 3 for t-0")]
    assert "no member of the ISR [1] is live" in line
    assert "longest log of the live replicas is that of 3 (epoch 4, end 120); 2 (epoch 4, end 100)" in line


def test_silent_replica_is_ranked_last_after_two_seconds(four, caplog):
    caplog.set_level("INFO")
    knows(four, b2=None, b3=(0, 1))
    four.leaderless(allowed=True)
    assert four.state("t")[0] == -1
    wait(four, ANSWER_WITHIN_MS - 1)
    assert four.state("t")[0] == -1

    wait(four, 1)

    assert four.state("t")[:2] == (3, (3,))
    assert "2 (silent)" in caplog.text


def test_kafkas_order_is_left_where_nobody_answers_and_it_says_so(four, caplog):
    caplog.set_level("INFO")
    knows(four, b2=None, b3=None)
    four.leaderless(allowed=True)

    wait(four)

    assert four.state("t")[:2] == (2, (2,))
    assert "none of [2, 3] tells how far its log goes: the first live replica of [1, 2, 3], as in Kafka" in caplog.text


def test_only_live_replica_leads_at_once(four, caplog):
    caplog.set_level("INFO")
    four.kill_broker(3)
    knows(four, b2=None)

    four.leaderless(allowed=True)

    assert four.state("t")[:2] == (2, (2,))
    assert "2 is the only live replica of [1, 2, 3]" in caplog.text


def test_member_of_the_isr_that_appears_ends_it(four):
    knows(four, b2=None, b3=(9, 999))
    four.leaderless(allowed=True)
    assert four.state("t")[:2] == (-1, (1,))

    four.start_broker(1)

    assert four.state("t")[:2] == (1, (1,))
    before = four.state("t")
    four.agents[2].silent = False
    four.settle()
    wait(four)
    assert four.state("t") == before
    assert not four.candidates[0].term.context.inquiries


def test_replica_that_comes_meanwhile_is_asked_too(four):
    knows(four, b2=None, b3=None)
    four.agents[4].silent = True
    four.leaderless(allowed=True, replicas=(1, 2, 3, 4))
    four.kill_broker(3)

    restart(four, 3, LogEnd(7, 1))

    assert four.state("t")[0] == -1, "others have not answered"
    wait(four)

    assert four.state("t")[:2] == (3, (3,))


def test_word_of_an_earlier_life_does_not_count(four):
    """It answered, then restarted: its log need not be what it was."""
    knows(four, b2=(4, 100), b3=None)
    four.agents[4].silent = True
    four.leaderless(allowed=True, replicas=(1, 2, 3, 4))
    inquiries = four.candidates[0].term.context.inquiries
    assert inquiries[T0].ends[2] == LogEnd(4, 100)
    four.kill_broker(2)

    restart(four, 2, None)

    assert 2 not in inquiries[T0].ends
    wait(four)
    assert four.state("t")[:2] == (2, (2,)), "nobody has said anything"


def test_nothing_is_asked_where_it_is_not_allowed(four):
    """UncleanLeaderElectionTest, disabled: nobody leads until the last in sync returns, and nothing is lost."""
    knows(four, b2=(4, 100), b3=(4, 120))
    four.leaderless(allowed=False)
    wait(four)

    assert four.state("t")[:2] == (-1, (1,))
    assert not four.candidates[0].channels.questions
    four.start_broker(1)
    assert four.state("t")[:2] == (1, (1,))


def test_many_partitions_are_asked_for_in_one_question_per_broker(four):
    four.ensemble.put(paths.topic_config("t"), znodes.encode_config({KEY: "true"}))
    four.write_topic("t", {number: [1, 2, 3] for number in range(50)})
    for number in range(50):
        four.write_state("t", number, 1, (1,), epoch=1)
    four.notify_isr_change(*[TopicPartition("t", number) for number in range(50)])
    knows(four, b2=None, b3=None)

    four.kill_broker(1)

    asked = [(broker.id, len(about)) for broker, about in four.candidates[0].channels.questions]
    assert asked == [(2, 50), (3, 50)]
    wait(four)
    assert {four.state("t", number)[0] for number in range(50)} == {2}


def test_new_controller_asks_anew(four):
    """What the one before was told is gone with it; everything needed stands in ZooKeeper."""
    knows(four, b2=None, b3=(4, 120))
    four.leaderless(allowed=True)
    four.candidates[0].session.expire()
    knows(four, b2=(4, 100))
    four.agents[2].silent = False

    four.settle()

    leader, isr, _, controller = four.state("t")
    assert (leader, isr, controller) == (3, (3,), 2)


# By request


def ask(world, *partitions):
    event = ElectLeaders(ElectionType.UNCLEAN, partitions or None)
    world.candidates[0].queue.put(event)
    world.settle()
    return event.reply


def test_elect_unclean_leaders_for_one_partition(four):
    """PlaintextAdminIntegrationTest.testElectUncleanLeadersForOnePartition; the settings do not matter."""
    knows(four, b2=(4, 100), b3=(4, 120))
    four.leaderless(allowed=False)

    assert ask(four, T0).result(0) == (ElectionOutcome(T0, leader=3),)
    assert four.state("t")[:2] == (3, (3,))


def test_elect_unclean_leaders_for_many_partitions(four):
    """PlaintextAdminIntegrationTest.testElectUncleanLeadersForManyPartitions."""
    four.leaderless(allowed=False)
    four.write_topic("u", {0: [2, 3]})
    other = TopicPartition("u", 0)
    four.write_state("u", 0, 2, (2,), epoch=1)
    four.notify_isr_change(other)
    four.kill_broker(2)

    reply = ask(four, T0, other)

    assert {each.partition: each.leader for each in reply.result(0)} == {T0: 3, other: 3}
    assert (four.state("t")[:2], four.state("u")[:2]) == ((3, (3,)), (3, (3,)))


def test_answer_waits_for_the_logs_without_keeping_others_waiting(four):
    knows(four, b2=None, b3=(4, 120))
    four.leaderless(allowed=False)

    reply = ask(four, T0)

    assert not reply.done()
    four.write_topic("other", {0: [4]})
    assert four.state("other")[0] == 4
    wait(four)
    assert reply.result(0) == (ElectionOutcome(T0, leader=3),)


def test_elect_unclean_leaders_for_all_partitions(four):
    """…ForAllPartitions: only those that need one are answered."""
    knows(four, b2=(4, 100), b3=(4, 120))
    four.leaderless(allowed=False)
    four.write_topic("led", {0: [2, 3]})

    assert [each.partition for each in ask(four).result(0)] == [T0]
    assert ask(four).result(0) == ()


def test_elect_unclean_leaders_unknown_noop_and_no_live_brokers(four):
    """…ForUnknownPartitions, …Noop, …AndNoop, …WhenNoLiveBrokers."""
    four.write_topic("led", {0: [2, 3]})
    four.leaderless(allowed=False, replicas=(1,))
    led, unknown = TopicPartition("led", 0), TopicPartition("led", 9)

    outcomes = ask(four, unknown, led, T0).result(0)

    assert [(each.partition, each.error) for each in outcomes] == [
        (unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (led, ErrorCode.ELECTION_NOT_NEEDED),
        (T0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE),
    ]
    assert outcomes[2].leader == -1


def test_clean_leader_that_comes_first_is_the_answer(four):
    knows(four, b2=None, b3=None)
    four.leaderless(allowed=False)
    reply = ask(four, T0)
    assert not reply.done()

    four.start_broker(1)

    assert reply.result(0) == (ElectionOutcome(T0, leader=1),)


def test_topic_that_goes_meanwhile_is_answered(four):
    knows(four, b2=None, b3=None)
    four.leaderless(allowed=False)
    reply = ask(four, T0)

    four.ensemble.delete(paths.topic("t"))
    four.settle()

    assert [each.error for each in reply.result(0)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


def test_end_of_the_term_refuses_whoever_waits(four):
    knows(four, b2=None, b3=None)
    four.leaderless(allowed=False)
    reply = ask(four, T0)

    four.candidates[0].session.expire()
    four.settle()

    with pytest.raises(NotController):
        reply.result(0)
