"""Fetches of more partitions than are read at once."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication import fetch
from regency.broker_agent.replication.fetch import FetchPath
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode

FIVE = [TopicPartition("flights", number) for number in range(5)]
WANTED = [(name, 0) for name in FIVE]


@pytest.fixture
def leader(cluster, monkeypatch):
    monkeypatch.setattr(fetch, "PARTITIONS_PER_STEP", 2)
    cluster.lead_alone(*FIVE)
    return cluster[1]


def run(leader) -> None:
    while leader.run_due():
        pass


def test_others_have_their_turn_between_two_steps(leader, cluster) -> None:
    for name in FIVE:
        leader.produce(f"in {name.partition}", partition=name)
    answers, _ = leader.fetch(WANTED)
    assert answers == []
    assert len(leader.consume(0)) == 1
    run(leader)
    [answer] = answers
    assert [cluster.values_of(answer[name]) for name in FIVE] == [[f"in {number}"] for number in range(5)]


@pytest.mark.parametrize("changed", FIVE)
def test_what_happens_between_two_steps_is_not_missed(leader, cluster, changed) -> None:
    answers, _ = leader.fetch(WANTED, max_wait_ms=60_000)
    leader.produce("a", partition=changed)
    run(leader)
    [answer] = answers
    assert [cluster.values_of(answer[name]) for name in FIVE] == [["a"] if name == changed else [] for name in FIVE]
    assert len(leader.manager.hosting.fetches) == 0


def test_a_wait_for_many_that_is_over_reads_what_changed_in_steps_too(leader, cluster) -> None:
    answers, _ = leader.fetch(WANTED, min_bytes=400, max_wait_ms=60_000)
    run(leader)
    for name in FIVE:
        leader.produce("x" * 20, partition=name)
    assert answers == []
    run(leader)
    [answer] = answers
    assert all(cluster.values_of(answer[name]) == ["x" * 20] for name in FIVE)


@pytest.mark.parametrize("steps", [0, 1])
def test_a_fetch_withdrawn_between_two_steps_is_never_answered(leader, steps) -> None:
    answers, cancel = leader.fetch(WANTED, max_wait_ms=60_000)
    for _ in range(steps):
        leader.run_due()
    cancel()
    cancel()
    leader.produce("a")
    run(leader)
    assert answers == []
    assert leader.manager.hosting.fetches._waiting == {}


def test_a_fault_in_a_later_step_is_an_answer(leader, monkeypatch, caplog) -> None:
    answers, cancel = leader.fetch(WANTED, max_wait_ms=60_000)

    def fault(*_: object) -> None:
        raise RuntimeError("nobody foresaw this")

    monkeypatch.setattr(FetchPath, "_read", fault)
    run(leader)
    [answer] = answers
    assert {name: result.error for name, result in answer.items()} == dict.fromkeys(
        FIVE, ErrorCode.UNKNOWN_SERVER_ERROR
    )
    assert "nobody foresaw this" in caplog.text
    cancel()
    assert leader.manager.hosting.fetches._waiting == {}


def test_an_error_in_a_later_step_is_told_without_waiting(leader) -> None:
    answers, _ = leader.fetch([*WANTED, (TopicPartition("flights", 9), 0)], max_wait_ms=60_000)
    run(leader)
    [answer] = answers
    assert [result.error for result in answer.values()] == [ErrorCode.NONE] * 5 + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert leader.manager.hosting.fetches._waiting == {}
