"""The last one in sync is back and has lost something: who has the longest log of those that live leads.

Source: KIP-966; docs/concepts/durability.md.
"""

from __future__ import annotations

import pytest

from regency.controller.channel.log_questions import ANSWER_WITHIN_MS
from regency.controller.elections.leader_elections import LeaderBalanceDue
from regency.controller.state.election import LogEnd
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete

T0 = TopicPartition("t", 0)


@pytest.fixture
def four(world):
    """Brokers 1 to 4, of which 1 was the last in sync of topic t, and is dead; a candidate of broker 4 rules."""
    world.start_brokers(1, 2, 3, 4)
    world.candidate(4)
    world.leaderless(allowed=False)
    for broker, end in {2: (4, 100), 3: (4, 120)}.items():
        world.agents[broker].log_ends[T0] = LogEnd(*end, epochs=((0, 0), (3, 70), (4, 90)))
    return world


def returns(world, end, *, whole: bool = False) -> None:
    """Broker 1 registers again, and says this of its log; None: nothing."""
    agent = type(world.agents[1])(silent=end is None)
    agent.log_ends.update({} if end is None else {T0: LogEnd(*end)})
    world.start_broker(1, agent=agent, whole=whole)


def asked(world) -> list[int]:
    return [broker.id for broker, _ in world.candidates[-1].channels.questions]


@pytest.mark.parametrize(
    ("end", "leader"),
    [
        ((4, 110), 3),
        ((4, 120), 1),
        ((4, 121), 1),
        ((5, 3), 1),
        ((3, 90), 3),
        ((3, 91), 1),  # the later epoch is one of which nothing was committed
        ((2, 80), 1),  # nobody else has anything of that epoch
        ((-1, 0), 3),
        ((-1, 125), 1),  # all below was deleted: nobody may give those offsets away again
    ],
)
def test_the_longest_log_that_lacks_nothing_leads_and_between_equals_who_was_in_sync(four, end, leader):
    returns(four, end)

    now, isr, _, _ = four.state("t")
    assert (now, isr) == (leader, (leader,))
    counters = four.candidates[0].controller.counters
    assert counters.elections == {"restarted" if leader == 3 else "offline": 1}
    assert counters.unclean_elections == 0, "nothing is lost by it: it needs no leave and calls nobody"
    assert four.agents[1].states[T0][0] == leader


def test_a_log_that_begins_behind_that_of_the_member_has_what_was_committed_since(four):
    four.agents[3].log_ends[T0] = LogEnd(4, 120, start=100, epochs=((4, 100),))
    returns(four, (3, 95))

    assert four.state("t")[:2] == (3, (3,))


@pytest.mark.parametrize(("watermark", "leader"), [(100, 2), (80, 3)])
def test_of_logs_that_differ_the_one_with_more_known_to_be_committed_leads(four, watermark, leader):
    """Broker 3 has a later epoch instead of what 2 has above 90; all else it knows to be committed is below 80."""
    four.agents[2].log_ends[T0] = LogEnd(3, 100, epochs=((0, 0), (3, 70)), high_watermark=watermark)
    four.agents[3].log_ends[T0] = LogEnd(4, 120, epochs=((0, 0), (3, 70), (4, 90)), high_watermark=80)
    returns(four, (3, 75))

    assert four.state("t")[:2] == (leader, (leader,))


def test_what_was_committed_before_an_unclean_election_does_not_count_against_what_was_since(four):
    four.agents[2].log_ends[T0] = LogEnd(3, 100, epochs=((0, 0), (3, 70)), high_watermark=100)
    four.agents[3].log_ends[T0] = LogEnd(7, 95, epochs=((0, 0), (3, 70), (7, 90)), high_watermark=95)
    returns(four, (3, 75))

    assert four.state("t")[:2] == (3, (3,))


def test_an_older_agent_that_tells_of_no_epochs_leads_only_by_the_same_one(four):
    for broker in (2, 3):
        four.agents[broker].log_ends[T0] = LogEnd(4, 120)
    returns(four, (3, 90))

    assert four.state("t")[:2] == (1, (1,))


def test_who_has_lost_nothing_leads_at_once_and_nobody_is_asked(four):
    four.agents[2].silent = True
    returns(four, None, whole=True)

    assert four.state("t")[:2] == (1, (1,))
    assert asked(four) == []


def test_who_is_alone_leads_at_once(four):
    four.kill_broker(2)
    four.kill_broker(3)
    returns(four, None)

    assert four.state("t")[:2] == (1, (1,))


@pytest.mark.parametrize(("end", "leader"), [((4, 100), 3), (None, 1)])
def test_the_silent_are_waited_for_no_longer_than_questions_take(four, end, leader):
    """Where the one that was in sync is silent nobody is known to have more."""
    four.agents[2].silent = True
    returns(four, end)
    assert four.state("t")[:2] == (-1, (1,))

    four.pass_time(ANSWER_WITHIN_MS)

    assert four.state("t")[:2] == (leader, (leader,))


@pytest.mark.parametrize("how", ["asked for", "by itself"])
def test_that_it_is_preferred_does_not_make_it_lead_while_others_are_asked(four, how):
    four.agents[2].silent = True
    returns(four, (4, 100))
    if how == "asked for":
        four.ensemble.put(paths.PREFERRED_ELECTION, znodes.encode_preferred_election([T0]))
        four.settle()
    else:
        term = four.candidates[0].term
        term.queue.put(LeaderBalanceDue(term.epoch))
        four.settle()
    assert four.state("t")[:2] == (-1, (1,))

    four.pass_time(ANSWER_WITHIN_MS)

    assert four.state("t")[:2] == (3, (3,))


def test_it_dies_again_before_all_have_told(four):
    four.agents[2].silent = True
    returns(four, (4, 100))
    four.kill_broker(1)
    four.pass_time(ANSWER_WITHIN_MS)
    assert four.state("t")[:2] == (-1, (1,)), "nobody else may lead: it has all but its tail"

    four.agents[2].silent = False
    returns(four, (4, 100))

    assert four.state("t")[:2] == (3, (3,))


def test_the_next_controller_decides_the_same_from_what_stands_in_zookeeper(four):
    four.agents[2].silent = True
    returns(four, (4, 100))
    four.agents[2].silent = False
    four.candidates[0].session.expire()
    four.candidates.clear()

    four.candidate(3)

    assert four.state("t")[:2] == (3, (3,))


def test_so_does_one_that_comes_after_the_restart(four):
    four.candidates[0].session.expire()
    four.candidates.clear()
    four.write_state("t", 0, 1, (1,), epoch=7, controller=1)
    returns(four, (4, 100))

    four.candidate(3)

    assert four.state("t")[:2] == (3, (3,))


def test_a_loss_that_no_controller_saw_is_said_on_by_the_next_registration(four):
    four.candidates[0].session.expire()
    four.candidates.clear()
    four.write_state("t", 0, 1, (1,), epoch=7, controller=1)
    returns(four, (4, 100))
    registers_again(four, 1)

    four.candidate(3)

    assert four.state("t")[:2] == (3, (3,))


def registers_again(world, broker: int, *, whole: bool = True) -> None:
    """Nobody looks in between, nor afterwards."""
    path = paths.broker(broker)
    again = Create(path, world.ensemble.nodes[path].data, ephemeral=True)
    world.ensemble.multi(broker, [Delete(path, None), again, world.mark_of(broker, whole=whole)])


def test_a_registration_that_comes_while_brokers_are_read_is_not_one_after_a_loss(four, monkeypatch):
    """Its incarnation was read before it: what it says is read again."""
    session, path = four.candidates[0].session, paths.broker(1)
    read = session.children

    def late(wanted):
        if wanted == paths.BROKER_IDS and path not in four.ensemble.nodes:
            four.agents[1] = type(four.agents[2])()
            four.ensemble.multi(
                1, [Create(path, four.ensemble.nodes[paths.broker(2)].data, ephemeral=True), four.mark_of(1)]
            )
        return read(wanted)

    monkeypatch.setattr(session, "children", late)
    four.kill_broker(3)

    assert four.state("t")[:2] == (1, (1,))
    assert asked(four) == []


def test_of_those_that_go_at_once_who_lost_something_is_not_the_one_that_is_waited_for(four):
    four.write_topic("u", {0: [2, 3]})
    four.agents[3] = type(four.agents[3])()
    four.ensemble.multi(0, [Delete(paths.broker(2), None)])
    registers_again(four, 3, whole=False)
    four.settle()
    assert four.state("u")[:2] == (-1, (2,)), "it may return with all of it"

    four.start_broker(2)

    assert four.state("u")[:2] == (2, (2,))


def test_what_a_leader_has_counts_again_whatever_it_had_lost_before(four):
    four.kill_broker(2)
    four.kill_broker(3)
    returns(four, None)
    four.start_broker(3)
    four.rejoin("t", (3,))
    four.kill_broker(3)

    four.bounce(1)

    assert four.state("t")[:2] == (1, (1,))
    assert asked(four) == []
