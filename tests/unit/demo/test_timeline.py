"""A timeline tells what belongs together in one line, in the order in which it happened."""

from __future__ import annotations

from regency.demo.timeline import Entry, timeline
from regency.history.records import Decision
from regency.model.ids import BrokerId, ControllerEpoch


def decision(
    time_ms: int, subject: str, to: str, *, event: str = "failover", from_: str = "", why: str = "w"
) -> Decision:
    return Decision(
        ControllerEpoch(1), time_ms, event, subject, from_=from_, to=to, why=why, time_ms=time_ms, source=BrokerId(1)
    )


def test_partitions_that_got_the_same_for_the_same_reason_within_a_second_share_a_line() -> None:
    decisions = [decision(100, "t-0", "leader 1"), decision(900, "t-2", "leader 1"), decision(1_200, "t-3", "leader 1")]
    assert [entry.subjects for entry in timeline(decisions, topic="t")] == [("t-0", "t-2"), ("t-3",)]


def test_another_reason_or_outcome_is_another_line() -> None:
    decisions = [
        decision(100, "t-0", "leader 1"),
        decision(101, "t-1", "leader 2"),
        decision(102, "t-2", "leader 1", why="another"),
    ]
    assert len(timeline(decisions, topic="t")) == 3


def test_lines_are_in_the_order_of_time_whoever_recorded_them() -> None:
    decisions = [decision(300, "controller", "broker 2"), decision(100, "broker 1", "dead"), decision(200, "t-0", "x")]
    assert [entry.time_ms for entry in timeline(decisions, topic="t")] == [100, 200, 300]


def test_other_topics_are_left_out_and_brokers_and_controllers_stay() -> None:
    decisions = [
        decision(1, "t-0", "a"),
        decision(2, "other-0", "b"),
        decision(3, "t-0-1", "c"),
        decision(4, "broker 3", "d"),
        decision(5, "controller", "e"),
    ]
    assert [entry.subjects for entry in timeline(decisions, topic="t")] == [("t-0",), ("broker 3",), ("controller",)]


def test_a_line_says_who_what_and_why() -> None:
    line = Entry(0, "isr_shrink", ("t-0", "t-1"), "isr [1, 2] -> isr [1]", "2 fell behind")
    assert str(line) == "t-0, t-1: isr [1, 2] -> isr [1] (2 fell behind)"
    assert str(Entry(0, "demo", (), "kill -9 agent 2", "")) == "kill -9 agent 2"


def test_what_came_from_nothing_names_only_the_outcome() -> None:
    (line,) = timeline([decision(1, "t-0", "leader 1", from_="")], topic="t")
    assert line.change == "leader 1"
