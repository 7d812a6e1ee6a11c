"""Throttled replication between brokers: who catches up is held back, who is in sync is not (KIP-73)."""

from __future__ import annotations

import msgspec
import pytest

from regency.kafka.fetching.values import FetchParams, FetchPartition
from regency.model.ids import BrokerId, LeaderEpoch, Offset, TopicPartition
from regency.model.settings.dynamic import ThrottleRates
from regency.model.settings.log_config import LogConfig

TP, NEXT = TopicPartition("flights", 0), TopicPartition("flights", 1)
RECORD = "r" * 1_000
RATE = 2_000


def set_rates(cluster, number: int, **rates: int) -> None:
    cluster.rates[BrokerId(number)] = ThrottleRates(**rates)
    cluster[number].manager.on_throttles_changed()


def throttle(cluster, side: str) -> None:
    """Throttle the replica of broker 3 where it is fetched, or where it is sent."""
    listed = {"leader": "0:1", "follower": "0:3"}[side]
    config = LogConfig(**{f"{side}_replication_throttled_replicas": (listed,)})
    cluster.configs["flights"] = config
    set_rates(cluster, {"leader": 1, "follower": 3}[side], **{side: RATE})


def fill(cluster, records: int) -> None:
    """Records on brokers 1 and 2, of which broker 3 has none: each is a batch of about 1,070 bytes."""
    cluster.settings = msgspec.structs.replace(cluster.settings, replica_fetch_max_bytes=1_500)
    for number in (1, 2, 3):
        cluster.crash(number)
        cluster.restart(number)
    cluster.lead(1, (1, 2), replicas=(1, 2))
    for _ in range(records):
        cluster[1].produce(RECORD)
    cluster.advance(1_000)
    cluster.decide(1, (1, 2), replicas=(1, 2, 3))


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_new_replica_catches_up_at_the_rate(cluster, side) -> None:
    fill(cluster, 40)
    throttle(cluster, side)
    cluster.tell()
    cluster.advance(10_000)
    fetched = cluster[3].log().size_bytes
    assert RATE * 10 * 0.8 <= fetched <= RATE * 10 * 1.2 + 1_500
    assert cluster.states[TP].isr == (1, 2)
    cluster.advance(20_000)
    assert len(cluster[3].values()) == 40
    assert set(cluster.states[TP].isr) == {1, 2, 3}


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_that_are_in_sync_are_not_slowed(cluster, side) -> None:
    fill(cluster, 40)
    cluster.configs["flights"] = LogConfig(**{f"{side}_replication_throttled_replicas": ("*",)})
    for number in (1, 2, 3):
        set_rates(cluster, number, **{side: RATE})
    cluster.tell()
    cluster.advance(2_000)
    for _ in range(5):
        acknowledged = cluster[1].produce(RECORD)
        cluster.run()
        assert len(acknowledged) == 1, "it is acknowledged without time passing"
    assert len(cluster[2].values()) == 45
    assert len(cluster[3].values()) < 40


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_rate_that_is_taken_away_lets_it_catch_up_at_once(cluster, side) -> None:
    fill(cluster, 40)
    throttle(cluster, side)
    cluster.tell()
    cluster.advance(3_000)
    assert len(cluster[3].values()) < 20
    set_rates(cluster, {"leader": 1, "follower": 3}[side])
    cluster.advance(500)  # a leader holds back no longer than until the next fetch
    assert len(cluster[3].values()) == 40


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_replicas_that_are_not_on_the_list_are_not_slowed(cluster, side) -> None:
    fill(cluster, 40)
    cluster.configs["flights"] = LogConfig(**{f"{side}_replication_throttled_replicas": ("0:2", "1:1", "1:3")})
    for number in (1, 2, 3):
        set_rates(cluster, number, **{side: 1})
    cluster.tell()
    cluster.run()
    assert len(cluster[3].values()) == 40


def test_a_throttled_fetch_is_answered_when_the_rate_allows_and_counts_as_a_fetch(cluster) -> None:
    fill(cluster, 10)
    throttle(cluster, "leader")
    cluster.tell(1)
    leader = cluster[1]
    first = leader.consume(0, replica=3, epoch=1)
    assert len(first[0].records) > RATE
    waiting = leader.consume(5, replica=3, epoch=1, max_wait_ms=30_000)
    assert waiting == []
    assert leader.partition().remotes[BrokerId(3)].log_end_offset == 5
    needed_ms = len(first[0].records) * 1_000 // RATE
    cluster.clock.advance(needed_ms - 1)
    leader.run_due()
    assert waiting == []
    cluster.clock.advance(1)
    leader.run_due()
    assert waiting[0].records
    at_once = leader.consume(5, replica=3, epoch=1)
    assert (at_once[0].records, at_once[0].high_watermark) == (b"", 10)


def test_what_was_appended_meanwhile_does_not_end_the_wait_of_a_throttled_fetch(cluster) -> None:
    fill(cluster, 10)
    throttle(cluster, "leader")
    cluster.tell(1)
    leader = cluster[1]
    leader.consume(0, replica=3, epoch=1)
    cluster.peers.leaving.add(BrokerId(3))  # who has everything and cannot join is not in sync
    waiting = leader.consume(10, replica=3, epoch=1, max_wait_ms=400)
    leader.produce(RECORD, acks=1)
    assert waiting == []
    cluster.clock.advance(400)
    leader.run_due()
    assert waiting[0].records == b""


def test_old_segments_are_throttled_as_the_newest_is(make_cluster) -> None:
    cluster = make_cluster(segment_bytes=3_000)
    fill(cluster, 40)
    assert len(list(cluster[1].log().directory.glob("*.log"))) > 10
    throttle(cluster, "leader")
    cluster.tell()
    cluster.advance(10_000)
    assert RATE * 10 * 0.8 <= cluster[3].log().size_bytes <= RATE * 10 * 1.2 + 1_500
    cluster.advance(20_000)
    assert (cluster[3].log().log_end_offset, cluster[3].log().size_bytes) == (40, cluster[1].log().size_bytes)


def test_a_fetch_that_is_held_back_keeps_its_session(cluster) -> None:
    fill(cluster, 20)
    throttle(cluster, "leader")
    cluster.tell()
    cluster.run()
    begun = cluster._session_ids
    assert len(cluster[3].values()) < 10
    cluster.advance(15_000)
    assert (len(cluster[3].values()), cluster._session_ids) == (20, begun)


class TwoPartitions:
    """Broker 1 leads both, and broker 3 fetches both with one request; `NEXT` always comes second."""

    def __init__(self, cluster, *, in_sync: bool) -> None:
        self.cluster = cluster
        for name in (TP, NEXT):
            cluster.decide(1, (1, 3) if in_sync else (1,), replicas=(1, 3), partition=name)
            cluster.tell(1, partition=name)
            cluster[1].produce(RECORD, acks=1, partition=name)
        cluster.configs["flights"] = LogConfig(leader_replication_throttled_replicas=("*",))
        set_rates(cluster, 1, leader=RATE)

    def exceed(self) -> None:
        """As another follower's answer does."""
        self.cluster[1].manager._fetch._throttle.record(TP, 100 * RATE, self.cluster.clock.monotonic_ms())

    def fetch(self, *, max_wait_ms: int = 0, min_bytes: int = 1) -> list[list[bool]]:
        """Whether there were records, by partition; nothing as long as there is no answer."""
        answers: list[list[bool]] = []
        follower = BrokerId(3)
        params = FetchParams(follower, self.cluster.peers.epochs[follower], max_wait_ms, min_bytes, 1 << 20)
        wanted = [
            FetchPartition(name, None, Offset(0), 1 << 20, LeaderEpoch(0), LeaderEpoch(-1), Offset(0))
            for name in (TP, NEXT)
        ]
        self.cluster[1].manager.fetch(
            params, wanted, lambda found: answers.append([bool(found[name].records) for name in (TP, NEXT)])
        )
        return answers


def test_what_a_fetch_brings_holds_back_the_next_one_and_not_the_rest_of_itself(cluster) -> None:
    two = TwoPartitions(cluster, in_sync=False)
    two.cluster.rates[BrokerId(1)] = ThrottleRates(leader=100)
    assert two.fetch() == [[True, True]]
    assert two.fetch() == [[False, False]]


def test_a_fetch_brings_nothing_of_throttled_partitions_while_the_rate_is_exceeded(cluster) -> None:
    two = TwoPartitions(cluster, in_sync=False)
    two.exceed()
    assert two.fetch() == [[False, False]]


def test_replicas_in_sync_get_what_there_is_while_the_rate_is_exceeded(cluster) -> None:
    two = TwoPartitions(cluster, in_sync=True)
    two.exceed()
    assert two.fetch() == [[True, True]]


@pytest.mark.parametrize("in_sync", [True, False])
def test_throttled_bytes_end_the_wait_of_those_in_sync_only(cluster, in_sync) -> None:
    two = TwoPartitions(cluster, in_sync=in_sync)
    two.exceed()
    waiting = two.fetch(max_wait_ms=400, min_bytes=3_000)
    assert waiting == []
    cluster[1].produce(RECORD, acks=1)
    assert waiting == ([[True, True]] if in_sync else [])
    cluster.clock.advance(400)
    cluster[1].run_due()
    assert waiting == [[in_sync, in_sync]]


def test_errors_are_told_to_a_throttled_replica_at_once(cluster) -> None:
    fill(cluster, 10)
    throttle(cluster, "leader")
    cluster.tell(1)
    leader = cluster[1]
    leader.consume(0, replica=3, epoch=1)
    assert leader.consume(99, replica=3, epoch=1, max_wait_ms=500)[0].error.name == "OFFSET_OUT_OF_RANGE"
    assert leader.consume(5, replica=3, epoch=0, max_wait_ms=500)[0].error.name == "FENCED_LEADER_EPOCH"
