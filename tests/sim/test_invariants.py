"""Every rule of what may stand in ZooKeeper fires where it is broken, and nowhere in what controllers and agents do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulation.judging.invariants import INVARIANTS, InvariantBroken, broken
from simulation.judging.story import ID, OTHER_ID, STATE, TOPIC, TP, Story
from simulation.judging.zookeeper_rules import GONE_US

from regency.model import znodes
from regency.model.ids import BrokerId
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create, Delete, SetData


@pytest.fixture
def story() -> Story:
    told = Story()
    told.begin()
    return told


def test_what_controllers_and_agents_do_breaks_nothing(story: Story) -> None:
    story.change_isr(1, story.state(1, 0, 1, 2))
    story.change_isr(1, story.state(1, 0, 1, 2, 3))
    story.end_session(story.agents[1])
    story.decide(story.state(2, 1, 2, 3))
    story.end_session(story.controller)
    story.controller = story.session()
    story.win(2, story.controller)
    story.decide(story.state(3, 2, 3))
    story.end_session(story.agents[3])
    story.decide(story.state(-1, 3, 3))
    story.agents[3] = story.register(3)
    story.decide(story.state(3, 4, 3))
    story.agents[1] = story.register(1)
    story.change_isr(3, story.state(3, 4, 3, 1))
    story.multi(story.controller, story.fence(), SetData(paths.topic(TOPIC), story.topic(1, 3), 0))
    story.multi(story.agents[1], Create(paths.isr_change_prefix(), b"{}", sequential=True))
    listed = story.model.tree.names(paths.ISR_CHANGE_NOTIFICATION)
    story.multi(story.controller, story.fence(), Delete(f"{paths.ISR_CHANGE_NOTIFICATION}/{listed[0]}", None))
    assert story.facts.of(TP).leader_changes == 2
    assert not story.facts.excused(TP)
    assert set(story.rules.changed) == {TP}


def test_a_deposed_controller_may_race_again(story: Story) -> None:
    story.multi(story.controller, Delete(paths.CONTROLLER, 0))
    story.win(1, story.controller)
    story.decide(story.state(2, 1, 1, 2, 3))


def test_a_topic_may_be_made_anew(story: Story) -> None:
    fence = story.fence()
    for path in (STATE, paths.topic_partition(TP), paths.topic_partitions(TOPIC), paths.topic(TOPIC)):
        story.multi(story.controller, fence, Delete(path, None))
    story.multi(story.controller, fence, Create(paths.topic(TOPIC), story.topic(3, 2, topic_id=OTHER_ID)))
    story.multi(story.controller, fence, Create(paths.topic_partitions(TOPIC)))
    story.multi(story.controller, fence, Create(paths.topic_partition(TP)), Create(STATE, story.state(3, 0, 3, 2)))
    state = story.rules.state(TP)
    assert state is not None and state.leader == 3
    assert story.rules.by_id.keys() == {ID, OTHER_ID}


def race_alone(story: Story) -> None:
    story.end_session(story.controller)
    story.multi(story.session(), Create(paths.CONTROLLER, znodes.encode_controller(BrokerId(2), timestamp_ms=0)))


def race_past(story: Story) -> None:
    story.end_session(story.controller)
    story.win(2, story.session(), epoch=3)


def write_deposed(story: Story) -> None:
    deposed = story.controller
    story.multi(deposed, Delete(paths.CONTROLLER, 0))
    story.win(2, story.session())
    story.multi(deposed, SetData(paths.topic(TOPIC), story.topic(1, 2, 3), 0))


def lose_version(story: Story) -> None:
    story.rules.topics[TOPIC].states[0].version += 1
    story.decide(story.state(2, 1, 1, 2, 3))


def lead_in_two_epochs(story: Story) -> None:
    story.rules.topics[TOPIC].leaders[0][1] = BrokerId(3)
    story.decide(story.state(2, 1, 1, 2, 3))


def forget_epoch(story: Story) -> None:
    story.decide(story.state(2, 5, 1, 2, 3))
    story.multi(story.controller, story.fence(), Delete(STATE, None))
    story.multi(story.controller, story.fence(), Create(STATE, story.state(1, 0, 1)))


def join_unregistered(story: Story) -> None:
    story.change_isr(1, story.state(1, 0, 1, 2))
    story.end_session(story.agents[3])
    story.now_us += GONE_US + 1
    story.change_isr(1, story.state(1, 0, 1, 2, 3))


def hide_a_restart(story: Story) -> None:
    story.end_session(story.agents[2])
    story.register(2)
    story.change_isr(1, story.state(1, 0, 1, 2))


def keep_who_restarted(story: Story) -> None:
    story.end_session(story.agents[2])
    story.register(2)
    story.decide(story.state(1, 1, 1, 2))


def write_as_another(story: Story) -> None:
    story.multi(story.agents[2], SetData(STATE, story.state(1, 0, 1), 0))


def write_unregistered(story: Story) -> None:
    story.end_session(story.agents[1])
    story.multi(story.session(), SetData(STATE, story.state(1, 0, 1), 0))


def move_topic_id(story: Story) -> None:
    story.multi(story.admin, SetData(paths.topic(TOPIC), story.topic(1, 2, 3, topic_id=OTHER_ID), 0))


def take_from_the_isr(story: Story) -> None:
    story.multi(story.controller, story.fence(), SetData(paths.topic(TOPIC), story.topic(1, 2), 0))


def forge_broker_epoch(story: Story) -> None:
    story.rules._last_epochs[BrokerId(4)] = 10**6
    story.register(4)


PLANTED: list[tuple[str, Callable[[Story], None]]] = [
    ("leader-in-isr", lambda story: story.decide(story.state(1, 1, 2, 3))),
    ("isr-assigned", lambda story: story.decide(story.state(1, 1, 1, 4))),
    ("isr-assigned", lambda story: story.decide(story.state(-1, 1))),
    ("isr-assigned", take_from_the_isr),
    ("one-leader-per-epoch", lead_in_two_epochs),
    ("leader-epoch-grows", forget_epoch),
    ("election-raises-epoch", lambda story: story.decide(story.state(1, 0, 1, 2))),
    ("state-epoch-grows", lambda story: story.decide(story.state(2, 1, 1, 2, 3, controller_epoch=0))),
    ("state-epoch-current", lambda story: story.decide(story.state(2, 1, 1, 2, 3, controller_epoch=2))),
    ("versions-count", lose_version),
    ("controller-epoch-won", race_alone),
    ("controller-epoch-won", race_past),
    ("controller-epoch-won", lambda story: story.multi(story.admin, SetData(paths.CONTROLLER_EPOCH, b"7", 1))),
    ("controller-fenced", write_deposed),
    (
        "controller-fenced",
        lambda story: story.multi(story.admin, story.fence(), SetData(STATE, story.state(2, 1, 2), 0)),
    ),
    ("controller-fenced", lambda story: story.multi(story.controller, SetData(STATE, story.state(2, 1, 1, 2, 3), 0))),
    ("controller-fenced", lambda story: story.multi(story.controller, Delete(STATE, None))),
    ("state-writer", write_as_another),
    ("state-writer", write_unregistered),
    ("isr-change-keeps-leader", lambda story: story.change_isr(1, story.state(1, 1, 1, 2))),
    ("isr-change-keeps-leader", lambda story: story.change_isr(1, story.state(1, 0, 1, 2, controller_epoch=2))),
    ("one-leader-per-epoch", lambda story: story.change_isr(1, story.state(2, 0, 1, 2))),
    ("isr-joins-registered", join_unregistered),
    ("isr-change-hides-nobody", hide_a_restart),
    ("decision-hides-nobody", keep_who_restarted),
    ("topic-ids-stay", move_topic_id),
    ("broker-epochs-grow", forge_broker_epoch),
]


@pytest.mark.parametrize(("name", "plant"), PLANTED)
def test_what_must_not_stand_in_zookeeper_is_found(story: Story, name: str, plant: Callable[[Story], None]) -> None:
    with pytest.raises(InvariantBroken) as found:
        plant(story)
    assert found.value.name == name


def test_a_leader_out_of_sync_is_a_fault_unless_the_topic_allows_it(story: Story) -> None:
    story.decide(story.state(1, 1, 1))
    with pytest.raises(InvariantBroken, match="clean-elections"):
        story.decide(story.state(2, 2, 2))
    allowing = Story()
    allowing.facts.unclean_topics.add(TOPIC)
    allowing.begin()
    allowing.decide(allowing.state(1, 1, 1))
    allowing.decide(allowing.state(2, 2, 2))
    assert allowing.facts.of(TP).unclean_elections == 1
    assert allowing.facts.excused(TP)


def test_who_has_just_gone_may_still_join_an_isr(story: Story) -> None:
    story.change_isr(1, story.state(1, 0, 1, 2))
    story.end_session(story.agents[3])
    story.now_us += GONE_US
    story.change_isr(1, story.state(1, 0, 1, 2, 3))


# What excuses a loss


def test_crashes_that_lose_data_excuse_a_loss_once_too_many_are_not_repaired(story: Story) -> None:
    story.facts.min_insync[TOPIC] = 2
    story.facts.lossy_crash(BrokerId(2))
    assert not story.facts.excused(TP)
    story.decide(story.state(1, 1, 1, 3))
    story.facts.registered(BrokerId(2))
    story.change_isr(1, story.state(1, 1, 1, 3, 2))
    story.facts.lossy_crash(BrokerId(3))
    assert not story.facts.excused(TP), "the first was repaired"
    story.facts.lossy_crash(BrokerId(1))
    assert story.facts.excused(TP)


def test_who_joins_as_it_was_before_its_crash_has_not_repaired_it(story: Story) -> None:
    story.facts.min_insync[TOPIC] = 2
    story.facts.lossy_crash(BrokerId(2))
    story.decide(story.state(1, 1, 1, 3))
    story.change_isr(1, story.state(1, 1, 1, 3, 2))
    story.facts.lossy_crash(BrokerId(3))
    assert story.facts.excused(TP)


def test_who_registered_before_an_isr_that_lost_something_can_be_asked(story: Story) -> None:
    story.facts.min_insync[TOPIC] = 2
    story.decide(story.state(1, 1, 1))
    assert story.facts.of(TP).askable is None, "who is in sync has everything"
    story.facts.lossy_crash(BrokerId(1))
    story.end_session(story.agents[1])
    story.end_session(story.agents[3])
    story.agents[1] = story.register(1)
    story.agents[3] = story.register(3)
    story.decide(story.state(1, 2, 1))
    assert story.facts.of(TP).askable == {1, 2}
    assert not story.facts.excused(TP), "that it leads loses nothing: it may have all that is promised"


# The table


def test_names_are_stable_words_and_every_planted_one_is_in_the_table() -> None:
    assert all(name == name.lower() and " " not in name for name in INVARIANTS)
    assert {name for name, _ in PLANTED} <= INVARIANTS.keys()
    with pytest.raises(KeyError):
        raise broken("no-such-name", "")
