"""What the listener counts, and what a scrape makes of it."""

from __future__ import annotations

from regency.broker_agent.listener.stats import (
    FETCH_CONSUMER,
    FETCH_FOLLOWER,
    ListenerStats,
    RequestTimes,
    Traffic,
    records_in,
)
from regency.broker_agent.metrics import listener_families
from regency.broker_agent.replication.api import ProduceResult
from regency.kafka.fetching.values import FetchedPartition, FetchPartition
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.runtime.metrics.families import Block, Family, MetricName

A, B = TopicPartition("a", 0), TopicPartition("b", 1)
MS = 1_000_000


def counts(traffic: Traffic, topic: str) -> dict[str, int]:
    held = traffic.topics[topic]
    return {name: getattr(held, name) for name in held.__slots__ if getattr(held, name)}


def wanted(offset: int, key: TopicPartition) -> FetchPartition:
    return FetchPartition(key, None, Offset(offset), 1000)


def every(_: MetricName) -> bool:
    return True


def samples(families: list[Family]) -> dict[tuple[str, ...], float]:
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in families
        if not isinstance(family, Block)
        for sample in family.samples
    }


def test_what_is_appended_is_counted_and_refusals_by_their_kind() -> None:
    traffic = Traffic()
    none, offset = ErrorCode.NONE, Offset(5)
    traffic.produced({A: ProduceResult(none, offset)}, {A: (100, 7)})
    traffic.produced({A: ProduceResult(ErrorCode.REQUEST_TIMED_OUT, offset)}, {A: (50, 1)})
    traffic.produced({A: ProduceResult(ErrorCode.MESSAGE_TOO_LARGE)}, {A: (9_999, 1)})
    traffic.produced({A: ProduceResult(ErrorCode.NOT_ENOUGH_REPLICAS)}, {A: (10, 1)})
    traffic.produced({A: ProduceResult(ErrorCode.NOT_LEADER_OR_FOLLOWER)}, {A: (10, 1)})
    assert counts(traffic, "a") == {
        "messages_in": 8,
        "bytes_in": 150,
        "bytes_rejected": 9_999,
        "produces": 5,
        "failed_produces": 2,
    }
    assert traffic.all.bytes_in == 150


def test_names_that_clients_make_up_get_no_counters() -> None:
    traffic = Traffic()
    for number in range(100):
        key = TopicPartition(f"made-up-{number}", 0)
        traffic.produced({key: ProduceResult(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}, {key: (1, 1)})
        refused = FetchedPartition(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        traffic.fetched_by_consumer([wanted(0, key)], {key: refused})
    assert traffic.topics == {}
    assert (traffic.all.produces, traffic.all.fetches) == (100, 100)


def test_followers_and_consumers_are_told_apart() -> None:
    traffic = Traffic()
    traffic.keep({"a", "b"})
    fetched = FetchedPartition(ErrorCode.NONE, records=b"x" * 40)
    traffic.fetched_by_consumer([wanted(0, A), wanted(0, B)], {A: fetched})
    traffic.fetched_by_follower(5_000, {A: fetched, B: FetchedPartition(ErrorCode.UNKNOWN_SERVER_ERROR)})
    assert counts(traffic, "a") == {"bytes_out": 40, "fetches": 1}
    assert counts(traffic, "b") == {"fetches": 1}
    assert (traffic.all.fetches, traffic.all.bytes_out, traffic.all.failed_fetches) == (5_002, 40, 1)
    assert traffic.replication_bytes_out == 40


def test_a_topic_that_is_gone_is_forgotten_and_the_sum_is_not() -> None:
    traffic = Traffic()
    traffic.produced({A: ProduceResult(ErrorCode.NONE, Offset(0))}, {A: (10, 1)})
    traffic.keep({"b"})
    assert list(traffic.topics) == ["b"]
    assert traffic.all.messages_in == 1


def test_a_batch_says_how_many_records_it_holds() -> None:
    assert records_in(memoryview(bytes(57) + (300).to_bytes(4, "big") + bytes(10))) == 300


def test_a_requests_time_is_split_where_its_handler_returned() -> None:
    times = RequestTimes()
    times.record(9, began=0, handled=2 * MS, done=10 * MS, turn=11 * MS, written=12 * MS)
    times.record(9, began=0, handled=0, done=3 * MS, turn=3 * MS, written=4 * MS)
    sums = {name: getattr(times, name).sum_us for name in ("total", "local", "remote", "queue", "send")}
    assert sums == {"total": 16_000, "local": 5_000, "remote": 8_000, "queue": 1_000, "send": 2_000}
    assert times.versions == {9: 2}


def test_fetches_are_told_by_kind_and_together() -> None:
    stats = ListenerStats()
    consumer, follower = stats.timing.of(FETCH_CONSUMER), stats.timing.of(FETCH_FOLLOWER)
    consumer.record(12, 0, 0, MS, MS, MS)
    follower.record(17, 0, 0, 3 * MS, 3 * MS, 3 * MS)
    follower.errors[ErrorCode.FENCED_LEADER_EPOCH] += 2
    follower.erred += 1
    told = samples(list(listener_families.requests(stats, 3)))
    assert told["kafka_network_requestmetrics_requests_total", "FetchConsumer", "12"] == 1
    assert told["kafka_network_requestmetrics_requests_total", "Fetch", "17"] == 1
    assert told["kafka_network_requestmetrics_totaltimems_count", "Fetch"] == 2
    assert told["kafka_network_requestmetrics_totaltimems_sum", "Fetch"] == 4
    assert told["kafka_network_requestmetrics_errors_total", "FetchFollower", "NONE"] == 0
    assert told["kafka_network_requestmetrics_errors_total", "Fetch", "FENCED_LEADER_EPOCH"] == 2
    assert told["kafka_network_requestmetrics_errors_total", "Fetch", "NONE"] == 1
    fenced = samples([listener_families.fenced(stats, {ErrorCode.STALE_BROKER_EPOCH: 3})])
    assert fenced["regency_fenced_requests_total", "FENCED_LEADER_EPOCH"] == 2
    assert fenced["regency_fenced_requests_total", "STALE_BROKER_EPOCH"] == 3


def test_the_sum_over_all_topics_is_the_series_without_one() -> None:
    stats = ListenerStats()
    stats.traffic.produced({A: ProduceResult(ErrorCode.NONE, Offset(0))}, {A: (10, 2)})
    families = list(listener_families.traffic(stats, every))
    (block,) = [each for each in families if isinstance(each, Block) and each.name.name == "MessagesInPerSec"]
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    assert block.lines == f'{name} 2\n{name}{{topic="a"}} 2\n'
