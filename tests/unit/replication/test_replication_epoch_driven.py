"""Two brokers with real logs through crashes that cost one of them the end of its log: afterwards both are alike.

The scenarios of Kafka's EpochDrivenReplicationProtocolAcceptanceTest and LeaderEpochIntegrationTest.
"""

from __future__ import annotations

import pytest

from regency.kafka.fetching.values import EpochEndOffset
from regency.kafka.record_batch import iter_batches
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
BOTH = (1, 2)


@pytest.fixture
def pair(make_cluster):
    return make_cluster(brokers=2)


def lead(cluster, leader, isr) -> None:
    """Elect, and tell whoever is up."""
    cluster.decide(leader, isr, replicas=BOTH)
    cluster.tell()
    cluster.run()


def lose_the_end(broker, batches: int) -> None:
    """What a power cut does to a broker that is down: no clean marker, and the last batches are gone."""
    (broker.dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (broker.dir / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    path = broker.dir / "flights-0" / f"{0:020d}.log"
    content = path.read_bytes()
    sizes = [header.size for _, header in iter_batches(content)]
    path.write_bytes(content[: sum(sizes[: len(sizes) - batches])])


def segment(broker) -> bytes:
    return (broker.log().directory / f"{0:020d}.log").read_bytes()


def epochs(cluster) -> list[tuple[tuple[int, int], ...]]:
    return [cluster[number].log().epoch_entries for number in BOTH]


def stamped(broker) -> list[tuple[int, int]]:
    """(offset, leader epoch) of every batch."""
    return [(header.base_offset, header.leader_epoch) for _, header in iter_batches(segment(broker))]


def test_epochs_follow_every_change_of_leader_and_followers_learn_them_with_records(pair) -> None:
    """shouldFollowLeaderEpochBasicWorkflow: a follower bounces, then the leader."""
    lead(pair, 1, BOTH)
    pair[1].produce("a")
    pair.advance(600)
    assert epochs(pair) == [((0, 0),), ((0, 0),)]
    pair.crash(2, clean=True)
    pair.restart(2)
    lead(pair, 1, BOTH)
    assert epochs(pair) == [((0, 0), (1, 1)), ((0, 0),)]
    pair[1].produce("b")
    pair.advance(600)
    assert epochs(pair) == [((0, 0), (1, 1))] * 2
    pair.crash(1, clean=True)
    pair.restart(1)
    lead(pair, 1, BOTH)
    assert epochs(pair) == [((0, 0), (1, 1), (2, 2)), ((0, 0), (1, 1))]
    pair[1].produce("c")
    pair.advance(600)
    assert epochs(pair) == [((0, 0), (1, 1), (2, 2))] * 2
    assert stamped(pair[1]) == stamped(pair[2]) == [(0, 0), (1, 1), (2, 2)]


@pytest.mark.parametrize("kept", [0, 5])
def test_a_follower_drops_what_a_leader_that_lost_its_end_has_written_otherwise(pair, kept) -> None:
    """shouldNotAllowDivergentLogs: the one that lost records starts first, alone, and writes other ones there."""
    lead(pair, 1, BOTH)
    for number in range(10):
        pair[1].produce(f"v{number}")
        pair.run()
    pair.advance(600)
    pair.crash(2)
    pair.crash(1)
    lose_the_end(pair[1], 10 - kept)
    pair.restart(1)
    lead(pair, 1, (1,))
    assert pair[1].log().log_end_offset == kept
    for number in range(10):
        pair[1].produce(f"another and longer value {number}")
    pair.restart(2)
    lead(pair, 1, (1,))
    pair.advance(2_000)
    assert pair[1].log().log_end_offset == kept + 10
    assert segment(pair[1]) == segment(pair[2])
    assert pair.states[TP].isr == (1, 2)


def test_offsets_rise_in_every_log_after_a_leader_lost_half_of_its_own(pair) -> None:
    """offsetsShouldNotGoBackwards: batches of many records take the places of single ones."""
    lead(pair, 1, BOTH)
    for number in range(100):
        pair[1].produce(f"v{number}")
    pair.advance(600)
    pair.crash(1)
    pair.crash(2)
    lose_the_end(pair[1], 50)
    pair.restart(1)
    lead(pair, 1, (1,))
    for _ in range(2):
        pair[1].produce(*[f"w{number}" for number in range(77)])
    pair.restart(2)
    lead(pair, 1, (1,))
    pair.advance(2_000)
    pair.crash(1)
    lead(pair, 2, (2,))
    offsets = [offset for _, header in iter_batches(segment(pair[2])) for offset in _offsets(header)]
    assert offsets == list(range(50 + 2 * 77))
    assert segment(pair[2]) == (pair[1].dir / "flights-0" / f"{0:020d}.log").read_bytes()
    assert pair[2].values()[49:52] == ["v49", "w0", "w1"]


def _offsets(header) -> range:
    return range(header.base_offset, header.last_offset + 1)


def test_nothing_is_lost_where_both_bounce_again_and_again(pair) -> None:
    """shouldSurviveFastLeaderChange."""
    lead(pair, 1, BOTH)
    for number in range(5):
        leader = 1 + number % 2
        lead(pair, leader, BOTH)
        pair[leader].produce(f"v{number}")
        pair.advance(600)
        for bounced in (3 - leader, leader):
            pair.crash(bounced)
            lead(pair, 3 - bounced, (3 - bounced,))
            pair.restart(bounced)
            lead(pair, 3 - bounced, (3 - bounced,))
            pair.advance(600)
            assert sorted(pair.states[TP].isr) == [1, 2]
        assert [pair[each].log().log_end_offset for each in BOTH] == [number + 1] * 2
    assert pair[1].values() == pair[2].values() == [f"v{number}" for number in range(5)]


def test_logs_agree_after_each_led_alone_in_turn(pair) -> None:
    """logsShouldNotDivergeOnUncleanLeaderElections (KIP-279): the epochs of the two logs alternate."""
    lead(pair, 1, BOTH)
    pair[1].produce("both")
    pair.advance(600)
    pair.crash(1)
    for leader, values in ((2, ("2a",)), (1, ("1a", "1b", "1c")), (2, ("2b",)), (1, ("1d", "1e"))):
        if not pair[leader].up:
            pair.crash(3 - leader)
            pair.restart(leader)
        lead(pair, leader, (leader,))
        for value in values:
            pair[leader].produce(value, acks=1)
    pair.restart(2)
    lead(pair, 1, (1,))
    pair.advance(3_000)
    assert pair[1].values() == pair[2].values() == ["both", "1a", "1b", "1c", "1d", "1e"]
    assert segment(pair[1]) == segment(pair[2])
    assert pair.states[TP].isr == (1, 2)


def test_a_leader_that_comes_back_knows_where_every_epoch_ended(pair) -> None:
    """shouldIncreaseLeaderEpochBetweenLeaderRestarts: one without a record ends where the one before it does."""
    for epoch in (0, 1, 2, 3, 4):
        pair.decide(1, (1,), replicas=(1,), epoch=epoch)
        pair.tell(1)
        if epoch % 2 == 0:
            pair[1].produce(f"of {epoch}")
            pair.crash(1)
            pair.restart(1)
            pair.tell(1)
    assert [_end(pair[1], epoch) for epoch in range(6)] == [(0, 1), (0, 1), (2, 2), (2, 2), (4, 3), (-1, -1)]


def _end(broker, epoch: int) -> tuple[int, int]:
    error, end = broker.manager.end_offset_for_epoch(TP, LeaderEpoch(-1), LeaderEpoch(epoch))
    assert error is ErrorCode.NONE
    return end.leader_epoch, end.end_offset


def test_ends_of_epochs_are_told_by_the_leader_of_each_partition_alone(cluster) -> None:
    """shouldSendLeaderEpochRequestAndGetAResponse."""
    ask = LeaderEpoch(-1), LeaderEpoch(0)
    held = {TopicPartition("one", 0): (1, 10), TopicPartition("one", 1): (2, 20), TopicPartition("two", 0): (1, 30)}
    for name, (leader, count) in held.items():
        cluster.decide(leader, (leader,), replicas=BOTH, partition=name)
        cluster.tell(*BOTH, partition=name)
        cluster[leader].produce(*[f"v{number}" for number in range(count)], partition=name, acks=1)
    cluster.peers.known.update(held)
    for name, (leader, count) in held.items():
        told = cluster[leader].manager.end_offset_for_epoch(name, *ask)
        assert told == (ErrorCode.NONE, EpochEndOffset(LeaderEpoch(0), Offset(count)))
        refused = cluster[3 - leader].manager.end_offset_for_epoch(name, *ask)
        assert refused == (ErrorCode.NOT_LEADER_OR_FOLLOWER, EpochEndOffset())
        assert cluster[3].manager.end_offset_for_epoch(name, *ask)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER
    unknown = cluster[1].manager.end_offset_for_epoch(TopicPartition("two", 2), *ask)
    assert unknown == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, EpochEndOffset())
