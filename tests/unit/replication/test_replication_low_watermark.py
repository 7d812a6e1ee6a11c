"""The low watermark of a leader: what no live replica has any more (KIP-107)."""

from __future__ import annotations

from regency.model.ids import BrokerId, Offset, TopicPartition

TP = TopicPartition("flights", 0)


def start_at(cluster, offset: int) -> None:
    cluster[1].log().maybe_increment_log_start(Offset(offset))


def filled(cluster):
    """Three records on all three brokers, led by 1."""
    cluster.lead(1)
    for value in "abc":
        cluster[1].produce(value)
    cluster.advance(1_000)
    return cluster[1].partition()


def test_it_follows_the_last_replica_that_has_raised_its_log_start(cluster) -> None:
    leader = filled(cluster)
    assert leader.low_watermark() == 0
    cluster.sever(1, 3)
    start_at(cluster, 2)
    cluster.advance(2_000)
    assert (cluster[2].log().log_start_offset, cluster[3].log().log_start_offset) == (2, 0)
    assert leader.low_watermark() == 0
    cluster.heal()
    cluster.advance(2_000)
    assert cluster[3].log().log_start_offset == 2
    assert leader.low_watermark() == 2


def test_a_replica_whose_broker_is_gone_is_not_waited_for(cluster) -> None:
    leader = filled(cluster)
    cluster.crash(3)
    start_at(cluster, 2)
    cluster.advance(2_000)
    assert leader.low_watermark() == 2
    cluster.restart(3)
    assert leader.low_watermark() == -1, "what it told before it died does not count"
    cluster.tell(3)
    cluster.advance(2_000)
    assert leader.low_watermark() == 2


def test_it_is_unknown_until_every_live_replica_has_fetched_in_this_leader_epoch(cluster) -> None:
    leader = filled(cluster)
    cluster.decide(1)
    cluster.tell(1)
    assert leader.low_watermark() == -1
    cluster.tell(2, 3)
    cluster.advance(1_000)
    assert leader.low_watermark() == 0


def test_a_leader_alone_has_its_own_log_start(cluster) -> None:
    cluster.lead(1, (1,), replicas=(1,))
    for value in "ab":
        cluster[1].produce(value)
    start_at(cluster, 1)
    assert cluster[1].partition().low_watermark() == 1
    assert BrokerId(1) not in cluster[1].partition().remotes
