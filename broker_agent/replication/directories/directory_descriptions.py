"""What a broker's log directories hold, from memory: no file is looked at, and volumes are asked on the worker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from regency.broker_agent.log.directories.directory_logs import DirectoryLogs
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.replication.api import LogDescription, LogDirDescription
from regency.model.ids import TopicPartition

Respond = Callable[[list[LogDirDescription]], None]


def describe_log_dirs(logs: LogManager, wanted: Callable[[TopicPartition], bool], respond: Respond) -> None:
    """Every log directory in the order of log.dirs, and in it the logs that are `wanted`; when volumes are measured."""

    def answer(space: Mapping[Path, tuple[int, int]]) -> None:
        respond(
            [_described(logs, each, wanted, *space.get(each.directory.path, (-1, -1))) for each in logs.directories]
        )

    logs.measure_space(answer)


def _described(
    logs: LogManager, directory: DirectoryLogs, wanted: Callable[[TopicPartition], bool], total: int, usable: int
) -> LogDirDescription:
    return LogDirDescription(
        str(directory.directory.path),
        directory.directory.failure,
        tuple(_described_log(logs, log) for name, log in directory.logs.items() if wanted(name)),
        total,
        usable,
    )


def _described_log(logs: LogManager, log: PartitionLog) -> LogDescription:
    name = log.topic_partition
    is_future = logs.futures.get(name) is log
    lag = max(log.high_watermark - log.log_end_offset, 0)
    if is_future:
        current = logs.get(name)
        lag = -1 if current is None else max(current.log_end_offset - log.log_end_offset, 0)
    return LogDescription(name, log.size_bytes, lag, is_future)
