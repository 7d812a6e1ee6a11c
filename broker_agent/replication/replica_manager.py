"""The ReplicaManager: the one door to the replicas of a broker, for clients, followers, controllers and the clock.

Data loop only; passive. Each method changes state first and answers afterwards: whatever became ready is run when
nothing is half changed, and may call back in. The parts: produce.py, fetch.py, delete_records.py, offsets.py,
control.py, isr_maintenance.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from regency.broker_agent.log.directories.log_cleaning import LogCleaning
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.selection import is_compacted
from regency.broker_agent.ports import IsrStore, Peers, Timer
from regency.broker_agent.replication.api import (
    ActiveProducer,
    AppliedState,
    DeletedRecords,
    LeaderAddress,
    LogDirDescription,
    PartitionState,
    ProduceResult,
    ReplicaDescription,
    Role,
    StopPartition,
)
from regency.broker_agent.replication.control import ControlPath
from regency.broker_agent.replication.delete_records import DeletePath
from regency.broker_agent.replication.descriptions import describe_log_dirs, described, described_log
from regency.broker_agent.replication.directory_moves import DirectoryMoves
from regency.broker_agent.replication.fetch import Cancel, FetchPath
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool
from regency.broker_agent.replication.fetcher.throttle import Throttles, unlimited
from regency.broker_agent.replication.hosting import HostedPartitions, Leading
from regency.broker_agent.replication.isr_maintenance import IsrMaintenance
from regency.broker_agent.replication.offsets import LedRead, OffsetQueries
from regency.broker_agent.replication.partition import Partition
from regency.broker_agent.replication.produce import ProducePath
from regency.broker_agent.replication.schedule import Schedule
from regency.broker_agent.steps import Steps
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetchParams, FetchPartition, ListedOffset
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.hosting import HostedRole
from regency.model.ids import NO_LEADER, BrokerId, LeaderEpoch, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.model.settings.log_config import NEVER, LogConfig

FLUSH_LOOKS_MS = 1_000
"""How often logs with a flush.ms are looked at where log.flush.scheduler.interval.ms is not set. Kafka: never."""


class ReplicaManager:
    """Replicas hosted by one broker. The owner calls `run_due` when the timer wakes it."""

    def __init__(
        self,
        broker_id: BrokerId,
        settings: BrokerSettings,
        logs: LogManager,
        clock: Clock,
        timer: Timer,
        isr_store: IsrStore,
        peers: Peers,
        fetchers: FetcherPool,
        topic_config: Callable[[str], LogConfig],
        throttles: Throttles | None = None,
        cleaning: LogCleaning | None = None,
    ) -> None:
        """Without `throttles` nothing is held back but moves between directories, as the settings say; without
        `cleaning` nothing is compacted.
        """
        throttles = throttles or unlimited(settings)
        self._hosting = HostedPartitions(broker_id, settings, logs, clock, timer, peers, topic_config)
        self._isr = IsrMaintenance(self._hosting, isr_store, peers)
        self._produce = ProducePath(self._hosting)
        self._fetch = FetchPath(self._hosting, self._isr, throttles.leader)
        self._deletes = DeletePath(self._hosting)
        self._offsets = OffsetQueries(self._hosting)
        self._control = ControlPath(self._hosting, self._isr, fetchers)
        self._fetchers = fetchers
        self._moves = DirectoryMoves(self._hosting, throttles.moves)
        self._complete = False
        self.cleaning = cleaning
        """Which log is compacted."""
        self._schedule = self._make_schedule(settings)
        self._wake_for_schedule()

    @property
    def sent_to_adding(self) -> int:
        """Bytes of record batches answered to replicas that reassignments add elsewhere, since the start."""
        return self._fetch.sent_to_adding

    # Clients and followers

    def append(
        self,
        acks: int,
        timeout_ms: int,
        batches: Mapping[TopicPartition, bytes | bytearray | memoryview],
        respond: Callable[[dict[TopicPartition, ProduceResult]], None],
    ) -> None:
        """Append one record set per partition. `acks`: 0 and 1 answer once the leader has it, -1 once all in sync have.

        `respond` is called once, now or later, with a result for every partition.
        """
        with self._hosting.completions:
            self._produce.append(acks, timeout_ms, batches, respond)

    def append_own(
        self,
        tp: TopicPartition,
        leader_epoch: LeaderEpoch,
        timeout_ms: int,
        batch: bytes | bytearray,
        respond: Callable[[ProduceResult], None],
    ) -> None:
        """Append a batch that a coordinator here wrote as the leader of `leader_epoch`, with acks=all.

        `respond` is called once, now or later. FENCED_LEADER_EPOCH: that epoch is over, and nothing was appended.
        """
        with self._hosting.completions:
            self._produce.append_own(tp, leader_epoch, timeout_ms, batch, respond)

    def is_compacted(self, topic: str) -> bool:
        """Whether a topic takes only records with keys."""
        return is_compacted(self._hosting.topic_config(topic))

    def fetch(
        self,
        params: FetchParams,
        partitions: Sequence[FetchPartition],
        respond: Callable[[dict[TopicPartition, FetchedPartition]], None],
    ) -> Cancel:
        """Read in the given order, as soon as there are `min_bytes`, or what there is after `max_wait_ms`.

        `respond` is called once, unless the returned call withdraws the fetch before.
        """
        with self._hosting.completions:
            return self._fetch.fetch(params, partitions, respond)

    def read_led(self, tp: TopicPartition, offset: Offset, max_bytes: int) -> LedRead | ErrorCode:
        """Whole batches from `offset` on, for a coordinator of this broker: also what not all replicas have yet."""
        return self._offsets.read_led(tp, offset, max_bytes)

    def watch_leading(self, topic: str, watcher: Leading) -> None:
        """Have a coordinator told which partitions of its topic this broker leads, in which epoch, or leads no more."""
        self._hosting.watch_leading(topic, watcher)

    def delete_records(
        self,
        timeout_ms: int,
        offsets: Mapping[TopicPartition, Offset],
        respond: Callable[[dict[TopicPartition, DeletedRecords]], None],
    ) -> None:
        """Offer nothing below these offsets any more, -1 meaning the high watermark (KIP-107).

        `respond` is called once, when no live replica offers it and the disk knows, or time is up.
        """
        with self._hosting.completions:
            self._deletes.delete(timeout_ms, offsets, respond)

    def list_offset(
        self, tp: TopicPartition, timestamp: int, current_leader_epoch: LeaderEpoch, replica_id: BrokerId
    ) -> Steps[ListedOffset]:
        """The offset for a timestamp (wall milliseconds); -1 latest (LEO for replicas), -2 earliest, -3 largest."""
        return self._offsets.list_offset(tp, timestamp, current_leader_epoch, replica_id)

    def end_offset_for_epoch(
        self, tp: TopicPartition, current_leader_epoch: LeaderEpoch, leader_epoch: LeaderEpoch
    ) -> tuple[ErrorCode, EpochEndOffset]:
        """Largest epoch not above `leader_epoch` in the leader's log, and where it ends. Only leaders answer."""
        return self._offsets.end_offset_for_epoch(tp, current_leader_epoch, leader_epoch)

    def active_producers(self, tp: TopicPartition) -> list[ActiveProducer] | ErrorCode:
        """Idempotent producers that the leader's log remembers (KIP-664)."""
        found = self._hosting.find_led(tp)
        return (
            found if isinstance(found, ErrorCode) else [ActiveProducer(*each) for each in found.log.latest_producers()]
        )

    def topic_name(self, topic_id: TopicId) -> str | None:
        """Name of a topic with a partition hosted here: known from LeaderAndIsr, often before metadata has it."""
        return self._hosting.topic_name(topic_id)

    # Control

    def apply_states(
        self, states: Sequence[PartitionState], leaders: Mapping[BrokerId, LeaderAddress]
    ) -> dict[TopicPartition, AppliedState]:
        """Apply a slice of a LeaderAndIsr request; outcomes by partition."""
        with self._hosting.completions:
            applied = self._control.apply_states(states, leaders)
            self._moves.wake()
            return applied

    def first_full_request_done(self) -> None:
        """Every partition this broker holds has been named: a checkpoint of high watermarks is whole from now on."""
        self._complete = True
        self._moves.drop_orphans()

    def stop_replicas(self, stops: Sequence[StopPartition]) -> dict[TopicPartition, AppliedState]:
        """Apply a StopReplica request; outcomes by partition."""
        with self._hosting.completions:
            return self._control.stop_replicas(stops)

    def forget(self, tps: Iterable[TopicPartition]) -> None:
        """Host these no more, as their topic is gone; their logs stay. Harmless for those that are not hosted."""
        with self._hosting.completions:
            self._control.forget(tps)

    def on_metadata_changed(self) -> None:
        """Brokers may have come, gone or begun to leave: ISR joins and high watermarks are looked at again."""
        with self._hosting.completions:
            self._isr.peers_changed(self._hosting.clock.monotonic_ms())

    def handle_dir_failure(self, path: Path, reason: str) -> None:
        """A log directory failed: its replicas are offline until the agent is started again.

        May be called from inside the call that failed: it takes effect when nothing is half changed.
        """
        with self._hosting.completions:
            self._hosting.completions.add(lambda: self._control.handle_dir_failure(path, reason))

    def on_throttles_changed(self) -> None:
        """Rates or lists of throttled replicas may have changed: what is held back is looked at again."""
        self._fetchers.throttles_changed()
        self._moves.wake()

    # Log directories

    def alter_log_dirs(self, targets: Mapping[TopicPartition, Path]) -> dict[TopicPartition, ErrorCode]:
        """Have replicas moved to other log directories of this broker, given as absolute paths (KIP-113)."""
        with self._hosting.completions:
            return {name: self._moves.alter(name, target) for name, target in targets.items()}

    def describe_log_dirs(
        self, wanted: Callable[[TopicPartition], bool], respond: Callable[[list[LogDirDescription]], None]
    ) -> None:
        """Every log directory, and in it the logs that are `wanted`; `respond` is called later."""
        describe_log_dirs(self._hosting.logs, wanted, respond)

    # Reports

    def describe(self, tps: Iterable[TopicPartition] | None = None) -> list[ReplicaDescription]:
        """Hosted partitions, or those asked for; what is not hosted is left out, even where its log is here."""
        held = self._hosting.partitions
        wanted = held if tps is None else [name for name in tps if name in held]
        return [described(held[name], self._reported_role(held[name])) for name in wanted]

    def describe_logs(self, tps: Iterable[TopicPartition]) -> dict[TopicPartition, ReplicaDescription | None]:
        """How far these logs go, also those not hosted yet; None for one that is, or may be, out of reach."""
        found: dict[TopicPartition, ReplicaDescription | None] = {}
        for name in tps:
            partition = self._hosting.partitions.get(name)
            log = self._hosting.logs.get(name)
            if log is None:
                if partition is not None or self._hosting.may_be_offline(name):
                    found[name] = None
            elif partition is not None:
                offline = partition.role is Role.OFFLINE
                found[name] = None if offline else described(partition, self._reported_role(partition))
            else:
                found[name] = described_log(name, log)
        return found

    def _reported_role(self, partition: Partition) -> HostedRole:
        if partition.role is Role.FOLLOWER and partition.leader != NO_LEADER:
            fed = self._fetchers.is_following(partition.topic_partition)
            return HostedRole.FOLLOWER if fed else HostedRole.UNFED
        return HostedRole[partition.role.name]

    @property
    def fetchers(self) -> FetcherPool:
        """Who follows what."""
        return self._fetchers

    @property
    def isr(self) -> IsrMaintenance:
        """Counts of ISR changes."""
        return self._isr

    @property
    def hosting(self) -> HostedPartitions:
        """Everything hosted here and the operations that wait for it, to look at."""
        return self._hosting

    @property
    def partitions(self) -> Mapping[TopicPartition, Partition]:
        """Hosted partitions, to look at."""
        return self._hosting.partitions

    # Time

    def run_due(self, now_ms: int) -> None:
        """Do whatever has become due: deadlines, ISR checks, checkpoints, retention."""
        hosting = self._hosting
        hosting.woken()
        with hosting.completions:
            for purgatory in hosting.purgatories:
                purgatory.expire_due(now_ms)
            self._fetch.go_on()
            self._schedule.run_due(now_ms)
            self._isr.continue_sweep(now_ms)
            self._moves.continue_moves(now_ms)
        self._wake_for_schedule()
        for purgatory in hosting.purgatories:
            if purgatory.next_deadline_ms is not None:
                hosting.wake_by(purgatory.next_deadline_ms)

    def shutdown(self) -> None:
        """Stop following, answer everybody who waits, and write the high watermarks a last time."""
        hosting = self._hosting
        self._fetchers.close()
        with hosting.completions:
            for purgatory in hosting.purgatories:
                purgatory.complete_all()
        crash_point("replication.shutdown.before_checkpoint")
        self._checkpoint_high_watermarks(hosting.clock.monotonic_ms())

    def _make_schedule(self, settings: BrokerSettings) -> Schedule:
        logs, clock = self._hosting.logs, self._hosting.clock
        schedule = Schedule(clock)
        schedule.every(max(1, settings.replica_lag_time_max_ms // 2), lambda _: self._isr.start_sweep())
        schedule.every(settings.replica_high_watermark_checkpoint_interval_ms, self._checkpoint_high_watermarks)
        schedule.every(settings.replica_high_watermark_checkpoint_interval_ms, self._look_at_directories)
        schedule.every(settings.log_retention_check_interval_ms, lambda _: logs.run_retention(clock.wall_ms()))
        schedule.every(
            settings.producer_id_expiration_check_interval_ms, lambda _: logs.expire_producers(clock.wall_ms())
        )
        if self.cleaning is not None:
            make_due = schedule.every(settings.log_cleaner_backoff_ms, self.cleaning.look)
            self.cleaning.wake = lambda: self._do_soon(make_due)
        looks_ms = settings.log_flush_scheduler_interval_ms
        schedule.every(FLUSH_LOOKS_MS if looks_ms == NEVER else looks_ms, lambda _: logs.flush_dirty_logs())
        schedule.every(max(1_000, settings.log_segment_delete_delay_ms), lambda _: logs.remove_deleted_files())
        schedule.every(settings.log_flush_offset_checkpoint_interval_ms, lambda _: logs.checkpoint_recovery_points())
        schedule.every(
            settings.log_flush_start_offset_checkpoint_interval_ms, lambda _: logs.checkpoint_log_start_offsets()
        )
        return schedule

    def _do_soon(self, make_due: Callable[[], None]) -> None:
        make_due()
        self._hosting.wake_by(self._hosting.clock.monotonic_ms())

    def _wake_for_schedule(self) -> None:
        due_ms = self._schedule.next_due_ms
        if due_ms is not None:
            self._hosting.wake_by(due_ms)

    def _checkpoint_high_watermarks(self, _: int) -> None:
        """Write every high watermark; not before the first full LeaderAndIsr has named them all.

        Also where none has moved: that is how a broker with nothing to do finds out that a disk takes no more writes.
        """
        if not self._complete:
            return
        crash_point("replication.high_watermarks.before_checkpoint")
        self._hosting.logs.checkpoint_high_watermarks(
            {
                name: partition.log.high_watermark
                for name, partition in self._hosting.partitions.items()
                if partition.role is not Role.OFFLINE
            }
        )

    def _look_at_directories(self, _: int) -> None:
        for logs in self._hosting.logs.directories:
            if logs.is_working:
                logs.look_later()
