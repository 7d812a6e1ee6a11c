"""What ZooKeeper says of a cluster, and what is missing before it is healthy. Reading is here, judging is pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from regency.model.errors import RegencyError, ZnodeMalformed
from regency.model.facts import LeaderAndIsr, ReplicaAssignment
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition, ZkVersion
from regency.model.znodes import decode_controller, decode_controller_epoch, decode_state, decode_topic
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import ZkSession

_SHOWN = 10


class PartitionView(msgspec.Struct, frozen=True):
    """A partition as ZooKeeper holds it. `decided_at` is the zxid of its last decision, 0 before the first."""

    assignment: ReplicaAssignment
    leadership: LeaderAndIsr | None = None
    decided_at: int = 0


class ClusterSnapshot(msgspec.Struct, frozen=True):
    """What health is judged by. Read in several steps, so it may mix moments: judge again before giving up."""

    brokers: Mapping[BrokerId, BrokerEpoch]
    """Registered brokers and their incarnations."""
    controller: BrokerId | None
    controller_epoch: ControllerEpoch
    partitions: Mapping[TopicPartition, PartitionView]
    deleting: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """What cannot be read of topics and states, in words; all else is as it is."""

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of all topics, sorted."""
        return tuple(sorted({partition.topic for partition in self.partitions}))

    @property
    def leaderless(self) -> list[TopicPartition]:
        """Partitions without a leader, or whose leader is not registered."""
        return [partition for partition, view in self.partitions.items() if not _is_led(view, self.brokers)]

    @property
    def under_replicated(self) -> list[TopicPartition]:
        """Partitions of which some replica is not in the ISR."""
        return [partition for partition, view in self.partitions.items() if _absent(view)]


def read_snapshot(session: ZkSession) -> ClusterSnapshot:
    """Read brokers, controller, topics and states. Raises ZkError, and ZnodeMalformed for who rules."""
    ids = session.children(znode_paths.BROKER_IDS)
    found = (znode_paths.parse_broker(f"{znode_paths.BROKER_IDS}/{name}") for name in (ids.names if ids else ()))
    numbers = sorted(broker for broker in found if broker is not None)
    registrations = session.read_many([znode_paths.broker(broker) for broker in numbers])
    brokers = {
        broker: BrokerEpoch(znode.stat.czxid)
        for broker, znode in zip(numbers, registrations, strict=True)
        if znode is not None
    }
    controller = session.read(znode_paths.CONTROLLER)
    epoch = session.read(znode_paths.CONTROLLER_EPOCH)
    deleting = session.children(znode_paths.DELETE_TOPICS)
    unreadable: list[str] = []
    partitions = _read_partitions(session, unreadable)
    return ClusterSnapshot(
        brokers=brokers,
        controller=decode_controller(controller.path, controller.data) if controller else None,
        controller_epoch=decode_controller_epoch(epoch.path, epoch.data) if epoch else ControllerEpoch(0),
        partitions=partitions,
        deleting=deleting.names if deleting else (),
        unreadable=tuple(unreadable),
    )


def missing(
    snapshot: ClusterSnapshot, expected: Sequence[BrokerId], *, killed_epoch: ControllerEpoch | None = None
) -> list[str]:
    """What keeps the cluster from being healthy, one phrase each; empty when it is.

    Healthy: every expected broker is registered, one of the registered rules, every partition has a registered leader
    and its full ISR, decided after these brokers registered, and no topic is being deleted. The controller of
    `killed_epoch` was killed: what it left in ZooKeeper until its session is over does not count.
    """
    found = [f"broker {broker} is not registered" for broker in expected if broker not in snapshot.brokers]
    if snapshot.controller is None:
        found.append("there is no controller")
    elif killed_epoch is not None and snapshot.controller_epoch <= killed_epoch:
        found.append(f"the controller of epoch {snapshot.controller_epoch} was killed, and has no successor yet")
    elif snapshot.controller not in snapshot.brokers:
        found.append(f"controller {snapshot.controller} is not registered")
    for partition, view in sorted(snapshot.partitions.items()):
        if (reason := _reason(view, snapshot.brokers)) is not None:
            found.append(f"{partition} {reason}")
    found.extend(f"topic {name} is being deleted" for name in snapshot.deleting)
    found.extend(snapshot.unreadable)
    return found


def phrase(found: Sequence[str], shown: int = _SHOWN) -> str:
    """The first `shown` phrases as one sentence, and how many more there are."""
    more = f"; and {len(found) - shown} more" if len(found) > shown else ""
    return "; ".join(found[:shown]) + more


def why_unreadable(error: RegencyError) -> str:
    """The same for a ZooKeeper that cannot be read, or a znode in it."""
    if isinstance(error, ZnodeMalformed):
        return str(error).rstrip(".")
    return f"ZooKeeper does not answer: {str(error).rstrip('.')}"


def _reason(view: PartitionView, brokers: Mapping[BrokerId, BrokerEpoch]) -> str | None:
    if view.leadership is None:
        return "has no leader yet"
    leader = view.leadership.leader
    if not view.leadership.has_leader:
        return "has no leader"
    if leader not in brokers:
        return f"is led by {leader}, which is not registered"
    if absent := _absent(view):
        return f"lacks {absent} in its ISR {list(view.leadership.isr)}"
    for broker in view.leadership.isr:
        if brokers.get(broker, 0) > view.decided_at:
            return f"has no decision yet since broker {broker} came back"
    return None


def _is_led(view: PartitionView, brokers: Mapping[BrokerId, BrokerEpoch]) -> bool:
    return view.leadership is not None and view.leadership.leader in brokers


def _absent(view: PartitionView) -> list[BrokerId]:
    isr = view.leadership.isr if view.leadership else ()
    return [replica for replica in view.assignment.replicas if replica not in isr]


def _read_partitions(session: ZkSession, unreadable: list[str]) -> dict[TopicPartition, PartitionView]:
    """What can be read; of the rest a phrase each is added to `unreadable`."""
    topics = session.children(znode_paths.TOPICS)
    names = topics.names if topics else ()
    assignments: dict[TopicPartition, ReplicaAssignment] = {}
    for name, znode in zip(names, session.read_many([znode_paths.topic(name) for name in names]), strict=True):
        if znode is None:
            continue
        version, czxid = ZkVersion(znode.stat.version), znode.stat.czxid
        try:
            topic = decode_topic(znode.path, znode.data, topic=name, zk_version=version, czxid=czxid)
        except ZnodeMalformed as error:
            unreadable.append(why_unreadable(error))
            continue
        assignments.update((TopicPartition(name, number), found) for number, found in sorted(topic.partitions.items()))
    states = session.read_many([znode_paths.partition_state(partition) for partition in assignments])
    views: dict[TopicPartition, PartitionView] = {}
    for (partition, assignment), state in zip(assignments.items(), states, strict=True):
        if state is None:
            views[partition] = PartitionView(assignment)
            continue
        try:
            decided = decode_state(state.path, state.data, zk_version=ZkVersion(state.stat.version))
        except ZnodeMalformed as error:
            unreadable.append(why_unreadable(error))
        else:
            views[partition] = PartitionView(assignment, decided.leader_and_isr, state.stat.mzxid)
    return views
