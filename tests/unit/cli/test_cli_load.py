"""A load keeps its rate, makes nothing up after a pause, and tells what failed."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime

import confluent_kafka
import pytest
from click.testing import Result
from fake_cluster import FakeCluster, partition

from regency.cli.asking.wire import TopicFacts
from regency.cli.data import load
from regency.cli.data.load import MOST_BEHIND_S, Acknowledgements, Latency, Pace

Run = Callable[..., Result]
AT = ("--bootstrap-server", "nobody:1")
PURGED = confluent_kafka.KafkaError(confluent_kafka.KafkaError._PURGE_QUEUE)
TIMED_OUT = confluent_kafka.KafkaError(confluent_kafka.KafkaError._MSG_TIMED_OUT)


@pytest.mark.parametrize(("rate", "tick_s"), [(500.0, 0.02), (3.0, 0.02), (0.5, 0.1), (100_000.0, 0.013)])
def test_the_rate_is_kept_whatever_the_tick(rate: float, tick_s: float) -> None:
    pace = Pace(rate, 100.0)
    ticks = int(60 / tick_s)
    sent = sum(pace.due(100.0 + tick * tick_s) for tick in range(1, ticks + 1))
    assert abs(sent - rate * ticks * tick_s) <= 1


def test_after_a_pause_one_second_is_made_up_for_and_no_more() -> None:
    pace = Pace(100.0, 0.0)
    assert pace.due(1.0) == 100
    assert pace.due(60.0) == 100 * MOST_BEHIND_S
    assert pace.due(60.5) == 50


def test_a_clock_that_stands_or_goes_back_sends_nothing() -> None:
    pace = Pace(100.0, 10.0)
    assert (pace.due(10.0), pace.due(9.0), pace.due(10.1)) == (0, 0, 10)


def test_a_rate_that_is_no_number_is_refused(run: Run) -> None:
    result = run("load", "t", "--rate", "nan", *AT)
    assert (result.exit_code, "nan is not a number of records" in result.stderr) == (2, True)


def test_a_pause_is_the_time_in_which_records_wait_and_none_is_acknowledged() -> None:
    found = Acknowledgements()
    assert (found.latency, found.pauses(0.0)) == (None, [])
    for each in range(99):
        found.answered(1, 0.002, 10.0 + each / 100, acknowledged=True)
        found.answered(2, 0.002, 10.0 + each / 10, acknowledged=True)
    found.answered(1, 3.3, 14.4, acknowledged=False)  # a failure ends no pause
    found.answered(1, 3.41237, 14.5, acknowledged=True)
    found.answered(2, 0.5, 60.0, acknowledged=True)  # it was idle before
    assert [(each.partition, each.seconds) for each in found.pauses(0.0)] == [(1, 3.412), (2, 0.5)]
    since = datetime.fromisoformat(found.pauses(1e9)[0].since).timestamp()
    assert since == pytest.approx(1e9 + 14.5 - 3.412, abs=0.01)
    assert found.latency == Latency(2.0, 2.0, 3410.0)
    for _ in range(4):
        found.answered(2, 0.0123456, 61.0, acknowledged=True)
    assert found.latency == Latency(2.0, 12.3, 3410.0)


class Record:
    """What a delivery report is about."""

    def __init__(self, partition: int = 0, waited_s: float = 0.25) -> None:
        self.partition = lambda: partition
        self.latency = lambda: waited_s


class FakeProducer:
    """Delivers all but each tenth record, and some that are never answered."""

    unanswered = 0

    def __init__(self, config: dict[str, object]) -> None:
        self.config = config
        self.sent: list[tuple[bytes, bytes]] = []

    def produce(self, _: str, value: bytes, key: bytes, on_delivery: Callable[..., None]) -> None:
        self.sent.append((key, value))
        self.report = on_delivery
        on_delivery(TIMED_OUT if len(self.sent) % 10 == 0 else None, Record())

    def poll(self, _: float) -> int:
        return 0

    def flush(self, _: float) -> int:
        return self.unanswered

    def purge(self) -> None:
        for _ in range(self.unanswered):
            self.report(PURGED, Record(partition=1, waited_s=9.5))

    def __len__(self) -> int:
        return 0


class FullProducer(FakeProducer):
    """Takes nothing, and in the end not even that."""

    def produce(self, _: str, value: bytes, key: bytes, on_delivery: Callable[..., None]) -> None:
        raise confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._FATAL))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]) -> list[FakeProducer]:
    producers: list[FakeProducer] = []

    def make(config: dict[str, object]) -> FakeProducer:
        producers.append(FakeProducer(config))
        return producers[-1]

    monkeypatch.setattr(load.confluent_kafka, "Producer", make)
    monkeypatch.setattr(load, "check_reachable", lambda *_: None)
    fake = FakeCluster()
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2, 3], [1])])]
    monkeypatch.setattr(load, "ensure_topic", lambda *_, **__: fake.known[0])
    fake.min_isr = 2
    connect(fake)
    return producers


def test_a_broker_that_has_not_heard_of_the_topic_is_not_asked_about_it(
    run: Run, made: list[FakeProducer], monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]
) -> None:
    found = TopicFacts("t", [partition(0, 1, [1, 2, 3], [1])])
    monkeypatch.setattr(load, "ensure_topic", lambda *_, **__: found)
    connect(FakeCluster())

    result = run("load", "t", *AT, "--no-read", "--rate", "1000", "--seconds", "0.1")

    assert "Wrote " in result.output


def test_what_failed_is_counted_and_is_the_exit_status(run: Run, made: list[FakeProducer]) -> None:
    result = run(
        "load",
        "t",
        *AT,
        "--no-read",
        "--rate",
        "1000",
        "--size",
        "7",
        "--seconds",
        "0.3",
        "--every",
        "0.1",
        "-o",
        "json",
    )
    told = json.loads(result.stdout)
    [producer] = made
    assert result.exit_code == 1
    assert told["delivered"] + told["failed"] == len(producer.sent) > 10
    assert told["failed"] == len(producer.sent) // 10 == told["errors"][TIMED_OUT.str()]
    assert told["problems"] == ["NOT_ENOUGH_REPLICAS: t-0 has 1 in sync, min.insync.replicas is 2"]
    assert f"Why: {told['problems'][0]}." in result.stderr
    assert told["latency"] == {"p50_ms": 250.0, "p99_ms": 250.0, "max_ms": 250.0}
    assert [(each["partition"], each["seconds"]) for each in told["pauses"]] == [(0, 0.25)]
    assert {len(value) for _, value in producer.sent} == {7}
    assert (producer.config["acks"], producer.config["enable.idempotence"]) == ("all", True)
    assert "records/s written, 0 read, " in result.stderr


def test_what_is_unanswered_at_the_end_is_a_pause_and_no_failure(
    run: Run, made: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeProducer, "unanswered", 3)
    result = run("load", "t", *AT, "--no-read", "--rate", "50", "--seconds", "0.1")
    assert result.exit_code == 1
    first, second, third, *_ = result.stdout.splitlines()
    assert first.endswith(" 0 failed, 3 without an answer.")
    assert (second[:32], third) == ("Longest pause: 9.5 s, t-1, from ", "Longest of the other partitions: t-0 0.2 s.")


def test_a_producer_that_is_broken_ends_it_in_words(
    run: Run, made: list[FakeProducer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load.confluent_kafka, "Producer", FullProducer)
    result = run("load", "t", *AT, "--no-read", "--seconds", "5")
    assert result.exit_code == 1
    assert "Error: Topic t takes no records: " in result.stderr


def test_a_cluster_that_is_not_there_is_told(run: Run) -> None:
    result = run("load", "t", "--bootstrap-server", "127.0.0.1:1", "--seconds", "1")
    assert (result.exit_code, "No broker answers at 127.0.0.1:1." in result.stderr) == (5, True)
