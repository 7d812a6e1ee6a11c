"""What keys do to the view, and what of a snapshot a view shows."""

from __future__ import annotations

import msgspec
import pytest

from regency.cli.top.keys import SORTS, View, press, seen
from regency.cli.top.snapshot import BrokerLine, DecisionLine, EventLine, Snapshot, TroubleLine


def trouble(topic: str, number: int, replicas: list[int]) -> TroubleLine:
    return TroubleLine(topic, number, "offline", None, replicas, [], reassigning=False)


SNAPSHOT = Snapshot(
    "a:1",
    1,
    brokers=[
        BrokerLine(1, "live", "kafka-1:9092", leads=5, records_per_s=1.0, disk_used=0.2),
        BrokerLine(2, "dead", lag=50),
        BrokerLine(3, "live", "kafka-3:9092", leads=7, records_per_s=0.5, disk_used=0.9, bytes_out_per_s=9.0),
    ],
    worst=[trouble("flights", 0, [1, 2]), trouble("hotels", 1, [3])],
    events=[
        EventLine(1, 1, 1, "brokers 2, 3 dead (their registrations are gone): 2 partitions of flights lost a replica"),
        EventLine(2, 1, 2, "broker 12 live (it registered)"),
    ],
)


def test_what_an_event_only_counts_is_told_of_the_topic_that_is_looked_at() -> None:
    lead = "flights-0: leader 3 (was 2), ISR 3 (first live replica)"
    decided = [
        DecisionLine(1, 1, 1, "flights-0", "1", "leader 2, isr [2]", "broker 1 died", "flights-0: leader 2"),
        DecisionLine(3, 1, 2, "flights-0", "2", "leader 3, isr [3]", "first live replica", lead),
        DecisionLine(4, 1, 3, "flights-day-0", "2", "leader 3, isr [3]", "first live replica", "flights-day-0: lost"),
        DecisionLine(5, 1, 4, "broker 2", "live", "dead", "gone", "broker 2: live -> dead (gone)"),
    ]
    one = EventLine(3, 1, 7, lead)
    snapshot = msgspec.structs.replace(SNAPSHOT, decisions=decided, events=[*SNAPSHOT.events, one])
    counted, live = (each.told for each in SNAPSHOT.events)
    for view, told in (
        (View(topic="flights"), [counted, "flights-0: leader 2", lead]),
        (View(word="fligh"), [counted, "flights-0: leader 2", lead, "flights-day-0: lost"]),
        (View(), [counted, live, lead]),
    ):
        assert [each.told for each in seen(snapshot, view).events] == told


def shown(view: View) -> tuple[list[int], list[str], list[int]]:
    found = seen(SNAPSHOT, view)
    return (
        [each.broker for each in found.brokers],
        [each.topic for each in found.worst],
        [e.number for e in found.events],
    )


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("", ([2, 1, 3], ["flights", "hotels"], [1, 2])),
        ("s", ([1, 2, 3], ["flights", "hotels"], [1, 2])),
        ("ss", ([3, 1, 2], ["flights", "hotels"], [1, 2])),
        ("sss", ([1, 3, 2], ["flights", "hotels"], [1, 2])),
        ("ssss", ([3, 1, 2], ["flights", "hotels"], [1, 2])),
        ("sssss", ([2, 1, 3], ["flights", "hotels"], [1, 2])),
        ("ssssss", ([3, 1, 2], ["flights", "hotels"], [1, 2])),
        ("/KAFKA-3\r", ([3], [], [])),
        ("/hotelz\x7fs\r", ([], ["hotels"], [])),
        ("b2\r", ([2], ["flights"], [1])),
        ("b3\r", ([3], ["hotels"], [1])),
        ("bx\r", ([2, 1, 3], ["flights", "hotels"], [1, 2])),
        ("tflights\r", ([2, 1, 3], ["flights"], [1])),
        ("b2\r\x1b", ([2, 1, 3], ["flights", "hotels"], [1, 2])),
        ("/hot\x1b", ([2, 1, 3], ["flights", "hotels"], [1, 2])),
    ],
)
def test_keys_sort_filter_and_drill(keys, expected):
    view = View()
    for key in keys:
        view = press(view, key)
    assert shown(view) == expected


def test_a_topic_that_was_asked_for_is_shown_whole():
    whole = [msgspec.structs.replace(trouble("flights", number, [1]), kind="well") for number in range(3)]
    found = msgspec.structs.replace(SNAPSHOT, focus="flights", focused=whole)
    assert seen(found, press(View(), "tflights\r")).worst == whole
    assert [each.topic for each in seen(found, press(View(), "thotels\r")).worst] == ["hotels"], "not asked for yet"


@pytest.mark.parametrize("end", ["q", "Q", "\x04"])
def test_q_ends_it_but_not_within_a_word(end):
    assert press(View(), end).ended
    assert press(press(View(), "?"), end).ended
    typed = press(View(), "/q")
    assert (typed.ended, typed.typed, typed.hint) == (False, "q", "filter: q_")


def test_help_and_pause_and_what_the_screen_says_of_them():
    assert press(View(), "?").help and not press(press(View(), "h"), "x").help
    paused = press(View(), " ")
    assert (paused.paused, press(paused, " ").paused) == (True, False)
    assert press(View(), "s/a\rb2\r ").hint == f"/a, broker 2, by {SORTS[1]}, paused"
    assert press(View(), "\x1b[A\x1b[3~\x1bOP") == View() == press(View(), "xyz")
    assert press(paused, "\x1btx\r").topic == "x", "keys that came at once"
