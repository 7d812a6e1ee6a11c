"""What a Spark task does: one range of one partition as Arrow batches, in the schema of Spark's Kafka source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from regency.clients.settings import ClientSettings
from regency.model.ids import Offset, TopicId, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa


class ReadTask(msgspec.Struct, frozen=True):
    """One range of one partition, with everything it takes to read it elsewhere. Can be pickled."""

    client: ClientSettings
    """From `client_settings`: bootstrap servers and kafka.* options, refused or taken where the read is planned."""
    topic: str
    topic_id: TopicId | None
    """The topic the offsets belong to; None: whichever has the name."""
    partition: int
    start: Offset
    end: Offset
    """Exclusive."""
    include_headers: bool = False
    fail_on_data_loss: bool = True
    poll_timeout_ms: int = 120_000
    """kafkaConsumer.pollTimeoutMs: how long nothing may come"""

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition."""
        return TopicPartition(self.topic, self.partition)


def record_batches(task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The records of the range, in order, in as few batches as suits Spark; none for an empty range."""
    raise NotImplementedError
