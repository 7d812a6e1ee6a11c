"""The job flights gives what plain Python works out of the same records, whoever is killed while it runs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest
from confluent_kafka.admin import AdminClient
from light_java import LIGHT

from regency.cli.pipeline.flights import produce_flights
from regency.cli.schemas import output_type
from regency.cluster.cluster import Cluster
from regency.demo.flights import airlines, flights_by_hour
from regency.pipeline.jobs.flights.delays import flights_of, judged
from regency.pipeline.jobs.flights.job import BadRecord, FlightsOptions, FlightsRun, OutputUnusable

COUNT = 6_000
"""A week of flights."""
WATERMARK = timedelta(days=2)
MOST = 2_000
"""Records of a batch: some batches for them all."""
HOUR = timedelta(hours=1)
Delays = list[tuple[Any, ...]]


def closed(values: Iterable[bytes], *, watermark: timedelta = WATERMARK) -> Delays:
    """What has to come out, worked out without Spark."""
    named = dict(airlines())
    groups: dict[tuple[datetime, str], list[dict[str, Any]]] = {}
    for value in values:
        flight = json.loads(value)
        hour = datetime.fromisoformat(flight["time_hour"])
        groups.setdefault((hour, flight["carrier"]), []).append(flight)
    latest = max(hour for hour, _ in groups)
    return sorted(
        (
            hour.isoformat(),
            carrier,
            named.get(carrier),
            len(flights),
            sum(flight["dep_delay"] is None for flight in flights),
            *_statistics([flight["dep_delay"] for flight in flights]),
            _statistics([flight["arr_delay"] for flight in flights])[0],
        )
        for (hour, carrier), flights in groups.items()
        if hour + HOUR <= latest - watermark
    )


def _statistics(minutes: list[float | None]) -> tuple[float | None, float | None]:
    known = [each for each in minutes if each is not None]
    return (sum(known) / len(known), float(max(known))) if known else (None, None)


def in_files(directory: Path) -> Delays:
    """The Parquet files as anybody reads them who knows nothing of Spark."""
    frame = pd.read_parquet(directory).astype(object)
    frame = frame.where(frame.notna(), None)
    return sorted(
        (row[0].to_pydatetime().astimezone(datetime.fromisoformat("2013-01-01T00:00:00Z").tzinfo).isoformat(), *row[1:])
        for row in frame.itertuples(index=False, name=None)
    )


def in_topic(records: Iterable[Any]) -> Delays:
    found = []
    for record in records:
        row = json.loads(record.value)
        assert record.key == row["carrier"].encode()
        names = ("airline", "flights", "cancelled", "mean_dep_delay", "max_dep_delay", "mean_arr_delay")
        hour = datetime.fromisoformat(row["hour"]).isoformat()
        found.append((hour, row["carrier"], *(row.get(name) for name in names)))
    return sorted(found)


@pytest.fixture
def options(cluster: Cluster, tmp_path: Path) -> Callable[..., FlightsOptions]:
    def make(topic: str, **more: Any) -> FlightsOptions:
        output = str(tmp_path / "delays")
        more = {"to": f"{topic}-delays", "max_offsets_per_trigger": MOST} | more
        return FlightsOptions(
            cluster.bootstrap_servers, topic, output, f"{output}/_checkpoint", airlines=airlines(), **more
        )

    return make


@pytest.fixture(scope="session")
def values() -> list[bytes]:
    return [flight.value for flight in flights_by_hour(COUNT)]


def test_a_broker_killed_while_it_runs_changes_no_result(
    cluster: Cluster,
    spark: Any,
    options: Any,
    values: list[bytes],
    consume: Any,
    create_topic: Any,
    eventually: Any,
    tmp_path: Path,
) -> None:
    produce_flights(cluster.bootstrap_servers, "flights-killed", COUNT)
    create_topic(cluster, "flights-killed-delays", partitions=2)
    run = FlightsRun(spark, options("flights-killed"))
    failed: list[BaseException] = []

    def running() -> None:
        try:
            run.run(tell=lambda _: None)
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            failed.append(error)

    thread = threading.Thread(target=running)
    thread.start()
    eventually(lambda: run.counts.batches >= 1 or failed, within=60, what="a batch is done")
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    victim = admin.list_topics("flights-killed", timeout=20).topics["flights-killed"].partitions[0].leader
    cluster.kill(victim)
    assert run.counts.rows < COUNT, "it is not done yet"
    thread.join(180)
    assert not thread.is_alive()
    assert not failed
    expected = closed(values)
    counts = run.counts
    assert (counts.rows, counts.bad, counts.late) == (COUNT, 0, 0)
    assert counts.batches >= COUNT // MOST
    assert (counts.windows, counts.sent) == (len(expected), len(expected))
    assert in_files(tmp_path / "delays") == expected
    assert in_topic(consume("flights-killed-delays")) == expected
    assert counts.open > 0
    assert (
        counts.line
        == f"flights: rows={COUNT} windows={counts.windows} late=0 bad=0 open={counts.open} sent={counts.sent}"
    )


def test_a_driver_killed_while_it_runs_leaves_nothing_twice(
    cluster: Cluster, consume: Any, values: list[bytes], eventually: Any, tmp_path: Path
) -> None:
    output = tmp_path / "delays"
    words = [
        *(sys.executable, "-m", "regency", "-o", "json", "--bootstrap-server", cluster.bootstrap_servers),
        *("pipeline", "flights", "--to", str(output), "--topic", "flights-once", "--max-offsets", str(MOST)),
        *("--master", "local[2]", "--conf", "spark.driver.memory=1g", *LIGHT),
    ]
    first = subprocess.Popen(
        [*words, "--every", "0.1", "--produce", "--flights", str(COUNT)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        log = output / "_spark_metadata"
        eventually(lambda: (log / "1").exists() or first.poll() is not None, within=90, what="two batches are done")
        assert first.poll() is None, "it is not done yet"
    finally:
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    before = sorted(path.name for path in output.glob("*.parquet"))
    shutil.copy(output / before[0], output / "part-00000-left-by-a-task-that-was-killed.snappy.parquet")

    again = subprocess.run([*words, "--once"], capture_output=True, text=True, timeout=120, check=False)
    assert again.returncode == 0, again.stderr
    expected = closed(values)
    assert in_files(output) == expected
    assert in_topic(consume("flights-once-delays")) == expected
    told = json.loads(again.stdout)
    assert msgspec.to_builtins(msgspec.convert(told, output_type("pipeline flights"))) == told
    assert 0 < told["rows"] < COUNT
    assert (told["late"], told["bad"], told["sent"]) == (0, 0, len(expected))
    assert again.stderr.splitlines()[-1].startswith(f"flights: rows={told['rows']} windows={told['windows']} late=0")

    twice = subprocess.run([*words, "--once", "--produce"], capture_output=True, text=True, timeout=60, check=False)
    assert twice.returncode == 6
    assert f"Topic flights-once has {COUNT} records already" in twice.stderr


def test_a_record_that_is_no_flight_ends_it_with_its_place_or_is_counted(
    cluster: Cluster,
    spark: Any,
    options: Any,
    write: Any,
    consume: Any,
    create_topic: Any,
    values: list[bytes],
    tmp_path: Path,
) -> None:
    create_topic(cluster, "flights-bad", partitions=1)
    create_topic(cluster, "flights-bad-delays", partitions=1)
    write("flights-bad", [(0, None, value) for value in values[:3_000]])
    write("flights-bad", [(0, b"k", b"{]"), (0, None, values[3_000])])
    choices = {"to": None, "max_offsets_per_trigger": None}
    run = FlightsRun(spark, options("flights-bad", **choices))
    with pytest.raises(BadRecord, match=r"flights-bad-0, offset 3000: it is no JSON object of a flight\. .*skip"):
        run.run(tell=lambda _: None)
    assert not list((tmp_path / "delays").glob("*.parquet"))
    run = FlightsRun(spark, options("flights-bad", skip_bad=True, **choices))
    run.run(tell=lambda _: None)
    assert (run.counts.rows, run.counts.bad, run.counts.sent) == (3_002, 1, 0)
    assert in_files(tmp_path / "delays") == closed(values[:3_001])

    run = FlightsRun(spark, options("flights-bad", skip_bad=True, max_offsets_per_trigger=None))
    run.run(tell=lambda _: None)
    assert (run.counts.rows, run.counts.sent) == (0, len(closed(values[:3_001])))
    assert in_topic(consume("flights-bad-delays")) == closed(values[:3_001]), "a topic that comes later gets all"
    other = FlightsRun(spark, options("flights-bad", skip_bad=True, to="flights-bad-other"))
    with pytest.raises(OutputUnusable, match="go to the topic flights-bad-delays: flights-bad-other would lack"):
        other.run(tell=lambda _: None)
    (tmp_path / "delays" / "_checkpoint" / "sent-to").unlink()
    other.check()  # as of a release that did not keep the name

    shutil.rmtree(tmp_path / "delays" / "_checkpoint")
    with pytest.raises(OutputUnusable, match="there is no checkpoint of them"):
        FlightsRun(spark, options("flights-bad", **choices)).run(tell=lambda _: None)


GOOD = '{"carrier":"UA","time_hour":"2013-01-01T10:00:00Z","dep_delay":2,"arr_delay":-11.5}'


def test_what_counts_as_a_flight(spark: Any) -> None:
    said = {
        GOOD: None,
        '{"carrier":"UA","time_hour":"2013-01-01T10:00:00Z","dep_delay":null}': None,
        '{"carrier":"UA","time_hour":"2013-01-01 05:00:00-05:00"}': None,
        None: "the record has no value",
        "": "it is no JSON object of a flight",
        "{]": "it is no JSON object of a flight",
        "[]": "it is no JSON object of a flight",
        "7": "it is no JSON object of a flight",
        '"UA"': "it is no JSON object of a flight",
        "null": "it is no JSON object of a flight",
        GOOD[:-1]: "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"dep_delay":"2"'): "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"dep_delay":true'): "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"dep_delay":{}'): "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"dep_delay":NaN'): "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"dep_delay":-Infinity'): "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"dep_delay":"NaN"'): "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"other":NaN'): "it is no JSON object of a flight",
        GOOD.replace('"dep_delay":2', '"dep_delay":1e400'): "dep_delay is too large a number",
        GOOD.replace('"arr_delay":-11.5', '"arr_delay":-1e308'): "arr_delay is too large a number",
        GOOD.replace('"', "'"): "it is no JSON object of a flight",
        GOOD + GOOD: "it is no JSON object of a flight",
        f"{GOOD}\n{GOOD}": "it is no JSON object of a flight",
        f"{GOOD},{GOOD}": "it is no JSON object of a flight",
        GOOD + " and more": "it is no JSON object of a flight",
        GOOD + "}": "it is no JSON object of a flight",
        GOOD + "] and more": "it is no JSON object of a flight",
        GOOD + ",1] and more": "it is no JSON object of a flight",
        f"[{GOOD}]": "it is no JSON object of a flight",
        GOOD.replace("UA", "U\udcff"): "it is no JSON object of a flight",
        f' {GOOD[:-1]},"other":["]",[{{}}],"é"]}}\n': None,
        GOOD.replace('"UA"', "null"): "carrier is missing",
        GOOD.replace("carrier", "airline"): "carrier is missing",
        GOOD.replace("time_hour", "hour"): "time_hour is missing",
        GOOD.replace('"2013-01-01T10:00:00Z"', "1356998400"): "time_hour is no time such as 2013-01-01T10:00:00Z",
        GOOD.replace("2013-01-01T10", "2013-13-01T10"): "time_hour is no time such as 2013-01-01T10:00:00Z",
        GOOD.replace("2013-01-01T10:00:00Z", "noon"): "time_hour is no time such as 2013-01-01T10:00:00Z",
        GOOD.replace('"2013-01-01T10:00:00Z"', "0"): "time_hour is no time such as 2013-01-01T10:00:00Z",
        GOOD.replace('"2013-01-01T10:00:00Z"', "null"): "time_hour is missing",
        GOOD.replace("2013-01-01T10:00:00Z", "1970-01-01T00:00:00Z"): "time_hour is not after 1970-01-01T00:00:00Z",
        GOOD.replace("2013-01-01T10", "1969-07-20T20"): "time_hour is not after 1970-01-01T00:00:00Z",
    }
    values = [None if text is None else bytearray(text.encode(errors="surrogateescape")) for text in said]
    rows = [(value, "t", 0, number) for number, value in enumerate(values)]
    records = spark.createDataFrame(rows, "value binary, topic string, partition int, offset bigint")
    good = flights_of(records, skip_bad=True).collect()
    assert [(row.carrier, row.dep_delay, row.arr_delay) for row in good] == [
        ("UA", 2.0, -11.5),
        ("UA", None, None),
        ("UA", None, None),
        ("UA", 2.0, -11.5),
    ]
    assert len({row.hour for row in good}) == 1, "all of one hour, whatever zone it was told in"
    told = dict(judged(records).select("place", "wrong").collect())
    assert told == {f"t-0, offset {offset}": why for offset, why in enumerate(said.values())}
    with pytest.raises(Exception, match="no flight: t-0, offset 3: the record has no value"):
        flights_of(records.where("offset < 4"), skip_bad=False).collect()
