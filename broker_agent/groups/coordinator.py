"""The group coordinator of a broker: shards for the partitions of `__consumer_offsets` that it leads. Data loop only.

A shard is there while this broker leads its partition: made and loaded when that begins, unloaded when it ends,
whatever ends it. What a shard wants done is done here: appends with the leader epoch it is led in, those of one turn of
the loop as one batch; answers when nothing is half changed. Long work (loading, expiry, giving memory back) goes in
slices of a few milliseconds, loads first and one after another. Passive but for the `later` it is given.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from regency.broker_agent.control.metadata_cache import MetadataCache, MetadataSnapshot
from regency.broker_agent.groups.api import (
    Append,
    Caller,
    DescribedGroup,
    Effects,
    FetchedOffsets,
    JoinRequest,
    JoinResult,
    LeavingMember,
    ListedGroup,
    OffsetResults,
    Survey,
    SyncRequest,
    SyncResult,
)
from regency.broker_agent.groups.context import GroupCounters, GroupState
from regency.broker_agent.groups.loading import Load, LoadFailed, steps_left
from regency.broker_agent.groups.shard import GroupShard
from regency.broker_agent.ports import Worker
from regency.broker_agent.replication.api import ProduceResult
from regency.broker_agent.replication.purgatory import Completions
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.kafka.groups.placement import OFFSETS_TOPIC, partition_of
from regency.kafka.groups.records import OffsetAndMetadata
from regency.kafka.records import encode_batch
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.ids import LeaderEpoch, TopicId, TopicPartition, ZkVersion
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.znodes import paths as znode_paths
from regency.runtime.logging import is_power_of_ten
from regency.runtime.zookeeper.session import ZkSession

logger = logging.getLogger(__name__)

SLICE_MS: Final = 5
SLICE_STEPS: Final = 50
"""How long, and for how many steps, long work goes on before it lets others in."""
SURVEYED_AT_ONCE: Final = 200
"""Offsets in one step of a survey."""
MOST_TOGETHER_BYTES: Final = 256 << 10
"""Keys and values of appends that are written as one batch: far below `max.message.bytes`, 1 MiB unless it is set."""
COMMITTED_MS: Final = 10
"""Pause before it is looked again whether replicas have what was loaded: a new leader learns that by their fetches."""
RETRY_MS: Final = 1_000
"""Pause before a partition that could not be loaded, or a count that could not be read, is tried again."""

_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_EPOCH_IS_OVER: Final = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)


@dataclass(slots=True)
class Led:
    """A partition of the topic that this broker leads, from when that begins to when it ends."""

    partition: TopicPartition
    epoch: LeaderEpoch
    """Rises where the controller lets this broker lead on in a later one."""
    shard: GroupShard
    loaded: bool = False
    failures: int = 0
    """Attempts to load it that failed."""
    deleted_topics: set[str] = field(default_factory=set)
    """Of which the offsets shall go when it is loaded."""
    waiting: list[Append] = field(default_factory=list)
    """What this turn of the loop has to append, in order."""


@dataclass(slots=True)
class LoadTimes:
    """Of partitions that were loaded: milliseconds from the wish to the first answer."""

    count: int = 0
    total_ms: int = 0
    longest_ms: int = 0
    failures: int = 0
    unusable_records: int = 0

    def add(self, ms: int, unusable: int) -> None:
        """One more."""
        self.count += 1
        self.total_ms += ms
        self.longest_ms = max(self.longest_ms, ms)
        self.unusable_records += unusable


class GroupCoordinator:
    """Answers for the groups whose partition this broker leads; errors for all others. `loads` and `counters`: metrics.

    The checks are those of Kafka, in its order: group id, whether the coordinator runs, whether the partition is being
    loaded, whether it is led here. All else is the shard's.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        session: ZkSession,
        zookeeper_worker: Worker,
        clock: Clock,
        later: Callable[[int, Callable[[], None]], None],
        new_uuid: Callable[[], UUID],
    ) -> None:
        """`later` runs work on the data loop after so many milliseconds."""
        self.loads = LoadTimes()
        self.counters = GroupCounters()
        self._settings = settings
        self._replicas = replicas
        self._metadata = metadata
        self._session = session
        self._zookeeper_worker = zookeeper_worker
        self._clock = clock
        self._later = later
        self._new_uuid = new_uuid
        self._completions = Completions()
        self._led: dict[int, Led] = {}
        self._topic_id: TopicId | None = None
        self._count: int | None = None
        """Partitions of the topic; None until they are known."""
        self._topics: Mapping[str, object] = {}
        self._to_load: deque[Iterator[None]] = deque()
        self._chores: deque[Iterator[None]] = deque()
        self._is_working = False
        self._wake_at: int | None = None
        self._expires_at: int | None = None
        self._is_closed = False
        replicas.watch_leading(OFFSETS_TOPIC, self._role_changed)
        metadata.subscribe(self._metadata_changed)

    # Requests

    def partition_of(self, group_id: str) -> int | None:
        """The partition a group belongs to; None until the topic's partitions are known, or while there is no topic."""
        return None if self._count is None else partition_of(group_id, self._count)

    def join(self, request: JoinRequest, respond: Callable[[JoinResult], None]) -> None:
        """JoinGroup; answered when the rebalance is, or the member is told otherwise."""
        led = self._find(request.group_id)
        if isinstance(led, ErrorCode):
            respond(JoinResult(led, request.member_id))
        else:
            self._do(led, led.shard.join(request, respond, self._now()))

    def sync(self, request: SyncRequest, respond: Callable[[SyncResult], None]) -> None:
        """SyncGroup; answered when the leader's assignment is stored."""
        led = self._find(request.group_id)
        if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # the member joins again, and waits for the load there
            respond(SyncResult(ErrorCode.REBALANCE_IN_PROGRESS))
        elif isinstance(led, ErrorCode):
            respond(SyncResult(led))
        else:
            self._do(led, led.shard.sync(request, respond, self._now()))

    def heartbeat(self, group_id: str, caller: Caller, respond: Callable[[ErrorCode], None]) -> None:
        """Heartbeat."""
        led = self._find(group_id)
        if led is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # a member outlives the move of its coordinator
            respond(ErrorCode.NONE)
        elif isinstance(led, ErrorCode):
            respond(led)
        else:
            self._do(led, led.shard.heartbeat(group_id, caller, respond, self._now()))

    def leave(
        self,
        group_id: str,
        members: Sequence[LeavingMember],
        respond: Callable[[ErrorCode, list[tuple[LeavingMember, ErrorCode]]], None],
    ) -> None:
        """LeaveGroup."""
        led = self._find(group_id)
        if isinstance(led, ErrorCode):
            respond(led, [])
        else:
            self._do(led, led.shard.leave(group_id, members, respond, self._now()))

    def commit(
        self,
        group_id: str,
        caller: Caller,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        respond: Callable[[OffsetResults], None],
    ) -> None:
        """OffsetCommit; answered when all that are in sync have it, or offsets.commit.timeout.ms is over."""
        led = self._find(group_id, may_be_empty=True)
        if isinstance(led, ErrorCode):
            respond(dict.fromkeys(offsets, led))
        else:
            self._do(led, led.shard.commit(group_id, caller, offsets, respond, self._now()))

    def fetch_offsets(
        self, group_id: str, partitions: Collection[TopicPartition] | None, *, require_stable: bool
    ) -> FetchedOffsets | ErrorCode:
        """OffsetFetch: what is committed, of all partitions where none are named."""
        led = self._find(group_id, may_be_empty=True)
        return led if isinstance(led, ErrorCode) else led.shard.fetch_offsets(group_id, partitions, require_stable)

    def delete_offsets(
        self,
        group_id: str,
        partitions: Collection[TopicPartition],
        respond: Callable[[ErrorCode, OffsetResults], None],
    ) -> None:
        """OffsetDelete."""
        led = self._find(group_id)
        if isinstance(led, ErrorCode):
            respond(led, {})
        else:
            self._do(led, led.shard.delete_offsets(group_id, partitions, respond))

    def describe(self, group_id: str) -> DescribedGroup:
        """DescribeGroups, of one."""
        led = self._find(group_id, may_be_empty=True)
        return DescribedGroup(led, group_id, state="") if isinstance(led, ErrorCode) else led.shard.describe(group_id)

    def list_groups(self, states: Collection[str]) -> tuple[ErrorCode, Sequence[ListedGroup]]:
        """ListGroups: those that are known; with an error where a partition is still being loaded."""
        if self._is_closed:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, ()
        is_loading = any(not led.loaded for led in self._led.values())
        error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_loading else ErrorCode.NONE
        return error, [group for led in self._led.values() if led.loaded for group in led.shard.list_groups(states)]

    def delete_group(self, group_id: str, respond: Callable[[ErrorCode], None]) -> None:
        """DeleteGroups, of one."""
        led = self._find(group_id, may_be_empty=True)
        if isinstance(led, ErrorCode):
            respond(led)
        else:
            self._do(led, led.shard.delete_group(group_id, respond))

    # Metrics, which any thread may read

    @property
    def groups_by_state(self) -> Counter[GroupState]:
        """Groups of loaded partitions."""
        found: Counter[GroupState] = Counter()
        for led in list(self._led.values()):
            if led.loaded:
                found.update(dict(led.shard.states))
        return found

    @property
    def offset_count(self) -> int:
        """Committed offsets of these groups."""
        return sum(led.shard.offset_count for led in list(self._led.values()) if led.loaded)

    def survey(self, most: int, done: Callable[[Survey], None]) -> None:
        """Look at all groups of loaded partitions in slices; `done` is called at the end, not after `close`.

        Groups are left out where groups and offsets together would be more than `most`.
        """
        found = Survey()
        shards = [led.shard for led in self._led.values() if led.loaded]

        def steps() -> Iterator[None]:
            yield from look_at(shards, most, found)
            done(found)

        self._chores.append(steps())
        self._work()

    @property
    def loading(self) -> int:
        """Partitions that are led and not loaded yet."""
        return sum(not led.loaded for led in list(self._led.values()))

    def close(self) -> None:
        """The broker stops: everybody who waits is told to look for another coordinator."""
        self._is_closed = True
        for partition in list(self._led):
            self._resign(partition)

    # Leadership

    def _role_changed(self, partition: TopicPartition, epoch: LeaderEpoch | None) -> None:
        number = partition.partition
        led = self._led.get(number)
        if epoch is None:
            self._resign(number)
        elif led is not None:
            led.epoch = epoch
        elif not self._is_closed:
            shard = GroupShard(number, self._settings, self._new_uuid, self._clock.wall_ms, self.counters)
            led = self._led[number] = Led(partition, epoch, shard)
            self._to_load.append(self._load(led, self._now()))
            self._work()

    def _resign(self, number: int) -> None:
        led = self._led.pop(number, None)
        if led is None:
            return
        self._write(led)
        if led.loaded:
            if groups := sum(led.shard.states.values()):
                logger.info("%s: not led here any more, %d groups are given up", led.partition, groups)
            self._do(led, led.shard.unload())
        if not self._is_closed:
            self._chores.append(led.shard.release())
            self._work()

    def _is_current(self, led: Led) -> bool:
        return self._led.get(led.partition.partition) is led

    def _load(self, led: Led, began: int) -> Iterator[None]:
        load = Load(
            led.partition,
            lambda offset, most: self._replicas.read_led(led.partition, offset, most),
            led.shard,
            self._settings.offsets_load_buffer_size,
        )
        steps = load.run()
        while self._is_current(led):
            try:
                if not steps_left(steps):
                    break
            except LoadFailed as error:
                self._load_again(led, error)
                return
            except Exception as error:  # the partition's groups wait, and no other's
                logger.exception("%s cannot be loaded for a reason that was not foreseen", led.partition)
                self._load_again(led, LoadFailed(f"{led.partition}: {error!r}"))
                return
            yield
        self._serve(led, load, began)

    def _serve(self, led: Led, load: Load, began: int) -> None:
        """Begin to serve what was loaded as soon as it is committed."""
        if not self._is_current(led):
            return
        read = self._replicas.read_led(led.partition, load.end, 0)
        if isinstance(read, ErrorCode):
            self._load_again(led, LoadFailed(f"{led.partition} cannot be read any more: {read.name}"))
            return
        if read.high_watermark < load.end:
            self._later(COMMITTED_MS, lambda: self._serve(led, load, began))
            return
        crash_point("groups.load.before_serving")
        led.loaded = True
        took = self._now() - began
        self.loads.add(took, load.unusable)
        level = logging.INFO if load.records else logging.DEBUG
        told = load.records, sum(led.shard.states.values()), led.shard.offset_count, took
        logger.log(level, "%s: loaded %d records, %d groups with %d offsets, in %d ms", led.partition, *told)
        self._do(led, led.shard.loaded(self._now()))
        if led.deleted_topics:
            self._chores.append(self._carry_out(led, led.shard.topics_gone(led.deleted_topics)))
        self._arm_expiry()

    def _load_again(self, led: Led, error: LoadFailed) -> None:
        """With another shard: this one holds half of what there is."""
        led.failures += 1
        self.loads.failures += 1
        if is_power_of_ten(led.failures):
            logger.warning("groups of %s wait, it could not be loaded %d times: %s", led.partition, led.failures, error)
        self._chores.append(led.shard.release())
        number = led.partition.partition
        led.shard = GroupShard(number, self._settings, self._new_uuid, self._clock.wall_ms, self.counters)

        def again() -> None:
            if self._is_current(led):
                self._to_load.append(self._load(led, self._now()))
                self._work()

        self._later(RETRY_MS, again)

    # Metadata

    def _metadata_changed(self, view: MetadataSnapshot) -> None:
        topic = view.topics.get(OFFSETS_TOPIC)
        topic_id = None if topic is None else topic.topic_id
        if topic_id != self._topic_id:
            self._topic_id, self._count = topic_id, None
            if topic_id is not None:
                self._read_count(topic_id)
        if self._led and (gone := self._topics.keys() - view.topics.keys()):
            self._topics_gone(gone)
        self._topics = view.topics

    def _topics_gone(self, topics: Collection[str]) -> None:
        for led in self._led.values():
            if led.loaded:
                self._chores.append(self._carry_out(led, led.shard.topics_gone(topics)))
            else:
                led.deleted_topics |= set(topics)
        self._work()

    def _read_count(self, topic_id: TopicId) -> None:
        """Metadata may show a new topic's partitions in parts; its znode has all from the beginning."""

        def read() -> int | None:
            znode = self._session.read(znode_paths.topic(OFFSETS_TOPIC))
            if znode is None:
                return None
            version, czxid = ZkVersion(znode.stat.version), znode.stat.czxid
            held = znodes.decode_topic(znode.path, znode.data, topic=OFFSETS_TOPIC, zk_version=version, czxid=czxid)
            return len(held.partitions) if held.topic_id in (None, topic_id) else None

        def done(outcome: int | BaseException | None) -> None:
            if self._topic_id != topic_id or self._is_closed:
                return
            if isinstance(outcome, int):
                self._count = outcome
                return
            if outcome is not None:
                logger.warning("the partitions of %s could not be read, groups wait: %s", OFFSETS_TOPIC, outcome)
            self._later(RETRY_MS, lambda: self._read_count(topic_id) if self._topic_id == topic_id else None)

        self._zookeeper_worker.submit(read, done)

    # Effects

    def _find(self, group_id: str, *, may_be_empty: bool = False) -> Led | ErrorCode:
        if not group_id and not may_be_empty:
            return ErrorCode.INVALID_GROUP_ID
        number = self.partition_of(group_id)
        if self._is_closed or number is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        led = self._led.get(number)
        if led is None:
            return ErrorCode.NOT_COORDINATOR
        return led if led.loaded else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS

    def _do(self, led: Led, effects: Effects) -> None:
        """Have its appends begin in this turn, and answer; what is called comes back when nothing is half changed."""
        if effects.appends and not led.waiting:
            self._later(0, lambda: self._write(led))
        led.waiting += effects.appends
        with self._completions:
            for answer in effects.answers:
                self._completions.add(answer)
        if self._is_current(led):
            self._arm(led.shard.next_deadline_ms)

    def _write(self, led: Led) -> None:
        """Append what waits: a batch costs as much as many of its records. Called again, it finds nothing."""
        together: list[Append] = []
        size = 0
        waiting, led.waiting = led.waiting, []
        for append in waiting:
            own = sum(len(key) + len(value or b"") for key, value in append.records)
            if together and size + own > MOST_TOGETHER_BYTES:
                self._append(led, together)
                together, size = [], 0
            together.append(append)
            size += own
        if together:
            self._append(led, together)

    def _append(self, led: Led, appends: Sequence[Append]) -> None:
        def respond(result: ProduceResult) -> None:
            if result.error in _TOO_LARGE and len(appends) > 1:  # by a setting of the topic: each has to fit by itself
                for append in appends:
                    self._append(led, [append])
                return
            error = ErrorCode.NOT_LEADER_OR_FOLLOWER if result.error in _EPOCH_IS_OVER else result.error
            with self._completions:
                for append in appends:
                    self._completions.add(partial(done, append, error))

        def done(append: Append, error: ErrorCode) -> None:
            self._do(led, append.done(error, self._now()))

        records = [record for append in appends for record in append.records]
        batch = encode_batch(records, self._clock.wall_ms(), self._settings.offsets_topic_compression_codec)
        crash_point("groups.append.before_log")
        self._replicas.append_own(led.partition, led.epoch, self._settings.offsets_commit_timeout_ms, batch, respond)

    def _now(self) -> int:
        return self._clock.monotonic_ms()

    # Time

    def _arm(self, deadline_ms: int | None) -> None:
        if deadline_ms is not None and (self._wake_at is None or deadline_ms < self._wake_at):
            self._wake_at = deadline_ms
            self._call_at(deadline_ms)

    def _call_at(self, wake_at: int) -> None:
        self._later(max(0, wake_at - self._now()), lambda: self._on_time(wake_at))

    def _on_time(self, wake_at: int) -> None:
        """A call that another one has replaced finds nothing to do; one that comes too early is asked for again."""
        if wake_at != self._wake_at or self._is_closed:
            return
        now_ms = self._now()
        if now_ms < wake_at:
            self._call_at(wake_at)
            return
        self._wake_at = None
        for led in list(self._led.values()):
            deadline_ms = led.shard.next_deadline_ms
            if led.loaded and deadline_ms is not None and deadline_ms <= now_ms:
                self._do(led, led.shard.on_time(now_ms))
        for led in self._led.values():
            self._arm(led.shard.next_deadline_ms)

    def _arm_expiry(self) -> None:
        interval_ms = self._settings.offsets_retention_check_interval_ms
        if self._expires_at is None:
            self._expires_at = self._now() + interval_ms
            self._later(interval_ms, self._expire)

    def _expire(self) -> None:
        self._expires_at = None
        if self._is_closed or not self._led:
            return
        wall_ms = self._clock.wall_ms()
        for led in self._led.values():
            if led.loaded:
                self._chores.append(self._carry_out(led, led.shard.expire(wall_ms)))
        self._arm_expiry()
        self._work()

    def _carry_out(self, led: Led, steps: Iterator[Effects]) -> Iterator[None]:
        while self._is_current(led):
            effects = next(steps, None)
            if effects is None:
                return
            self._do(led, effects)
            yield

    def _work(self) -> None:
        if not self._is_working and (self._to_load or self._chores):
            self._is_working = True
            self._later(0, self._slice)

    def _slice(self) -> None:
        if self._is_closed:
            return
        stop_ms = self._now() + SLICE_MS
        for _ in range(SLICE_STEPS):
            queue = self._to_load or self._chores
            if not queue:
                break
            try:
                has_more = steps_left(queue[0])
            except Exception:  # the others must not wait for it forever
                logger.exception("work on groups has ended early")
                has_more = False
            if not has_more:
                queue.popleft()
            if self._now() >= stop_ms:
                break
        self._is_working = False
        self._work()


def look_at(shards: Sequence[GroupShard], most: int, found: Survey) -> Iterator[None]:
    """Put their groups into `found`, step by step; those that are gone when their turn comes are left out."""
    room, looked = most, 0
    for group in [group for shard in shards for group in shard.groups]:
        size = len(group.offsets)
        if group.state is GroupState.DEAD:
            continue
        if size >= room:
            found.left_out += size
            continue
        room -= size + 1
        found.members[group.group_id] = len(group.members)
        offsets = found.offsets[group.group_id] = {}
        for name in list(group.offsets.committed()):
            committed = group.offsets.get(name)
            if committed is not None:
                offsets[name] = committed.offset
            looked += 1
            if looked % SURVEYED_AT_ONCE == 0:
                yield
        yield
