"""What `regency pipeline replica-audit` refuses before Spark is started, and what its table leaves out."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from click.testing import CliRunner

from regency.cli.main import cli
from regency.cli.pipeline import replica_audit as module
from regency.cli.verify.report import report
from regency.clients.replicas.assignments import Assignments
from regency.clients.replicas.reading import Partition, PartitionResult, Verdict
from regency.clients.replicas.wire import Place
from regency.model.ids import BrokerId, Offset, TopicId, TopicPartition

BROKERS = ("-o", "table", "--bootstrap-server", "localhost:1")


def invoke(*words: str) -> Any:
    return CliRunner().invoke(cli, ["pipeline", "replica-audit", *BROKERS, *words], prog_name="regency")


def test_a_cluster_that_does_not_answer_is_told_as_everywhere() -> None:
    done = invoke("flights")
    assert done.exit_code == 5
    assert "No broker answers at localhost:1." in done.stderr


def test_a_topic_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "first_that_answers", lambda _: "localhost:1")
    monkeypatch.setattr("regency.clients.replicas.assignments.assignments", lambda *_, **__: Assignments({}, {}))
    done = invoke("flights", "t")
    assert done.exit_code == 1
    assert "There is no topic flights, t. `regency topics list` shows what there is." in done.stderr


def results(count: int, *, state: str) -> list[PartitionResult]:
    """Partitions of one replica each; the last one's is in `state`."""
    place = Place(Offset(0), Offset(9), Offset(9))
    found = []
    for number in range(count):
        partition = Partition(TopicPartition("t", number), TopicId(UUID(int=9)), 1, {BrokerId(1): place})
        verdict = Verdict(1, state if number == count - 1 else "agrees", 0, 9, "")
        found.append(PartitionResult(partition, [verdict], [], []))
    return found


@pytest.mark.parametrize(("state", "status", "rows"), [("agrees", 0, 0), ("offline", 3, 2), ("diverges", 1, 2)])
def test_a_long_table_has_what_does_not_agree_and_says_so(
    capsys: pytest.CaptureFixture[str], state: str, status: int, rows: int
) -> None:
    with cli.make_context("regency", [], resilient_parsing=True):
        assert report(results(7, state=state), most_rows=6, effort="3 tasks") == status
        told = capsys.readouterr()
        assert "Of 7 replicas those are shown that do not agree; -o json has all." in told.err
        assert "; 3 tasks." in told.out
        assert len(told.out.splitlines()) == rows + 1
        assert report(results(6, state=state), most_rows=6) == status
        assert len(capsys.readouterr().out.splitlines()) == 8
