"""The queue: order, coalescing, delays, preemption; the loop: one event at a time, and everybody is answered."""

from __future__ import annotations

import threading

import pytest

from regency.controller.elections.controlled_shutdown import ControlledShutdown
from regency.controller.events import (
    AssignmentsChanged,
    BrokersChanged,
    ControllerChanged,
    ControllerState,
    EventLoop,
    EventQueue,
    NotController,
    SessionEnded,
    ShutDown,
    TopicsChanged,
)
from regency.model.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock) -> EventQueue:
    return EventQueue(clock)


def drain(queue: EventQueue) -> list[type]:
    return [type(event) for event in iter(queue.poll, None)]


def test_events_are_processed_in_order_and_equal_notifications_are_one(queue):
    for event in (TopicsChanged(), BrokersChanged(), TopicsChanged(), BrokersChanged()):
        queue.put(event)

    assert drain(queue) == [TopicsChanged, BrokersChanged]


def test_notification_put_after_the_first_was_taken_is_another(queue):
    queue.put(TopicsChanged())
    queue.poll()
    queue.put(TopicsChanged())

    assert drain(queue) == [TopicsChanged]


def test_requests_are_never_one(queue):
    queue.put(ControlledShutdown(1, 1))
    queue.put(ControlledShutdown(1, 1))

    assert len(queue) == 2


def test_marked_topics_are_one_event(queue):
    for topic in ("b", "a", "b"):
        queue.mark_topic(topic)

    assert drain(queue) == [AssignmentsChanged]
    assert queue.take_marked_topics() == ["a", "b"]
    assert queue.take_marked_topics() == []


def test_delayed_event_comes_when_it_is_due(queue, clock):
    queue.put_later(ControllerChanged(), 100)
    clock.advance(99)
    assert queue.poll() is None

    clock.advance(1)

    assert drain(queue) == [ControllerChanged]


def test_session_loss_preempts_everything_and_answers_who_waits(queue):
    shutdown = ControlledShutdown(1, 1)
    queue.put(TopicsChanged())
    queue.put(shutdown)
    queue.put_later(BrokersChanged(), 0)

    queue.preempt_all(SessionEnded(1))

    assert drain(queue) == [SessionEnded]
    with pytest.raises(NotController):
        shutdown.reply.result(0)


def test_closed_queue_answers_at_once(queue):
    queue.close()
    shutdown = ControlledShutdown(1, 1)

    queue.put(shutdown)
    queue.mark_topic("t")

    assert len(queue) == 0
    with pytest.raises(NotController):
        shutdown.reply.result(0)


def test_loop_shows_the_state_of_the_event_and_ends_with_shutdown(queue):
    seen = []
    loop = EventLoop(queue, lambda event: seen.append((type(event), loop.state.label)))
    queue.put(BrokersChanged())
    queue.put(ShutDown())

    loop.run()

    assert seen == [(BrokersChanged, "BrokerChange"), (ShutDown, "ControllerShutdown")]
    assert loop.state is ControllerState.IDLE


def test_caller_is_answered_even_when_the_handler_fails(queue):
    def fail(_):
        raise RuntimeError("broken")

    shutdown = ControlledShutdown(1, 1)

    with pytest.raises(RuntimeError):
        EventLoop(queue, fail).process(shutdown)

    with pytest.raises(NotController):
        shutdown.reply.result(0)


def test_waiting_loop_wakes_for_an_event_of_another_thread(queue):
    taken = []
    thread = threading.Thread(target=lambda: taken.append(queue.take()))
    thread.start()

    queue.put(TopicsChanged())

    thread.join(10)
    assert taken == [TopicsChanged()]


def test_states_have_kafkas_gauge_values():
    assert {state.label: state.gauge for state in ControllerState} == {
        "Idle": 0,
        "ControllerChange": 1,
        "BrokerChange": 2,
        "TopicChange": 3,
        "TopicDeletion": 4,
        "AlterPartitionReassignment": 5,
        "AutoLeaderBalance": 6,
        "ManualLeaderBalance": 7,
        "ControlledShutdown": 8,
        "IsrChange": 9,
        "LeaderAndIsrResponseReceived": 10,
        "LogDirChange": 11,
        "ControllerShutdown": 12,
        "UncleanLeaderElectionEnable": 13,
        "TopicUncleanLeaderElectionEnable": 14,
        "ListPartitionReassignment": 15,
        "UpdateMetadataResponseReceived": 16,
    }


def test_equal_notifications_for_later_are_one_due_at_the_earliest(queue, clock):
    for delay in (500, 100, 300):
        queue.put_later(ControllerChanged(), delay)

    clock.advance(99)
    assert queue.poll() is None
    clock.advance(1)
    assert queue.poll() == ControllerChanged()
    clock.advance(500)
    assert queue.poll() is None


def test_how_long_an_event_waited_counts_from_when_it_came_or_was_due(queue, clock):
    queue.put(TopicsChanged())
    clock.advance(500)
    queue.put(TopicsChanged())  # the same as the one that waits
    queue.put(BrokersChanged())
    queue.put_later(ControllerChanged(), 100)
    clock.advance(300)

    waited = [(type(event).__name__, queue.waited_ms) for event in iter(queue.poll, None)]

    assert waited == [("TopicsChanged", 800), ("BrokersChanged", 300), ("ControllerChanged", 200)]
