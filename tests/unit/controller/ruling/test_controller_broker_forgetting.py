"""A broker is gone for good: what waited for it waits no more, whoever rules. One that lives or is needed stays."""

from __future__ import annotations

import pytest

from regency.controller.brokers.leaving import ForgetBroker
from regency.controller.reassignment.requests import AlterReassignments
from regency.model import znodes
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.znodes import paths
from regency.runtime.zookeeper.session import Create

T0 = TopicPartition("t", 0)
FEWEST_WRITES = 3
"""Of a forgetting with which the deletion of a topic ends: the broker's znode, what is below the topic, the topic."""
WAITS = "broker 2 holds replicas and is not live (gone for good? `regency brokers forget 2`)"


class Died(BaseException):
    """The controller's process is gone."""


@pytest.fixture
def gone(world):
    """Topic t moved from brokers 1 and 2 to 1 and 3, without broker 2, which died before it could delete its log."""
    world.start_brokers(1, 2, 3)
    world.candidate(1)
    world.write_topic("t", {0: [1, 2]})
    world.kill_broker(2)
    move(world, (1, 3))
    sync(world, 1, 3)
    assert deleting(world) == (2,)
    return world


def move(world, replicas):
    (outcome,) = ruling(world).ask(AlterReassignments(((T0, replicas),)))
    return outcome.error


def sync(world, *isr):
    leader, _, epoch, controller = world.state("t")
    world.write_state("t", 0, leader, isr, epoch=epoch, controller=controller)
    world.notify_isr_change(T0)


def ruling(world):
    return next(each for each in world.candidates if each.rules)


def forget(world, broker):
    return ruling(world).ask(ForgetBroker(broker))


def die_at_write(session, number, *, after):
    """The process of the session ends when it asks for its write of this number, before or after that is done."""
    written = 0

    def dying(write):
        def asked(*args, **keywords):
            nonlocal written
            written += 1
            dies = written == number
            if dies and not after:
                raise Died
            outcome = write(*args, **keywords)
            if dies:
                raise Died
            return outcome

        return asked

    session.multi, session.multi_pipelined = dying(session.multi), dying(session.multi_pipelined)


def deleting(world):
    data = world.ensemble.nodes[paths.topic("t")].data
    return znodes.decode_topic("/", data, topic="t", zk_version=0, czxid=0).partitions[0].deleting


def fail_over(world):
    world.candidate(3)
    world.candidates.pop(0).session.close()
    world.settle()


def test_a_topic_is_deleted_once_the_broker_of_a_former_replica_is_forgotten(gone):
    gone.mark("t")
    assert gone.term.context.topics_ineligible == {"t": WAITS}

    told = forget(gone, 2)

    assert (told.error, told.replicas) == (ErrorCode.NONE, 1)
    assert gone.is_gone()


@pytest.mark.parametrize("failover", [False, True])
def test_a_former_replica_of_a_forgotten_broker_is_given_up_before_and_after_a_failover(gone, failover):
    if failover:
        fail_over(gone)

    assert forget(gone, 2).replicas == 1

    assert deleting(gone) == ()
    gone.mark("t")
    assert gone.is_gone()


def test_a_topic_that_is_being_deleted_does_not_keep_a_broker_known_that_it_is_assigned_to(ruled):
    ruled.write_topic("t", {0: [1, 2], 1: [2, 3]})
    ruled.kill_broker(2)
    ruled.mark("t")
    assert ruled.term.context.topics_ineligible == {"t": WAITS}

    assert forget(ruled, 2).replicas == 2

    assert ruled.is_gone()


def test_the_next_controller_does_not_wait_for_a_forgotten_broker_either(ruled):
    ruled.write_topic("t", {0: [1, 2, 3]})
    ruled.kill_broker(2)
    release = ruled.hold_stops(3)
    ruled.mark("t")

    assert forget(ruled, 2).replicas == 1
    assert not ruled.is_gone()
    fail_over(ruled)
    assert not ruled.is_gone()

    release(3)
    assert ruled.is_gone()


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", range(1, 8))
def test_at_whichever_write_its_controller_dies_the_broker_is_forgotten_or_can_be_forgotten_again(gone, number, after):
    gone.mark("t")
    dying = gone.candidates[0]
    die_at_write(dying.session, number, after=after)

    try:
        forget(gone, 2)
    except Died:
        gone.candidates.remove(dying)
        gone.ensemble.expire(dying.session.session_id)
        dying.channels.close()
        gone.candidate(3)
        assert forget(gone, 2).error in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED)
    else:
        assert number > FEWEST_WRITES

    assert gone.is_gone()
    assert paths.incarnation(2) not in gone.ensemble.nodes


def test_a_broker_that_lives_is_not_forgotten(ruled):
    told = forget(ruled, 3)

    assert told.error is ErrorCode.INVALID_REQUEST
    assert told.message == "Broker 3 is live. `regency brokers shutdown 3` ends it."
    assert paths.incarnation(3) in ruled.ensemble.nodes


def test_a_broker_that_has_registered_a_moment_ago_is_not_forgotten(gone):
    registration = gone.ensemble.nodes[paths.broker(3)].data
    gone.ensemble.multi(2, [Create(paths.broker(2), registration, ephemeral=True)])
    event = ForgetBroker(2)
    ruling(gone).loop.process(event)  # before the word of it has come

    told = event.reply.result(0)

    assert (told.error, told.message) == (ErrorCode.INVALID_REQUEST, "Broker 2 is coming back: it has registered.")
    assert deleting(gone) == (2,)


def test_a_broker_that_partitions_are_assigned_to_is_not_forgotten(ruled):
    ruled.write_topic("t", {0: [1, 2], 1: [3, 1], 2: [2, 3]})
    ruled.kill_broker(2)

    told = forget(ruled, 2)

    assert told.error is ErrorCode.INVALID_REQUEST
    assert told.message.startswith("Broker 2 still has replicas of 2 partitions: t-0, t-2. Move them first: ")
    assert "`regency brokers drain 2`" in told.message
    assert paths.incarnation(2) in ruled.ensemble.nodes


def test_a_target_of_a_reassignment_is_not_forgotten_until_that_is_cancelled(ruled):
    ruled.write_topic("t", {0: [1, 2]})
    move(ruled, (1, 3))
    ruled.kill_broker(3)
    assert forget(ruled, 3).error is ErrorCode.INVALID_REQUEST

    move(ruled, None)

    assert (forget(ruled, 3).replicas, deleting(ruled)) == (1, ())


def test_who_is_not_known_cannot_be_forgotten(gone):
    told = forget(gone, 77)

    assert told.error is ErrorCode.BROKER_ID_NOT_REGISTERED
    assert told.message == "Nothing is known of a broker 77: nothing waits for it."


def test_a_forgotten_broker_that_returns_is_told_nothing_of_what_it_had_and_is_known_again(gone):
    forget(gone, 2)

    gone.start_broker(2)

    assert gone.agents[2].topics() == set()
    gone.write_topic("u", {0: [1, 2]})
    gone.kill_broker(2)
    gone.mark("u")
    assert gone.term.context.topics_ineligible == {"u": WAITS}


@pytest.mark.parametrize("failover", [False, True])
def test_nothing_is_waited_for_from_a_broker_that_never_was(ruled, failover):
    ruled.write_topic("t", {0: [1, 2]})
    ruled.ensemble.put(paths.REASSIGN_PARTITIONS, znodes.encode_asked_moves([(T0, (99,))]))
    ruled.settle()
    if failover:
        fail_over(ruled)

    assert move(ruled, None) is ErrorCode.NONE

    assert deleting(ruled) == ()
    ruled.mark("t")
    assert ruled.is_gone()


def test_a_topic_that_another_tool_gave_to_a_broker_that_never_was_can_be_deleted(ruled):
    ruled.write_topic("t", {0: [1, 99], 1: [99]})

    ruled.mark("t")

    assert ruled.is_gone()
