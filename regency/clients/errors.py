"""What can go wrong when a cluster is asked or read, as errors that name topic, partition, offset and what to do."""

from __future__ import annotations

from regency.model.errors import RegencyError
from regency.model.ids import TopicPartition


class ClusterUnavailable(RegencyError):
    """No broker, or not every leader that is needed, has answered in time. Says who was asked and why it failed."""

    code = "cluster_unavailable"
    retriable = True

    def __init__(self, message: str, *, hint: str = "", silent: bool = False) -> None:
        super().__init__(message, hint=hint)
        self.silent = silent
        """No broker at all has answered, however often each was asked."""


class TopicGone(RegencyError):
    """A topic or a partition of it does not exist, or not any more under the id it had. `topic` is its name."""

    code = "topic_gone"

    def __init__(self, message: str, topic: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.topic = topic


class DataLoss(RegencyError):
    """Records that were to be read are not there: removed by retention, cut off, or gone with their topic.

    They are offsets from `wanted` on, up to but without `until`; `available` tells what there is instead.
    """

    code = "data_loss"

    def __init__(self, partition: TopicPartition, wanted: int, until: int, available: str) -> None:
        super().__init__(
            f"{partition}: offsets {wanted} to {until - 1} cannot be read any more: {available}.",
            hint='With failOnDataLoss "false" a read goes on without them, and says how many are missing.',
        )
        self.partition = partition
        self.wanted = wanted
        self.until = until
        self.available = available


class CorruptRecords(RegencyError):
    """Bytes at `offset` of a partition are not the records a producer sent, or none of a format that is read."""

    code = "corrupt_records"

    def __init__(self, partition: TopicPartition, offset: int, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{partition}: the record batch at offset {offset} cannot be read: {reason}.", hint=hint)
        self.partition = partition
        self.offset = offset
        self.reason = reason


class ReadTimedOut(RegencyError):
    """Nothing came of a partition for the poll timeout. Says where the read stands and what the last answer was."""

    code = "read_timed_out"
    retriable = True

    def __init__(self, partition: TopicPartition, offset: int, timeout_ms: int, why: str) -> None:
        super().__init__(
            f"{partition}: offset {offset} did not come in {timeout_ms} milliseconds: {why}.",
            hint="`regency status` shows whether all brokers are up; kafkaConsumer.pollTimeoutMs sets the time.",
        )
        self.partition = partition
        self.offset = offset


class ReadRefused(RegencyError):
    """A broker will not tell or give what it was asked for, and asking again would not help. Says what it answered."""

    code = "read_refused"

    def __init__(self, partition: TopicPartition, offset: int, why: str) -> None:
        super().__init__(
            f"{partition}: it cannot be read from offset {offset} on: {why}.", hint="The broker's log may say more."
        )
        self.partition = partition
        self.offset = offset


class OffsetRefused(RegencyError):
    """A leader will not tell an offset of its partition, and asking again would not help. Says what it answered."""

    code = "offset_refused"

    def __init__(self, partition: TopicPartition, timestamp: int, answer: str) -> None:
        damaged = answer == "CORRUPT_MESSAGE"
        super().__init__(
            f"{partition}: its leader answers {answer} to the question for the offset of timestamp {timestamp}.",
            hint="The records there are damaged on its disk: see docs/operate/damage.md." if damaged else "",
        )
        self.partition = partition
