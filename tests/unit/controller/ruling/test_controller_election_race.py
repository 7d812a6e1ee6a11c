"""The race for /controller and resignation: who rules, in which epoch, and what a stale controller may do."""

from __future__ import annotations

import logging

import pytest

from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.controller.events import BrokersChanged, NotController, SessionEnded
from regency.controller.store.access import Fence, Retry
from regency.controller.store.elector import Elector, Lost
from regency.controller.topics.creation import CreateTopics, NewTopic
from regency.model import znodes
from regency.model.clock import ManualClock
from regency.model.errors import ZnodeMalformed
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete, MultiOutcome, OpOutcome, SetData, ZkCode, ZkError

T0 = TopicPartition("t", 0)


@pytest.fixture
def elector(world, machines) -> Elector:
    """An elector of broker 7 over a session of its own."""
    session = type(machines.session)(world.ensemble)
    elector = Elector(session, Retry(session), 7, ManualClock())
    elector.session = session
    return elector


def rival_wins(world) -> None:
    """Another controller takes over behind everybody's back."""
    if paths.CONTROLLER in world.ensemble.nodes:
        world.ensemble.multi(0, [Delete(paths.CONTROLLER, None)])
    node = world.ensemble.nodes[paths.CONTROLLER_EPOCH]
    epoch = znodes.encode_controller_epoch(int(node.data) + 1)
    create = Create(paths.CONTROLLER, znodes.encode_controller(99, timestamp_ms=0), ephemeral=True)
    world.ensemble.multi(4242, [create, SetData(paths.CONTROLLER_EPOCH, epoch, node.version)])


# The race


def test_winner_holds_the_epoch_and_the_version_it_was_written_at(elector):
    assert elector.elect() == Fence(epoch=1, zk_version=1, generation=1)


def test_second_candidate_loses_and_knows_who_rules(world, elector):
    world.candidate(1)

    lost = elector.elect()

    assert isinstance(lost, Lost)
    assert lost.incumbent.broker == 1


def test_candidate_that_is_overtaken_in_the_race_loses(world, elector):
    elector._create_parents(1)
    elector.session.before_write = lambda: rival_wins(world)

    assert elector.elect() == Lost(None)
    assert world.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"1"


def test_controller_znode_of_an_earlier_session_of_the_same_broker_is_foreign(world, elector):
    data = znodes.encode_controller(7, timestamp_ms=0)
    world.ensemble.multi(4242, [Create(paths.CONTROLLER, data, ephemeral=True)])

    lost = elector.elect()

    assert isinstance(lost, Lost)
    assert (lost.incumbent.broker, lost.incumbent.session_id) == (7, 4242)


def test_leftover_of_the_own_session_is_removed_and_the_race_run_again(elector):
    first = elector.elect()

    second = elector.elect()

    assert (first.epoch, second.epoch) == (1, 2)
    assert not elector.still_rules(first)
    assert elector.still_rules(second)


def test_whoever_wins_while_the_own_leftover_is_removed_keeps_what_he_won(world, elector):
    elector.elect()
    elector.session.before_write = lambda: rival_wins(world)

    assert elector.elect() == Lost(None)
    assert elector.incumbent().session_id == 4242


def test_leftover_of_the_own_session_is_removed_though_somebody_deleted_the_epoch(world, elector):
    elector.elect()
    world.ensemble.delete(paths.CONTROLLER_EPOCH)

    second = elector.elect()

    assert second.epoch == 2
    assert elector.still_rules(second)


def test_lost_reply_of_a_won_race_is_recognised(elector):
    elector._create_parents(1)
    elector.session.lose_replies = 1

    fence = elector.elect()

    assert fence == Fence(epoch=1, zk_version=1, generation=1)
    assert elector.still_rules(fence)


def test_lost_reply_of_a_lost_race_is_recognised(world, elector):
    elector._create_parents(1)
    elector.session.before_write = lambda: rival_wins(world)
    elector.session.lose_replies = 1

    assert elector.elect() == Lost(None)


def test_race_that_zookeeper_refuses_is_no_lost_one(elector):
    elector._create_parents(1)
    refused = MultiOutcome((OpOutcome(ZkCode.NO_AUTH), OpOutcome(ZkCode.ROLLED_BACK)))
    elector.session.multi = lambda ops, generation: refused

    with pytest.raises(ZkError, match="/controller: no_auth"):
        elector.elect()


@pytest.mark.parametrize("data", [b"seven", b"", b"2147483647"])
def test_epoch_that_cannot_be_followed_elects_nobody_and_names_the_znode(world, elector, data):
    world.ensemble.put(paths.CONTROLLER_EPOCH, data)

    with pytest.raises(ZnodeMalformed, match="/controller_epoch"):
        elector.elect()


def test_unreadable_controller_znode_rules_until_it_is_gone(world, caplog):
    caplog.set_level(logging.INFO)
    world.ensemble.multi(4242, [Create(paths.CONTROLLER, b"{", ephemeral=True)])
    candidate = world.candidate(1)
    assert not candidate.rules
    [told] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert told.getMessage().startswith(f"{paths.CONTROLLER}: ")
    assert told.exc_info is None
    assert "broker -1" not in caplog.text

    world.ensemble.delete(paths.CONTROLLER)
    world.settle()

    assert candidate.rules


def test_released_controller_is_gone_at_once(world, elector):
    elector.release(elector.elect())

    assert paths.CONTROLLER not in world.ensemble.nodes


def test_release_leaves_a_successors_znode_alone(world, elector):
    fence = elector.elect()
    rival_wins(world)

    elector.release(fence)

    assert znodes.decode_controller("", world.ensemble.nodes[paths.CONTROLLER].data) == 99


# Losing and leaving


def test_other_candidate_takes_over_when_the_session_ends(ruled):
    other = ruled.candidate(2)
    ruled.write_topic("t", {0: [1, 2]})

    ruled.candidates[0].session.expire()
    ruled.settle()

    assert [candidate.rules for candidate in ruled.candidates].count(True) == 1
    ruler = next(candidate for candidate in ruled.candidates if candidate.rules)
    assert ruler.controller.view.epoch == 2
    assert ruled.state("t") == (1, (1, 2), 0, 1)
    assert other.controller.view.epoch in (0, 2)


def test_controller_whose_session_died_unnoticed_by_the_server_waits_for_its_old_znode(ruled):
    candidate = ruled.candidates[0]
    old = candidate.session.session_id

    candidate.session.expire(server_knows=False)
    ruled.settle()
    assert not candidate.rules

    ruled.ensemble.expire(old)
    ruled.settle()

    assert candidate.rules
    assert candidate.controller.view.epoch == 2


def test_late_word_of_an_old_session_does_not_end_a_new_term(ruled):
    candidate = ruled.candidates[0]
    candidate.session.expire()
    ruled.settle()
    assert candidate.controller.view.epoch == 2

    candidate.queue.put(SessionEnded(1))
    ruled.settle()

    assert candidate.rules


def test_controller_deleted_by_hand_is_won_again_in_a_higher_epoch(ruled):
    ruled.ensemble.delete(paths.CONTROLLER)
    ruled.settle()

    assert ruled.candidates[0].controller.view.epoch == 2
    assert ruled.candidates[0].rules


def test_stale_controller_cannot_write_and_resigns(ruled, caplog):
    caplog.set_level(logging.INFO)
    candidate = ruled.candidates[0]
    ruled.write_topic("t", {0: [3, 2]})
    candidate.session._watches.clear()  # it sleeps: it notices nothing
    rival_wins(ruled)
    ruled.ensemble.multi(0, [Delete(paths.broker(3), None)])
    candidate.queue.put(BrokersChanged())
    candidate.settle()

    assert ruled.state("t") == (3, (3, 2), 0, 1)
    assert not candidate.rules
    assert candidate.channels.closed
    assert "no longer at version" in caplog.text
    assert ruled.agents[2].states[T0] == (3, 0, (3, 2))


def test_stale_controller_cannot_create_a_topic(ruled):
    candidate = ruled.candidates[0]
    candidate.session._watches.clear()
    rival_wins(ruled)

    with pytest.raises(NotController):
        candidate.ask(CreateTopics((NewTopic("t", 1, 1),), validate_only=False))

    assert paths.topic("t") not in ruled.ensemble.nodes
    assert paths.topic_config("t") not in ruled.ensemble.nodes


def test_everybody_who_waits_is_answered_when_the_session_ends(ruled):
    candidate = ruled.candidates[0]
    waiting = [CreateTopics((), validate_only=False), ControlledShutdown(1, 1)]
    for event in waiting:
        candidate.queue.put(event)

    candidate.session.expire()

    for event in waiting:
        with pytest.raises(NotController):
            event.reply.result(0)


def test_requests_to_a_candidate_that_does_not_rule_are_answered(ruled):
    other = ruled.candidate(2)

    with pytest.raises(NotController):
        other.ask(ControlledShutdown(1, 1))


def test_resignation_ends_senders_and_topic_watches(ruled):
    candidate = ruled.candidates[0]
    ruled.write_topic("t", {0: [1]})
    assert paths.topic("t") in candidate.session.watched
    rival_wins(ruled)
    ruled.settle()

    assert not candidate.rules
    assert candidate.channels.closed
    assert paths.topic("t") not in candidate.session.watched
    assert candidate.controller.view.brokers == {}
    assert candidate.controller.view.incumbent == 99


def test_state_written_under_a_newer_epoch_makes_it_rule_again_beyond_that(ruled):
    ruled.write_topic("t", {0: [3, 2]})
    ruled.write_state("t", 0, 2, [2], epoch=1, controller=9)

    ruled.notify_isr_change(T0)

    assert not ruled.candidates[0].rules
    assert paths.CONTROLLER not in ruled.ensemble.nodes
    ruled.clock.advance(100)
    ruled.settle()
    assert ruled.ensemble.nodes[paths.CONTROLLER_EPOCH].data == b"10"
    assert ruled.candidates[0].rules
    assert ruled.state("t") == (2, (2,), 1, 9)


def test_failure_while_ruling_lets_another_rule_and_races_again_later(ruled, monkeypatch, caplog):
    candidate = ruled.candidates[0]
    monkeypatch.setattr(candidate.term.partitions, "handle", lambda *_: 1 / 0)
    ruled.write_topic("t", {0: [3]})
    assert not candidate.rules
    assert paths.CONTROLLER not in ruled.ensemble.nodes
    assert "handling TopicsChanged failed" in caplog.text

    ruled.clock.advance(100)
    ruled.settle()

    assert candidate.controller.view.epoch == 2
    assert ruled.state("t") == (3, (3,), 0, 2)


def test_unreadable_cluster_id_lets_another_rule_and_is_read_again_later(world, caplog):
    world.ensemble.put(paths.CLUSTER_ID, b"{")
    candidate = world.candidate(1)
    assert not candidate.rules
    assert paths.CONTROLLER not in world.ensemble.nodes
    assert "/cluster/id" in caplog.text

    world.ensemble.put(paths.CLUSTER_ID, znodes.encode_cluster_id("cluster"))
    world.clock.advance(100)
    world.settle()

    assert candidate.rules


def test_session_that_is_lost_while_it_waits_to_race_again_races_later(ruled, monkeypatch):
    candidate = ruled.candidates[0]
    monkeypatch.setattr(candidate.term.partitions, "handle", lambda *_: 1 / 0)
    ruled.write_topic("t", {0: [3]})
    candidate.session.expire()
    ruled.settle()
    assert not candidate.rules

    ruled.clock.advance(100)
    ruled.settle()

    assert candidate.rules


def test_failures_in_a_row_wait_longer_and_longer(ruled, monkeypatch):
    monkeypatch.setattr("regency.controller.controller.take_over", lambda _: 1 / 0)
    candidate = ruled.candidates[0]
    ruled.ensemble.delete(paths.CONTROLLER)
    ruled.settle()
    epochs = []
    for delay in (100, 200, 400):
        ruled.clock.advance(delay - 1)
        ruled.settle()
        before = ruled.ensemble.nodes[paths.CONTROLLER_EPOCH].data
        ruled.clock.advance(1)
        ruled.settle()
        epochs.append((before, ruled.ensemble.nodes[paths.CONTROLLER_EPOCH].data))
    assert epochs == [(b"2", b"3"), (b"3", b"4"), (b"4", b"5")]
    assert not candidate.rules
