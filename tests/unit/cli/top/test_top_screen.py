"""How snapshots look at 80x24 and at 200x60: what must be seen is, nothing is wider or longer than the screen."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from regency.cli.asking.rates import CatchUp
from regency.cli.top.keys import View, seen
from regency.cli.top.screen import render
from regency.cli.top.snapshot import (
    BrokerLine,
    ControllerLine,
    EventLine,
    GroupLine,
    PartitionCounts,
    Snapshot,
    TroubleLine,
)

SMALL, LARGE = (80, 24), (200, 60)
NOON = 1_780_000_000_000


def broker(number: int, state: str = "live", **facts: object) -> BrokerLine:
    known = {"address": f"kafka-{number}.example:9092", "leads": 2000, "follows": 4000, "offline_replicas": 0}
    figures = {"records_per_s": 1234.5, "disk_used": 0.43, "bytes_in_per_s": 1.5 * 2**20, "lag": 0}
    return BrokerLine(number, state, **{**known, **figures, **facts})


def trouble(number: int, kind: str = "under_replicated") -> TroubleLine:
    if kind == "offline":
        return TroubleLine("flights", number, kind, None, [1, 2, 3], [1, 2], False)
    return TroubleLine("flights", number, kind, 1, [1, 2, 3], [1, 2], False, [0, None, 1200], CatchUp(7.0, 171.0))


def event(number: int, told: str = "") -> EventLine:
    words = (
        f"broker {number} dead (its registration is gone): 6 partitions lost a replica, 2 have a new leader, 1 has none"
    )
    return EventLine(NOON + number, 7, number, told or words)


CALM = Snapshot(
    "kafka-1:9092",
    NOON,
    age_s=0.0,
    controller=ControllerLine(2, 7, "Idle", 0, 734.0, 0.09, True),
    brokers=[broker(1), broker(2, rules=True), broker(3)],
    partitions=PartitionCounts(12, 2_000_000, 0, 2_000_000, 0, 0, 0, 0),
    records_per_s=3703.5,
)
DISASTER = msgspec.structs.replace(
    CALM,
    notes=["ZooKeeper is away: controller 2 has no contact with it, and decides nothing meanwhile."],
    age_s=0.4,
    controller=ControllerLine(2, 7, "BrokerChange", 12_345, 734.0, 12.5, False),
    brokers=[
        *(broker(number) for number in range(1, 60)),
        broker(60, "leaving"),
        broker(61, "silent", unacknowledged=33_000, waiting_s=75.0, failure="No answer from host:1: unavailable"),
        BrokerLine(62, "dead"),
    ],
    partitions=PartitionCounts(100_000, 2_000_000, 33_333, 1_300_000, 700_000, 120_000, 4_000, 17, 250),
    worst=[*(trouble(number, "offline") for number in range(5)), *(trouble(number) for number in range(5, 50))],
    events=[event(number) for number in range(50)],
)


def shown(snapshot: Snapshot, size: tuple[int, int | None], *, colour: bool = False, hint: str = "") -> list[str]:
    width, height = size
    out = io.StringIO()
    console = Console(
        file=out, width=width, height=height or 25, force_terminal=colour, color_system="standard" if colour else None
    )
    console.print(render(seen(snapshot, View()), width, height, hint=hint))
    return out.getvalue().splitlines()


@pytest.mark.parametrize("size", [SMALL, LARGE, (40, 10), (20, 3), (10, 1), (1, 1), (300, 5)])
@pytest.mark.parametrize("snapshot", [CALM, DISASTER, Snapshot("a:1", NOON, ["nobody is there"])])
def test_nothing_is_wider_or_longer_than_the_screen(snapshot, size):
    lines = shown(snapshot, size)
    assert len(lines) <= size[1]
    assert max(map(len, lines)) <= size[0]


def test_a_calm_cluster_at_80_by_24():
    lines = shown(CALM, SMALL, hint="every 2 s, q ends")
    assert lines[0].startswith("regency top  kafka-1:9092")
    assert "every 2 s, q ends" in lines[0]
    assert lines[1] == "controller 2, epoch 7: Idle; for 12 min, failover 0.09 s; 3,704 records/s"
    assert lines[2].split() == [
        "PARTITIONS",
        "HEALTHY",
        "LACK-ISR",
        "UNDER-MIN",
        "OFFLINE",
        "MOVING",
        "TOPICS",
        "DELETING",
    ]
    assert lines[3].split() == ["2,000,000", "2,000,000", "0", "0", "0", "0", "12", "0"]
    assert lines[4].split() == [
        "BROKER",
        "STATE",
        "LEADS",
        "IN/S",
        "OUT/S",
        "LAG",
        "DISK",
        "UNACKED",
        "ADDRESS",
    ]
    assert lines[6].split()[:8] == ["2", "live", "*", "2,000", "1.5", "MiB", "?", "0"]
    assert len(lines) == 8


def test_what_flows_has_a_line_of_its_own_where_it_does_not_fit():
    busy = msgspec.structs.replace(CALM, bytes_in_per_s=160_000.0, bytes_out_per_s=170_000.0)
    assert shown(busy, SMALL)[1:3] == [
        "controller 2, epoch 7: Idle; for 12 min, failover 0.09 s",
        "3,704 records/s, 156.2 KiB/s in, 166.0 KiB/s out",
    ]
    assert shown(busy, LARGE)[1].endswith("failover 0.09 s; 3,704 records/s, 156.2 KiB/s in, 166.0 KiB/s out")


def test_the_longest_names_leave_room_for_what_is_said_of_them():
    name = "a" + "." * 247 + "z"
    worst = [TroubleLine(name, 17, "offline", None, [1, 2, 3], [2], False), trouble(4)]
    told = [event(1, f"{name}-17: leader 1, ISR 1")]
    text = shown(msgspec.structs.replace(DISASTER, worst=worst, events=told, brokers=[broker(1)]), SMALL)
    (row,) = [line for line in text if "a..." in line and "offline" in line]
    assert row.split()[0].startswith("a...") and row.split()[0].endswith("..z-17")
    assert row.split()[1:] == ["offline", "none", "1,2,3", "2", "-", "-"]
    (row,) = [line for line in text if "flights-4 " in line]
    assert row.split() == ["flights-4", "lacks", "ISR", "1", "1,2,3", "1,2", "0,?,1200", "in", "3", "min"]
    assert "z-17: leader 1, ISR 1" in text[-1]


def test_a_disaster_at_80_by_24_shows_of_everything_the_worst():
    lines = shown(DISASTER, SMALL)
    text = "\n".join(lines)
    assert "ZooKeeper is away" in lines[1]
    assert "12,345 queued" in text
    assert "700,000" in text and "33,333" in text and "250 topics are not in these numbers yet" in text
    brokers = lines.index(next(line for line in lines if "STATE" in line))
    assert [line.split()[:2] for line in lines[brokers + 1 : brokers + 3]] == [["60", "leaving"], ["61", "silent"]]
    assert any(line.startswith("and ") and line.endswith("more brokers") for line in lines)
    assert any(line.startswith("flights-0") and "offline" in line and "none" in line for line in lines)
    assert lines[-2].split(" ", 1)[1] == "broker 49 dead (its registration is gone): 6 partitions lost a replica,"
    assert lines[-1] == " " * 9 + "2 have a new leader, 1 has none"
    assert len(lines) == 24


def test_events_break_between_words_and_of_the_newest_at_least_a_part_is_shown():
    told = msgspec.structs.replace(CALM, events=[event(number) for number in range(3)])
    lines = shown(told, (80, 8 + 1 + 5))
    assert lines[8] == "LAST DECISIONS"
    assert [line.split()[1:3] for line in lines[9::2]] == [["broker", "1"], ["broker", "2"]], "those that fit whole"
    long = msgspec.structs.replace(CALM, events=[event(1, "word " * 100)])
    cut = shown(long, (80, 8 + 1 + 2))
    assert len(cut) == 11 and cut[-1].endswith("word …")
    short = shown(msgspec.structs.replace(CALM, events=[event(1, "flights-1: leader 1")]), SMALL)
    assert short[-1].endswith("flights-1: leader 1")


def test_why_a_broker_takes_nothing_is_told_at_80_by_24():
    failure = "No answer from kafka-2.example:9093: deadline exceeded"
    stuck = broker(2, unacknowledged=3, waiting_s=75.0, failure=failure)
    lines = shown(msgspec.structs.replace(CALM, brokers=[broker(1), stuck]), SMALL)
    (place,) = [number for number, line in enumerate(lines) if line.split()[:2] == ["2", "live"]]
    assert lines[place + 1] == f"        waits 75 s: {failure}"
    lines = shown(msgspec.structs.replace(CALM, brokers=[broker(1), stuck]), LARGE)
    assert lines[place].endswith(f"kafka-2.example:9092 waits 75 s: {failure}")


def test_ports_are_seen_where_addresses_are_long():
    lines = shown(msgspec.structs.replace(CALM, brokers=[broker(1, address="broker-1.kafka.example:19092")]), SMALL)
    address = lines[5].split()[-1]
    assert address.startswith("broker") and address.endswith("19092") and "…" in address


def test_a_disaster_at_200_by_60_shows_more_of_it():
    small, large = shown(DISASTER, SMALL), shown(DISASTER, LARGE)
    assert len(large) == 60
    for start in ("flights-", "1"):
        assert sum(line.lstrip().startswith(start) for line in large) > sum(
            line.lstrip().startswith(start) for line in small
        )
    text = "\n".join(large)
    assert "No answer from host:1: unavailable" in text, "why a broker takes nothing"
    assert "1 has none" in text.split("LAST DECISIONS")[1].splitlines()[2], "beside the brokers, in the second line"


def test_without_a_limit_everything_is_shown():
    lines = shown(DISASTER, (120, None))
    assert sum(" dead (its" in line for line in lines) == 50
    assert sum(line.startswith("flights-") for line in lines) == 50
    assert sum(".example:9092" in line for line in lines) == 61


def test_what_was_known_last_is_said_to_be_old():
    lines = shown(msgspec.structs.replace(CALM, age_s=75.0, notes=["No broker answers at kafka-1:9092."]), SMALL)
    assert lines[1] == "No broker answers at kafka-1:9092."
    assert lines[2] == "What follows was so 75 s ago."


def test_what_an_older_controller_does_not_tell_is_left_open():
    counts = PartitionCounts(3, 40, 2)
    old = Snapshot("a:1", NOON, age_s=0.0, controller=ControllerLine(2, 7, "Idle"), partitions=counts)
    lines = shown(old, SMALL)
    assert lines[1] == "controller 2, epoch 7: Idle"
    assert lines[3].split() == ["40", "-", "-", "-", "2", "-", "3", "-"]


def test_names_and_reasons_give_no_orders_to_the_terminal():
    evil = "\x1b[2J\x1b]0;owned\x07 [red]not markup[/red]"
    line = event(1, evil)
    hostile = msgspec.structs.replace(
        CALM, notes=[evil], events=[line], brokers=[broker(1, failure=evil, address=evil)], servers=evil
    )
    text = "\n".join(shown(hostile, (400, 60)))
    assert "\x1b" not in text and "\x07" not in text
    assert "[red]not markup[/red]" in text


def test_no_colours_where_nobody_looks():
    assert "\x1b" in "".join(shown(DISASTER, SMALL, colour=True))
    assert "\x1b" not in "".join(shown(DISASTER, SMALL))


def test_lag_and_how_it_goes_on_are_shown_of_a_broker_out_of_sync():
    late = broker(3, lag=5000, lag_partial=True, catch_up=CatchUp(50.0, 100.0), offline_replicas=2)
    lines = shown(msgspec.structs.replace(CALM, brokers=[broker(1), late, broker(4, lag=None)]), SMALL)
    assert lines[6].split()[6:9] == [">5000", "43%", "0"]
    assert lines[7].split("  ")[-1].strip() == "2 replicas offline; in sync in about 100 s"
    assert lines[8].split()[6] == "?", "what is not known is not 0"
    wide = shown(msgspec.structs.replace(CALM, brokers=[late]), LARGE)
    assert wide[4].split()[3:6] == ["FOLLOWS", "OFFLINE", "RECORDS/S"]
    assert "in sync in about 100 s" in wide[5] and "replicas offline" not in wide[5], "it has its column"


@pytest.mark.parametrize(
    ("found", "words"),
    [(CatchUp(-3.0), "does not"), (CatchUp(), "?"), (CatchUp(2.0, 0.0), "now"), (CatchUp(2.0, 7300.0), "in 2 h")],
)
def test_how_a_partition_catches_up(found, words):
    line = msgspec.structs.replace(trouble(1), catch_up=found)
    assert shown(msgspec.structs.replace(CALM, worst=[line]), SMALL)[9].endswith(f"  {words}")


def test_a_topic_that_is_looked_into_has_its_bytes():
    one = msgspec.structs.replace(CALM, focus="flights", focus_in_per_s=2048.0, focus_out_per_s=None)
    assert shown(one, SMALL)[4] == "topic flights: 2.0 KiB/s in, ?/s out"


def test_what_a_broker_refuses_now_is_told():
    refusing = broker(1, connections=1200, refused_per_s={"NOT_ENOUGH_REPLICAS": 35.2})
    lines = shown(msgspec.structs.replace(CALM, brokers=[refusing]), SMALL)
    assert lines[6].strip() == "refuses 35 produces/s: NOT_ENOUGH_REPLICAS"
    wide = shown(msgspec.structs.replace(CALM, brokers=[refusing, broker(2)]), LARGE)
    assert "CONNS" in wide[4].split() and "  1,200  " in wide[5] and "    ?  " in wide[6]


GROUPS = [
    GroupLine("etl", 2, 0, 90_000, False, CatchUp(-35.0)),
    GroupLine("reports", 1, 3, 1200, False, CatchUp(40.0, 30.0)),
    GroupLine("audit", 3, 1, 700, True, CatchUp()),
    GroupLine("steady", 3, 1, 60, False, CatchUp(0.0)),
    GroupLine("idle", 3, 12, 0, False, CatchUp(0.0, 0.0)),
]


def test_groups_are_told_with_how_their_lag_goes_on():
    lines = shown(msgspec.structs.replace(CALM, groups=GROUPS), SMALL)
    assert [line.split() for line in lines if line.split()[-1] in "123" and line.split()[0].isalpha()] == [
        ["etl", "none", "90000", "grows", "by", "35/s", "2"],
        ["reports", "3", "1200", "in", "30", "s", "1"],
        ["audit", "1", ">700", "?", "3"],
        ["steady", "1", "60", "stays", "so", "3"],
        ["idle", "12", "0", "-", "3"],
    ]


def test_groups_are_filtered_and_make_room_for_what_is_looked_into():
    snapshot = msgspec.structs.replace(CALM, groups=GROUPS)
    assert [each.group for each in seen(snapshot, View(word="AUD")).groups] == ["audit"]
    assert seen(snapshot, View(topic="flights")).groups == seen(snapshot, View(broker=2)).groups == []


def test_many_groups_leave_room_for_the_rest():
    many = [msgspec.structs.replace(GROUPS[0], group=f"group-{number}") for number in range(500)]
    for size in (SMALL, LARGE):
        lines = shown(msgspec.structs.replace(DISASTER, groups=many), size)
        assert len(lines) <= size[1]
        assert any(line.startswith("and ") and "more groups" in line for line in lines), size
