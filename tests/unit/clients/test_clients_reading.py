"""Reading replicas side by side: from brokers that are behind, gone, or have no room in their answers."""

from __future__ import annotations

import pytest
from fake_replicas import T0, TOPIC_ID, FakeWire, Log, a_batch, states, three, verify

from regency.clients.replicas import reading
from regency.clients.replicas.reading import Partition, read_and_compare
from regency.clients.replicas.wire import Unanswered
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode

pytestmark = pytest.mark.usefixtures("no_pause")


def test_equal_replicas_agree_and_everything_is_read_once() -> None:
    counts: list[int] = []
    wire = three()
    [result] = verify(wire, progress=counts.append)
    assert states([result]) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    assert (result.divergences, result.damages, sum(counts)) == ([], [], 60)


def test_a_record_that_differs_is_placed() -> None:
    wire = three()
    wire.logs[2, T0].batches[11] = a_batch(11, value=b"another")
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "diverges", 3: "agrees"}]
    assert [(each.from_offset, each.to_offset) for each in result.divergences] == [(11, 11)]


def test_a_replica_behind_is_waited_for_and_then_said_to_be_behind() -> None:
    wire = three()
    wire.logs[2, T0].mark = 5
    [result] = verify(wire, patience_s=0)
    assert result.replicas[1].state == "behind"
    assert result.replicas[1].read_to == 5
    assert "its high watermark is 5, the partition's is 20" in result.replicas[1].detail
    assert result.divergences == []


def test_a_replica_whose_high_watermark_comes_is_not_behind() -> None:
    wire = three()
    wire.logs[3, T0].mark, wire.logs[3, T0].mark_rises_after = 5, 6
    assert states(verify(wire, patience_s=60)) == [{1: "agrees", 2: "agrees", 3: "agrees"}]


def test_a_difference_before_the_end_of_a_replica_that_is_behind_is_told_as_such() -> None:
    wire = three()
    wire.logs[2, T0].mark = 5
    wire.logs[2, T0].batches[3] = a_batch(3, epoch=1)
    assert states(verify(wire)) == [{1: "agrees", 2: "diverges", 3: "agrees"}]


def test_a_broker_that_goes_is_offline_and_the_others_are_compared() -> None:
    wire = three()
    wire.silent.add(2)
    wire.logs[3, T0].batches[7] = a_batch(7, value=b"another")
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "offline", 3: "diverges"}]
    assert result.replicas[1].detail == "it does not answer"


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ErrorCode.KAFKA_STORAGE_ERROR, "failed"),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, "missing"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "failed"),
    ],
)
def test_what_a_broker_answers_is_told(error: ErrorCode, state: str) -> None:
    wire = three()
    wire.logs[2, T0].error, wire.logs[2, T0].error_at = error, 10
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: state, 3: "agrees"}]


def test_retention_while_it_reads_is_no_difference() -> None:
    wire = three()
    wire.logs[2, T0].start = 0
    partitions = [Partition(T0, TOPIC_ID, 1, {BrokerId(b): log.place() for (b, _), log in wire.logs.items()})]
    wire.logs[2, T0].start = 8
    [result] = read_and_compare(wire, partitions, patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert states([result]) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    assert result.divergences == []


def test_without_a_leader_the_highest_mark_counts() -> None:
    wire = three()
    wire.logs[1, T0].mark = 4
    [result] = verify(wire, leader=None)
    assert result.partition.bound == 20
    assert states([result]) == [{1: "behind", 2: "agrees", 3: "agrees"}]


def test_no_partition_starves_where_answers_have_room_for_one() -> None:
    names = [TopicPartition("t", number) for number in range(4)]
    wire = FakeWire({(broker, name): Log(7) for name in names for broker in (1, 2)})
    wire.narrow = True
    assert states(verify(wire)) == [{1: "agrees", 2: "agrees"}] * 4
    assert len(wire.fetches) <= 4 * 3 + 1


def test_partitions_are_read_in_groups_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "AT_ONCE", 2)
    names = [TopicPartition("t", number) for number in range(5)]
    wire = FakeWire({(1, name): Log(2) for name in names})
    assert [result.partition.name for result in verify(wire)] == names
    assert max(len(some) for fetch in wire.fetches for some in fetch.values()) == 2


def test_a_replica_that_cannot_tell_its_offsets_is_named_and_no_difference() -> None:
    wire = three()
    told = {
        BrokerId(1): wire.logs[1, T0].place(),
        BrokerId(2): ErrorCode.KAFKA_STORAGE_ERROR,
        BrokerId(3): Unanswered("x"),
    }
    partition = Partition(T0, TOPIC_ID, 1, told)
    [result] = read_and_compare(wire, [partition], patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert states([result]) == [{1: "agrees", 2: "offline", 3: "offline"}]
    assert [verdict.log_start for verdict in result.replicas] == [0, None, None]


def test_a_replica_without_the_last_batches_below_the_mark_differs() -> None:
    """New records above the mark of the beginning are all that its broker has to show."""
    wire = three()
    partition = Partition(T0, TOPIC_ID, 1, {BrokerId(b): log.place() for (b, _), log in wire.logs.items()})
    for log in wire.logs.values():
        log.batches.update({offset: a_batch(offset) for offset in range(20, 24)})
        log.mark = log.end = 24
        log.most = 8
    for offset in (17, 18, 19):
        del wire.logs[2, T0].batches[offset]
    [result] = read_and_compare(wire, [partition], patience_s=0, on_progress=lambda _: None)  # type: ignore[arg-type]
    assert states([result]) == [{1: "agrees", 2: "diverges", 3: "agrees"}]
    assert [(each.from_offset, each.to_offset) for each in result.divergences] == [(17, 19)]
    assert result.divergences[0].first[BrokerId(2)] is None


def test_a_broker_that_shows_nothing_below_its_mark_ends_the_reading() -> None:
    wire = three()
    for offset in range(9, 20):
        del wire.logs[2, T0].batches[offset]
    [result] = verify(wire)
    assert states([result]) == [{1: "agrees", 2: "failed", 3: "agrees"}]
    assert "shows nothing at offset 9" in result.replicas[1].detail


def test_a_topic_that_was_deleted_meanwhile_is_missing() -> None:
    wire = three()
    for log in wire.logs.values():
        log.error, log.error_at = ErrorCode.UNKNOWN_TOPIC_ID, 10
    [result] = verify(wire)
    assert states([result]) == [dict.fromkeys((1, 2, 3), "missing")]
    assert "perhaps deleted meanwhile" in result.replicas[0].detail
