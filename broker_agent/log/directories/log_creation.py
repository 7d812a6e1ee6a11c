"""Making the log of a partition in a new directory."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from regency.broker_agent.log.errors import LogStorageError
from regency.broker_agent.log.log_core import LogServices
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.partition_log import PartitionLog
from regency.broker_agent.log.recovery import create_log
from regency.kafka.logfiles.file_names import DirectoryKind, aside_name
from regency.model.crash_points import crash_point
from regency.model.ids import ZERO_TOPIC_ID, TopicId, TopicPartition
from regency.model.settings.log_config import LogConfig


def make_log(
    services: LogServices,
    home: LogDirectory,
    path: Path,
    topic_partition: TopicPartition,
    topic_id: TopicId,
    config: LogConfig,
) -> PartitionLog:
    """An empty log at `path`, which is new, in log directory `home`. Raises OSError, LogStorageError.

    Then nothing is at `path`: what was made is removed later, for which there may be no descriptor now.
    """
    log = None
    try:
        services.disk.make_directory(path)
        crash_point("log.creation.before_segment")
        now_ms = services.clock.wall_ms()
        parts = create_log(path, topic_partition, topic_id, config, now_ms, services.files)
        log = PartitionLog(parts, home, services)
        crash_point("log.creation.before_topic_id")
        if topic_id != ZERO_TOPIC_ID:
            log.set_topic_id(topic_id)
    except (OSError, LogStorageError):
        if log is not None:
            log.abandon()
        aside = path.with_name(aside_name(topic_partition, services.new_uuid(), DirectoryKind.DELETE))
        with suppress(OSError):  # the directory may have failed, or there is nothing
            services.disk.rename(path, aside)
            services.trash.put([aside], 0)
        raise
    crash_point("log.creation.before_sync")
    for created in (path, home.path):
        services.syncs.later(created, home.failed)
    return log
