"""What a broker tells of its replicas, logs and log directories, from memory: only volumes are asked, on the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from regency.broker_agent.log.directories.directory_logs import DirectoryLogs
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.api import LogDescription, LogDirDescription, ReplicaDescription
from regency.broker_agent.replication.partition import Partition
from regency.model.hosting import HostedRole
from regency.model.ids import NO_LEADER, NO_LEADER_EPOCH, TopicPartition, ZkVersion

Respond = Callable[[list[LogDirDescription]], None]


def describe_log_dirs(logs: LogManager, wanted: Callable[[TopicPartition], bool], respond: Respond) -> None:
    """Every log directory in the order of log.dirs, and in it the logs that are `wanted`; when volumes are measured."""

    def answer(space: Mapping[Path, tuple[int, int]]) -> None:
        respond(
            [_directory(logs, each, wanted, *space.get(each.directory.path, (-1, -1))) for each in logs.directories]
        )

    logs.measure_space(answer)


def _directory(
    logs: LogManager, directory: DirectoryLogs, wanted: Callable[[TopicPartition], bool], total: int, usable: int
) -> LogDirDescription:
    return LogDirDescription(
        str(directory.directory.path),
        directory.directory.failure,
        tuple(_log_in_directory(logs, log) for name, log in directory.logs.items() if wanted(name)),
        total,
        usable,
    )


def _log_in_directory(logs: LogManager, log: PartitionLog) -> LogDescription:
    name = log.topic_partition
    is_future = logs.futures.get(name) is log
    lag = max(log.high_watermark - log.log_end_offset, 0)
    if is_future:
        current = logs.get(name)
        lag = -1 if current is None else max(current.log_end_offset - log.log_end_offset, 0)
    return LogDescription(name, log.size_bytes, lag, is_future)


def described(partition: Partition, role: HostedRole) -> ReplicaDescription:
    """What is told of a hosted replica."""
    log = partition.log
    return ReplicaDescription(
        partition.topic_partition,
        partition.topic_id,
        partition.leader,
        partition.leader_epoch,
        partition.zk_version,
        partition.isr.committed,
        log.high_watermark,
        log.log_end_offset,
        log.log_start_offset,
        log.last_batch_epoch,
        str(log.home.path),
        partition.leader_broker_epoch,
        role,
        log.damage,
        log.epoch_entries,
    )


def described_log(name: TopicPartition, log: PartitionLog) -> ReplicaDescription:
    """What is told of a log that no replica uses."""
    return ReplicaDescription(
        name,
        log.topic_id,
        NO_LEADER,
        NO_LEADER_EPOCH,
        ZkVersion(-1),
        (),
        log.high_watermark,
        log.log_end_offset,
        log.log_start_offset,
        log.last_batch_epoch,
        str(log.home.path),
        epochs=log.epoch_entries,
    )
