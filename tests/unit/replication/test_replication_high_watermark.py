"""The high watermark of a leader: who it waits for, when it stands still, and that it never goes back."""

from __future__ import annotations

import msgspec

from regency.model.ids import BrokerEpoch, BrokerId, TopicPartition, ZkVersion

TP = TopicPartition("flights", 0)
LAG_MS = 10_000


def test_a_new_leader_knows_nothing_of_its_followers_until_they_fetch_in_its_epoch(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    cluster.decide(1)
    cluster.tell(1)
    assert {replica.log_end_offset for replica in cluster[1].partition().remotes.values()} == {-1}
    cluster[1].produce("b", acks=1)
    cluster[1].consume(2, replica=2, epoch=1)
    assert cluster[1].log().high_watermark == 1
    cluster[1].consume(2, replica=3, epoch=1)
    assert cluster[1].log().high_watermark == 2


def test_a_fetch_of_another_epoch_does_not_count(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster[1].consume(1, replica=2, epoch=0)
    cluster[1].consume(1, replica=2, epoch=2)
    cluster[1].consume(1, replica=2)
    assert cluster[1].log().high_watermark == 0
    cluster[1].consume(1, replica=2, epoch=1)
    assert cluster[1].log().high_watermark == 1


def test_a_fetch_that_is_refused_does_not_count(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster[1].consume(7, replica=2, epoch=0)
    assert cluster[1].partition().remotes[2].log_end_offset == -1


def test_a_fetch_that_diverges_does_not_count(cluster) -> None:
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    cluster.decide(1, (1, 2))
    cluster.tell(1)
    (answer,) = cluster[1].consume(3, replica=2, epoch=1, last_epoch=0)
    assert (answer.diverging.leader_epoch, answer.diverging.end_offset) == (0, 1)
    assert answer.records == b""
    assert cluster[1].partition().remotes[2].log_end_offset == -1


def test_it_stands_still_while_fewer_than_min_insync_replicas_are_in_sync(make_cluster) -> None:
    """KIP-966: what one disk alone has is not committed."""
    cluster = make_cluster(min_insync_replicas=2)
    cluster.decide(1, (1,))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    assert cluster[1].log().high_watermark == 0
    cluster.tell(2)
    cluster.run()
    assert cluster[1].log().high_watermark == 1


def test_fewer_replicas_than_min_insync_are_enough_when_that_is_all_there_are(make_cluster) -> None:
    cluster = make_cluster(min_insync_replicas=2)
    cluster.decide(1, (1,), replicas=(1,))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    assert cluster[1].log().high_watermark == 1


def test_it_waits_for_a_nearly_caught_up_replica_that_may_join(cluster) -> None:
    cluster[1].isr_store.refuse = True
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    cluster.peers.leaving.add(2)
    cluster[1].consume(0, replica=2, epoch=0)
    cluster.peers.leaving.clear()
    cluster[1].produce("a", acks=1)
    assert cluster[1].log().high_watermark == 0
    cluster.advance(LAG_MS + 5_000)
    assert cluster[1].log().high_watermark == 1


def test_it_does_not_wait_for_one_that_is_dead_or_leaving(cluster) -> None:
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    cluster.peers.leaving.add(2)
    cluster[1].consume(0, replica=2, epoch=0)
    cluster[1].produce("a", acks=1)
    assert cluster[1].log().high_watermark == 1


def test_it_moves_on_when_metadata_says_that_the_one_it_waits_for_is_gone(cluster) -> None:
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    cluster.peers.leaving.add(2)
    cluster[1].consume(0, replica=2, epoch=0)
    cluster[1].manager.on_metadata_changed()
    cluster.peers.leaving.clear()
    cluster[1].produce("a", acks=1)
    assert cluster[1].log().high_watermark == 0
    del cluster.peers.epochs[2]
    cluster[1].manager.on_metadata_changed()
    assert cluster[1].log().high_watermark == 1


def test_it_does_not_go_back_when_a_follower_returns_with_less(cluster) -> None:
    cluster.decide(1, (1, 2), replicas=(1, 2))
    cluster.tell(1)
    cluster[1].produce("a", "b", acks=1)
    cluster[1].consume(2, replica=2, epoch=0)
    cluster.peers.epochs[2] = BrokerEpoch(999)
    cluster[1].consume(0, replica=2, epoch=0)
    assert cluster[1].log().high_watermark == 2
    assert cluster[1].partition().remotes[2].log_end_offset == 0


def test_a_follower_takes_the_leaders_high_watermark_within_what_it_has(cluster) -> None:
    cluster.lead(1)
    for number in range(5):
        cluster[1].produce(f"v{number}")
        cluster.advance(300)
        ends = [(broker.log().high_watermark, broker.log().log_end_offset) for broker in cluster.brokers.values()]
        assert all(high_watermark <= min(end, ends[0][0]) for high_watermark, end in ends)
    cluster.advance(600)
    assert [broker.log().high_watermark for broker in cluster.brokers.values()] == [5, 5, 5]


def test_a_new_assignment_commits_nothing_that_a_member_lacks(cluster) -> None:
    """KAFKA-10301: at no moment is the leader alone while its followers are replaced."""
    cluster.decide(1, (1, 2), replicas=(1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    for replicas in ((1, 2, 3), (1, 3, 2), (1, 2)):
        state = cluster.states[TP]
        cluster.states[TP] = msgspec.structs.replace(
            state, replicas=tuple(map(BrokerId, replicas)), zk_version=ZkVersion(state.zk_version + 1)
        )
        cluster.tell(1)
        assert cluster[1].log().high_watermark == 0
    cluster[1].consume(1, replica=2, epoch=0)
    assert cluster[1].log().high_watermark == 1
