"""What brokers do while replicas are added to a partition and removed from it."""

from __future__ import annotations

import msgspec

from regency.broker_agent.replication.api import Role, StopPartition
from regency.broker_agent.replication.followers import Committed
from regency.model.ids import LeaderEpoch, TopicPartition
from regency.model.kafka_errors import ErrorCode

TP = TopicPartition("flights", 0)


def move(cluster, leader, isr, *, replicas, adding=(), removing=(), to=()):
    """The controller's next step, told to those in `to`."""
    state = cluster.decide(leader, isr, replicas=replicas)
    cluster.states[TP] = msgspec.structs.replace(
        state, adding=tuple(adding), removing=tuple(removing), is_new=bool(adding)
    )
    cluster.tell(*(to or replicas))
    cluster.run()


def delete(cluster, number):
    state = cluster.states[TP]
    stop = StopPartition(TP, state.topic_id, LeaderEpoch(state.leader_epoch), True)
    return cluster[number].manager.stop_replicas([stop])[TP].error


def test_a_replica_that_is_added_catches_up_and_joins_the_isr(cluster) -> None:
    cluster.lead(1, (1, 2), replicas=(1, 2))
    cluster[1].produce("a", "b")
    cluster.run()

    move(cluster, 1, (1, 2), replicas=(3, 2, 1), adding=(3,), removing=(1,))
    cluster.advance(1_000)

    assert cluster.states[TP].isr == (1, 2, 3)
    assert cluster[3].values() == ["a", "b"]


def test_what_is_copied_to_a_replica_that_is_added_is_counted_on_both_ends_and_nothing_else(cluster) -> None:
    """KIP-352: what a replica that is in sync fetches meanwhile is replication, and no reassignment."""

    def counted(received: str) -> list[tuple[int, int]]:
        """Of each broker: sent to replicas that are added, received (by such replicas)."""
        managers = [cluster[each].manager for each in (1, 2, 3)]
        return [(manager.sent_to_adding, getattr(manager.fetchers.received, received)) for manager in managers]

    cluster.lead(1, (1, 2), replicas=(1, 2))
    cluster[1].produce("a", "b")
    cluster.run()
    assert counted("adding") == [(0, 0), (0, 0), (0, 0)], "2 is in sync, and nobody is added"

    move(cluster, 1, (1, 2), replicas=(1, 2, 3), adding=(3,))
    cluster.advance(1_000)
    size = cluster[1].log().size_bytes
    assert counted("adding") == [(size, 0), (0, 0), (0, size)]
    assert counted("total") == [(size, 0), (0, size), (0, size)]

    cluster[1].produce("c")
    cluster.run()
    more = cluster[1].log().size_bytes
    assert counted("adding") == [(more, 0), (0, 0), (0, more)], "it is being added until the move has ended"

    move(cluster, 1, (1, 2, 3), replicas=(1, 2, 3))
    cluster[1].produce("d")
    cluster.run()
    assert counted("adding") == [(more, 0), (0, 0), (0, more)]
    assert counted("total")[2] == (0, cluster[1].log().size_bytes)


def test_a_log_that_starts_late_is_taken_over_with_its_high_watermark(cluster) -> None:
    """ReassignPartitionsClusterTest.testHwAfterPartitionReassignment."""
    cluster.lead(1, (1,), replicas=(1,))
    for value in "abcd":
        cluster[1].produce(value)
    cluster[1].log().maybe_increment_log_start(3)

    move(cluster, 1, (1,), replicas=(2, 3, 1), adding=(2, 3), removing=(1,))
    cluster.advance(1_000)
    move(cluster, 2, (2, 3), replicas=(2, 3))
    cluster.advance(1_000)

    assert [cluster[each].log().high_watermark for each in (2, 3)] == [4, 4]
    assert [cluster[each].log().log_start_offset for each in (2, 3)] == [3, 3]


def test_records_go_on_while_a_partition_moves_to_other_brokers(cluster) -> None:
    """testProduceAndConsumeWithReassignmentInProgress."""
    cluster.lead(1, (1,), replicas=(1,))
    before = cluster[1].produce("a")
    move(cluster, 1, (1,), replicas=(2, 1), adding=(2,), removing=(1,))
    meanwhile = cluster[1].produce("b")
    cluster.advance(1_000)
    assert cluster.states[TP].isr == (1, 2)

    move(cluster, 2, (2,), replicas=(2,))
    assert delete(cluster, 1) is ErrorCode.NONE
    after = cluster[2].produce("c")
    cluster.run()

    assert [result.error for result in (*before, *meanwhile, *after)] == [ErrorCode.NONE] * 3
    assert cluster[2].values() == ["a", "b", "c"]
    assert TP not in cluster[1].manager.partitions
    assert cluster[1].manager._hosting.logs.get(TP) is None


def test_a_single_replica_is_not_held_back_by_one_that_is_added(make_cluster) -> None:
    """The replication factor of before counts: with that of after nothing would be committed until 2 is in sync."""
    cluster = make_cluster(min_insync_replicas=2)
    cluster.lead(1, (1,), replicas=(1,))
    cluster.sever(1, 2)
    move(cluster, 1, (1,), replicas=(1, 2), adding=(2,))
    cluster[1].produce("a", acks=1)
    assert cluster[1].log().high_watermark == 1


def test_a_leader_forgets_a_follower_that_is_removed(cluster) -> None:
    cluster.lead(1)
    cluster.sever(1, 3)
    move(cluster, 1, (1, 2), replicas=(1, 2))

    produced = cluster[1].produce("a")
    cluster.run()
    (refused,) = cluster[1].consume(0, replica=3, epoch=1)

    assert [result.error for result in produced] == [ErrorCode.NONE]
    assert cluster[1].partition().isr == Committed((1, 2), cluster.states[TP].zk_version)
    assert refused.error is ErrorCode.UNKNOWN_LEADER_EPOCH
    cluster.advance(30_000)
    assert cluster.states[TP].isr == (1, 2)


def test_a_leader_that_is_removed_stops_leading_when_it_is_told_to_delete(cluster) -> None:
    cluster.lead(1)
    move(cluster, 2, (2, 3), replicas=(2, 3))
    assert cluster[1].partition().role is Role.LEADER
    assert delete(cluster, 1) is ErrorCode.NONE
    (refused,) = cluster[1].produce("a")
    assert refused.error is not ErrorCode.NONE
    assert cluster[2].partition().isr.committed == (2, 3)


def test_what_a_removed_leader_took_alone_is_acknowledged_to_nobody(cluster) -> None:
    cluster.lead(1)
    move(cluster, 2, (2, 3), replicas=(2, 3))
    late = cluster[1].produce("a")
    cluster.advance(1_000)
    assert late == []
    delete(cluster, 1)
    cluster.run()
    assert [result.error is ErrorCode.NONE for result in late] == [False]
    assert cluster[2].values() == []


def test_a_replica_that_was_removed_and_is_added_again_begins_empty(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    move(cluster, 1, (1, 2), replicas=(1, 2))
    assert delete(cluster, 3) is ErrorCode.NONE
    move(cluster, 1, (1, 2), replicas=(1, 2, 3), adding=(3,))
    cluster.advance(1_000)
    assert cluster[3].values() == ["a"]
    assert cluster.states[TP].isr == (1, 2, 3)


def test_repeating_a_deletion_is_harmless(cluster) -> None:
    cluster.lead(1)
    move(cluster, 1, (1, 2), replicas=(1, 2))
    assert [delete(cluster, 3), delete(cluster, 3)] == [ErrorCode.NONE, ErrorCode.NONE]
