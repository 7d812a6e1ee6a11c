"""explain, history and doctor: whom they ask, how they show what they are told, and their exit statuses."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import click
import pytest
from click.testing import Result
from fake_cluster import AT, FakeCluster, partition

from regency.cli.asking.controllers import ControllerFacts
from regency.cli.asking.disks import Directory
from regency.cli.asking.sufferers import ClientFacts
from regency.cli.asking.wire import TopicFacts
from regency.cli.cluster import doctor, histories
from regency.cli.cluster.histories import fitted
from regency.cli.exits import Exit
from regency.cli.moments import Moment
from regency.clients import controllers
from regency.clients.nodes import Node
from regency.history.records import Decision, encode_decisions
from regency.model.ids import BrokerId, ControllerEpoch, LeaderEpoch, ZkVersion
from regency.protos import admin_pb2
from regency.protos import inspection_pb2 as pb
from regency.runtime.grpc.channels import RpcFailed

Run = Callable[..., Result]
NODES = {BrokerId(broker): Node(BrokerId(broker), f"h{broker}", 9) for broker in (1, 2)}


def state(number: int, version: int, *, role: str = "controller", time_ms: int, source: int = 1) -> Decision:
    return Decision(
        ControllerEpoch(1),
        number,
        "isr_expand" if role == "agent" else "broker_change",
        "t-0",
        "leader 1",
        "leader 2",
        f"version {version}",
        time_ms,
        BrokerId(source),
        role,
        leader=BrokerId(2),
        isr=(BrokerId(2), BrokerId(3)),
        leader_epoch=LeaderEpoch(4),
        version=ZkVersion(version),
    )


class Cluster(FakeCluster):
    """Two hosts with histories in pages; host 2 may be away."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes = dict(NODES)
        self.facts = [ControllerFacts(1, "h1:9", True, 3)]
        self.known = [TopicFacts("t", [partition(0, 9, [9])])]
        self.pages: dict[str, list[list[Decision]]] = {"h1:9": [[]], "h2:9": [[]]}
        self.away: set[str] = set()
        self.questions: list[Any] = []
        self.examined = pb.ExamineResponse(broker_id=1, controller_epoch=3, topics=1, partitions=2)
        self.failure: RpcFailed | None = None
        self.summary = pb.SummariseResponse()
        self.summary_fails = False

    def order(self, address: str, method: Any, request: Any, *, timeout_ms: int = 1) -> Any:
        assert timeout_ms > 0
        if isinstance(request, admin_pb2.ListDeletionsRequest):
            return super().order(address, method, request)
        if address in self.away:
            raise RpcFailed(f"No answer from {address}: unavailable.")
        if isinstance(request, pb.SummariseRequest):
            if self.summary_fails:
                raise RpcFailed(f"No answer from {address}: unavailable.")
            return self.summary
        if isinstance(request, pb.ExamineRequest):
            self.questions.append(request)
            if self.failure is not None:
                raise self.failure
            return self.examined
        copied = pb.ReadHistoryRequest()
        copied.CopyFrom(request)
        self.questions.append(copied)
        number = request.after.number if request.HasField("after") else 0
        page = pb.ReadHistoryResponse(decisions=encode_decisions(self.pages[address][number]).splitlines())
        if number + 1 < len(self.pages[address]):
            page.next.role, page.next.number = "agent", number + 1
        return page


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch, connect: Callable[[FakeCluster], None]) -> Cluster:
    made = Cluster()
    connect(made)
    made.served, made.volumes = [], {}
    monkeypatch.setattr(doctor, "clients", lambda _: made.served)
    monkeypatch.setattr(doctor, "directories", lambda _: made.volumes)
    for module in (controllers, doctor, histories):
        monkeypatch.setattr(module, "ask_controller", made.order)
    return made


def test_explain_merges_all_pages_of_all_hosts_by_version_and_names_who_is_missing(run: Run, fake: Cluster) -> None:
    fake.pages["h1:9"] = [[state(1, 0, time_ms=1_000)], [state(2, 2, time_ms=3_000)]]
    fake.pages["h2:9"] = [[state(1, 1, role="agent", time_ms=9_000, source=2)]]
    result = run("explain", "t", "0", "-o", "json", *AT)
    told = json.loads(result.stdout)
    assert result.exit_code == 0
    assert [each["version"] for each in told["decisions"]] == [0, 1, 2]
    assert told["decisions"][0]["time"] == "1970-01-01T00:00:01.000+00:00"
    assert told["silent"] == [{"broker": 9, "why": "broker 9 is not live."}]
    assert "Without the history of broker 9" in result.stderr
    assert list(fake.questions[0].subjects) == ["t-0", "topic t"]

    table = run("explain", "t", "0", *AT).stdout.splitlines()
    assert table[0].split() == ["WHEN", "EPOCH", "BY", "EVENT", "LEADER", "ISR", "LEADER-EPOCH", "WHY"]
    assert table[2].split()[2:] == ["1", "leader", "2", "isr_expand", "2", "2,3", "4", "version", "1"]


@pytest.mark.parametrize("words", [("history",), ("explain", "t-0")])
def test_brokers_that_are_dead_are_named_with_and_without_replicas(run: Run, fake: Cluster, words: list[str]) -> None:
    fake.known = [TopicFacts("t", [partition(0, 9, [9])]), TopicFacts("u", [partition(0, 1, [1, 8])])]
    for broker, epoch in ((1, 40), (2, 50), (7, -1)):
        fake.summary.brokers.add(broker_id=broker, broker_epoch=epoch)
    fake.pages["h1:9"] = [[state(1, 1, time_ms=1_000)]]
    fake.away = {"h2:9"}
    result = run(*words, "-o", "json", *AT)
    assert [each["broker"] for each in json.loads(result.stdout)["silent"]] == [2, 7, 8, 9]
    assert "Without the history of broker 7: broker 7 is not live." in result.stderr

    fake.summary_fails = True
    assert [each["broker"] for each in json.loads(run(*words, "-o", "json", *AT).stdout)["silent"]] == [2, 8, 9]


def test_different_decisions_of_one_number_are_all_told_and_that_it_is_so(run: Run, fake: Cluster) -> None:
    fake.pages["h1:9"] = [[state(1, 0, time_ms=1_000), state(1, 1, role="agent", time_ms=2_000)]]
    fake.pages["h2:9"] = [[state(1, 2, role="agent", time_ms=3_000), state(1, 0, time_ms=1_000)]]
    result = run("explain", "t", "0", "-o", "json", *AT)
    told = json.loads(result.stdout)
    assert [each["version"] for each in told["decisions"]] == [0, 1, 2]
    assert told["numbered_twice"] == [{"role": "agent", "source": 1, "times": 1, "controller_epoch": 1, "number": 1}]
    assert "The agent process of broker 1: 1 number stands for different decisions" in result.stderr
    fake.pages["h2:9"] = [[]]
    assert json.loads(run("explain", "t", "0", "-o", "json", *AT).stdout)["numbered_twice"] == []


def test_a_partition_that_never_was_is_an_error_and_one_that_was_is_still_explained(run: Run, fake: Cluster) -> None:
    fake.known = []
    result = run("explain", "nosuch", "0", *AT)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "Error: There is no topic nosuch. `regency topics list` shows what there is.\n"
    assert run("explain", "nosuch-0", *AT).stderr == result.stderr
    assert run("explain", "nosuch", *AT).exit_code == 2

    fake.pages["h1:9"] = [[state(1, 0, time_ms=1_000)]]
    result = run("explain", "t", "0", *AT)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (
        0,
        "No broker knows of partition t-0 now: it is gone, or never had a leader.",
    )


def test_a_host_that_cannot_be_asked_is_named_and_nobody_at_all_is_an_error(run: Run, fake: Cluster) -> None:
    fake.away = {"h2:9"}
    result = run("history", "--since", "10m", *AT)
    assert result.exit_code == 0
    assert "Without the history of broker 2: No answer from h2:9" in result.stderr
    assert "Nothing was decided then" in result.stdout
    fake.away = {"h1:9", "h2:9"}
    assert run("history", "--since", "10m", *AT).exit_code == Exit.FAILED


def died(broker: int, begin: int, *, partitions: int = 3, time_ms: int, event: int | None = 1) -> list[Decision]:
    """What a controller records of a death: a number of partitions lose a replica."""

    def record(number: int, subject: str, before: str, after: str, **more: Any) -> Decision:
        why = "its registration is gone"
        return Decision(ControllerEpoch(1), number, "broker_change", subject, before, after, why, time_ms, 1, **more)

    before, after = f"leader 1, isr [1, {broker}], leader epoch 2", "leader 1, isr [1], leader epoch 2"
    lost = [
        record(begin + 1 + each, f"t-{each}", before, after, leader=1, isr=(1,), leader_epoch=2, event_number=event)
        for each in range(partitions)
    ]
    return [record(begin, f"broker {broker}", "live, epoch 5", "dead", event_number=event), *lost]


def test_history_is_a_line_for_each_event_and_of_each_partition_on_request(run: Run, fake: Cluster) -> None:
    now = int(time.time() * 1000) - 60_000
    fake.pages["h1:9"] = [[*died(2, 1, time_ms=now), *died(3, 5, time_ms=now, event=2)]]
    line = "broker 2 dead (its registration is gone): 3 partitions lost a replica"
    told = run("history", *AT).stdout.splitlines()
    assert [each.split("  ")[-1] for each in told] == ["WHAT", line, line.replace("broker 2", "broker 3")]
    assert told[1].split()[2:5] == ["1", "controller", "1"]

    of_one = run("history", "--subject", "broker 2", *AT).stdout.splitlines()
    assert [each.split("  ")[-1] for each in of_one] == ["WHAT", line]
    last = run("history", "-n", "1", "--partitions", *AT).stdout.splitlines()
    assert [each.split("  ")[-1] for each in last[1:]] == [
        "broker 3: live -> dead (its registration is gone)",
        *(f"t-{each}: leader 1, ISR 1 (without 3) (its registration is gone)" for each in range(3)),
    ]
    assert len(json.loads(run("history", "-o", "json", *AT).stdout)["decisions"]) == 8
    fake.pages["h1:9"] = [died(2, 1, time_ms=now, event=None)]
    assert run("history", *AT).stdout.splitlines()[-1].endswith(line), "as earlier versions recorded it"


def test_the_last_events_are_looked_for_further_back_until_there_are_enough(run: Run, fake: Cluster) -> None:
    now = int(time.time() * 1000)
    fake.pages["h1:9"] = [died(2, 1, time_ms=now)]
    run("history", *AT)
    backs = [round((now - each.since_ms) / 60_000) for each in fake.questions if each.since_ms][::2]
    assert (backs, fake.questions[-1].since_ms) == ([10, 120, 1440], 0)
    fake.questions.clear()
    fake.pages["h1:9"] = [[each for event in range(1, 22) for each in died(2, 4 * event, time_ms=now, event=event)]]
    told = run("history", *AT).stdout.splitlines()
    assert (len(fake.questions), len(told)) == (2, 21), "one question for each host; 20 of 21 events and a heading"


@pytest.mark.parametrize(
    ("subject", "meant"),
    [
        ("nope", ""),
        ("broker", "'broker 1' or 'broker 2'"),
        ("1", "'broker 1'"),
        ("broker-2", "'broker 2'"),
        ("contoller", "'controller'"),
        ("flihgts", "'flights'"),
        ("broker 7", "'broker 1' or 'broker 2'"),
    ],
)
def test_an_unknown_subject_is_said_to_be_unknown(run: Run, fake: Cluster, subject: str, meant: str) -> None:
    fake.known = [TopicFacts("flights", [partition(0, 1, [1])])]
    result = run("history", "--subject", subject, *AT)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"Error: There is no {subject!r} in this cluster")
    assert ("Did you mean" in result.stderr) == bool(meant)
    assert meant in result.stderr
    for words in ("flights-0", "flights 0"):
        known = run("history", "--subject", words, *AT)
        assert (known.exit_code, known.stdout.startswith("Nothing was decided about flights-0, as far")) == (0, True)


def test_a_dead_broker_is_known_and_a_partition_that_a_topic_lacks_is_not(run: Run, fake: Cluster) -> None:
    fake.known = [TopicFacts("flights", [partition(0, 1, [1, 9]), partition(1, 1, [1])])]
    assert "Did you mean 'broker 9'?" in run("history", "--subject", "9", *AT).stderr
    assert run("history", "--subject", "broker 9", *AT).exit_code == 0
    lacking = run("history", "--subject", "flights-2", *AT)
    assert lacking.exit_code == 1
    assert lacking.stderr.startswith("Error: Topic flights has no partition 2. It has 0 to 1.")


def test_lines_fit_the_terminal_and_break_between_words() -> None:
    when = int(datetime(2026, 5, 4, 14, 30).astimezone().timestamp() * 1000)
    words = "broker 2 dead (its registration is gone): 6 partitions lost a replica, 2 have a new leader, 1 has none"
    heads, line = ["WHEN", "EPOCH", "BY", "WHAT"], [when, 7, "controller 2", words]
    narrow = fitted(heads, [line, [when + 86_400_000, *line[1:]]], 80)
    assert max(map(len, narrow)) <= 80
    assert narrow[:4] == [
        "WHEN          EPOCH  BY            WHAT",
        "2026-05-04",
        "14:30:00.000  7      controller 2  broker 2 dead (its registration is gone): 6",
        "                                   partitions lost a replica, 2 have a new",
    ]
    assert narrow[5] == "2026-05-05"
    assert fitted(heads, [line], None)[1] == f"2026-05-04 14:30:00.000  7      controller 2  {words}"
    below = fitted(heads, [line], 50)
    assert below[4:6] == [
        "    broker 2 dead (its registration is gone): 6",
        "    partitions lost a replica, 2 have a new",
    ]


def test_history_asks_for_a_time_and_a_subject(run: Run, fake: Cluster) -> None:
    before = time.time() * 1000
    run("history", "--since", "10m", "--until", "30s", "--subject", "t", *AT)
    asked = fake.questions[0]
    assert before - 601_000 < asked.since_ms < before - 599_000 + 5_000
    assert asked.until_ms - asked.since_ms == pytest.approx(570_000, abs=1_000)
    assert (list(asked.subjects), asked.topic) == (["t", "topic t"], "t")


@pytest.mark.parametrize("words", ["", "soon", "10", "10y", "25:00", "2026-13-01", "99999-01-01"])
def test_what_is_no_time_is_refused(run: Run, fake: Cluster, words: str) -> None:
    result = run("history", "--since", words, *AT)
    assert result.exit_code == Exit.USAGE
    assert "is no time" in result.stderr
    assert fake.questions == []


def test_an_end_before_the_beginning_is_refused(run: Run, fake: Cluster) -> None:
    result = run("history", "--since", "1m", "--until", "5m", *AT)
    assert result.exit_code == Exit.USAGE
    assert fake.questions == []


def test_times_are_local_dates_or_times_of_today() -> None:
    when = datetime(2026, 5, 4, 14, 30).astimezone()
    assert Moment().convert("2026-05-04T14:30", None, None) == when.timestamp() * 1000
    today = datetime.now().astimezone().replace(hour=1, minute=2, second=0, microsecond=0)
    assert Moment().convert("01:02", None, None) == today.timestamp() * 1000
    with pytest.raises(click.BadParameter):
        Moment().convert("never", None, None)


def test_doctor_is_status_0_or_1_and_says_what_differs_where_and_what_to_do(run: Run, fake: Cluster) -> None:
    fake.examined.brokers.add(broker_id=1, broker_epoch=7, report_age_ms=1_500, hosted=2)
    fake.examined.brokers.add(broker_id=2, broker_epoch=8, report_age_ms=-1, unacknowledged=4, oldest_attempt_ms=12_000)
    well = run("doctor", "--confirm", "0.5", *AT)
    assert (well.exit_code, fake.questions[0].confirm_ms, fake.questions[0].full) == (0, 500, False)
    assert well.stdout.splitlines()[2].split() == ["1", "7", "1.5", "s", "ago", "2", "0", "-", "?", "-"]
    assert well.stdout.splitlines()[3].split() == ["2", "8", "never", "0", "4", "12.0", "s", "?", "-"]

    fake.examined.findings.add(subject="t-0", kind="state_differs", where="w", what="it differs", advice="Do this.")
    fake.examined.more_findings = 3
    fake.examined.repairs["told again"] = 2
    ill = run("doctor", "--full", *AT)
    assert ill.exit_code == 1
    assert "t-0 (state_differs), w:\n  it differs\n  Do this." in ill.stdout
    assert "4 things differ" in ill.stdout and "2 told again" in ill.stdout and not ill.stderr
    told = json.loads(run("doctor", "-o", "json", *AT).stdout)
    assert (told["healthy"], told["controller_epoch"], told["more_problems"]) == (False, 3, 3)
    assert told["brokers"][1]["report_age_s"] is None
    assert [each["kind"] for each in told["problems"]] == ["state_differs"]


def test_doctor_tells_of_a_live_broker_that_does_not_answer(run: Run, fake: Cluster) -> None:
    fake.silent = [BrokerId(2)]
    result = run("doctor", *AT)
    assert result.exit_code == 1
    assert "broker 2 (silent), its agent:\n  it is registered, and does not answer\n" in result.stdout
    assert "agree" not in result.stdout
    fake.examined.findings.add(
        subject="broker 2", kind="silent", where="its agent", what="not for 25 s", advice="Look."
    )
    [told] = json.loads(run("doctor", "-o", "json", *AT).stdout)["problems"]
    assert told["what"] == "not for 25 s", "the controller knows for how long"


def test_doctor_warns_of_full_volumes_and_of_who_suffers_and_is_status_0(run: Run, fake: Cluster) -> None:
    fake.known = [TopicFacts("t", [partition(0, 1, [1, 2, 3], [1])])]
    fake.min_isr = 2
    fake.served = [ClientFacts(1, 9, 3, {"NOT_ENOUGH_REPLICAS": 1200}), ClientFacts(2)]
    fake.volumes = {1: [Directory("/d", False, 15, 100, []), Directory("/e", False, 16, 100, [])], 2: "it is frozen"}
    fake.examined.brokers.add(broker_id=1, broker_epoch=7, report_age_ms=1_500, hosted=2)
    result = run("doctor", *AT)
    assert result.exit_code == 0
    assert result.stdout.splitlines()[2].split()[-2:] == ["9", "-"]
    told = json.loads(run("doctor", "-o", "json", *AT).stdout)
    assert [(each["subject"], each["kind"], each["what"]) for each in told["warnings"]] == [
        ("broker 1", "disk_fills", "the volume of /d is 85% full, 15 B are left"),
        ("topic t", "refuses", "its partition refuses writes with acks=all: 1 in sync, min.insync.replicas is 2"),
        (
            "broker 1",
            "clients_refused",
            "1,200 produces answered NOT_ENOUGH_REPLICAS, 3 connections closed by a limit, since it started",
        ),
    ]
    assert result.stdout.count("Warning: ") == 3 and "`regency brokers disk`" in result.stdout
    assert told["clients"][1]["connections"] is None, "not known is not 0"


def test_doctor_says_why_it_cannot_tell(run: Run, fake: Cluster) -> None:
    fake.examined = pb.ExamineResponse(error_code=41)
    assert run("doctor", *AT).exit_code == Exit.IN_PROGRESS
    fake.examined = pb.ExamineResponse(error_code=7, message="ZooKeeper cannot be read")
    refused = run("doctor", *AT)
    assert (refused.exit_code, "ZooKeeper cannot be read" in refused.stderr) == (Exit.TIMED_OUT, True)
    fake.failure = RpcFailed("No answer from h1:9: deadline exceeded (x).")
    assert run("doctor", *AT).exit_code == Exit.TIMED_OUT
    fake.failure = RpcFailed("No answer from h1:9: unavailable (x).")
    assert run("doctor", *AT).exit_code == Exit.FAILED
    fake.facts = []
    assert run("doctor", *AT).exit_code == Exit.IN_PROGRESS


def test_what_the_deletion_of_a_topic_waits_for_is_told_with_its_history(run: Run, fake: Cluster) -> None:
    fake.pages["h1:9"] = [[state(1, 1, time_ms=1)]]
    fake.known = []
    fake.deletions = [admin_pb2.Deletion(topic="t", replicas=3, deleted=2, waits_for="broker 9 holds replicas")]

    result = run("explain", "t", "0", *AT)

    assert result.exit_code == Exit.DONE
    assert "Topic t is being deleted: 2 of 3 replicas are; broker 9 holds replicas." in result.stdout
