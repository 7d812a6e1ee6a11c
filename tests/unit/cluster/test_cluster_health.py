"""What keeps a cluster from being healthy is said in words, and nothing that is missing goes unsaid."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import msgspec

from regency.cluster.health import ClusterSnapshot, PartitionView, missing, phrase, read_snapshot, why_unreadable
from regency.model.errors import ZnodeMalformed
from regency.model.facts import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicAssignment
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicPartition
from regency.model.znodes import encode_controller, encode_state, encode_topic
from regency.runtime.zookeeper.session import ZkError, ZkSession

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


def test_a_controller_that_was_killed_does_not_count_until_another_epoch() -> None:
    snapshot = a_snapshot()
    assert missing(snapshot, ALL, killed_epoch=ControllerEpoch(1)) == [
        "the controller of epoch 1 was killed, and has no successor yet"
    ]
    following = msgspec.structs.replace(snapshot, controller_epoch=ControllerEpoch(2))
    assert missing(following, ALL, killed_epoch=ControllerEpoch(1)) == []


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


class OneMoment:
    """A ZooKeeper session that shows these znodes."""

    def __init__(self, znodes: dict[str, bytes]) -> None:
        self.znodes = znodes

    def read(self, path: str) -> SimpleNamespace | None:
        stat = SimpleNamespace(version=0, czxid=5, mzxid=7)
        return SimpleNamespace(path=path, data=self.znodes[path], stat=stat) if path in self.znodes else None

    def read_many(self, wanted: list[str]) -> list[SimpleNamespace | None]:
        return [self.read(path) for path in wanted]

    def children(self, path: str) -> SimpleNamespace:
        below = {each.removeprefix(path + "/") for each in self.znodes if each.startswith(path + "/")}
        return SimpleNamespace(names=tuple(sorted(each for each in below if "/" not in each)))


def test_a_topic_and_a_state_that_cannot_be_read_hide_nothing_else() -> None:
    topic = encode_topic(TopicAssignment("flights", {0: view().assignment, 1: view().assignment}))
    state = encode_state(LeaderIsrAndControllerEpoch(LeaderAndIsr(ONE, LeaderEpoch(0), (ONE, TWO, THREE)), 1))
    session = OneMoment(
        {
            **{f"/brokers/ids/{broker}": b"{}" for broker in ALL},
            "/controller": encode_controller(TWO, timestamp_ms=0),
            "/controller_epoch": b"1",
            "/brokers/topics/broken": b"{",
            "/brokers/topics/flights": topic,
            "/brokers/topics/flights/partitions/0/state": state,
            "/brokers/topics/flights/partitions/1/state": b"?",
        }
    )

    snapshot = read_snapshot(cast(ZkSession, session))

    assert (sorted(snapshot.brokers), snapshot.controller, list(snapshot.partitions)) == (ALL, TWO, [PARTITION])
    found = missing(snapshot, ALL)
    assert [each.partition(": ")[0] for each in found] == [
        "/brokers/topics/broken",
        "/brokers/topics/flights/partitions/1/state",
    ]
