"""A controller is asked to resign, or to have a broker leave."""

from __future__ import annotations

import pytest

from regency.controller.brokers.leaving import SteerBroker
from regency.controller.events import NotController
from regency.controller.term import LET_OTHERS_MS, Resign
from regency.model.znodes import paths


def test_another_rules_as_soon_as_one_has_resigned(ruled):
    first, second = ruled.candidates[0], ruled.candidate(2)

    assert first.ask(Resign()) == 1
    ruled.settle()

    assert (first.rules, second.rules) == (False, True)
    assert second.term.epoch == 2
    ruled.write_topic("t", {0: [1, 2]})
    assert ruled.state("t") == (1, (1, 2), 0, 2)


def test_who_resigned_does_not_race_while_other_brokers_live_and_rules_again_when_none_of_them_does(ruled):
    candidate = ruled.candidates[0]

    candidate.ask(Resign())
    ruled.settle()
    assert not candidate.rules
    assert paths.CONTROLLER not in ruled.ensemble.nodes

    ruled.clock.advance(LET_OTHERS_MS - 1)
    ruled.settle()
    assert not candidate.rules

    ruled.clock.advance(1)
    ruled.settle()
    assert candidate.rules
    assert candidate.term.epoch == 2


def test_who_is_alone_rules_again_at_once(world):
    world.start_brokers(1)
    candidate = world.candidate(1)

    assert candidate.ask(Resign()) == 1
    world.settle()

    assert candidate.rules
    assert candidate.term.epoch == 2


def test_what_is_asked_of_one_that_resigned_is_refused(ruled):
    candidate = ruled.candidates[0]
    resign, late = Resign(), Resign()
    candidate.queue.put(resign)
    candidate.queue.put(late)

    candidate.settle()

    assert resign.reply.result(0) == 1
    with pytest.raises(NotController):
        late.reply.result(0)


def test_controller_is_left_to_its_session_where_it_cannot_be_given_up(ruled):
    candidate = ruled.candidates[0]
    candidate.session.lose_reads = 100

    assert candidate.ask(Resign()) == 1

    assert not candidate.rules
    assert paths.CONTROLLER in ruled.ensemble.nodes


def test_a_broker_is_steered_under_the_newest_epochs(ruled):
    broker = ruled.candidates[0].term.context.brokers[2]

    steered = ruled.candidates[0].ask(SteerBroker(2, -1))

    assert steered.error.name == "NONE"
    assert (steered.target, steered.broker_epoch) == ("host2:7002", broker.epoch)
    assert (steered.controller_id, steered.controller_epoch) == (1, 1)


def test_a_broker_that_is_not_meant_is_not_steered(ruled):
    epoch = ruled.candidates[0].term.context.brokers[2].epoch

    other = ruled.candidates[0].ask(SteerBroker(2, epoch - 1))
    absent = ruled.candidates[0].ask(SteerBroker(9, -1))

    assert (other.error.name, absent.error.name) == ("STALE_BROKER_EPOCH", "BROKER_NOT_AVAILABLE")
    assert absent.message == "Broker 9 is not live; live are 1, 2, 3."
