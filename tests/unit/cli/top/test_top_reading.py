"""From controllers' answers to snapshots: rates, states of brokers, decisions kept, and who is away in words."""

from __future__ import annotations

import pytest

from regency.cli.asking.controllers import ControllerFacts, nobody_rules
from regency.cli.asking.rates import WINDOW_S, Rates, catch_up
from regency.cli.top.figures import BrokerFigures, GroupFigures
from regency.cli.top.reading import OLD_CONTROLLER, SILENT_MS, Reader
from regency.cli.top.snapshot import TroubleLine
from regency.history.records import Decision, encode_decisions
from regency.model.ids import TopicPartition
from regency.protos import controller_pb2
from regency.protos import inspection_pb2 as pb


def answer(**changes: object) -> pb.SummariseResponse:
    told = {
        "broker_id": 2,
        "controller_epoch": 7,
        "state": "Idle",
        "in_contact": True,
        "ruling_since_ms": 5_000,
        "topics": 1,
        "partitions": 10,
    }
    return pb.SummariseResponse(**{**told, **changes})


def reported(broker: int = 1, appended: int = 0, **changes: object) -> pb.SummarisedBroker:
    known = {"broker_epoch": 50, "host": "h", "port": 9, "report_age_ms": 10, "leads": 4, "follows": 5}
    return pb.SummarisedBroker(broker_id=broker, appended=appended, **{**known, **changes})


def decisions(*numbers: int, epoch: int = 7) -> list[bytes]:
    made = [Decision(epoch, each, "e", f"t-{each}", "before", "after", "because", each, 2) for each in numbers]
    return encode_decisions(made).splitlines()


def read(reader: Reader, told: pb.SummariseResponse, at_s: float = 0.0):
    return reader.read(told, {1: BrokerFigures(disk_used=0.5)}, now_s=at_s, time_ms=10_000)


def test_throughput_is_the_growth_of_what_brokers_report():
    reader = Reader("a:1")
    first = read(reader, answer(brokers=[reported(appended=100), reported(3, 10)]), 0.0)
    assert (first.records_per_s, [each.records_per_s for each in first.brokers]) == (None, [None, None])
    later = read(reader, answer(brokers=[reported(appended=300), reported(3, 20)]), 2.0)
    assert (later.records_per_s, [each.records_per_s for each in later.brokers]) == (105.0, [100.0, 5.0])


@pytest.mark.parametrize(
    "again",
    [
        answer(brokers=[reported(appended=50)]),
        answer(brokers=[reported(appended=500, broker_epoch=60)]),
        answer(brokers=[reported(appended=500)], controller_epoch=8),
    ],
    ids=["counted anew", "another incarnation", "another controller"],
)
def test_counters_that_begin_anew_have_no_rate(again):
    reader = Reader("a:1")
    read(reader, answer(brokers=[reported(appended=100)]), 0.0)
    assert read(reader, again, 1.0).brokers[0].records_per_s is None


def test_a_rate_forgets_what_is_older_than_its_window():
    rates = Rates()
    for second in range(30):
        rate = rates.see("a", 1000 if second >= 15 else 0, float(second))
        if second == 20:
            assert rate == pytest.approx(1000 / WINDOW_S)
    assert rate == 0.0
    rates.forget_all_but(set())
    assert rates.see("a", 5000, 31.0) is None


def test_states_of_brokers():
    told = answer(
        brokers=[
            reported(1),
            reported(2, shutting_down=True),
            reported(3, report_age_ms=SILENT_MS + 1),
            reported(4, report_age_ms=-1, leads=0, follows=0),
            pb.SummarisedBroker(broker_id=5, broker_epoch=-1, report_age_ms=-1),
        ]
    )
    found = read(Reader("a:1"), told).brokers
    assert [each.state for each in found] == ["live", "leaving", "silent", "live", "dead"]
    assert [each.leads for each in found] == [4, 4, 4, None, None]
    assert [each.rules for each in found] == [False, True, False, False, False]
    assert [each.disk_used for each in found] == [0.5, None, None, None, None]


def test_counts_that_are_not_complete_do_not_say_what_is_healthy():
    whole = read(Reader("a:1"), answer(under_replicated=3, offline=1)).partitions
    assert (whole.healthy, whole.under_replicated, whole.offline, whole.topics_to_count) == (7, 3, 1, 0)
    part = read(Reader("a:1"), answer(under_replicated=3, uncounted_topics=4)).partitions
    assert (part.healthy, part.under_replicated, part.topics_to_count) == (None, 3, 4)


def test_decisions_are_kept_over_terms_once_each_and_in_order():
    reader = Reader("a:1")
    read(reader, answer(decisions=decisions(1, 2, epoch=6)))
    read(reader, answer(decisions=decisions(2, epoch=6)))
    found = read(reader, answer(decisions=[*decisions(1), b"torn"])).decisions
    assert [(each.controller_epoch, each.number) for each in found] == [(6, 1), (6, 2), (7, 1)]
    assert (found[0].subject, found[0].was, found[0].decided, found[0].why) == ("t-1", "before", "after", "because")
    assert found[0].told == "t-1: before -> after (because)"


def test_no_more_decisions_are_kept_than_a_screen_may_show():
    reader = Reader("a:1")
    for start in range(0, 300, 50):
        found = read(reader, answer(decisions=decisions(*range(start, start + 50)))).decisions
    assert [each.number for each in found] == list(range(200, 300))


def test_who_is_away_is_said():
    assert read(Reader("a:1"), answer()).notes == []
    away = read(Reader("a:1"), answer(in_contact=False)).notes
    assert away == ["ZooKeeper is away: controller 2 has no contact with it, and decides nothing meanwhile."]


def test_a_controller_of_an_older_version_tells_less():
    told = controller_pb2.DescribeControllerResponse(
        broker_id=2, active=True, controller_epoch=7, state="Idle", topics=3, partitions=40, offline_partitions=2
    )
    found = Reader("a:1").read_described(told, time_ms=1)
    assert (found.notes, found.age_s, found.brokers) == ([OLD_CONTROLLER], 0.0, [])
    assert found.partitions.partitions == 40


def host(broker: int, in_contact: bool | None, blocked: str | None = None) -> ControllerFacts:
    return ControllerFacts(broker, "", rules=False, in_contact=in_contact, blocked=blocked)


SILENT = ControllerFacts(3, "")


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ([], "No controller rules: no broker is live."),
        (
            [host(1, False), host(2, False)],
            "ZooKeeper is away, so no controller rules: brokers 1, 2 have no contact with it.",
        ),
        (
            [host(1, True), host(2, False), SILENT],
            (
                "No controller rules now: one is being elected, broker 1 has contact with ZooKeeper; "
                "broker 2 has none; the controller process of broker 3 did not answer."
            ),
        ),
        ([SILENT, SILENT], "No controller rules now; the controller processes of brokers 3, 3 did not answer."),
        (
            [host(1, True), host(2, True, "/controller holds what is no controller's."), SILENT],
            (
                "No controller rules: /controller holds what is no controller's; the controller process of broker 3 "
                "did not answer."
            ),
        ),
        (
            [host(1, None)],
            "No controller rules now: one is being elected, broker 1 has contact with ZooKeeper.",
        ),
    ],
)
def test_why_nobody_rules(told, words):
    assert nobody_rules(told) == words


def leading(broker: int, **changes: object) -> pb.SummarisedBroker:
    return reported(broker, leads=2, **changes)


def test_bytes_are_growth_and_what_no_agent_tells_is_not_zero():
    reader = Reader("a:1")
    told = answer(brokers=[reported(), reported(3)])
    for at_s, count in ((0.0, 100), (2.0, 500)):
        found = reader.read(told, {1: BrokerFigures(bytes_in=count, topic_in=count / 2)}, now_s=at_s, time_ms=1)
        found = reader.focus(found, {1: BrokerFigures(topic_in=count / 2)}, now_s=at_s)
    assert [(each.bytes_in_per_s, each.bytes_out_per_s) for each in found.brokers] == [(200.0, None), (None, None)]
    assert (found.bytes_in_per_s, found.bytes_out_per_s) == (200.0, None)
    assert (found.focus_in_per_s, found.focus_out_per_s) == (100.0, None)


@pytest.mark.parametrize(
    ("figures", "lag", "partial"),
    [
        ({1: BrokerFigures(lags={3: 40}), 2: BrokerFigures(lags={3: 2})}, 42, False),
        ({1: BrokerFigures(lags={3: 40}), 2: BrokerFigures(lags={})}, 40, False),
        ({1: BrokerFigures(lags={3: 40}), 2: BrokerFigures()}, 40, True),
        ({1: BrokerFigures(lags={3: 40})}, 40, True),
        ({1: BrokerFigures(lags={3: 40}), 2: BrokerFigures(lags={3: 0}, unknown={3: 5})}, 40, True),
        ({1: BrokerFigures(lags={3: 0}), 2: BrokerFigures(lags={3: 0}, unknown={3: 5})}, None, True),
        ({1: BrokerFigures(), 2: BrokerFigures()}, None, True),
    ],
    ids=["both", "none of one", "old agent", "silent", "not heard", "nothing heard", "nobody tells"],
)
def test_lag_is_what_leaders_know_and_partial_where_one_does_not(figures, lag, partial):
    told = answer(brokers=[leading(1), leading(2), pb.SummarisedBroker(broker_id=3, broker_epoch=-1)])
    found = Reader("a:1").read(told, figures, now_s=1.0, time_ms=1).brokers[2]
    assert (found.state, found.lag, found.lag_partial, found.catch_up) == ("dead", lag, partial, None)


def test_a_broker_out_of_sync_catches_up_at_the_rate_at_which_its_lag_shrinks():
    reader = Reader("a:1")
    worst = [pb.PartitionTrouble(topic="t", leader=1, replicas=[1, 3], isr=[1])]
    told = answer(brokers=[leading(1), reported(3)], worst=worst)
    for lags_s, lag in ((0.0, 900), (0.0, 900), (4.0, 500)):
        found = reader.read(told, {1: BrokerFigures(lags={3: lag}, lags_s=lags_s)}, now_s=lags_s, time_ms=1)
    assert found.brokers[1].catch_up == catch_up(500, -100.0)
    assert (found.brokers[1].catch_up.told, found.lag) == ("in sync in about 5 s", 500)


def test_partitions_tell_the_slowest_replica_that_is_out_of_sync():
    reader = Reader("a:1")
    line = TroubleLine("t", 0, "under_replicated", 1, [1, 2, 3, 4], [1, 4], False)
    name = TopicPartition("t", 0)
    for at_s, ends in ((0.0, {1: 100, 2: 40, 3: 10, 4: 100}), (2.0, {1: 120, 2: 80, 3: 20})):
        [found] = reader.place([line], {(broker, name): end for broker, end in ends.items()}, now_s=at_s)
    assert found.lags == [0, 40, 100, None]
    assert (found.catch_up.per_s, found.catch_up.in_s) == (-5.0, None), "broker 3 falls behind"
    [unknown] = reader.place([line], {(2, name): 90}, now_s=4.0)
    assert (unknown.lags, unknown.catch_up.told) == ([None] * 4, "?")


def test_produces_that_are_refused_now_have_a_rate_and_those_of_yesterday_none():
    reader = Reader("a:1")
    for at_s, count in ((0.0, 100), (2.0, 170)):
        failed = {"NOT_ENOUGH_REPLICAS": count, "KAFKA_STORAGE_ERROR": 9}
        figures = {1: BrokerFigures(failed_produces=failed, connections=4)}
        found = reader.read(answer(brokers=[reported(), reported(3)]), figures, now_s=at_s, time_ms=1).brokers
    assert [(each.refused_per_s, each.connections) for each in found] == [
        ({"NOT_ENOUGH_REPLICAS": 35.0}, 4),
        (None, None),
    ]


def test_groups_come_with_the_one_most_behind_first_and_how_that_goes_on():
    reader = Reader("a:1")

    def told(lag: int | None, at_s: float) -> dict[str, GroupFigures]:
        return {
            "small": GroupFigures(1, 2, at_s, 5),
            "etl": GroupFigures(2, 0, at_s, lag, partial=lag is None),
            "new": GroupFigures(3, 1, at_s),
        }

    first = reader.groups(told(1000, 0.0))
    assert [(each.group, each.lag, each.coordinator, each.members) for each in first] == [
        ("etl", 1000, 2, 0),
        ("small", 5, 1, 2),
        ("new", None, 3, 1),
    ]
    assert first[0].catch_up == catch_up(1000, None)
    later = reader.groups(told(800, 5.0))
    assert (later[0].catch_up.per_s, later[0].catch_up.in_s) == (40.0, 20.0)
    seen_again = reader.groups(told(800, 5.0))  # as of the same look of the coordinator
    assert seen_again[0].catch_up.per_s == 40.0
    unknown = {each.group: each for each in reader.groups(told(None, 10.0))}["etl"]
    assert (unknown.lag, unknown.lag_partial) == (None, True)
