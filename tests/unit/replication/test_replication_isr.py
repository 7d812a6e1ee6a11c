"""The ISR: who leaves, who joins, and what the leader assumes while a change is on its way to ZooKeeper."""

from __future__ import annotations

import msgspec

from regency.broker_agent.replication import isr_maintenance
from regency.broker_agent.replication.followers import Committed, PendingExpand, PendingShrink
from regency.broker_agent.replication.partition import ISR_REST_MS
from regency.model.ids import BrokerEpoch, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)
LAG_MS = 10_000


def test_isr_shrinks_when_a_follower_stops_fetching_and_the_high_watermark_moves_on(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    produced = cluster[1].produce("a")
    cluster.advance(LAG_MS)
    assert produced == []
    cluster.advance(LAG_MS)
    assert cluster.states[TP].isr == (1, 2)
    assert isinstance(cluster[1].partition().isr, Committed)
    assert [result.error for result in produced] == [ErrorCode.NONE]
    assert cluster[1].manager.isr.shrinks == 1


def test_isr_refills_when_the_follower_has_caught_up_with_the_high_watermark(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    cluster[1].produce("a")
    cluster.advance(2 * LAG_MS)
    cluster.heal()
    cluster.advance(3_000)
    assert cluster.states[TP].isr == (1, 2, 3)
    assert cluster[1].manager.isr.expands == 1


def test_a_follower_that_has_everything_stays_however_silent(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    cluster.sever(1, 3)
    cluster.advance(5 * LAG_MS)
    assert cluster.states[TP].isr == (1, 2, 3)


def test_a_follower_stays_while_each_fetch_reaches_what_was_the_end_at_the_fetch_before(cluster) -> None:
    cluster.lead(1, (1, 2), replicas=(1, 2))
    leader = cluster[1]
    cluster.sever(1, 2)
    for number in range(10):
        leader.produce(f"v{number}", acks=1)
        leader.consume(number, replica=2, epoch=0)
        cluster.advance(LAG_MS // 2)
    assert cluster.states[TP].isr == (1, 2)


def test_a_follower_that_never_reaches_the_end_leaves(cluster) -> None:
    cluster.lead(1, (1, 2), replicas=(1, 2))
    leader = cluster[1]
    cluster.sever(1, 2)
    leader.produce("a", acks=1)
    for number in range(8):
        leader.produce(f"v{number}", acks=1)
        leader.consume(0, replica=2, epoch=0)
        cluster.advance(LAG_MS // 4)
    assert cluster.states[TP].isr == (1,)


def test_a_member_that_is_not_assigned_is_dropped_at_the_next_check(cluster) -> None:
    cluster.lead(1, (1, 2, 3), replicas=(1, 2))
    cluster.advance(LAG_MS)
    assert cluster.states[TP].isr == (1, 2)


def test_while_an_expansion_is_on_its_way_the_high_watermark_waits_for_who_joins(cluster) -> None:
    cluster[1].isr_store.held = True
    cluster.lead(1, (1,))
    pending = cluster[1].partition().isr
    assert isinstance(pending, PendingExpand)
    assert pending.joining == (2,)
    cluster.sever(1, 2)
    cluster[1].produce("a", acks=1)
    cluster.advance(600)
    assert cluster[1].log().high_watermark == 0
    assert pending.committed == (1,)


def test_who_joins_counts_even_if_it_dies_before_the_outcome_is_known(cluster) -> None:
    cluster[1].isr_store.held = True
    cluster.lead(1, (1,), replicas=(1, 2))
    assert isinstance(cluster[1].partition().isr, PendingExpand)
    cluster.crash(2)
    cluster[1].produce("a", acks=1)
    cluster.clock.advance(5 * LAG_MS)
    cluster.run()
    assert cluster[1].log().high_watermark == 0


def test_while_a_shrink_is_on_its_way_the_high_watermark_waits_for_who_leaves(cluster) -> None:
    cluster.lead(1)
    cluster[1].isr_store.held = True
    cluster.sever(1, 3)
    cluster[1].produce("a", acks=1)
    cluster.advance(2 * LAG_MS)
    assert isinstance(cluster[1].partition().isr, PendingShrink)
    assert cluster[1].log().high_watermark == 0
    cluster[1].isr_store.held = False
    cluster.run()
    assert cluster[1].log().high_watermark == 1


def test_one_change_is_under_way_at_a_time(cluster) -> None:
    cluster[1].isr_store.held = True
    cluster.lead(1, (1,))
    cluster.advance(5_000)
    assert len(cluster[1].isr_store.submitted) == 1
    cluster[1].isr_store.held = False
    cluster.run()
    assert cluster.states[TP].isr == (1, 2, 3)


def test_a_change_of_unknown_outcome_stays_pending_until_the_controller_speaks(cluster) -> None:
    cluster.lead(1)
    cluster[1].isr_store.refuse = True
    cluster.sever(1, 3)
    cluster[1].produce("a", acks=1)
    cluster.advance(4 * LAG_MS)
    assert isinstance(cluster[1].partition().isr, PendingShrink)
    assert len(cluster[1].isr_store.submitted) == 1
    assert cluster[1].manager.isr.failures == 1
    assert cluster[1].log().high_watermark == 0
    state = cluster.states[TP] = msgspec.structs.replace(cluster.states[TP], isr=(1, 2), zk_version=ZkVersion(5))
    cluster[1].apply(state)
    assert cluster[1].partition().isr == Committed((1, 2), ZkVersion(5))
    assert cluster[1].log().high_watermark == 1


def test_the_controller_is_asked_what_became_of_a_change_until_it_has_spoken(cluster) -> None:
    cluster.lead(1)
    store = cluster[1].isr_store
    store.refuse = True
    cluster.sever(1, 3)
    cluster[1].produce("a", acks=1)
    cluster.advance(2 * LAG_MS)
    assert store.asked[:1] == [TP]
    cluster.advance(LAG_MS)
    asked = len(store.asked)
    assert asked >= 3
    cluster[1].apply(msgspec.structs.replace(cluster.states[TP], isr=(1, 2), zk_version=ZkVersion(5)))
    cluster.advance(2 * LAG_MS)
    assert len(store.asked) == asked


def test_a_shrink_that_could_not_be_sent_is_proposed_again(cluster) -> None:
    cluster.lead(1)
    store = cluster[1].isr_store
    store.away = True
    cluster.sever(1, 3)
    produced = cluster[1].produce("a")
    cluster.advance(2 * LAG_MS)
    assert isinstance(cluster[1].partition().isr, Committed)
    assert cluster[1].log().high_watermark == 0
    assert 0 < len(store.submitted) <= 4
    store.away = False
    cluster.advance(LAG_MS)
    assert cluster.states[TP].isr == (1, 2)
    assert [result.error for result in produced] == [ErrorCode.NONE]


def test_an_expansion_that_could_not_be_sent_is_proposed_again_with_a_fetch_but_not_with_every_one(cluster) -> None:
    store = cluster[1].isr_store
    store.away = True
    cluster.lead(1, (1,), replicas=(1, 2))
    cluster[1].produce("a", acks=1)
    cluster.advance(5_000)
    assert isinstance(cluster[1].partition().isr, Committed)
    assert cluster[1].log().high_watermark == 1
    assert 3 <= len(store.submitted) <= 1 + 5_000 // ISR_REST_MS
    store.away = False
    cluster.advance(2_000)
    assert cluster.states[TP].isr == (1, 2)


def test_who_restarts_after_joining_is_left_to_the_controller(cluster) -> None:
    cluster.lead(1, (1,), replicas=(1, 2))
    assert cluster.states[TP].isr == (1, 2)
    cluster.sever(1, 2)
    cluster.peers.epochs[2] = BrokerEpoch(cluster.last_broker_epoch + 1)
    cluster[1].manager.on_metadata_changed()
    cluster.run()
    assert cluster.states[TP].isr == (1, 2)


def test_a_join_names_the_incarnation_that_was_judged(cluster) -> None:
    epoch = cluster.peers.epochs[2]
    cluster.lead(1, (1,), replicas=(1, 2))
    assert [change.joining for change in cluster[1].isr_store.submitted] == [((2, epoch),)]


def test_a_late_outcome_of_a_superseded_change_is_ignored(cluster) -> None:
    state = cluster.lead(1)
    store = cluster[1].isr_store
    store.held = True
    cluster.sever(1, 3)
    cluster[1].produce("a", acks=1)
    cluster.advance(2 * LAG_MS)
    newer = msgspec.structs.replace(state, zk_version=ZkVersion(7))
    cluster[1].apply(newer)
    cluster.states[TP] = state
    store.held = False
    cluster.run()
    assert cluster[1].partition().isr == Committed((1, 2, 3), ZkVersion(7))


def test_a_deposed_leader_cannot_change_the_isr(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 2)
    cluster.sever(1, 3)
    cluster.decide(2, (2, 3))
    cluster.tell(2, 3)
    produced = cluster[1].produce("lost")
    cluster.advance(2 * LAG_MS)
    assert cluster.states[TP].isr == (2, 3)
    assert produced == []
    cluster.tell(1)
    assert [result.error for result in produced] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_only_a_fetch_of_this_leader_epoch_from_its_start_on_lets_a_replica_join(cluster) -> None:
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    cluster[1].produce("a", "b", acks=1)
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    leader = cluster[1]
    assert leader.partition().epoch_start == 2
    leader.consume(2, replica=2, epoch=0)
    leader.consume(1, replica=2, epoch=1)
    leader.consume(2, replica=2)
    cluster.run()
    assert cluster.states[TP].isr == (1,)
    leader.consume(2, replica=2, epoch=1)
    cluster.run()
    assert cluster.states[TP].isr == (1, 2)


def test_reaching_the_high_watermark_is_not_enough_where_the_epoch_began_later(cluster) -> None:
    """KAFKA-7128: the high watermark of a new leader may be below what an older one committed."""
    cluster.lead(1, (1, 3))
    cluster.sever(1, 2)
    cluster[1].produce("a", "b", acks=1)
    cluster.run()
    cluster.sever(1, 3)
    cluster.decide(3, (3, 1))
    cluster.tell(3)
    leader = cluster[3]
    assert (leader.log().high_watermark, leader.partition().epoch_start) == (0, 2)
    cluster.sever(3, 2)
    leader.consume(1, replica=2, epoch=1)
    cluster.run()
    assert cluster.states[TP].isr == (3, 1)


def test_a_replica_joins_only_as_the_incarnation_that_metadata_knows_and_when_it_does(cluster) -> None:
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    cluster[1].consume(0, replica=2, replica_epoch=500, epoch=0)
    cluster.run()
    assert cluster.states[TP].isr == (1,)
    cluster.peers.epochs[2] = BrokerEpoch(500)
    cluster[1].manager.on_metadata_changed()
    cluster[1].consume(0, replica=2, replica_epoch=500, epoch=0)
    cluster.run()
    assert cluster.states[TP].isr == (1, 2)


def test_a_fetch_in_a_followers_name_reads_counts_for_nothing_and_locks_nobody_out(cluster) -> None:
    cluster.lead(1, (1, 2), replicas=(1, 2))
    cluster.sever(1, 2)
    leader = cluster[1]
    leader.produce("a", "b", acks=1)
    replica = leader.partition().remotes[2]
    before = replica.log_end_offset, replica.broker_epoch
    for offset in (0, 2, 2):
        (answer,) = leader.consume(offset, replica=2, replica_epoch=2**62, epoch=0)
        assert (answer.error, bool(answer.records)) == (ErrorCode.NONE, offset == 0)
    assert (replica.log_end_offset, replica.broker_epoch, leader.log().high_watermark) == (*before, 0)
    assert cluster.peers.asked == [(2, 2**62)] * 3
    leader.consume(2, replica=2, epoch=0)
    assert (replica.log_end_offset, replica.broker_epoch, leader.log().high_watermark) == (2, 102, 2)
    assert len(cluster.peers.asked) == 3, "who is known is not asked about"


def test_an_incarnation_with_a_lower_number_counts_once_it_is_the_one_that_is_known(cluster) -> None:
    """ZooKeeper was restored from a copy: czxids went back."""
    cluster.lead(1, (1, 2), replicas=(1, 2))
    cluster.sever(1, 2)
    leader = cluster[1]
    leader.produce("a", acks=1)
    (answer,) = leader.consume(1, replica=2, replica_epoch=7, epoch=0)
    assert (answer.error, leader.log().high_watermark) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
    cluster.peers.epochs[2] = BrokerEpoch(7)
    (answer,) = leader.consume(1, replica=2, replica_epoch=7, epoch=0)
    assert (answer.error, leader.log().high_watermark) == (ErrorCode.NONE, 1)


def test_what_a_leader_remembers_of_a_followers_incarnation_ends_with_the_leader_epoch(cluster) -> None:
    cluster.lead(1, (1, 2), replicas=(1, 2))
    replica = cluster[1].partition().remotes[2]
    assert replica.broker_epoch == 102
    cluster.sever(1, 2)
    cluster.lead(1, (1, 2), replicas=(1, 2))
    assert (replica.broker_epoch, replica.log_end_offset) == (-1, -1)


def test_a_replica_that_is_shutting_down_does_not_join(cluster) -> None:
    cluster.peers.leaving.add(2)
    cluster.lead(1, (1,), replicas=(1, 2))
    cluster.advance(2_000)
    assert cluster.states[TP].isr == (1,)
    cluster.peers.leaving.clear()
    cluster[1].manager.on_metadata_changed()
    cluster.run()
    assert cluster.states[TP].isr == (1, 2)


def test_a_replica_that_stopped_fetching_long_ago_does_not_join_because_metadata_changed(cluster) -> None:
    cluster.peers.leaving.add(2)
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    cluster.advance(2 * LAG_MS)
    cluster.peers.leaving.clear()
    cluster[1].manager.on_metadata_changed()
    cluster.run()
    assert cluster.states[TP].isr == (1,)


def test_fetches_of_an_older_incarnation_are_refused(cluster) -> None:
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    old = cluster.peers.epochs[2] - 1
    (answer,) = cluster[1].consume(0, replica=2, replica_epoch=old, epoch=0)
    assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster[1].partition().remotes[2].last_caught_up_ms is None


def test_a_fetch_without_broker_epoch_reads_and_proves_nothing(cluster) -> None:
    cluster.decide(1, (1,), replicas=(1, 2))
    cluster.tell(1)
    cluster[1].produce("a", acks=1)
    before = cluster[1].partition().remotes[2].log_end_offset
    (answer,) = cluster[1].consume(0, replica=2, replica_epoch=-1, epoch=0)
    assert answer.error is ErrorCode.NONE
    assert answer.records
    assert cluster[1].partition().remotes[2].log_end_offset == before


def test_a_follower_with_another_broker_epoch_starts_unknown(cluster) -> None:
    cluster.lead(1, (1, 2), replicas=(1, 2))
    cluster[1].produce("a", "b")
    cluster.run()
    cluster.sever(1, 2)
    replica = cluster[1].partition().remotes[2]
    assert replica.last_caught_up_ms is not None
    cluster.peers.epochs[2] = BrokerEpoch(900)
    cluster[1].consume(1, replica=2, replica_epoch=900, epoch=0)
    assert (replica.log_end_offset, replica.broker_epoch, replica.last_caught_up_ms) == (1, 900, None)


def test_checks_of_many_partitions_are_cut_into_slices(cluster, monkeypatch) -> None:
    monkeypatch.setattr(isr_maintenance, "_SLICE", 2)
    partitions = [TopicPartition("many", number) for number in range(5)]
    for partition in partitions:
        cluster.lead(1, (1, 2), replicas=(1, 2), partition=partition)
        cluster[1].produce("a", acks=1, partition=partition)
    cluster.crash(2)
    for partition in partitions:
        cluster[1].produce("b", acks=1, partition=partition)
    cluster.advance(2 * LAG_MS)
    assert [cluster.states[partition].isr for partition in partitions] == [(1,)] * 5


def test_a_change_that_the_controller_tells_of_before_its_outcome_is_here_is_counted(cluster) -> None:
    cluster.lead(1)
    store = cluster[1].isr_store
    store.held = True
    cluster.sever(1, 3)
    cluster[1].produce("a")
    cluster.advance(2 * LAG_MS)
    [(change, done)] = store.waiting
    written = cluster.write_isr(change)
    cluster[1].apply(cluster.states[TP])
    assert isinstance(cluster[1].partition().isr, Committed)
    done(written)
    assert cluster[1].manager.isr.shrinks == 1
