"""DeleteRecords at a leader: when it is answered, and with what (KIP-107)."""

from __future__ import annotations

from pathlib import Path

import pytest

from regency.broker_agent.replication.api import DeletedRecords
from regency.kafka.logfiles.checkpoints import read_offsets
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import LogConfig
from regency.runtime.disk import OsDisk

TP = TopicPartition("flights", 0)
TIMEOUT_MS = 5_000


@pytest.fixture
def led(cluster):
    """Five records on all three brokers, led by 1."""
    cluster.lead(1)
    for value in "abcde":
        cluster[1].produce(value)
    cluster.advance(1_000)
    return cluster


def ask(broker, offset: int, partition: TopicPartition = TP, timeout_ms: int = TIMEOUT_MS) -> list[DeletedRecords]:
    """The answer, once it is there."""
    answers: list[DeletedRecords] = []
    broker.manager.delete_records(
        timeout_ms, {partition: Offset(offset)}, lambda results: answers.append(results[partition])
    )
    return answers


def starts(cluster) -> list[int]:
    return [cluster[number].log().log_start_offset for number in (1, 2, 3)]


def test_it_is_answered_when_every_live_replica_has_raised_its_log_start(led) -> None:
    led.sever(1, 3)
    answers = ask(led[1], 3)
    assert starts(led) == [3, 0, 0]
    led.advance(2_000)
    assert (answers, starts(led)) == ([], [3, 3, 0])
    led.heal()
    led.advance(2_000)
    assert (answers, starts(led)) == ([DeletedRecords(ErrorCode.NONE, Offset(3))], [3, 3, 3])


def test_minus_one_deletes_all_that_is_committed(led) -> None:
    led.sever(1, 2)
    led.sever(1, 3)
    led[1].produce("not committed")
    answers = ask(led[1], -1)
    led.heal()
    led.advance(2_000)
    assert answers == [DeletedRecords(ErrorCode.NONE, Offset(5))]
    assert led[1].log().log_end_offset == 6


def test_who_has_nothing_below_is_answered_at_once(led) -> None:
    ask(led[1], 3)
    led.advance(2_000)
    assert ask(led[1], 2) == [DeletedRecords(ErrorCode.NONE, Offset(3))]
    assert starts(led) == [3, 3, 3]


def test_a_request_without_patience_is_given_a_second(led) -> None:
    led.sever(1, 3)
    answers = ask(led[1], 3, timeout_ms=0)
    led.advance(900)
    assert answers == []
    led.advance(200)
    assert [answer.error for answer in answers] == [ErrorCode.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("offset", [6, -2])
def test_what_is_not_committed_or_no_offset_is_out_of_range(led, offset) -> None:
    assert ask(led[1], offset) == [DeletedRecords(ErrorCode.OFFSET_OUT_OF_RANGE)]
    assert starts(led) == [0, 0, 0]


def test_only_the_leader_deletes_and_nobody_of_an_internal_topic(led) -> None:
    assert ask(led[2], 3) == [DeletedRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert ask(led[1], 3, TopicPartition("nothing", 0)) == [DeletedRecords(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    internal = TopicPartition("__consumer_offsets", 0)
    assert ask(led[1], 0, internal) == [DeletedRecords(ErrorCode.INVALID_TOPIC_EXCEPTION)]


def test_a_topic_that_is_only_compacted_keeps_its_records(led) -> None:
    log = led[1].log()
    log.config = LogConfig(cleanup_policy=("compact",))
    assert ask(led[1], 3) == [DeletedRecords(ErrorCode.POLICY_VIOLATION)]
    log.config = LogConfig(cleanup_policy=("compact", "delete"))
    answers = ask(led[1], 3)
    led.advance(2_000)
    assert answers == [DeletedRecords(ErrorCode.NONE, Offset(3))]


def test_time_is_up_where_a_replica_does_not_follow(led) -> None:
    led.sever(1, 3)
    answers = ask(led[1], 3, timeout_ms=1_500)
    led.advance(1_400)
    assert answers == []
    led.advance(200)
    assert answers == [DeletedRecords(ErrorCode.REQUEST_TIMED_OUT, Offset(0))]
    assert starts(led) == [3, 3, 0]


def test_a_replica_whose_broker_dies_is_not_waited_for_any_more(led) -> None:
    led.sever(1, 3)
    answers = ask(led[1], 3)
    led.advance(1_500)
    assert answers == []
    led.crash(3)
    led.advance(100)
    assert answers == [DeletedRecords(ErrorCode.NONE, Offset(3))]


def test_what_a_follower_has_again_when_time_is_up_is_not_deleted(led) -> None:
    other = TopicPartition("flights", 1)
    led.lead(1, partition=other)
    led[1].produce("f", partition=other)
    led.advance(1_000)
    answers: list[dict[TopicPartition, DeletedRecords]] = []
    led[1].manager.delete_records(TIMEOUT_MS, {TP: Offset(3)}, lambda results: None)
    led.advance(1_000)
    led.sever(1, 3)
    led[1].manager.delete_records(TIMEOUT_MS, {TP: Offset(3), other: Offset(1)}, answers.append)
    led.advance(1_000)
    assert answers == []
    led.peers.epochs[led[3].id] += 1  # it is started anew, and begins where it did long ago
    led.advance(TIMEOUT_MS)
    assert [each.error for each in answers[0].values()] == [ErrorCode.REQUEST_TIMED_OUT] * 2


def test_who_waits_hears_that_the_leader_has_changed(led) -> None:
    led.sever(1, 3)
    answers = ask(led[1], 3)
    led.advance(1_000)
    led.lead(2)
    assert answers == [DeletedRecords(ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_a_leader_that_goes_on_in_another_epoch_waits_for_all_again(led) -> None:
    led.sever(1, 3)
    answers = ask(led[1], 3)
    led.advance(1_000)
    led.decide(1)
    led.tell()
    led.heal()
    led.advance(2_000)
    assert (answers, starts(led)) == ([DeletedRecords(ErrorCode.NONE, Offset(3))], [3, 3, 3])


def checkpointed(broker) -> dict[TopicPartition, Offset]:
    path: Path = broker.dir / "log-start-offset-checkpoint"
    return read_offsets(OsDisk(), path) if path.exists() else {}


def test_nothing_is_promised_before_the_disk_knows(led) -> None:
    """After a crash the records below would be offered again."""
    logs = led[1].manager.hosting.logs
    write, held = logs.checkpoint_log_starts_of, []
    logs.checkpoint_log_starts_of = lambda names, then: held.append((list(names), then))
    answers = ask(led[1], 3)
    led.advance(2_000)
    assert (answers, starts(led), checkpointed(led[1])) == ([], [3, 3, 3], {})
    write(*held[0])
    assert answers == [DeletedRecords(ErrorCode.NONE, Offset(3))]
    assert checkpointed(led[1]) == {TP: 3}
    led.crash(1)
    led.restart(1)
    assert led[1].logs.get(TP).log_start_offset == 3


def test_a_directory_that_fails_then_is_told(led) -> None:
    logs = led[1].manager.hosting.logs
    logs.checkpoint_log_starts_of = lambda *_: None
    led.sever(1, 3)
    answers = ask(led[1], 3)
    led[1].manager.handle_dir_failure(led[1].dir, "it broke")
    assert answers == [DeletedRecords(ErrorCode.KAFKA_STORAGE_ERROR)]


def test_who_waits_when_the_broker_stops_is_answered(led) -> None:
    led.sever(1, 3)
    answers = ask(led[1], 3)
    led[1].manager.shutdown()
    assert answers == [DeletedRecords(ErrorCode.REQUEST_TIMED_OUT, Offset(0))]


def test_a_copy_in_another_directory_is_a_replica_too(make_cluster) -> None:
    """It will be the log, and offers what is below its start then."""
    cluster = make_cluster(brokers=1, directories=2)
    cluster.lead(1, (1,), replicas=(1,))
    for value in "abc":
        cluster[1].produce(value)
    logs = cluster[1].manager.hosting.logs
    future = logs.futures.create(cluster[1].log(), logs.directory(cluster[1].dirs[1]))
    future.append_as_follower(bytes(cluster[1].log().read(0, 1 << 20, max_offset=3, min_one_batch=True).records))
    answers = ask(cluster[1], 2)
    assert answers == []
    cluster[1].manager.alter_log_dirs({TP: cluster[1].dirs[1]})
    cluster.advance(1_000)
    assert answers == [DeletedRecords(ErrorCode.NONE, Offset(2))]
    assert (cluster[1].log().directory.parent, cluster[1].log().log_start_offset) == (cluster[1].dirs[1], 2)
