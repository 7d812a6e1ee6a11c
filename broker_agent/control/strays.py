"""Strays: logs on this broker's disks that are no replica of this broker any more.

A full LeaderAndIsr names every replica the broker holds. What it left out, or named under another topic id, is only a
suspicion: a controller that could not read a topic leaves it out too. So ZooKeeper is asked, and a log is set aside
only where the topic's znode says so. It is renamed, never deleted. What is served stays, unless its topic was deleted
and created again: any request that names the new one finds the old one gone. Where ZooKeeper cannot be asked, the
suspicion stays, and is looked into again. Runs in the turns of control requests; logs are touched on the data loop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.ports import Loop
from regency.broker_agent.replication.api import PartitionState
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model import znodes
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError, ZnodeMalformed
from regency.model.facts import TopicAssignment
from regency.model.ids import ZERO_TOPIC_ID, BrokerId, TopicId, TopicPartition, ZkVersion
from regency.model.topic_ids import encode_topic_id, is_misspelt
from regency.model.znodes import paths as znode_paths
from regency.runtime.zookeeper.session import ZkConnectionLost, ZkError, ZkSession

logger = logging.getLogger(__name__)


LOOP_TIMEOUT_MS = 120_000
"""Longest wait for the data loop to do one slice of a control request."""

NO_SUCH_TOPIC = "there is no such topic any more"
EARLIER_TOPIC = "it belongs to an earlier topic of the same name"
TOPIC_IS_GONE = (NO_SUCH_TOPIC, EARLIER_TOPIC)


class Strays:
    """Collects what a full LeaderAndIsr names, and sets aside what it does not.

    `remind` is called where ZooKeeper could not be asked: have `look_again` called, later and in a turn of its own.
    """

    def __init__(
        self,
        loop: Loop,
        broker: BrokerId,
        session: ZkSession,
        logs: LogManager,
        replicas: ReplicaManager,
        remind: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._broker = broker
        self._session = session
        self._logs = logs
        self._replicas = replicas
        self._remind = remind
        self._named: set[TopicPartition] = set()
        self._unconfirmed: dict[TopicPartition, TopicId | None] = {}
        """Suspects of the last full request, while ZooKeeper has not been asked about them."""

    def begin(self) -> None:
        """Another controller speaks: what the one before named counts no more."""
        self._named.clear()

    def named(self, states: Sequence[PartitionState]) -> None:
        """A piece of a full request."""
        self._named.update(state.topic_partition for state in states)

    def set_earlier_aside(self, states: Sequence[PartitionState]) -> None:
        """Set aside logs of earlier topics of the same names, served or not, before they are in the way.

        Not where partition.metadata is damaged by a byte: an empty log would take the place of the only whole one.
        """
        ids = {state.topic_partition: state.topic_id for state in states}
        suspects: dict[TopicPartition, TopicId | None] = {}

        def look() -> None:
            for topic_partition, topic_id in ids.items():
                log = self._logs.get(topic_partition)
                if log is None or log.topic_id in (ZERO_TOPIC_ID, topic_id):
                    continue
                if is_misspelt(log.topic_id, topic_id):
                    correct(topic_partition, log, log.topic_id, topic_id)
                else:
                    suspects[topic_partition] = log.topic_id

        def correct(topic_partition: TopicPartition, log: PartitionLog, found: TopicId, topic_id: TopicId) -> None:
            spelled = encode_topic_id(found), encode_topic_id(topic_id)
            logger.warning(
                "partition.metadata of %s is damaged: it says %s, the topic is %s", topic_partition, *spelled
            )
            with suppress(LogStorageError):  # its directory has failed, which is reported
                log.set_topic_id(topic_id)

        self._call(look)
        try:
            self._set_aside(suspects, even_served=True)
        except ZkError as error:  # the request is refused, and repeated
            logger.warning("%d logs may be of earlier topics and stay in place: %s", len(suspects), error)

    def all_named(self) -> None:
        """The last piece of a full request has come: set aside what none of them named."""
        suspects: dict[TopicPartition, TopicId | None] = {}

        def look() -> None:
            suspects.update((name, log.topic_id) for name, log in self._logs.all().items() if name not in self._named)

        self._call(look)
        self._named.clear()
        self._unconfirmed = suspects
        self._ask()

    def look_again(self) -> None:
        """Ask about what could not be asked about; harmless where there is nothing of that kind."""
        there: dict[TopicPartition, TopicId | None] = {}

        def look() -> None:
            for topic_partition, topic_id in self._unconfirmed.items():
                log = self._logs.get(topic_partition)
                if log is not None and log.topic_id == topic_id:
                    there[topic_partition] = topic_id

        self._call(look)
        self._unconfirmed = there
        self._ask()

    def _ask(self) -> None:
        try:
            self._set_aside(self._unconfirmed, even_served=False)
        except ZkError as error:
            logger.warning("%d logs may be strays and stay in place for now: %s", len(self._unconfirmed), error)
            self._remind()
        else:
            self._unconfirmed = {}

    def _set_aside(self, suspects: Mapping[TopicPartition, TopicId | None], *, even_served: bool) -> None:
        if not suspects:
            return
        crash_point("agent.strays.before_confirmation")
        why = self._confirmed(suspects)

        def rename() -> None:
            if even_served:
                self._replicas.forget([each for each in why if why[each] in TOPIC_IS_GONE])
            hosted = {replica.topic_partition for replica in self._replicas.describe(list(why))}
            strays = [topic_partition for topic_partition in why if topic_partition not in hosted]
            for topic_partition in strays:
                logger.warning("set aside the log of %s: %s", topic_partition, why[topic_partition])
            self._logs.mark_stray(strays)

        if why:
            crash_point("agent.strays.before_rename")
            try:
                self._call(rename)
            except RegencyError as error:
                logger.warning("stray logs stay in place: %s", error)

    def _call(self, work: Callable[[], None]) -> None:
        self._loop.call(work, timeout_ms=LOOP_TIMEOUT_MS)

    def _confirmed(self, suspects: Mapping[TopicPartition, TopicId | None]) -> dict[TopicPartition, str]:
        by_topic: dict[str, list[TopicPartition]] = {}
        for topic_partition in sorted(suspects):
            by_topic.setdefault(topic_partition.topic, []).append(topic_partition)
        if not self._session.connected:  # where `sync` would wait
            raise ZkConnectionLost("There is no contact with ZooKeeper to look for topics through.")
        self._session.sync(znode_paths.TOPICS)  # a server that lags may not know yet what was assigned to this broker
        found = self._session.read_many([znode_paths.topic(name) for name in by_topic])
        reasons: dict[TopicPartition, str] = {}
        for (name, held), znode in zip(by_topic.items(), found, strict=True):
            if znode is None:
                reasons.update(dict.fromkeys(held, NO_SUCH_TOPIC))
                continue
            version, czxid = ZkVersion(znode.stat.version), znode.stat.czxid
            try:
                topic = znodes.decode_topic(znode.path, znode.data, topic=name, zk_version=version, czxid=czxid)
            except ZnodeMalformed as error:
                logger.warning("%d logs may be strays and stay in place: %s", len(held), error)
                continue
            for topic_partition in held:
                reason = why_stray(self._broker, topic_partition.partition, suspects[topic_partition], topic)
                if reason is not None:
                    reasons[topic_partition] = reason
        return reasons


def why_stray(broker: BrokerId, partition: int, topic_id: TopicId | None, topic: TopicAssignment) -> str | None:
    """Why a log of a partition is no replica of the topic on this broker; None where it is, or may be, one.

    A former replica that the controller is about to have deleted is none of ours either.
    """
    known = topic.topic_id
    if topic_id not in (None, ZERO_TOPIC_ID, known) and known is not None and not is_misspelt(topic_id, known):
        return EARLIER_TOPIC
    assignment = topic.partitions.get(partition)
    if assignment is None:
        return "its topic has no such partition"
    if broker not in assignment.replicas and broker not in assignment.deleting:
        return f"the partition is assigned to {list(assignment.replicas)}, not to this broker"
    return None
