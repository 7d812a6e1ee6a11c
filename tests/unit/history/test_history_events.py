"""One event is one line: which records belong together, and how many partitions it says what of."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from regency.history.events import NOT_YET, events_of, step_of
from regency.history.records import Decision

GONE = "its registration is gone"


def note(number: int, subject: str, before: str, after: str, why: str = GONE, **more: object) -> Decision:
    known = {"event": "broker_change", "time_ms": number, "event_number": 7, "source": 1, **more}
    return Decision(4, number, subject=subject, from_=before, to=after, why=why, **known)


def state(
    number: int,
    partition: str,
    before: tuple[int, Sequence[int]] | None,
    after: tuple[int, Sequence[int]],
    **more: object,
) -> Decision:
    was = "nothing" if before is None else f"leader {before[0]}, isr {list(before[1])}, leader epoch 3"
    now = f"leader {after[0]}, isr {list(after[1])}, leader epoch 4"
    known = {"why": "first live replica", "leader": after[0], "isr": tuple(after[1]), **more}
    return note(number, partition, was, now, **known)


def told(*decisions: Decision) -> list[str]:
    return [each.told for each in events_of(decisions)]


DEATH = [
    note(1, "broker 2", "live, epoch 64", "dead"),
    state(2, "f-0", (2, (1, 2)), (1, (1,))),
    state(3, "f-1", (2, (2, 3)), (3, (3,))),
    state(4, "f-2", (2, (2,)), (-1, (2,))),
    *(state(number, f"f-{number}", (1, (1, 2)), (1, (1,))) for number in (5, 6, 7, 8)),
]


def test_a_death_is_one_line_with_counts():
    assert told(*DEATH) == [
        f"broker 2 dead ({GONE}): 6 partitions lost a replica, 2 have a new leader, 1 has none",
    ]


def test_a_failover_is_one_line_with_who_died_and_how_long_it_took():
    begin = note(1, "controller", "a candidate", "broker 1, epoch 4", "won the race for /controller", event="failover")
    dead = [note(2, f"broker {each}", "live, epoch 5", "dead", event="failover") for each in (2, 3)]
    elected = state(3, "f-0", (2, (1, 2)), (1, (1,)), event="failover")
    end = note(4, "controller", "broker 1, epoch 4", "took over", "1 partitions taken over in 9 ms", event="failover")
    (line,) = told(begin, *dead, elected, end)
    assert line == (
        "broker 1 rules as controller in epoch 4 (won the race for /controller); "
        "brokers 2, 3 gone (their registrations are gone): 1 partition lost a replica, 1 has a new leader; "
        "1 partitions taken over in 9 ms"
    )


def test_a_broker_that_comes_later_than_the_first_controller_is_not_told_of_as_lost():
    late = [note(each, f"broker {each}", "live", "dead", NOT_YET, event="failover") for each in (2, 3)]
    waits = state(4, "f-0", (3, (3,)), (-1, (3,)), event="failover")
    assert told(*late[1:], waits) == ["broker 3 absent (it is not registered yet): 1 partition has no leader"]
    assert told(*late) == ["brokers 2, 3 absent (they are not registered yet)"]


def test_what_was_decided_twice_in_an_event_counts_once_by_its_end():
    gone = state(1, "f-0", (1, (1, 2)), (-1, (1,)))
    back = state(2, "f-0", (-1, (1,)), (1, (1,)))
    other = state(3, "f-1", (1, (1, 2)), (1, (1,)))
    assert told(gone, back, other) == ["2 partitions of f lost a replica (first live replica)"]


@pytest.mark.parametrize(
    ("decisions", "line"),
    [
        ([state(1, "f-0", None, (1, (1, 2)))], "f-0: leader 1, ISR 1,2 (first live replica)"),
        ([state(1, "f-0", (2, (1, 2)), (1, (1,)))], "f-0: leader 1 (was 2), ISR 1 (without 2) (first live replica)"),
        ([state(1, "f-0", (-1, (1,)), (-1, (1,)))], "f-0: no leader, ISR 1 (first live replica)"),
        (
            [state(each, f"f-{each}", None, (-1 if each else 1, (1,))) for each in range(3)],
            "3 partitions of f were created, 2 of them have no leader (first live replica)",
        ),
        (
            [state(1, "f-0", (-1, (1,)), (1, (1,))), state(2, "g-0", (1, (1,)), (1, (1,)), why="x")],
            "broker change: 1 partition of 2 topics has a new leader, 1 has a new leader epoch",
        ),
        (
            [note(each, f"broker {each}", "shutting down, epoch 5", "dead", "it left in order") for each in (2, 3)],
            "brokers 2, 3 left in order",
        ),
        ([note(1, "topic f", "kept", "to be deleted", "asked")], "topic f: kept -> to be deleted (asked)"),
        (
            [note(each, f"f-{each}", "on broker 1", "told again", "why") for each in range(7)],
            "partitions f-0, f-1, f-2, f-3, f-4 and 2 more: on broker 1 -> told again (why)",
        ),
        (
            [note(1, "controller", "broker 1, epoch 4", "a candidate", "this process ends")],
            "broker 1 no longer rules (this process ends)",
        ),
        (
            [note(each, f"settings of topic t{each}", "a=1", f"a={each}", "asked") for each in range(2, 9)],
            (
                "settings of topic t2: a=1 -> a=2 (asked); settings of topic t3: a=1 -> a=3 (asked); "
                "settings of topic t4: a=1 -> a=4 (asked); and 4 more decisions about others"
            ),
        ),
    ],
)
def test_words(decisions, line):
    assert told(*decisions) == [line]


def test_records_that_share_an_event_number_belong_together_and_no_others_do():
    other = note(9, "broker 3", "live, epoch 65", "dead", event_number=8)
    assert len(events_of([*DEATH[:3], other, *DEATH[3:]])) == 2
    assert len(events_of([DEATH[0], note(1, "broker 2", "live", "dead", source=2)])) == 2


def test_records_without_an_event_number_are_grouped_by_cause_and_time():
    old = {"event_number": None}
    first = [note(1, "broker 2", "live", "dead", **old), state(2, "f-0", (2, (1, 2)), (1, (1,)), **old)]
    second = [note(3, "broker 3", "live", "dead", **old), state(4, "f-1", (3, (1, 3)), (1, (1,)), **old)]
    later = state(5, "f-1", (1, (1,)), (1, (1, 3)), time_ms=5_000, **old)
    assert [len(each.decisions) for each in events_of([*first, *second, later])] == [2, 2, 1]


def test_a_leader_that_takes_a_broker_in_is_one_event():
    def taken(number: int, broker: int, time_ms: int) -> Decision:
        why, isr = f"broker {broker} caught up: all below offset {number} is in its log", (1, broker)
        known = {"event": "isr_expand", "event_number": None, "role": "agent", "leader": 1, "isr": isr}
        return note(number, f"f-{number}", "isr [1]", f"isr [1, {broker}]", why, time_ms=time_ms, **known)

    events = events_of([taken(1, 2, 0), taken(2, 3, 5), taken(3, 2, 10), taken(4, 2, 9_000)])
    assert [(each.by, each.told) for each in events] == [
        ("leader 1", "broker 2 back in the ISR of 2 partitions of f"),
        ("leader 1", "f-2: leader 1, ISR 1,3 (with 3) (broker 3 caught up: all below offset 2 is in its log)"),
        ("leader 1", "f-4: leader 1, ISR 1,2 (with 2) (broker 2 caught up: all below offset 4 is in its log)"),
    ]


def test_one_record_in_words():
    assert step_of(DEATH[0]) == "live -> dead"
    assert step_of(DEATH[1]) == "leader 1 (was 2), ISR 1 (without 2)"
