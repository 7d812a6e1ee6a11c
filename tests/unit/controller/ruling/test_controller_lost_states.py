"""Partitions whose state znode is gone when a controller begins to rule: their logs are asked for before one leads."""

from __future__ import annotations

import pytest

from regency.controller.channel.log_questions import ANSWER_WITHIN_MS
from regency.controller.elections.leader_elections import ASK_AGAIN_MS, ElectionType, ElectLeaders
from regency.controller.state.election import LogEnd, elect_without_state
from regency.model import znodes
from regency.model.ids import LARGEST_LEAP, TopicPartition
from regency.model.znodes import paths

T0 = TopicPartition("t", 0)
SHORT, LONG, OLDER = LogEnd(4, 90, 5), LogEnd(4, 100, 5), LogEnd(3, 120, 7)


@pytest.fixture
def lost(world):
    """Loses the state of t-0, assigned to brokers 1 to 3, with these ends of their logs; then another term begins."""

    def lose(*ends: LogEnd | None, dead: tuple[int, ...] = (), silent: tuple[int, ...] = ()) -> None:
        for broker, end in zip((1, 2, 3), ends, strict=True):
            if end is not None:
                world.agents[broker].log_ends[T0] = end
            world.agents[broker].silent = broker in silent
        for broker in dead:
            world.kill_broker(broker)
        world.ensemble.delete(paths.partition_state(T0))
        world.candidates[0].session.expire()
        world.settle()

    world.start_brokers(1, 2, 3, 4)
    world.candidate(4)
    world.write_topic("t", {0: [1, 2, 3]})
    world.lose = lose
    return world


def has_state(world) -> bool:
    return paths.partition_state(T0) in world.ensemble.nodes


def test_the_longest_log_leads_alone_beyond_all_leader_epochs_and_it_is_an_unclean_election(lost, caplog):
    caplog.set_level("INFO")
    lost.lose(SHORT, LONG, OLDER)
    assert lost.state("t") == (2, (2,), 8, 2)
    assert [lost.agents[each].states[T0] for each in (1, 2, 3)] == [(2, 8, (2,))] * 3
    counters = lost.candidates[0].controller.counters
    assert (counters.unclean_elections, counters.elections["unclean"]) == (1, 1)
    (line,) = [each for each in caplog.messages if each.startswith("elected 2 for t-0")]
    assert (
        "unclean: the state znode is lost; the longest log of the live replicas is that of 2 (epoch 4, end 100)" in line
    )


def test_where_nobody_has_a_log_the_partition_is_created_as_any_other(lost):
    """Whoever ruled before died between the topic and its states."""
    lost.lose(None, None, None, dead=(1,))
    assert lost.state("t") == (2, (2, 3), 0, 2)
    assert lost.candidates[0].controller.counters.unclean_elections == 0


def test_a_replica_that_is_away_and_may_have_more_is_waited_for(lost, caplog):
    lost.lose(SHORT, SHORT, LONG, dead=(3,))
    assert not has_state(lost)
    assert "1 partitions wait, such as t-0: its state znode is lost, and replicas [3], of which" in caplog.text
    returned = type(lost.agents[3])()
    returned.log_ends[T0] = LONG
    lost.start_broker(3, agent=returned)
    assert lost.state("t")[:3] == (3, (3,), 6)


def test_an_operator_may_do_without_a_replica_that_is_away(lost):
    lost.lose(SHORT, LONG, LONG, dead=(3,))
    (outcome,) = lost.candidates[0].ask(ElectLeaders(ElectionType.UNCLEAN, (T0,)))
    assert (outcome.error, outcome.leader) == (0, 2)
    assert lost.state("t")[:3] == (2, (2,), 6)


def test_settings_may_do_without_a_replica_that_is_away(lost):
    config = znodes.encode_config({"unclean.leader.election.enable": "true"})
    lost.ensemble.put(paths.topic_config("t"), config)
    lost.lose(SHORT, SHORT, LONG, dead=(3,))
    assert lost.state("t")[:3] == (1, (1,), 6)


def test_one_that_lives_and_is_silent_is_asked_again(lost):
    lost.lose(SHORT, SHORT, LONG, silent=(3,))
    lost.pass_time(ANSWER_WITHIN_MS)
    assert not has_state(lost)
    lost.agents[3].silent = False
    lost.candidates[0].term.channels.questions.clear()
    lost.pass_time(ASK_AGAIN_MS)
    assert lost.state("t")[:3] == (3, (3,), 6)


def test_nobody_is_asked_about_what_is_created_and_every_broker_once_at_a_failover(lost, monkeypatch):
    asked = []
    ask = type(lost.candidates[0].term.channels).ask_log_ends
    monkeypatch.setattr(
        type(lost.candidates[0].term.channels),
        "ask_log_ends",
        lambda self, broker, partitions: (asked.append((broker.id, len(partitions))), ask(self, broker, partitions))[1],
    )
    lost.write_topic("many", {number: [1, 2] for number in range(50)})
    assert asked == []
    for number in range(50):
        lost.ensemble.delete(paths.partition_state(TopicPartition("many", number)))
    lost.candidates[0].session.expire()
    lost.settle()
    assert asked == [(1, 50), (2, 50)]
    assert {lost.state("many", number)[:3] for number in range(50)} == {(1, (1, 2), 0)}


@pytest.mark.parametrize(
    ("ends", "elected", "epoch", "unheard"),
    [
        ({1: LogEnd(-1, 0), 2: LogEnd(-1, -1), 3: LogEnd(-1, -1)}, (1, (1,), True), 0, ()),
        ({1: LogEnd(-1, -1), 2: None, 3: LogEnd(-1, -1)}, (1, (1,), True), 0, (2,)),
        ({1: None, 2: LogEnd(2, 7, 2), 3: LogEnd(-1, -1, 9)}, (2, (2,), True), 10, (1,)),
        ({1: LogEnd(4, 7, 4), 2: LogEnd(4, 7, 6), 3: LogEnd(3, 9, 3)}, (1, (1,), True), 7, ()),
        ({1: LogEnd(4, 7, 2**31 - 1), 2: LogEnd(4, 6, LARGEST_LEAP), 3: None}, (1, (1,), True), LARGEST_LEAP + 1, (3,)),
    ],
)
def test_who_leads_without_a_state(ends, elected, epoch, unheard):
    recovery = elect_without_state((1, 2, 3), {1, 2, 3}, ends)
    election = recovery.election
    assert ((election.leader, election.isr, election.unclean), recovery.leader_epoch) == (elected, epoch)
    assert recovery.unheard == unheard
