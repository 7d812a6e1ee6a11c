"""What a scrape reads: both formats, names asked for, text that must be escaped, one rendering a second."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterable

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics

from regency.model.clock import ManualClock
from regency.runtime.http.probes import Exposition
from regency.runtime.http.server import Request
from regency.runtime.metrics.families import (
    QUANTILES,
    Family,
    Kind,
    MetricName,
    Wanted,
    block,
    label_text,
    own,
    timers,
    value,
    values,
)
from regency.runtime.metrics.recent import RecentTimes

LEADERS = MetricName("kafka.server", "ReplicaManager", "LeaderCount", Kind.GAUGE, 'Partitions\nit "leads".')
BYTES = MetricName("kafka.server", "BrokerTopicMetrics", "BytesInPerSec", Kind.COUNTER, "Bytes.", ("topic",))
SIZE = MetricName("kafka.log", "Log", "Size", Kind.GAUGE, "A \\ and a\nline.", ("topic", "partition"))
SEEN = own("regency_seen", Kind.COUNTER, "Things.", ("what",))
TIME = MetricName("kafka.network", "RequestMetrics", "TotalTimeMs", Kind.TIMER, "Time.", ("request",))
AWKWARD = 'back\\slash "quote"\nline'

PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


class Played:
    def __init__(self) -> None:
        self.asked = 0
        self.timer = RecentTimes()
        self.timer.record(2_000, 0)

    def collect(self, wanted: Wanted) -> Iterable[Family]:
        self.asked += 1
        yield value(LEADERS, 3)
        yield values(BYTES, [(["t"], 10), ([AWKWARD], 20)])
        if wanted(SIZE):
            labels = SIZE.labels
            yield block(SIZE, [(label_text(labels, (topic, "0")), size) for topic, size in (("t", 7), (AWKWARD, 8))])
        yield block(SEEN, [('what="x"', 5)])
        yield from timers(TIME, {("Produce",): self.timer}, 0)


def scrape(exposition: Exposition, accept: str = "", encoding: str = "", **query: list[str]) -> tuple[str, str]:
    asked = {f"{key.removesuffix('s')}[]": some for key, some in query.items()}
    response = exposition.handle(Request("GET", "/metrics", asked, {"accept": accept, "accept-encoding": encoding}))
    assert response.status == 200
    body = response.body
    if response.headers.get("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    return response.headers["Content-Type"], body.decode()


def samples(text: str, *, strict: bool) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    parse = openmetrics.text_string_to_metric_families if strict else parser.text_string_to_metric_families
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parse(text)
        for sample in family.samples
    }


def test_both_formats_say_the_same_and_can_be_parsed() -> None:
    exposition = Exposition([Played()], ManualClock())
    for accept, strict in (("", False), ("*/*", False), (PROMETHEUS_3, True)):
        content_type, text = scrape(exposition, accept)
        assert content_type.startswith("application/openmetrics-text; version=1.0.0" if strict else "text/plain")
        found = samples(text, strict=strict)
        assert found["kafka_server_replicamanager_leadercount", ()] == 3
        assert found["kafka_server_brokertopicmetrics_bytesin_total", (("topic", AWKWARD),)] == 20
        assert found["kafka_log_log_size", (("partition", "0"), ("topic", AWKWARD))] == 8
        assert found["regency_seen_total", (("what", "x"),)] == 5
        for spelled, _ in QUANTILES:
            at = found["kafka_network_requestmetrics_totaltimems", (("quantile", spelled), ("request", "Produce"))]
            assert abs(at - 2) < 0.05
        assert found["kafka_network_requestmetrics_totaltimems_count", (("request", "Produce"),)] == 1
        assert found["kafka_network_requestmetrics_totaltimems_sum", (("request", "Produce"),)] == 2
        assert ("process_resident_memory_bytes", ()) in found
        assert any(name == "python_info" for name, _ in found)


@pytest.mark.parametrize("accept", ["", PROMETHEUS_3])
def test_prometheus_3_rewrites_none_of_our_labels(accept: str) -> None:
    """It writes `quantile` of what is typed a summary, and `le` of histograms, as OpenMetrics spells numbers: 0.5."""
    text = scrape(Exposition([Played()], ManualClock()), accept)[1]
    kind, kept = "", []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            kind = line.split()[-1]
        elif (found := re.search(r'quantile="([^"]+)"', line)) is not None:
            kept.append(str(float(found[1])) if kind == "summary" else found[1])
    assert kept == ["0.50", "0.75", "0.95", "0.98", "0.99", "0.999"]


def test_a_scrape_may_ask_for_names_of_families_or_samples() -> None:
    exposition = Exposition([Played()], ManualClock())
    names = ["kafka_log_log_size", "regency_seen_total", "kafka_network_requestmetrics_totaltimems_count"]
    text = scrape(exposition, names=names)[1]
    assert {name for name, _ in samples(text, strict=False)} == {
        "kafka_log_log_size",
        "regency_seen_total",
        "kafka_network_requestmetrics_totaltimems_count",
    }
    assert scrape(exposition, names=["nothing"])[1] == ""


def test_an_answer_is_kept_for_a_second() -> None:
    clock, played = ManualClock(), Played()
    exposition = Exposition([played], clock)
    first = scrape(exposition)
    clock.advance(999)
    assert (scrape(exposition), played.asked) == (first, 1)
    clock.advance(1)
    scrape(exposition)
    assert played.asked == 2


def test_asking_for_ever_other_names_fills_no_memory() -> None:
    exposition = Exposition([Played()], ManualClock())
    for number in range(50):
        scrape(exposition, names=[f"n{number}"])
    assert len(exposition._kept) == 8


def test_gzip_is_given_where_it_is_taken() -> None:
    exposition = Exposition([Played()], ManualClock())
    assert scrape(exposition, encoding="gzip")[1] == scrape(exposition)[1]
    answer = exposition.handle(Request("GET", "/metrics", {}, {"accept-encoding": "gzip;q=0, br"}))
    assert "Content-Encoding" not in answer.headers


@pytest.mark.parametrize("accept", ["", PROMETHEUS_3])
def test_of_series_by_topic_only_some_are_given_and_of_others_all(accept: str) -> None:
    asked = {
        topic: scrape(Exposition([Played()], ManualClock()), accept, topics=[topic])[1] for topic in ("t", AWKWARD, "")
    }
    found = {topic: samples(text, strict=bool(accept)) for topic, text in asked.items()}
    sizes = {
        topic: [value for (name, _), value in told.items() if name.endswith("log_size")]
        for topic, told in found.items()
    }
    assert sizes == {"t": [7], AWKWARD: [8], "": []}
    assert all(told["regency_seen_total", (("what", "x"),)] == 5 for told in found.values())
