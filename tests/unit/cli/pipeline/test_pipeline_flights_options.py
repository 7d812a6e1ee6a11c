"""What `regency pipeline flights` refuses before it asks a broker or starts Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from fake_cluster import FakeCluster, partition

from regency.cli.asking.wire import TopicFacts
from regency.cli.main import cli
from regency.cli.pipeline import flights as module
from regency.pipeline.files.files import OutputUnwritable
from regency.pipeline.jobs.flights.job import BadRecord, FlightsCounts


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "Missing option '--to'"),
        (["--to", "d", "--flights", "5"], "--flights says how many --produce writes."),
        (["--to", "d", "--to-topic", "x", "--no-topic"], "--to-topic and --no-topic contradict each other."),
        (["--to", "d", "--to-topic", "flights"], "--to-topic is the topic that is read."),
        (["--to", "d", "--bad-records", "keep"], "'keep' is not one of 'fail', 'skip'"),
        (["--to", "d", "--produce", "--flights", "0"], "0 is not in the range"),
        (["--to", "d", "--max-offsets", "0"], "0 is not in the range"),
    ],
)
def test_words_that_contradict_are_refused(words: list[str], said: str) -> None:
    done = CliRunner().invoke(cli, ["pipeline", "flights", *words], prog_name="regency")
    assert done.exit_code == 2
    assert said in done.stderr


@pytest.mark.parametrize(
    ("words", "option", "said"),
    [
        (["--to", ""], "'--to'", "'' is empty"),
        (["--to", " "], "'--to'", "' ' is empty"),
        (["--to", "x:y"], "'--to'", "'x:y' reads as a URI of the scheme x, which goes on with a slash"),
        (["--to", "d", "--checkpoint", ""], "'--checkpoint'", "'' is empty"),
        (["--to", "d", "--checkpoint", ":y"], "'--checkpoint'", "':y' has a colon"),
        (["--to", "x/g[1]"], "--to", "x/g[1] has [ ]: where Spark reads, that is a pattern of names."),
        (["--to", "x/h{2}"], "--to", "x/h{2} has { }: where"),
        (["--to", "x/*?\\"], "--to", "has * ? \\: where"),
        (["--to", "d", "--topic", "a b"], "--topic", "topic name 'a b' is not allowed: it contains ' '."),
        (["--to", "d", "--to-topic", "a b"], "--to-topic", "topic name 'a b' is not allowed: it contains ' '."),
        (["--to", "d", "--topic", "t" * 249], "--to-topic", "it has 256 characters, 249 are allowed"),
        (["--to", "d", "--watermark", "2 moons"], "--watermark", "'2 moons': it is no number with a unit of"),
        (
            ["--to", "d", "--watermark", "-2 days"],
            "--watermark",
            "'-2 days': it is negative. Say for example '2 days'.",
        ),
        (["--to", "d", "--watermark", ""], "--watermark", "'': it is no number with a unit of"),
    ],
)
def test_a_word_that_cannot_be_meant_is_wrong_use_of_its_option(words: list[str], option: str, said: str) -> None:
    command = ["pipeline", "flights", *words, "--bootstrap-server", "127.0.0.1:1"]
    done = CliRunner().invoke(cli, command, prog_name="regency")
    assert done.exit_code == 2, "before a broker is asked"
    assert f"Invalid value for {option}: " in done.stderr
    assert said in done.stderr


def run_as(monkeypatch: pytest.MonkeyPatch, job: type) -> None:
    """The command has a cluster and a session, and runs this."""
    session = SimpleNamespace(
        conf=SimpleNamespace(set=lambda *_: None), sparkContext=SimpleNamespace(defaultParallelism=2)
    )
    monkeypatch.setattr(module, "first_that_answers", lambda _: "h:1")
    monkeypatch.setattr(module, "job_session", lambda *_, **__: nullcontext(session))
    monkeypatch.setattr(module, "FlightsRun", job)


class NowhereToWrite:
    """A job whose directory cannot be made."""

    def __init__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        raise OutputUnwritable("/proc/x cannot be made: mkdir failed.", hint="Name another.")


def test_a_directory_that_cannot_be_made_is_told_before_a_topic_is_made_or_a_record_written(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]
) -> None:
    made: list[object] = []
    run_as(monkeypatch, NowhereToWrite)
    connect(FakeCluster())
    for name in ("ensure_topic", "produce_flights"):
        monkeypatch.setattr(module, name, lambda *words, **_: made.append(words))
    words = ["pipeline", "flights", "--to", "/proc/x", "--produce", "--bootstrap-server", "h:1"]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert (done.exit_code, made) == (1, [])
    assert "Error: /proc/x cannot be made: mkdir failed. Name another." in done.stderr


class Fails:
    """A job that finds a bad record."""

    counts = FlightsCounts(rows=3, bad=1, windows=0, late=0, open=0, sent=0, batches=1, watermark=None)

    def __init__(self, *_: object) -> None:
        pass

    def check(self) -> None:
        pass

    def run(self, **_: object) -> None:
        raise BadRecord("A record is no flight: f-0, offset 7: carrier is missing.", hint="Skip it.")


def test_a_failure_is_told_although_nobody_reads_the_counts_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(_: object) -> None:
        raise BrokenPipeError

    run_as(monkeypatch, Fails)
    words = ["pipeline", "flights", "--to", "d", "--no-topic", "-o", "json", "--bootstrap-server", "h:1"]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert (done.exit_code, json.loads(done.stdout)["rows"]) == (1, 3)
    monkeypatch.setattr(module, "print_json", closed)
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert done.exit_code == 1
    assert "Error: A record is no flight: f-0, offset 7" in done.stderr


def test_a_topic_with_records_is_told_before_spark_is_started(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]
) -> None:
    there = FakeCluster()
    there.known = [TopicFacts("flights", [partition(0, 1, [1])])]
    connect(there)
    monkeypatch.setattr(module, "first_that_answers", lambda _: "h:1")
    monkeypatch.setattr(module, "_records_in", lambda *_: 7)
    monkeypatch.setattr(module, "job_session", lambda *_, **__: pytest.fail("Spark is started"))
    words = ["pipeline", "flights", "--to", "d", "--produce", "--bootstrap-server", "h:1"]
    done = CliRunner().invoke(cli, words, prog_name="regency")
    assert done.exit_code == 6
    assert "Topic flights has 7 records already" in done.stderr


@pytest.mark.parametrize(
    ("at", "words"),
    [
        ("ensure_topic", "The same command goes on from there."),
        ("produce_flights", "Not all flights are in flights: begin again with another --topic."),
        ("run", "The same command without --produce goes on from there."),
    ],
)
def test_a_stop_says_what_is_to_be_typed_next(at: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Callable[[], str]] = []
    said: list[str] = []

    def stop(*_: object, **__: object) -> None:
        said.append(asked[0]())

    run_as(monkeypatch, Fails)
    session = SimpleNamespace(
        conf=SimpleNamespace(set=lambda *_: None), sparkContext=SimpleNamespace(defaultParallelism=2)
    )
    monkeypatch.setattr(module, "job_session", lambda *_, stopped: (asked.append(stopped), nullcontext(session))[1])
    monkeypatch.setattr(module, "refuse_records", lambda *_: None)
    for name in ("ensure_topic", "produce_flights"):
        monkeypatch.setattr(module, name, stop if name == at else lambda *_, **__: None)
    if at == "run":
        monkeypatch.setattr(Fails, "run", stop)
    command = ["pipeline", "flights", "--to", "d", "--produce", "--bootstrap-server", "h:1"]
    CliRunner().invoke(cli, command, prog_name="regency")
    assert said == [words]
