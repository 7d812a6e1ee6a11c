"""What the next controller records of brokers that died when none ruled, above all of the one that ruled."""

from __future__ import annotations

import pytest

from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.history.events import NOT_YET
from regency.history.files import HistoryWriter, read_history
from regency.model.ids import TopicPartition
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Delete


@pytest.fixture
def told(world, tmp_path):
    """Three brokers with candidates, of which 1 rules; gives what was decided about brokers, from an epoch on."""
    world.start_brokers(1, 2, 3)
    for broker in (1, 2, 3):
        world.candidate(broker, HistoryWriter(tmp_path / str(broker), "controller"))

    def about_brokers(epoch: int) -> list[tuple[str, str, str, str]]:
        found = read_history(tmp_path / str(broker) for broker in (1, 2, 3))
        told = [each for each in found if each.controller_epoch >= epoch and each.subject.startswith("broker ")]
        return [(each.subject, each.from_.partition(", epoch")[0], each.to, each.why) for each in told]

    return about_brokers


def die(world, *brokers: int, ruler: int = 1) -> None:
    """Brokers die with the controller that rules, before it hears of that; then the others race."""
    candidate = next(each for each in world.candidates if each.broker == ruler)
    world.candidates = [each for each in world.candidates if each.broker not in (*brokers, ruler)]
    world.ensemble.multi(0, [Delete(paths.broker(each), None) for each in brokers])
    candidate.session.expire()
    world.settle()


def test_the_death_of_the_broker_that_ruled_is_recorded_once(world, told):
    world.write_topic("t", {0: [1, 2, 3], 1: [2, 1, 3], 2: [2, 3]})
    epoch = world.ensemble.nodes[paths.broker(1)].czxid

    die(world, 1)

    why = "it ruled as controller in epoch 1, and its registration is gone"
    assert told(2) == [("broker 1", "live", "dead", why)]
    assert world.term.context.last_epochs[1] == epoch
    die(world, 2, ruler=world.term.settings.broker_id)
    assert [(each[0], each[2]) for each in told(3)] == [("broker 2", "dead")], "broker 1 is not told of again"


def test_several_that_die_at_once_are_all_recorded_and_only_one_of_them_ruled(world, told):
    world.write_topic("t", {0: [1, 2, 3], 1: [2, 3]})

    die(world, 1, 2)

    assert [(each[:3], each[3].startswith("it ruled as controller in epoch 1")) for each in told(2)] == [
        (("broker 1", "live", "dead"), True),
        (("broker 2", "live", "dead"), False),
    ]
    assert world.state("t", 1)[:2] == (3, (3,))


def test_a_broker_whose_death_was_decided_about_is_not_told_of_again_though_a_state_names_it(world, told):
    world.write_topic("alone", {0: [3]})
    world.kill_broker(3)
    assert world.state("alone")[:2] == (-1, (3,))

    die(world, ruler=1)

    assert told(2) == []


def test_a_ruler_that_no_state_names_is_said_to_be_gone_and_not_dead(world, told):
    world.write_topic("t", {0: [2, 3]})

    die(world, 1)

    assert [each[:3] for each in told(2)] == [("broker 1", "controller in epoch 1", "gone")]
    die(world, ruler=world.term.settings.broker_id)
    assert len(told(2)) == 1


def test_at_a_start_of_the_cluster_a_broker_that_is_not_there_yet_is_no_loss(world, told, tmp_path):
    world.write_topic("t", {0: [3]})
    world.ensemble.multi(0, [Delete(paths.broker(3), None)])
    before, world.candidates = world.candidates, []
    for candidate in before:
        candidate.session.expire()
    world.candidate(2, HistoryWriter(tmp_path / "2", "controller"))
    world.settle()
    assert told(2) == [("broker 3", "live", "dead", NOT_YET)]


CAME_BACK = [
    ("first", "session lost{}, registered again by the same process"),
    ("second", "restarted{}"),
    ("", "registered again{}: session lost or process restarted"),  # an older version does not say
]


@pytest.mark.parametrize(("process", "came"), CAME_BACK)
def test_a_lost_session_is_no_restart_before_the_election(world, told, process, came):
    world.write_topic("t", {0: [1, 2]})
    world.write_topic("alone", {0: [3]})
    world.kill_broker(3)
    ruler = world.candidates.pop(0)
    world.bounce(1, process)
    world.start_broker(3)
    ruler.session.expire()
    world.settle()

    epochs = {broker: world.ensemble.nodes[paths.broker(broker)].czxid for broker in (1, 3)}
    restarted = came.format(" while no controller ruled") + ": in sync for 1 partition until then"
    registered = "it registered while no controller ruled, and may lead 1 partition again"
    assert told(2) == [
        ("broker 1", "live", f"live, epoch {epochs[1]}", restarted),
        ("broker 3", "absent", f"live, epoch {epochs[3]}", registered),
    ]
    assert world.state("alone")[0] == 3


@pytest.mark.parametrize(("process", "came"), CAME_BACK)
def test_a_lost_session_is_no_restart_under_a_controller(world, told, process, came):
    world.write_topic("t", {0: [1, 2, 3]})

    world.bounce(2, process)
    world.bounce(2, process)

    again = "session lost, registered again by the same process" if process else came.format("")
    assert [each[3] for each in told(1) if each[0] == "broker 2"][-2:] == [came.format(""), again]


@pytest.mark.parametrize(
    ("process", "why"), [("first", "session lost, registered again by the same process"), ("second", "it registered")]
)
def test_who_was_gone_and_is_back_as_the_same_process_had_not_died(world, told, process, why):
    world.kill_broker(2)
    world.start_broker(2, process=process)

    assert [each for each in told(1) if each[0] == "broker 2"][-1][3] == why


def test_a_failover_in_which_no_broker_died_tells_of_none(world, told):
    world.write_topic("t", {0: [1, 2, 3]})

    die(world, ruler=1)

    assert told(2) == []
    assert world.term.epoch == 2


def test_a_broker_that_is_registered_and_cannot_be_steered_is_not_dead(world, told):
    world.write_topic("t", {0: [1, 2, 3]})
    world.kill_broker(3)
    world.start_broker(3, control=False)
    world.write_state("t", 0, 1, (1, 2, 3), epoch=5, controller=1)

    die(world, ruler=1)

    assert world.term.epoch == 2
    assert told(2) == []


def test_topics_that_are_being_deleted_tell_of_no_death(world, told):
    world.write_topic("t", {0: [1, 2]})
    world.hold_stops(2)
    world.kill_broker(1)
    world.mark("t")
    world.write_state("t", 0, 1, (1, 2), epoch=9, controller=1)

    die(world, ruler=1)

    assert world.term.context.leader(TopicPartition("t", 0)) == 1
    assert [each for each in told(2) if each[2] == "dead"] == []


def test_who_leaves_in_order_is_said_to_have_left(world, told):
    ruler = world.candidates[0]
    for broker in (2, 3, 1):
        ruler.ask(ControlledShutdown(broker, -1))
        world.kill_broker(broker)

    assert [(each[0], each[1], each[3]) for each in told(1) if each[2] == "dead"] == [
        ("broker 2", "shutting down", "it left in order"),
        ("broker 3", "shutting down", "it left in order"),
        ("broker 1", "shutting down", "it left in order, the last one that was live"),
    ]


def test_the_last_one_says_so_before_its_controller_ends_with_it(world, told):
    ruler = world.candidates[0]
    for broker in (2, 3):
        ruler.ask(ControlledShutdown(broker, -1))
        world.kill_broker(broker)
    ruler.ask(ControlledShutdown(1, -1))

    asked = [each[3] for each in told(1) if each[2] == "shutting down"]
    assert asked == [*["it asked for a controlled shutdown"] * 2, f"{asked[0]} as the last broker that was live"]
