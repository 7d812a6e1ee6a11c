"""A leader whose files are damaged: who reads there is told so, others go on, and the report names it."""

from __future__ import annotations

from regency.kafka.fetching.values import FetchParams, FetchPartition
from regency.model.ids import BrokerEpoch, BrokerId, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
OTHER = TopicPartition("flights", 1)


def flip(log, at: int) -> None:
    """One bit of the first segment changes on the disk."""
    path = log.directory / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def third_batch(log) -> int:
    """A byte in the middle of the third of batches of one size."""
    return log.size_bytes * 5 // 8


def written(cluster):
    """A leader with four batches on broker 1, and a follower 2 that has none of them."""
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    for value in "abcd":
        cluster[1].produce(value)
    return cluster[1].log()


def test_a_consumer_gets_what_is_sound_and_then_corrupt_message(cluster) -> None:
    log = written(cluster)
    flip(log, third_batch(log))
    assert cluster[1].consume(0)[0].error is ErrorCode.NONE
    found = cluster[1].consume(2)[0]
    assert (found.error, bytes(found.records)) == (ErrorCode.CORRUPT_MESSAGE, b"")
    assert cluster[1].consume(3)[0].error is ErrorCode.NONE
    assert cluster[1].latest(timestamp=0).error is ErrorCode.NONE


def test_a_long_poll_over_a_damaged_partition_is_answered_with_what_the_others_have(cluster) -> None:
    log = written(cluster)
    cluster.decide(1, (1,), replicas=(1,), partition=OTHER)
    cluster.tell(1, partition=OTHER)
    cluster[1].produce("x", partition=OTHER)
    flip(log, third_batch(log))
    answers = []
    wanted = [FetchPartition(TP, None, Offset(2), 1 << 20), FetchPartition(OTHER, None, Offset(0), 1 << 20)]
    params = FetchParams(BrokerId(-1), BrokerEpoch(-1), 500, 1 << 20, 1 << 20)
    cluster[1].manager.fetch(params, wanted, answers.append)
    assert {name: (result.error, bool(result.records)) for name, result in answers[0].items()} == {
        TP: (ErrorCode.CORRUPT_MESSAGE, False),
        OTHER: (ErrorCode.NONE, True),
    }


def test_a_time_in_a_damaged_batch_is_corrupt_message_too(cluster) -> None:
    log = written(cluster)
    flip(log, log.size_bytes // 8)
    assert cluster[1].latest(timestamp=0).error is ErrorCode.CORRUPT_MESSAGE


def test_a_follower_copies_up_to_the_damage_and_its_fetcher_goes_on_with_the_others(cluster) -> None:
    log = written(cluster)
    flip(log, third_batch(log))
    cluster.decide(1, (1,), replicas=(1, 2), partition=OTHER)
    cluster.tell(partition=OTHER)
    cluster.tell(2)
    cluster.advance(3_000)
    assert cluster[2].values() == ["a", "b"]
    cluster[1].produce("x", partition=OTHER)
    cluster.advance(3_000)
    assert cluster[2].values(OTHER) == ["x"]
    assert cluster.states[TP].isr == (1,)
    assert cluster.states[OTHER].isr == (1, 2)
    assert cluster[2].manager.fetchers.failed == {}
    flip(log, third_batch(log))
    cluster.advance(3_000)
    assert cluster[2].values() == ["a", "b", "c", "d"]
    assert cluster.states[TP].isr == (1, 2)


def test_a_leader_with_a_damaged_copy_goes_on_taking_and_replicating_records(cluster) -> None:
    cluster.lead(1)
    for value in "abcd":
        cluster[1].produce(value)
    cluster.run()
    log = cluster[1].log()
    flip(log, third_batch(log))
    results = cluster[1].produce("e")
    cluster.run()
    assert results[0].error is ErrorCode.NONE
    assert cluster[2].values() == cluster[3].values() == ["a", "b", "c", "d", "e"]
    assert cluster[1].dir_failures == []


def test_damage_is_reported_until_the_log_is_whole_again(cluster) -> None:
    log = written(cluster)
    flip(log, third_batch(log))
    assert cluster[1].manager.describe()[0].damage == ""
    cluster[1].consume(2)
    assert f"{0:020d}.log holds no sound batch for offset 2 at byte" in cluster[1].manager.describe()[0].damage
    flip(log, third_batch(log))
    cluster[1].consume(2)
    assert cluster[1].manager.describe()[0].damage == ""


def test_another_replica_that_leads_serves_what_the_damaged_one_could_not(cluster) -> None:
    cluster.lead(1)
    for value in "abcd":
        cluster[1].produce(value)
    cluster.run()
    log = cluster[1].log()
    flip(log, third_batch(log))
    assert cluster[1].consume(2)[0].error is ErrorCode.CORRUPT_MESSAGE
    cluster.lead(2)
    cluster.run()
    assert cluster[2].consume(2)[0].error is ErrorCode.NONE
