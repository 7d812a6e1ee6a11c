"""What keeps a cluster from being healthy is said in words, and nothing that is missing goes unsaid."""

from __future__ import annotations

import msgspec

from regency.cluster.health import ClusterSnapshot, PartitionView, missing, phrase, why_unreadable
from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderAndIsr, ReplicaAssignment
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from regency.runtime.zk_session import ZkError

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
ALL = [ONE, TWO, THREE]
PARTITION = TopicPartition("flights", 0)


def view(leader: int = 1, isr: tuple[int, ...] = (1, 2, 3), decided_at: int = 100) -> PartitionView:
    members = tuple(BrokerId(broker) for broker in isr)
    return PartitionView(
        ReplicaAssignment((ONE, TWO, THREE)), LeaderAndIsr(BrokerId(leader), LeaderEpoch(0), members), decided_at
    )


def a_snapshot(found: PartitionView | None = None) -> ClusterSnapshot:
    return ClusterSnapshot(
        brokers={broker: BrokerEpoch(10) for broker in ALL},
        controller=TWO,
        controller_epoch=ControllerEpoch(1),
        partitions={PARTITION: found or view()},
    )


def test_nothing_is_missing_from_a_healthy_cluster() -> None:
    snapshot = a_snapshot()
    assert missing(snapshot, ALL) == []
    assert (snapshot.leaderless, snapshot.under_replicated, snapshot.topics) == ([], [], ("flights",))


def test_absent_brokers_and_an_absent_controller_are_named() -> None:
    snapshot = msgspec.structs.replace(
        a_snapshot(), brokers={ONE: BrokerEpoch(10), TWO: BrokerEpoch(10)}, controller=None
    )
    found = missing(snapshot, ALL)
    assert found[:2] == ["broker 3 is not registered", "there is no controller"]


def test_controller_of_a_dead_broker_does_not_count() -> None:
    snapshot = msgspec.structs.replace(a_snapshot(), controller=BrokerId(9))
    assert missing(snapshot, ALL) == ["controller 9 is not registered"]


def test_partition_without_leader_is_leaderless() -> None:
    snapshot = a_snapshot(view(leader=-1, isr=(3,)))
    assert missing(snapshot, ALL) == ["flights-0 has no leader"]
    assert snapshot.leaderless == [PARTITION]


def test_partition_that_was_never_decided_on_has_no_leader_yet() -> None:
    snapshot = a_snapshot(PartitionView(ReplicaAssignment((ONE, TWO))))
    assert missing(snapshot, ALL) == ["flights-0 has no leader yet"]
    assert (snapshot.leaderless, snapshot.under_replicated) == ([PARTITION], [PARTITION])


def test_leader_that_is_not_registered_leads_nothing() -> None:
    snapshot = a_snapshot(view(leader=7))
    assert missing(snapshot, ALL) == ["flights-0 is led by 7, which is not registered"]
    assert snapshot.leaderless == [PARTITION]


def test_replica_outside_the_isr_is_named() -> None:
    snapshot = a_snapshot(view(isr=(1, 3)))
    assert missing(snapshot, ALL) == ["flights-0 lacks [2] in its ISR [1, 3]"]
    assert snapshot.under_replicated == [PARTITION]


def test_broker_that_came_back_waits_for_the_next_decision() -> None:
    assert missing(a_snapshot(view(decided_at=9)), ALL) == ["flights-0 has no decision yet since broker 1 came back"]


def test_topic_being_deleted_is_unfinished() -> None:
    assert missing(msgspec.structs.replace(a_snapshot(), deleting=("old",)), ALL) == ["topic old is being deleted"]


def test_long_lists_are_cut() -> None:
    assert phrase(["a", "b", "c"], shown=2) == "a; b; and 1 more"
    assert phrase(["a", "b"], shown=2) == "a; b"


def test_a_znode_that_cannot_be_read_is_not_called_a_zookeeper_that_is_silent():
    assert (
        why_unreadable(ZnodeMalformed("/brokers/topics/t", "line 1: no JSON")) == "/brokers/topics/t: line 1: no JSON"
    )
    assert why_unreadable(ZkError("No contact.")) == "ZooKeeper does not answer: No contact"
