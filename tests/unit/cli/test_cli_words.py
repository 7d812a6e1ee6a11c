"""One language: partitions by name, the nearest command, waiting by default, and what shells complete."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete
from click.testing import Result
from fake_cluster import AT, FakeCluster, partition

from regency.cli import completing, waiting
from regency.cli.asking.naming import named
from regency.cli.asking.refusals import TopicMissing
from regency.cli.asking.wire import TopicFacts
from regency.cli.context import tabulated
from regency.cli.exits import CommandFailed
from regency.cli.main import cli
from regency.cluster.plan import plan_cluster
from regency.cluster.state import write_state
from regency.cluster.verbs import Verb

Run = Callable[..., Result]
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def fake(connect: Callable[[FakeCluster], None]) -> FakeCluster:
    made = FakeCluster()
    made.known = [
        TopicFacts("flights", [partition(number, 1, [1, 2]) for number in range(4)]),
        TopicFacts("day-1", [partition(0, 1, [1]), partition(1, 1, [1])]),
        TopicFacts("day", [partition(0, 1, [1]), partition(1, 1, [1])]),
    ]
    connect(made)
    return made


@pytest.mark.parametrize(
    ("text", "found"),
    [("flights", ("flights", None)), ("flights-3", ("flights", 3)), ("day-1", ("day-1", None)), ("day-0", ("day", 0))],
)
def test_a_partition_is_named_by_its_topic_and_number_and_a_topic_of_that_name_comes_first(
    fake: FakeCluster, text: str, found: tuple[str, int | None]
) -> None:
    topic, number = named(fake, text)
    assert (topic.name, number) == found


@pytest.mark.parametrize("text", ["fligths-3", "flight", "-3", "flights-", "flights-1234567890"])
def test_what_is_neither_is_missing(fake: FakeCluster, text: str) -> None:
    with pytest.raises(TopicMissing, match=text):
        named(fake, text)


def test_a_partition_that_the_topic_has_not_is_said_with_those_it_has(fake: FakeCluster) -> None:
    with pytest.raises(CommandFailed, match=r"Topic flights has no partition 9\. It has 0 to 3\."):
        named(fake, "flights-9")


def test_describe_shows_one_partition(run: Run, fake: FakeCluster) -> None:
    result = run("topics", "describe", "flights-2", "--no-offsets", *AT)
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [["flights", "2"]]


def test_describe_shows_a_partition_once_that_its_topic_is_named_beside(run: Run, fake: FakeCluster) -> None:
    result = run("topics", "describe", "flights-2", "flights", "flights-2", "--no-offsets", *AT)
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [["flights", str(n)] for n in range(4)]


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("flights", "3"), ["flights 3"]),
        (("flights", "0", "3", "day"), ["day 0", "day 1", "flights 0", "flights 3"]),
        (("day", "0", "flights-1"), ["day 0", "flights 1"]),
    ],
)
def test_numbers_behind_a_topic_are_its_partitions(
    run: Run, fake: FakeCluster, words: tuple[str, ...], shown: list[str]
) -> None:
    result = run("topics", "describe", *words, "--no-offsets", *AT)
    assert sorted(" ".join(line.split()[:2]) for line in result.stdout.splitlines()[1:]) == shown


def test_a_number_that_is_a_topic_is_that_and_one_that_is_no_partition_is_said(run: Run, fake: FakeCluster) -> None:
    fake.known.append(TopicFacts("7", [partition(0, 1, [1])]))
    result = run("topics", "describe", "day", "7", "--no-offsets", *AT)
    assert [line.split()[:2] for line in result.stdout.splitlines()[1:]] == [["7", "0"], ["day", "0"], ["day", "1"]]
    result = run("topics", "describe", "flights", "9", "--no-offsets", *AT)
    assert (result.exit_code, "Topic flights has no partition 9. It has 0 to 3." in result.stderr) == (1, True)


@pytest.mark.parametrize(
    ("words", "near"),
    [(("cluster", "helth"), "'cluster health'"), (("topic", "list"), "'topics list'"), (("lab",), "'lab kill'")],
)
def test_a_schema_that_is_not_there_has_the_nearest(run: Run, words: tuple[str, ...], near: str) -> None:
    result = run("schema", *words)
    assert (result.exit_code, f"Did you mean {near}" in result.stderr) == (2, True)
    assert "Did you mean" not in run("schema", "xyzzy").stderr


def test_a_load_is_no_new_topic_that_hides_a_partition(run: Run, fake: FakeCluster) -> None:
    result = run("load", "flights-3", "--seconds", "1", *AT)
    assert (result.exit_code, fake.asked) == (1, [])
    assert result.stderr.startswith(
        "Error: flights-3 is partition 3 of topic flights, and a load writes to whole topics."
    )


@pytest.mark.parametrize(
    ("room", "lines"),
    [
        (None, ["NAME    ENDS         WHY", "flights 16651,16651 it is dead"]),
        (22, ["NAME    ENDS   WHY", "flights 16651, it is", "        16651  dead"]),
        (21, ["NAME    ENDS   WHY", "flights 16651, it", "        16651  is", "               dead"]),
        (18, ["NAME    ENDS         WHY", "flights 16651,16651 it is dead"]),
    ],
)
def test_a_table_fits_the_terminal_as_far_as_its_words_can_be_parted(room: int | None, lines: list[str]) -> None:
    table = [["NAME", "ENDS", "WHY"], ["flights", "16651,16651", "it is dead"]]
    assert [line.split() for line in tabulated(table, room)] == [line.split() for line in lines]


def test_log_move_needs_a_partition(run: Run, fake: FakeCluster) -> None:
    result = run("log", "move", "flights", "--broker", "1", "--to", "/d", *AT)
    assert (result.exit_code, "Say which partition of flights, for example flights-0." in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("brokers", "describe", "x"), "'x' is not a valid id of a broker"),
        (("topics", "set-rf", "flights", "x"), "'x' is not a valid whole number"),
    ],
)
def test_a_value_that_is_no_number_is_called_so(run: Run, words: tuple[str, ...], told: str) -> None:
    assert told in run(*words, *AT).stderr


@pytest.mark.parametrize(
    ("word", "near"),
    [("statu", "'status'"), ("consme", "'consume'"), ("topic", "'topics'"), ("config", "'configs'")],
)
def test_a_misspelt_command_has_the_nearest(run: Run, word: str, near: str) -> None:
    result = run(word, "list")
    assert result.exit_code == 2
    assert f"Error: No such command '{word}'. Did you mean " in result.stderr
    assert near in result.stderr
    assert "Did you mean" not in run("xyzzy").stderr


def test_the_list_of_verbs_has_no_sentence_that_breaks_off(run: Run) -> None:
    assert not [line for line in run("lab", "--help").stdout.splitlines()[1:] if line.endswith("...")]


def test_a_verb_of_the_lab_is_pointed_to_from_the_top_level(run: Run) -> None:
    for verb in Verb:
        told = run(verb.value, "2").stderr
        assert f"No such command '{verb.value}'. Did you mean 'lab {verb.value}'?" in told


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        (["topics", "describe"], ["day", "day-1", "flights"]),
        (["topics", "create", "t", "--set"], None),
        (["brokers", "describe"], ["1", "2", "3"]),
        (["configs", "get", "topic"], ["day", "day-1", "flights"]),
        (["configs", "get", "broker"], ["all", "1", "2", "3"]),
        (["completion"], ["bash", "zsh", "fish"]),
        (["history", "--subject"], ["day", "day-1", "flights"]),
        (["partitions", "plan", "--topics"], ["day", "day-1", "flights"]),
        (["partitions", "plan", "--drain"], ["1", "2", "3"]),
        (["schema", "verify"], ["replicas"]),
        (["lab", "kill"], ["controller", "zookeeper", "all"]),
        (["logs"], ["controller", "zookeeper", "all"]),
    ],
)
def test_a_shell_is_offered_what_there_is(fake: FakeCluster, given: list[str], offered: list[str] | None) -> None:
    found = [each.value for each in complete([*AT, *given], "")]
    assert found == offered if offered is not None else "min.insync.replicas=" in found


def test_settings_are_completed_by_kind(fake: FakeCluster) -> None:
    assert [each.value for each in complete([*AT, "configs", "get", "topic", "t"], "retention.b")] == [
        "retention.bytes"
    ]
    assert [each.value for each in complete([*AT, "configs", "set", "broker", "1"], "broker.i")] == ["broker.id="]


def test_the_last_of_a_list_is_completed(fake: FakeCluster) -> None:
    found = complete([*AT, "partitions", "plan", "--topics"], "flights,day")
    assert [each.value for each in found] == ["flights,day", "flights,day-1"]


def test_settings_of_brokers_and_the_labs_brokers_are_offered(tmp_path: Path) -> None:
    assert [each.value for each in complete(["up", "--set"], "min.insync")] == ["min.insync.replicas="]
    write_state(tmp_path, plan_cluster(tmp_path, brokers=2))
    found = complete(["--dir", str(tmp_path), "lab", "pause"], "")
    assert [each.value for each in found] == ["1", "2", "controller", "zookeeper", "all"]


def test_without_a_cluster_nothing_is_offered_and_nothing_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("REGENCY_BOOTSTRAP_SERVERS", raising=False)
    assert complete(["topics", "describe"], "") == []
    assert capsys.readouterr() == ("", "")


def test_a_cluster_that_is_slow_is_not_waited_for(fake: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(completing, "WITHIN_S", 0.05)
    monkeypatch.setattr(FakeCluster, "topics", lambda *_: time.sleep(20))
    began = time.monotonic()
    assert complete([*AT, "topics", "describe"], "") == []
    assert time.monotonic() - began < 10


def complete(words: list[str], incomplete: str) -> list[object]:
    return ShellComplete(cli, {}, "regency", completing.VARIABLE).get_completions(words, incomplete)


@pytest.mark.parametrize("shell", completing.SHELLS)
def test_the_script_of_a_shell_calls_the_command(run: Run, shell: str) -> None:
    result = run("completion", shell)
    assert result.exit_code == 0
    assert f"{completing.VARIABLE}={shell}_complete" in result.stdout


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("completion z", "zsh"),
        ("up --set default.replication.f", "-o nospace\ndefault.replication.factor="),
    ],
)
def test_bash_completes_by_the_script_and_puts_no_blank_behind_what_a_value_follows(words: str, completed: str) -> None:
    script = (
        f'eval "$("$0" -m regency completion bash)"; COMP_WORDS=(regency {words}); COMP_CWORD={words.count(" ") + 1}; '
    )
    script += 'compopt() { echo "$@"; }; _regency_completed "$PYREGENCY"; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", script, sys.executable],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYREGENCY": str(Path(sys.executable).with_name("regency"))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, completed), done.stderr


def test_a_terminal_shows_what_is_waited_for_and_for_how_long(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(waiting, "_AFTER_S", 0.01)
    with waiting.waiting("nothing"):
        time.sleep(0.1)
    assert capsys.readouterr().err == "", "stderr is no terminal"
    monkeypatch.setattr(waiting, "stderr_is_terminal", lambda: True)
    with waiting.waiting(lambda: "brokers to register"):
        time.sleep(0.1)
    shown = capsys.readouterr().err
    assert "brokers to register: 0 s" in shown
    assert shown.endswith("\r"), "the line is given back"  # click takes the escape sequence out: this is no terminal
