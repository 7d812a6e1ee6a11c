"""Future logs (KIP-113): copies that grow in another log directory and then replace the log they were copied from.

Data loop only. What is copied, and when a copy is complete, is not decided here but in replication/directory_moves.py.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType

from regency.broker_agent.log.directories.directory_logs import DirectoryLogs, make_log
from regency.broker_agent.log.log_core import LogServices
from regency.broker_agent.log.log_directory import LogDirectory
from regency.broker_agent.log.partition_log import PartitionLog
from regency.kafka.logfiles.file_names import DirectoryKind, future_name, replaced_name
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError
from regency.model.ids import TopicPartition

logger = logging.getLogger(__name__)


class NameTooLong(RegencyError):
    """A topic's name leaves no room for what Kafka appends to the directory of a future log."""

    code = "future_log_name_too_long"


class FutureLogs:
    """Future logs by partition. Each stands in its directory's DirectoryLogs too, checkpoints and all."""

    def __init__(
        self,
        directories: Mapping[LogDirectory, DirectoryLogs],
        current: dict[TopicPartition, PartitionLog],
        services: LogServices,
    ) -> None:
        """`directories` and `current` are the LogManager's, and stay what it knows."""
        self._directories = directories
        self._current = current
        self._services = services
        self._futures: dict[TopicPartition, PartitionLog] = {}

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The future log of a partition, if there is one and its directory works."""
        return self._futures.get(topic_partition)

    def all(self) -> Mapping[TopicPartition, PartitionLog]:
        """Every future log, live."""
        return MappingProxyType(self._futures)

    def add(self, logs: Iterable[PartitionLog]) -> None:
        """Take logs that were found at the start."""
        self._futures.update((log.topic_partition, log) for log in logs)

    def forget(self, log: PartitionLog) -> bool:
        """Its directory has failed; whether it was a future log."""
        if self._futures.get(log.topic_partition) is not log:
            return False
        del self._futures[log.topic_partition]
        return True

    def clear(self) -> None:
        """Everything is closed."""
        self._futures.clear()

    def create(self, current: PartitionLog, target: DirectoryLogs) -> PartitionLog:
        """An empty log that is to replace `current`, in another directory. Raises LogStorageError, NameTooLong.

        From now on `current` is not compacted: a copy that has a record already, and then not the later deletion of
        its key, would have the record for ever.
        """
        partition = current.topic_partition
        name = future_name(partition, self._services.new_uuid())
        if name is None:
            raise NameTooLong(f"The name of topic {partition.topic} is too long for the directory of a future log.")
        home = target.directory
        home.check()
        current.stop_cleaning()
        try:
            target.make_way_for(partition)
            log = make_log(self._services, home, home.path / name, partition, current.topic_id, current.config)
        except OSError as error:
            raise home.fail(error) from error
        target.add(log)
        self._futures[partition] = log
        return log

    def put_aside(self, topic_partition: TopicPartition, fate: DirectoryKind) -> None:
        """Take a future log out of use, to be deleted or kept as a stray; nothing where there is none.

        Raises LogStorageError.
        """
        log = self._futures.get(topic_partition)
        if log is None:
            return
        crash_point("log.future.before_put_aside")
        self._directories[log.home].put_aside(log, self._services, fate)
        del self._futures[topic_partition]
        if fate is DirectoryKind.DELETE:
            self._services.trash.put([log.directory], log.config.file_delete_delay_ms)
        else:
            logger.warning("the future log of %s replaces nothing; kept as %s", topic_partition, log.directory)

    def settle(self, topic_partition: TopicPartition, then: Callable[[], None]) -> None:
        """Have the disk know, soon, where a future log was cut off or is about to be; `then` is called after that."""
        future = self._futures[topic_partition]
        self._directories[future.home].settle([future], then)

    def prepare(self, topic_partition: TopicPartition, then: Callable[[bool], None]) -> None:
        """Get everything onto the disk that a future log has at the end of its current one, its checkpoints too.

        `then` is called when that is done, and told whether it still holds: the log may have been cut off meanwhile. It
        is not called where the log is gone by then, or its directory has failed. Raises LogStorageError.
        """
        future, current = self._futures[topic_partition], self._current[topic_partition]
        future.take_over(current)
        logs = self._directories[future.home]

        def checkpoint(holds: bool) -> None:
            if self._futures.get(topic_partition) is not future:
                return
            if not holds:
                then(False)
                return
            crash_point("log.swap.before_checkpoints")
            logs.high_watermarks[topic_partition] = future.high_watermark
            logs.write_checkpoints_later(lambda: then(True))

        crash_point("log.swap.before_flush")
        future.make_last(checkpoint)

    def swap(self, topic_partition: TopicPartition) -> PartitionLog:
        """Let the future log be the log, and the current one be deleted; both have the same end. Returns the new one.

        Where the future log's directory fails at it, the current log stays. Raises LogStorageError.
        """
        future, current = self._futures[topic_partition], self._current[topic_partition]
        future.take_over(current)
        replaced = current.directory.with_name(replaced_name(future.directory.name))
        current.home.check()
        try:
            names = self._services.disk.open_directory(current.home.path)
        except OSError as error:
            raise current.home.fail(error) from error
        try:
            self._retire(current, replaced, names)
            crash_point("log.swap.before_future")
            try:
                future.move_to(future.home.path / str(topic_partition))
            except OSError as error:
                refused = future.home.fail(error)
                self._reinstate(current, replaced, names)
                raise refused from error
        finally:
            self._services.disk.close(names)
        crash_point("log.swap.after_future")
        current.abandon()
        current.directory = replaced
        self._directories[current.home].remove(topic_partition)
        del self._futures[topic_partition]
        self._current[topic_partition] = future
        self._remove_later(future.home, replaced, current.config.file_delete_delay_ms)
        return future

    def _retire(self, current: PartitionLog, replaced: Path, names: int) -> None:
        """Rename the current log, for good: if the power is cut, there are never two.

        `names` is a descriptor of its directory, so that there is no shortage any more once the log is renamed.
        """
        try:
            crash_point("log.swap.before_current")
            self._services.disk.rename(current.directory, replaced)
            crash_point("log.swap.before_sync")
            self._services.disk.sync(names)
        except OSError as error:
            raise current.home.fail(error) from error

    def _reinstate(self, current: PartitionLog, replaced: Path, names: int) -> None:
        """Give the current log its name back, for good: at the next start it would be deleted.

        The directory fails where that is impossible, even for want of memory: nothing may be appended any more.
        """
        try:
            self._services.disk.rename(replaced, current.directory)
            self._services.disk.sync(names)
        except OSError as error:
            raise current.home.fail(OSError(errno.EIO, f"{replaced} got no name back: {error.strerror}")) from error

    def _remove_later(self, home: LogDirectory, replaced: Path, delay_ms: int) -> None:
        """Delete what was replaced, but not before the disk knows by which log: the two names tell that until then."""
        services = self._services

        def synced(outcome: BaseException | None) -> None:
            if outcome is None:
                services.trash.put([replaced], delay_ms)
            else:
                home.failed(outcome)

        services.worker.submit(lambda: services.disk.sync_path(home.path), synced)
