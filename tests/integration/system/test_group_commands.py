"""Groups from the command line against a cluster: consume shares and commits, resets move, lag is told, and nothing of
it hangs on one broker."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Consumer

from regency.cli.main import cli
from regency.cluster.cluster import Cluster

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

Run = Callable[..., Result]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "6"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, settings=SETTINGS) as made:
        made.wait_healthy(60)
        yield made


@pytest.fixture
def run(cluster: Cluster) -> Run:
    def invoke(*words: str, given: str = "", status: int = 0) -> Result:
        done = CliRunner().invoke(cli, [*words, "--bootstrap-server", cluster.bootstrap_servers], input=given)
        assert done.exit_code == status, done.output
        return done

    return invoke


@pytest.fixture
def topic(run: Run, request: pytest.FixtureRequest) -> str:
    """A topic with four partitions and the records 1 to 200."""
    name = request.node.name[:60]
    run("topics", "create", name, "--partitions", "4", "--replication-factor", "3")
    write(run, name, 1, 200)
    return name


def write(run: Run, topic: str, first: int, last: int) -> None:
    run("produce", topic, given="".join(f"{number}\n" for number in range(first, last + 1)))


def described(run: Run, group: str) -> Any:
    [found] = json.loads(run("groups", "describe", group, "-o", "json").stdout)
    return found


class Member:
    """`regency consume --group` as a process of its own."""

    def __init__(self, cluster: Cluster, topic: str, group: str) -> None:
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "regency", "consume", topic, "--group", group, "--from-beginning"),
                *("--bootstrap-server", cluster.bootstrap_servers),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def end(self, by: signal.Signals = signal.SIGINT) -> tuple[int, list[int], str]:
        """Exit status, numbers that were printed, and what was said."""
        self._process.send_signal(by)
        printed, said = self._process.communicate(timeout=60)
        return self._process.returncode, [int(line) for line in printed.split()], said


def test_what_was_printed_is_committed_however_the_command_ends(run: Run, cluster: Cluster, topic: str) -> None:
    first = run("consume", topic, "--group", "one", "--from-beginning", "--max-messages", "70").stdout.split()
    rest = run("consume", topic, "--group", "one", "--until-end").stdout.split()
    assert sorted(map(int, first + rest)) == list(range(1, 201))
    assert (described(run, "one")["lag"], described(run, "one")["members"]) == (0, [])
    assert run("consume", topic, "--group", "one", "--timeout", "3").stdout == ""


def test_ctrl_c_commits(run: Run, cluster: Cluster, topic: str, eventually: Any) -> None:
    member = Member(cluster, topic, "keys")
    eventually(lambda: "keys" in run("groups", "list").stdout and described(run, "keys")["lag"] == 0, within=60)
    write(run, topic, 201, 250)
    eventually(lambda: described(run, "keys")["lag"] == 0, within=60)
    status, printed, said = member.end()
    assert (status, sorted(printed)) == (130, list(range(1, 251)))
    assert "Printed 250 records, and committed that in group keys." in said
    assert run("consume", topic, "--group", "keys", "--timeout", "3").stdout == ""


def test_members_share_what_there_is(run: Run, cluster: Cluster, topic: str, eventually: Any) -> None:
    members = [Member(cluster, topic, "both") for _ in range(2)]

    def shared() -> bool:
        held = [len(each["partitions"]) for each in described(run, "both")["members"]]
        return held == [2, 2]

    eventually(lambda: "both" in run("groups", "list").stdout and shared(), within=60)
    write(run, topic, 201, 400)
    eventually(lambda: described(run, "both")["lag"] == 0, within=60)
    refused = run("groups", "reset-offsets", "both", "--to-earliest", "--execute", status=6)
    assert "Group both has 2 members" in refused.stderr
    assert "Group both has 2 members" in run("groups", "delete", "both", "--yes", status=6).stderr
    assert "its members subscribe" in run("groups", "offsets", "both", topic, "--delete", "--yes", status=6).stderr
    printed = [number for member in members for number in member.end()[1]]
    assert sorted(printed) == list(range(1, 401))


def test_a_reset_group_reads_again_from_there(run: Run, topic: str) -> None:
    run("consume", topic, "--group", "again", "--from-beginning", "--until-end")
    shown = json.loads(run("groups", "reset-offsets", "again", "--shift-by", "-5", "-o", "json").stdout)
    assert described(run, "again")["lag"] == 0, "a dry run changes nothing"
    run("groups", "reset-offsets", "again", "--shift-by", "-5", "--execute")
    assert described(run, "again")["lag"] == sum(
        each["current_offset"] - each["new_offset"] for each in shown["partitions"]
    )
    assert len(run("consume", topic, "--group", "again", "--until-end").stdout.split()) == 20
    run("groups", "reset-offsets", "again", "--to-earliest", "--topic", f"{topic}:0", "--execute")
    ends = {each["partition"]: each["log_end"] for each in described(run, "again")["offsets"]}
    assert described(run, "again")["lag"] == ends[0]
    run("groups", "reset-offsets", "again", "--to-datetime", "2001-01-01", "--execute")
    assert described(run, "again")["lag"] == 200
    run("groups", "reset-offsets", "again", "--by-duration", "0s", "--execute")
    assert described(run, "again")["lag"] == 0


def test_offsets_of_a_topic_are_deleted_and_then_the_group(run: Run, topic: str) -> None:
    run("groups", "reset-offsets", "made", "--topic", topic, "--to-earliest", "--create", "--execute")
    run("groups", "reset-offsets", "kept", "--topic", topic, "--to-latest", "--create", "--execute")
    assert described(run, "made")["lag"] == 200
    told = json.loads(run("groups", "offsets", "made", "-o", "json").stdout)
    assert [each["current_offset"] for each in told["offsets"]] == [0, 0, 0, 0]
    run("groups", "offsets", "made", topic, "--delete", "--yes")
    assert "There is no group made." in run("groups", "describe", "made", status=1).stderr
    run("groups", "delete", "kept", "--yes")
    assert "kept" not in run("groups", "list").stdout


def test_a_static_member_is_shown_with_its_instance(run: Run, cluster: Cluster, topic: str, eventually: Any) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "static", "group.instance.id": "till-1"}
    consumer = Consumer({**settings, "client.id": "till"})
    consumer.subscribe([topic])
    eventually(lambda: consumer.poll(0.1) is None and consumer.assignment(), within=30)
    [member] = described(run, "static")["members"]
    assert (member["instance_id"], member["client_id"], len(member["partitions"])) == ("till-1", "till", 4)
    assert "till-1" in run("groups", "describe", "static", "--members", "--verbose").stdout
    consumer.close()


def test_a_dead_coordinator_is_waited_for(run: Run, cluster: Cluster, topic: str, eventually: Any) -> None:
    member = Member(cluster, topic, "moves")
    eventually(lambda: "moves" in run("groups", "list").stdout and described(run, "moves")["lag"] == 0, within=60)
    coordinator = described(run, "moves")["coordinator"]
    cluster.kill(coordinator)
    try:
        assert len(described(run, "moves")["members"]) == 1, "members outlive their coordinator"
        assert described(run, "moves")["coordinator"] != coordinator
        write(run, topic, 201, 300)
        eventually(lambda: described(run, "moves")["lag"] == 0, within=60)
        status, printed, _ = member.end()
        assert (status, sorted(printed)) == (130, list(range(1, 301)))
    finally:
        cluster.start(coordinator)
        cluster.wait_healthy(60)
