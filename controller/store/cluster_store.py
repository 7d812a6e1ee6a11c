"""The controller's view of ZooKeeper: domain verbs in bulk, every write fenced by the epoch it was decided in.

Batch verbs return per-item results, single verbs raise, ControllerMoved always raises. A lost connection is waited
out, within the session; ZkSessionLost is raised when that is gone. Paths of topics and states are spelled here.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from regency.controller.store.access import (
    Counters,
    EpochBehind,
    Fence,
    Retry,
    StoreAccess,
    WriteCode,
    WriteResult,
    result_of,
)
from regency.controller.store.topics import decode_topic
from regency.model import znodes
from regency.model.errors import ControllerMoved, ZnodeMalformed
from regency.model.facts import Broker, LeaderIsrAndControllerEpoch, TopicAssignment
from regency.model.ids import LARGEST_LEAP, BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition, ZkVersion
from regency.model.topic_names import is_valid_topic_name
from regency.model.znodes import paths
from regency.runtime.zookeeper.fenced import FencedItem, ItemOutcome
from regency.runtime.zookeeper.session import Create, Delete, Op, SetData, ZkCode, ZkSession, Znode

logger = logging.getLogger(__name__)


class Registered(msgspec.Struct, frozen=True):
    """The brokers in /brokers/ids, by id; `malformed` ones are left out, under their id and czxid.

    `incarnations` are those of all brokers there have been, and were read before: where one is not that of the
    registration, the broker has registered in between, or marks none.
    """

    brokers: Mapping[BrokerId, Broker]
    malformed: Mapping[BrokerId, BrokerEpoch]
    incarnations: Mapping[BrokerId, Incarnation]
    lost_epochs: Mapping[BrokerId, BrokerEpoch]
    """Before which registration each may have lost something of its logs last: before this, if it does not say."""
    epochs: Mapping[BrokerId, BrokerEpoch]
    """Under which each is registered, malformed ones among them."""


class TopicsRead(msgspec.Struct, frozen=True):
    """Topic znodes that exist and can be read, by name; with the content of those that lack a topic id."""

    topics: Mapping[str, TopicAssignment]
    without_id: Mapping[str, bytes]
    gone: tuple[str, ...]
    """Those that do not exist."""


class StatesRead(msgspec.Struct, frozen=True):
    """State znodes that exist and can be read, with the zxid of their last write; `malformed` ones are named."""

    states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    mzxids: Mapping[TopicPartition, int]
    malformed: frozenset[TopicPartition]


class ClusterStore:
    """Verbs over one ZkSession, in one controller epoch. The controller's thread calls them."""

    def __init__(self, session: ZkSession, retry: Retry, fence: Fence, counters: Counters | None = None) -> None:
        self.access = StoreAccess(session, retry, fence, Counters() if counters is None else counters)
        """For verbs of one subject that are not here."""

    @property
    def fence(self) -> Fence:
        """What all writes are checked against."""
        return self.access.fence

    # Reads

    def registered_brokers(self) -> Registered:
        """Every broker registered now, and every incarnation there was."""
        incarnations = read_incarnations(self.access)
        brokers: dict[BrokerId, Broker] = {}
        malformed: dict[BrokerId, BrokerEpoch] = {}
        wanted = []
        for name in self.access.children(paths.BROKER_IDS):
            broker = paths.parse_broker(f"{paths.BROKER_IDS}/{name}")
            if broker is None:
                self.access.report_name(f"{paths.BROKER_IDS}/{name}", "a broker is registered under its number")
            else:
                wanted.append(broker)
        for broker, znode in zip(wanted, self.access.read_many([paths.broker(each) for each in wanted]), strict=True):
            if znode is None:
                continue
            epoch = BrokerEpoch(znode.stat.czxid)
            try:
                brokers[broker] = znodes.decode_broker(znode.path, znode.data, id=broker, epoch=epoch)
            except ZnodeMalformed as error:
                malformed[broker] = epoch
                self.access.report(error, znode)
        epochs = {**{broker: each.epoch for broker, each in brokers.items()}, **malformed}
        return Registered(brokers, malformed, incarnations, read_losses(self.access, incarnations, epochs), epochs)

    def topic_names(self) -> tuple[str, ...]:
        """Names of the topics that have a znode, sorted. One that cannot name a folder is reported and left out."""
        names = self.access.children(paths.TOPICS)
        for name in names:
            if not is_valid_topic_name(name):
                self.access.report_name(paths.topic(name), "no topic may have this name")
        return tuple(filter(is_valid_topic_name, names))

    def read_topics(self, names: Sequence[str]) -> TopicsRead:
        """Assignments of these topics. A malformed one is reported once and left out, as is one that is gone."""
        topics: dict[str, TopicAssignment] = {}
        without_id: dict[str, bytes] = {}
        gone = []
        for name, znode in zip(names, self.access.read_many([paths.topic(name) for name in names]), strict=True):
            if znode is None:
                gone.append(name)
                continue
            try:
                topic = decode_topic(name, znode)
                check_partition_numbers(znode.path, topic)
            except ZnodeMalformed as error:
                self.access.report(error, znode)
                continue
            topics[name] = topic
            if topic.topic_id is None:
                without_id[name] = znode.data
        return TopicsRead(topics, without_id, tuple(gone))

    def read_states(self, partitions: Sequence[TopicPartition]) -> StatesRead:
        """Leadership of these partitions; those without a state znode are left out.

        Raises EpochBehind or ControllerMoved where a state was written under a newer controller epoch than ours.
        """
        states: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        mzxids: dict[TopicPartition, int] = {}
        malformed = []
        found = self.access.read_many([paths.partition_state(partition) for partition in partitions])
        seen: dict[tuple[bytes, int], LeaderIsrAndControllerEpoch] = {}
        for partition, znode in zip(partitions, found, strict=True):
            if znode is None:
                continue
            stat = znode.stat
            content = znode.data, stat.version
            known = seen.get(content)  # most states of a large cluster are one of few
            if known is not None:
                states[partition] = known
                mzxids[partition] = stat.mzxid
                continue
            try:
                state = decode_state(znode)
                if state.controller_epoch > self.fence.epoch:
                    self._refuse_newer(partition, znode, state.controller_epoch)
            except ZnodeMalformed as error:
                malformed.append(partition)
                self.access.report(error, znode)
                continue
            states[partition] = seen[content] = state
            mzxids[partition] = stat.mzxid
        return StatesRead(states, mzxids, frozenset(malformed))

    def isr_notifications(self) -> tuple[str, ...]:
        """Paths of the ISR change notifications there are."""
        parent = paths.ISR_CHANGE_NOTIFICATION
        return tuple(f"{parent}/{name}" for name in self.access.children(parent))

    def read_isr_notifications(self, listed: Sequence[str]) -> tuple[TopicPartition, ...]:
        """Partitions these notifications name, each once; malformed ones are reported and skipped."""
        named: dict[TopicPartition, None] = {}
        for znode in self.access.read_many(listed):
            if znode is None:
                continue
            try:
                named.update(dict.fromkeys(znodes.decode_isr_change(znode.path, znode.data)))
            except ZnodeMalformed as error:
                self.access.report(error, znode, "It is removed; which ISRs changed is not known from it.")
        return tuple(named)

    def cluster_id(self) -> str | None:
        """Id of the cluster; None where no broker has given it one. Raises ZnodeMalformed."""
        (znode,) = self.access.read_many([paths.CLUSTER_ID])
        return None if znode is None else znodes.decode_cluster_id(znode.path, znode.data)

    # Fenced writes

    def create_topics(self, topics: Mapping[str, tuple[TopicAssignment, Mapping[str, str]]]) -> dict[str, WriteResult]:
        """Create topics, each with its settings in one piece. EXISTS: another writer has created it."""
        names = list(topics)
        existing = self.access.read_many([paths.topic_config(name) for name in names])
        items = []
        for (name, (assignment, config)), found in zip(topics.items(), existing, strict=True):
            path, data = paths.topic_config(name), znodes.encode_config(config)
            settings = Create(path, data) if found is None else SetData(path, data, found.stat.version)
            items.append(FencedItem((settings, Create(paths.topic(name), znodes.encode_topic(assignment)))))
        return dict(zip(names, map(_result_of_topic, self.access.write(items)), strict=True))

    def set_topic_ids(self, topics: Iterable[tuple[TopicAssignment, bytes]]) -> list[WriteResult]:
        """Write topic znodes again with the id they now have; the bytes are their present content.

        FAILED where a znode is nearly as large as ZooKeeper takes: it does without.
        """
        writes: dict[str, tuple[Op, ...]] = {
            topic.topic: (
                SetData(paths.topic(topic.topic), znodes.encode_topic(topic, previous=content), topic.zk_version),
            )
            for topic, content in topics
        }
        return list(self.access.write_each(writes, too_large="the znode has no room for an id").values())

    def create_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    ) -> dict[TopicPartition, WriteResult]:
        """Create state znodes with their parents. EXISTS: one stands there already."""
        topics = dict.fromkeys(partition.topic for partition in states)
        self.access.write([FencedItem((Create(paths.topic_partitions(topic)),)) for topic in topics])
        results = self._create_states(states, with_parent=True)
        again = {
            partition: states[partition] for partition, result in results.items() if result.code is WriteCode.EXISTS
        }
        results.update(self._create_states(again, with_parent=False))
        return results

    def update_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch]
    ) -> dict[TopicPartition, WriteResult]:
        """Replace state znodes, each at the version its value was decided from (`zk_version` of the value).

        RESTARTED: a member of its ISR is another incarnation than the one that is known. A write younger than its
        registration would hide that from a comparison of the two (see membership.find_bounced).
        """
        encode, guards = znodes.encode_state, self.access.guards
        items = [
            FencedItem(
                (SetData(paths.partition_state(partition), encode(state), state.leader_and_isr.zk_version),),
                guards(state.leader_and_isr.isr),
            )
            for partition, state in states.items()
        ]
        outcomes = self.access.write(items)
        return {partition: result_of(outcome) for partition, outcome in zip(states, outcomes, strict=True)}

    def delete_notifications(self, listed: Sequence[str]) -> None:
        """Delete these notifications; those already gone do not matter."""
        self.access.write([FencedItem((Delete(path, None),)) for path in listed])

    def _create_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], *, with_parent: bool
    ) -> dict[TopicPartition, WriteResult]:
        items = []
        for partition, state in states.items():
            create = Create(paths.partition_state(partition), znodes.encode_state(state))
            parent = Create(paths.topic_partition(partition))
            items.append(FencedItem((parent, create) if with_parent else (create,)))
        outcomes = self.access.write(items)
        return {partition: result_of(outcome) for partition, outcome in zip(states, outcomes, strict=True)}

    def _refuse_newer(self, partition: TopicPartition, znode: Znode, seen: ControllerEpoch) -> None:
        """Raise what a state of a newer controller epoch means: we are deposed, set back, or it is nonsense."""
        (epoch,) = self.access.read_many([paths.CONTROLLER_EPOCH])
        what = f"The state of {partition} was written under controller epoch {seen}, ours is {self.fence.epoch}."
        if epoch is None or epoch.stat.version != self.fence.zk_version:
            raise ControllerMoved(what, hint="Another controller rules: resign.")
        if seen - self.fence.epoch > LARGEST_LEAP:
            raise ZnodeMalformed(znode.path, f"controller_epoch: {seen} is far beyond {self.fence.epoch}, which rules")
        raise EpochBehind(what, seen)


LAST_LEADER_EPOCH = 2**31 - 1_000
"""Highest leader epoch taken from a state znode: an election must still fit into the 31 bits of Kafka's protocol."""

MAX_PARTITION_NUMBER = 99_999
"""Highest partition number taken from a topic znode: far above what fits into one, and it bounds memory."""


def decode_state(znode: Znode) -> LeaderIsrAndControllerEpoch:
    """What a state znode holds. Raises ZnodeMalformed, also where no leader epoch is left for the next election."""
    state = znodes.decode_state(znode.path, znode.data, zk_version=ZkVersion(znode.stat.version))
    if state.leader_and_isr.leader_epoch > LAST_LEADER_EPOCH:
        why = f"leader_epoch: above {LAST_LEADER_EPOCH} none is left for an election"
        raise ZnodeMalformed(znode.path, f"{why}; write a lower one and restart the brokers of its replicas")
    return state


def check_partition_numbers(path: str, topic: TopicAssignment) -> None:
    """Raise ZnodeMalformed where a partition number would need absurd room."""
    highest = max(topic.partitions, default=0)
    if highest > MAX_PARTITION_NUMBER:
        raise ZnodeMalformed(path, f"partition {highest} is beyond {MAX_PARTITION_NUMBER}")


def _result_of_topic(outcome: ItemOutcome) -> WriteResult:
    """Outcome of [settings, topic]: only where the topic stands there already does it exist."""
    if outcome.results[0].code in (ZkCode.OK, ZkCode.ROLLED_BACK):
        return result_of(outcome)
    return WriteResult(WriteCode.CONFLICT, why=outcome.code.value)


class Incarnation(msgspec.Struct, frozen=True):
    """A broker's newest registration that marks an incarnation: its broker epoch, and what a write can check.

    `lost_epoch`: the last registration before which it may have lost something of its logs. `since`: the first
    registration of the process that made this one; None where it does not say, as older versions do not.
    """

    epoch: BrokerEpoch
    version: ZkVersion
    lost_epoch: BrokerEpoch
    since: BrokerEpoch | None


def read_incarnations(access: StoreAccess) -> dict[BrokerId, Incarnation]:
    """Of all that have registered and were not forgotten since; live brokers of other programs may be missing.

    From now on the controller's writes are guarded by them (see `StoreAccess.guards`).
    """
    numbers = (paths.parse_number(name) for name in access.children(paths.INCARNATIONS))
    incarnations = _read(access, [BrokerId(number) for number in numbers if number is not None])
    access.know_incarnations({broker: each.version for broker, each in incarnations.items()})
    return incarnations


def read_losses(
    access: StoreAccess, incarnations: Mapping[BrokerId, Incarnation], epochs: Mapping[BrokerId, BrokerEpoch]
) -> dict[BrokerId, BrokerEpoch]:
    """Before which registration each broker may have lost something last; of `epochs`, registered now, if unsaid.

    Where a registration is newer than the incarnation that was read, it came in between: what it says is read now.
    """
    newer = [each for each, epoch in epochs.items() if each not in incarnations or incarnations[each].epoch < epoch]
    said = {**incarnations, **_read(access, newer)}
    unsaid = {each: epochs[each] for each in newer if each not in said or said[each].epoch < epochs[each]}
    return {**{broker: each.lost_epoch for broker, each in said.items()}, **unsaid}


def _read(access: StoreAccess, brokers: Sequence[BrokerId]) -> dict[BrokerId, Incarnation]:
    incarnations = {}
    for broker, znode in zip(brokers, access.read_many([paths.incarnation(each) for each in brokers]), strict=True):
        if znode is not None:
            epoch = BrokerEpoch(znode.stat.mzxid)
            lost_epoch = znodes.decode_incarnation(znode.data, epoch=epoch)
            _, since = znodes.decode_process(znode.data, epoch=epoch)
            incarnations[broker] = Incarnation(epoch, ZkVersion(znode.stat.version), lost_epoch, since)
    return incarnations


def remove_member(access: StoreAccess, broker: BrokerId) -> WriteResult:
    """Forget a broker that is not registered. CONFLICT: it is, or has just been. MISSING: nothing is known of it.

    Its incarnation is read before its registration, and deleted as it was read: a broker that registers in between has
    written it again, and one that registers afterwards makes another.
    """
    (held,) = access.read_many([paths.incarnation(broker)])
    (registered,) = access.read_many([paths.broker(broker)])
    if registered is not None:
        return WriteResult(WriteCode.CONFLICT, why="it is registered")
    if held is None:
        return WriteResult(WriteCode.MISSING)
    delete = Delete(held.path, ZkVersion(held.stat.version))
    return result_of(access.write([FencedItem((delete,))])[0])
