"""What a controller process counts over its terms, each number from what happened."""

from __future__ import annotations

import pytest

from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.controller.elections.leader_elections import ElectionType, ElectLeaders
from regency.controller.reassignment.requests import AlterReassignments
from regency.controller.state.election import ELECTED_BECAUSE, RESTARTED
from regency.controller.store.access import Counters
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete, SetData

T0 = TopicPartition("t", 0)


def counters(world) -> Counters:
    return world.candidates[0].controller.counters


def another_wins(world, epoch: bytes) -> None:
    """Broker 99 rules, as if somebody had deleted /controller; nobody here has noticed yet."""
    node = world.ensemble.nodes[paths.CONTROLLER_EPOCH]
    world.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
    create = Create(paths.CONTROLLER, znodes.encode_controller(99, timestamp_ms=0), ephemeral=True)
    world.ensemble.multi(4242, [create, SetData(paths.CONTROLLER_EPOCH, epoch, node.version)])


@pytest.fixture
def four(world):
    """Brokers 1 to 4, and a candidate of broker 4 that rules."""
    world.start_brokers(1, 2, 3, 4)
    world.candidate(4)
    return world


def test_an_unclean_election_counts_once_and_a_clean_one_does_not(four):
    four.write_topic("u", {0: (2, 3)})
    four.leaderless(allowed=True, replicas=(1, 2))

    assert four.state("t")[0] == 2
    assert counters(four).unclean_elections == 1

    four.kill_broker(2)
    assert four.state("u")[0] == 3
    assert counters(four).unclean_elections == 1


def test_elections_are_counted_by_partition_and_by_why(four):
    four.write_topic("u", {0: (3, 4), 1: (3, 4), 2: (4, 3), 3: (2, 4)})
    assert counters(four).elections == {}, "first leaders are not elected"

    four.kill_broker(3)
    assert counters(four).elections == {"offline": 2}
    four.start_broker(3)

    four.leaderless(allowed=True, replicas=(1, 2))
    assert counters(four).elections == {"offline": 2, "unclean": 1}
    four.start_broker(1)

    ruling = four.candidates[0]
    ruling.ask(ControlledShutdown(2, four.term.context.brokers[2].epoch))
    assert (four.state("u", 3)[0], counters(four).elections["controlled_shutdown"]) == (4, 1)

    def sync(*isr: int) -> None:
        leader, _, epoch, controller = four.state("u", 3)
        four.write_state("u", 3, leader, isr, epoch=epoch, controller=controller)
        four.notify_isr_change(TopicPartition("u", 3))

    four.kill_broker(2)
    four.start_broker(2)
    sync(2, 4)
    ruling.ask(ElectLeaders(ElectionType.PREFERRED, (TopicPartition("u", 3),)))
    assert (four.state("u", 3)[0], counters(four).elections["preferred"]) == (2, 1)

    ruling.ask(AlterReassignments(((TopicPartition("u", 3), (1, 4)),)))
    assert (four.state("u", 3)[0], counters(four).elections["reassign"]) == (2, 0), (
        "the leader stays until all are there"
    )
    sync(1, 2, 4)
    assert (four.state("u", 3)[0], counters(four).elections["reassign"]) == (1, 1)
    assert {*counters(four).elections, RESTARTED} == set(ELECTED_BECAUSE), "that one is asserted where it happens"


def test_writes_refused_because_another_rules_count(ruled):
    ruled.write_topic("t", {0: [1, 2, 3]})
    candidate = ruled.candidates[0]
    another_wins(ruled, b"7")
    while candidate.queue.poll() is not None:  # it hears nothing of that
        pass

    ruled.kill_broker(1)

    assert (candidate.rules, counters(ruled).fenced_writes) == (False, 1)
    assert ruled.state("t")[0] == 1, "a deposed controller has written"


def test_failovers_and_events_count_over_terms(ruled):
    candidate = ruled.candidates[0]
    before = counters(ruled).events.copy()
    assert (counters(ruled).failovers, before["controller_change"] > 0, before["session_end"]) == (1, True, 0)

    candidate.session.expire()
    ruled.settle()

    assert (candidate.rules, counters(ruled).failovers) == (True, 2)
    assert counters(ruled).events["session_end"] == 1
    assert counters(ruled).events["controller_change"] > before["controller_change"]


def test_a_candidate_is_in_the_race_unless_its_last_look_failed(ruled):
    ruler, candidate = ruled.candidates[0].controller, ruled.candidate(2).controller
    assert (ruler.in_race, candidate.in_race, candidate.view.ruling) == (True, True, False)

    ruled.ensemble.put(paths.CONTROLLER_EPOCH, b"not a number")
    ruled.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
    ruled.settle()
    failing = [each.controller.in_race for each in ruled.candidates]
    ruled.ensemble.put(paths.CONTROLLER_EPOCH, b"5")
    ruled.pass_time(60_000)

    assert failing == [False, False]
    assert [each.controller.in_race for each in ruled.candidates] == [True, True]


def test_what_other_threads_may_read_is_gone_with_the_term(ruled):
    controller = ruled.candidates[0].controller
    assert controller.term is ruled.term
    assert [each.broker for each in controller.backlogs] == [1, 2, 3]

    ruled.candidates[0].session.expire()
    ruled.candidates[0].loop.process(ruled.candidates[0].queue.poll())

    assert (controller.term, controller.backlogs) == (None, [])
