"""What a log refuses, and how it fails."""

from __future__ import annotations

from pathlib import Path

from regency.model.errors import RegencyError
from regency.model.ids import Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode


class LogStorageError(RegencyError):
    """A log directory failed or is offline. Its replicas are out of reach until the agent is started again."""

    code = "log_storage_error"
    retriable = True

    def __init__(self, directory: Path | None, reason: str, *, hint: str = "") -> None:
        where = f"log directory {directory}" if directory else "log directories"
        super().__init__(f"{where}: {reason}.", hint=hint)
        self.directory = directory
        self.reason = reason


class LogBusy(LogStorageError):
    """The process or its machine has no descriptor or no memory to spare. The directory works, and what was asked for
    was not done: it may be asked for again.
    """

    code = "log_busy"


class IndexInDoubt(LogBusy):
    """An index of one log is rebuilt; other logs are not concerned. What needs it may be asked for in a moment."""

    code = "index_in_doubt"


class LogDamaged(LogStorageError):
    """The bytes of one log are not what was written. The directory goes on working, and so do its other logs."""

    code = "log_damaged"
    retriable = False

    def __init__(self, directory: Path, flaw: str) -> None:
        RegencyError.__init__(
            self, f"{flaw}.", hint="Let another replica lead, and have this one copied again (docs/operate/damage.md)."
        )
        self.directory = directory
        self.reason = flaw


class OffsetOutOfRange(RegencyError):
    """The log does not hold this offset: below its start, deleted, or beyond its end."""

    code = "offset_out_of_range"

    def __init__(self, partition: TopicPartition, offset: Offset, start: Offset, end: Offset) -> None:
        super().__init__(f"{partition} holds offsets {start} to {end}, not {offset}.")
        self.offset = offset
        self.start = start
        self.end = end


class RecordsRejected(RegencyError):
    """An append that was refused; nothing was written. `error` is the code for the producer or the fetcher."""

    code = "records_rejected"

    def __init__(self, error: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.error = error


class CutNotPrepared(RegencyError):
    """The disk must hear first where the log was or will be cut off: settle it, and go on then. Nothing was changed."""

    code = "cut_not_prepared"
    retriable = True


class LogDirInvalid(RegencyError):
    """A log directory that this agent must not use: in use, of another broker or cluster, or contradictory."""

    code = "log_dir_invalid"

    def __init__(self, directory: Path, reason: str, *, hint: str = "") -> None:
        super().__init__(f"log directory {directory}: {reason}.", hint=hint)
        self.directory = directory


class Uncleanable(RegencyError):
    """A log that cannot be compacted: damaged, or with what cannot be read. Everything in it stays where it is."""

    code = "log_uncleanable"


class CleanerDied(RegencyError):
    """The process that compacts logs ended before it had an answer; the log is as it was."""

    code = "cleaner_died"
    retriable = True
