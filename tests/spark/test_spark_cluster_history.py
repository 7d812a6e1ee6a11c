"""`cluster-history` on a history written by hand, whose every figure was worked out by hand."""

from __future__ import annotations

import gzip
import json
import re
import xml.etree.ElementTree as ET
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from cluster_history_reference import Reference, check_tables
from cluster_history_story import T0, Teller

from regency.history.records import Decision, decode_decision, encode_decisions
from regency.pipeline.files.history_files import HIDDEN, escaped
from regency.pipeline.files.publishing import PlaceTaken

FIRST_DAY, SECOND_DAY = date(2026, 5, 4), date(2026, 5, 5)
BIG = 150
ODD = ({"time_ms": T0 * 1000}, {"phases": [["a", "x"]]}, {"subject": "t-99999999999"})
"""Of a sound record: each makes it no decision."""
STRANGE = (
    {"subject": "broker 99999999999999999999", "to": "dead", "leader": None},
    {"subject": "t-99999999999\r"},
    {"subject": "x-0", "from": "leader 1, isr [x], leader epoch 99999999999999999999", "version": 7, "role": "agent"},
    {"subject": "x-1", "from": f"isr [{', '.join(['1'] * 30_000)}]", "version": 7, "role": "agent"},
)
"""Decisions whose words say what nobody can know, or at a length that nobody expects."""


def write_history(directory: Path) -> list[Decision]:
    """Three hosts, one of them twice; the story is told in the expectations below. Returns all decisions."""
    one, three, leader = Teller(1), Teller(3), Teller(3, role="agent")
    one.reign(1, 0)
    one.note(7, "failover", "controller", "broker 1, epoch 1", "took over", phases=(("brokers", 3), ("elections", 4)))
    one.state(100, "create_topics", "t-0", None, (2, [2, 3, 1], 0), 0)
    one.state(100, "create_topics", "t-1", None, (3, [3, 1, 2], 0), 0)
    for alone in ("s-0", "u-0", "o-0", "m-0"):
        one.state(100, "create_topics", alone, None, (2, [2], 0), 0)
    for partition in range(BIG):
        one.state(200, "create_topics", f"big-{partition}", None, (1, [1], 0), 0)
    one.note(5000, "broker_change", "broker 2", "live, epoch 64", "dead")
    one.state(5030, "broker_change", "t-0", (2, [2, 3, 1], 0), (3, [3, 1], 1), 1)
    one.state(5040, "broker_change", "t-1", (3, [3, 1, 2], 0), (3, [3, 1], 1), 1)
    for alone in ("s-0", "u-0", "o-0", "m-0"):
        one.state(5030, "broker_change", alone, (2, [2], 0), (-1, [2], 1), 1)
    one.note(7000, "delete_topics", "topic u", "kept", "to be deleted")
    one.note(8000, "resignation", "controller", "broker 1, epoch 1", "a candidate")
    three.reign(2, 8250)
    three.note(15_000, "broker_change", "broker 2", "absent", "live, epoch 99")
    three.state(15_010, "broker_change", "s-0", (-1, [2], 1), (2, [2], 2), 2)
    leader.epoch = 2
    leader.state(16_000, "isr_expand", "t-0", (3, [3, 1], 1), (3, [3, 1, 2], 1), 2)
    leader.state(16_500, "isr_expand", "t-1", (3, [3, 1], 1), (3, [3, 1, 2], 1), 2)
    leader.state(20_000, "isr_shrink", "t-0", (3, [3, 1, 2], 1), (3, [3, 1], 1), 3)
    leader.state(21_000, "isr_expand", "t-0", (3, [3, 1], 1), (3, [3, 1, 2], 1), 4)
    leader.state(22_000, "isr_shrink", "t-0", (3, [3, 1, 2], 1), (3, [3, 1], 1), 5)
    one.reign(3, 30_000)
    one.state(30_040, "failover", "t-0", (3, [3, 1], 1), (1, [1], 2), 6)
    one.state(30_040, "failover", "t-1", (3, [3, 1, 2], 1), (1, [1, 2], 2), 3)
    one.note(30_050, "failover", "controller", "broker 1, epoch 3", "took over", phases=(("brokers", 50),))
    one.state(31_000, "unclean_election", "s-0", (2, [2], 2), (1, [1], 3), 3)
    one.state(33_000, "elect_leaders", "m-0", (-1, [2], 3), (2, [2], 4), 4)
    one.note(40_000, "delete_topics", "topic s", "kept", "to be deleted")
    lines = encode_decisions(one.told).splitlines(keepends=True)
    odd = [
        {"controller_epoch": 1, "number": number, "event": "e", "subject": "t-0", "from": "x", "to": "y", "why": "why"}
        | {"time_ms": T0 + 9000, "source": 9, "leader": 1, "isr": [1], "leader_epoch": 0, "version": 0, **changes}
        for number, changes in enumerate((*ODD, *STRANGE))
    ]
    files = {
        ".run/_1/controller.1.jsonl": b"".join(lines[:-6]),
        ".run/_1/controller.jsonl": b"".join(lines[-6:]) + lines[0][:60],
        "copy/controller.1.jsonl.gz": gzip.compress(b"".join(lines[:20])),
        "3/controller.jsonl": b"hello\n" + encode_decisions(three.told) + b'{"controller_epoch":2,"number":"x"}\n\n',
        "3/agent.jsonl": encode_decisions(leader.told) + lines[0].strip() * 2 + b"\n",
        "3/odd+ [1].jsonl": b"\n".join(json.dumps(each).encode() for each in odd),
        "3/torn %20.jsonl.gz": gzip.compress(encode_decisions(leader.told))[:-9],
        "3/no.jsonl.gz": b"not compressed at all\n",
        "3/_hidden.jsonl": encode_decisions(leader.told),
        "3/_empty.jsonl": b"",
        "3/agent.jsonl.bak": b"no history\n",
    }
    for name, content in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_bytes(content)
    (directory / "3/00000.log").write_bytes(b"no history\n")
    strange = [decision for each in odd[len(ODD) :] if (decision := decode_decision(json.dumps(each))) is not None]
    return [*one.told, *three.told, *leader.told, *strange]


@pytest.fixture(scope="module")
def results(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path, list[Decision]]:
    """The summary, where the tables are, and the decisions."""
    from regency.pipeline.jobs.cluster_history.job import cluster_history

    directory = tmp_path_factory.mktemp("history")
    decisions = write_history(directory / "in")
    out = directory / "out [1]"
    out.mkdir()
    (out / "cluster-history.json").touch()
    summary = cluster_history(spark, paths=[str(directory / "in")], to=str(out), overwrite=True, top=3)
    assert sorted(each.name for each in directory.iterdir()) == ["in", "out [1]"]
    return summary, out, decisions


def table(spark: Any, results: Any, name: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = spark.read.parquet(escaped(str(results[1] / name))).select(*columns)
    return sorted((tuple(row) for row in frame.collect()), key=lambda row: tuple(map(str, row)))


def test_the_summary_counts_what_was_read_and_what_could_not_be(results: Any) -> None:
    summary, out, _ = results
    assert json.loads((out / "cluster-history.json").read_text())["decisions"] == summary.decisions
    assert (summary.begin_ms, summary.end_ms) == (T0, T0 + 40_000)
    assert (summary.origins, summary.malformed) == (9, 4 + len(ODD))
    assert 20 <= summary.duplicates <= 25  # as much of the torn file as can be unpacked
    assert summary.decisions == 32 + BIG + len(STRANGE)
    assert summary.partitions == 8 + BIG
    assert (summary.failovers, summary.elections, summary.unclean_elections) == (3, 17 + BIG, 1)
    told = {each.origin.rpartition("/in/")[2]: (each.malformed, each.why) for each in summary.problems}
    damage = told.pop("3/no.jsonl.gz")
    assert damage[0] == 0 and damage[1].startswith("it is no gzip file, or damaged (")
    assert told == {
        ".run/_1/controller.jsonl": (1, "1 line is no decision"),
        "3/agent.jsonl": (1, "1 line is no decision"),
        "3/controller.jsonl": (2, "2 lines are no decisions"),
        "3/odd+ [1].jsonl": (len(ODD), f"{len(ODD)} lines are no decisions"),
        "3/torn %20.jsonl.gz": (0, "it is cut off: its compressed data have no end"),
        "3/_hidden.jsonl": (0, f"not read: {HIDDEN}"),
    }


def test_times_without_a_leader_begin_with_the_death_and_end_with_an_election(spark: Any, results: Any) -> None:
    columns = (
        "topic",
        "partition",
        "broker",
        "began_ms",
        "ended_ms",
        "ms",
        "open",
        "complete",
        "new_leader",
        "ended_by",
    )
    found = table(spark, results, "leaderless", *columns)
    assert found == [
        ("m", 0, 2, T0 + 5000, T0 + 33_000, 28_000, False, False, 2, "elect_leaders"),
        ("o", 0, 2, T0 + 5000, None, 35_000, True, True, None, None),
        ("s", 0, 2, T0 + 5000, T0 + 15_010, 10_010, False, True, 2, "broker_change"),
        ("t", 0, 2, T0 + 5000, T0 + 5030, 30, False, True, 3, "broker_change"),
        ("t", 0, 3, T0 + 30_000, T0 + 30_040, 40, False, True, 1, "failover"),
        ("t", 1, 3, T0 + 30_000, T0 + 30_040, 40, False, True, 1, "failover"),
        ("u", 0, 2, T0 + 5000, T0 + 7000, 2000, False, True, None, None),
    ]
    assert (results[0].leaderless_ms, results[0].leaderless_intervals, results[0].leaderless_now) == (75_120, 7, 1)


def test_times_without_a_leader_are_split_at_midnight(spark: Any, results: Any) -> None:
    by_partition = table(spark, results, "leaderless_by_partition_day", "topic", "partition", "day", "ms", "intervals")
    assert by_partition == [
        ("m", 0, FIRST_DAY, 5000, 1),
        ("m", 0, SECOND_DAY, 23_000, 1),
        ("o", 0, FIRST_DAY, 5000, 1),
        ("o", 0, SECOND_DAY, 30_000, 1),
        ("s", 0, FIRST_DAY, 5000, 1),
        ("s", 0, SECOND_DAY, 5010, 1),
        ("t", 0, FIRST_DAY, 30, 1),
        ("t", 0, SECOND_DAY, 40, 1),
        ("t", 1, SECOND_DAY, 40, 1),
        ("u", 0, FIRST_DAY, 2000, 1),
    ]
    by_broker = table(spark, results, "leaderless_by_broker_day", "broker", "day", "ms", "intervals", "partitions")
    assert by_broker == [(2, FIRST_DAY, 17_030, 5, 5), (2, SECOND_DAY, 58_010, 3, 3), (3, SECOND_DAY, 80, 2, 2)]


def test_failovers_have_their_parts_and_how_long_nobody_ruled(spark: Any, results: Any) -> None:
    columns = ("controller_epoch", "broker", "won_ms", "took_ms", "finished", "resigned_ms", "decided", "vacant_ms")
    assert table(spark, results, "failovers", *columns) == [
        (1, 1, T0, 7, True, T0 + 8000, 0, None),
        (2, 3, T0 + 8250, None, False, None, 0, 250),
        (3, 1, T0 + 30_000, 50, True, None, 2, None),
    ]
    assert table(spark, results, "failover_phases", "controller_epoch", "place", "phase", "ms") == [
        (1, 0, "brokers", 3),
        (1, 1, "elections", 4),
        (3, 0, "brokers", 50),
    ]


def test_elections_are_counted_by_cause_and_outcome(spark: Any, results: Any) -> None:
    assert table(spark, results, "elections", "day", "cause", "outcome", "unclean", "elections") == [
        (FIRST_DAY, "broker_change", "elected", False, 1),
        (FIRST_DAY, "broker_change", "left without a leader", False, 4),
        (FIRST_DAY, "broker_change", "same leader, new epoch", False, 1),
        (FIRST_DAY, "create_topics", "created", False, 6 + BIG),
        (SECOND_DAY, "broker_change", "elected", False, 1),
        (SECOND_DAY, "elect_leaders", "elected", False, 1),
        (SECOND_DAY, "failover", "elected", False, 2),
        (SECOND_DAY, "unclean_election", "elected", True, 1),
    ]


def test_replicas_out_of_the_isr_and_those_that_flap(spark: Any, results: Any) -> None:
    columns = ("topic", "partition", "broker", "left_ms", "back_ms", "out_ms", "open", "left_by", "back_by")
    assert table(spark, results, "isr_absences", *columns) == [
        ("s", 0, 2, T0 + 31_000, None, 9000, False, "unclean_election", None),
        ("t", 0, 2, T0 + 5030, T0 + 16_000, 10_970, False, "broker_change", "isr_expand"),
        ("t", 0, 2, T0 + 20_000, T0 + 21_000, 1000, False, "isr_shrink", "isr_expand"),
        ("t", 0, 2, T0 + 22_000, None, 18_000, True, "isr_shrink", None),
        ("t", 0, 3, T0 + 30_040, None, 9960, True, "failover", None),
        ("t", 1, 2, T0 + 5040, T0 + 16_500, 11_460, False, "broker_change", "isr_expand"),
        ("t", 1, 3, T0 + 30_040, None, 9960, True, "failover", None),
    ]
    columns = ("topic", "partition", "broker", "left", "fell_behind", "came_back", "most_in_an_hour", "out_ms")
    assert table(spark, results, "isr_flapping", *columns)[1] == ("t", 0, 2, 3, 2, 2, 3, 29_970)


def test_tables_hold_what_is_found_by_walking_through_the_states(results: Any) -> None:
    check_tables(results[1], Reference(results[2]))


def test_slow_brokers_are_known_by_their_replicas(spark: Any, results: Any) -> None:
    columns = ("broker", "deaths", "fell_behind", "behind_ms", "behind_median_ms", "catch_ups", "catch_up_median_ms")
    assert table(spark, results, "brokers", *columns, "catch_up_longest_ms", "leaderless_ms", "elected") == [
        (1, 0, 0, 0, None, 0, None, None, 0, 3 + BIG),
        (2, 1, 2, 19_000, 9500.0, 2, 1250.0, 1500, 75_040, 7),
        (3, 0, 0, 0, None, 0, None, None, 80, 2),
    ]


def test_brokers_that_are_known_and_not_asked_are_named(spark: Any, results: Any) -> None:
    from regency.pipeline.jobs.cluster_history.job import not_asked

    brokers = spark.read.parquet(escaped(str(results[1] / "brokers")))
    assert [each.origin for each in not_asked(brokers, {1: "h:1", 9: "h:9"})] == ["broker 2", "broker 3"]


def test_the_report_stands_by_itself(results: Any) -> None:
    text = (results[1] / "report.html").read_text()
    assert "<dd>1.3 min</dd>" in text
    assert "Lists show the first 3" in text
    assert text.count("<svg") == 5
    assert not re.search(r"<(script|link|img|iframe)|href=\"(?!#)|src=|@import|url\((?!#)", text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ET.fromstring(svg)
    ids = re.findall(r' id="(\w{11,})"', text)
    assert len(ids) == len(set(ids))


def test_nothing_is_written_over_what_is_there(spark: Any, results: Any, tmp_path: Path) -> None:
    from regency.pipeline.jobs.cluster_history.job import NoHistory, cluster_history

    with pytest.raises(PlaceTaken, match="say --overwrite"):
        cluster_history(spark, paths=["/nowhere"], to=str(results[1]))
    with pytest.raises(PlaceTaken, match="no result of this job"):
        cluster_history(spark, paths=["/nowhere"], to=str(tmp_path), overwrite=True)
    (tmp_path / "agent.jsonl").write_text("hello\n")
    with pytest.raises(NoHistory, match=r"agent\.jsonl: 1 line is no decision"):
        cluster_history(spark, paths=[str(tmp_path)], to=str(tmp_path / "out"))
    assert [each.name for each in tmp_path.iterdir()] == ["agent.jsonl"]
