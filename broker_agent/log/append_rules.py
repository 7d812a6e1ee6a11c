"""What a leader demands of the records it is to append, by where they come from. Pure: says yes, or why not."""

from __future__ import annotations

from enum import Enum

from regency.broker_agent.log.errors import RecordsRejected
from regency.kafka.record_batch import MAGIC, MAGIC_AT, BatchHeader, Buffer, CorruptBatch, crc_matches, read_header
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.log_config import LogConfig

_ZSTD = 4


class Origin(Enum):
    """Who wrote what a leader appends (Kafka's AppendOrigin; its REPLICATION is what `check_replicated` is for)."""

    CLIENT = "client"
    """Data, in the order of its producer's sequence numbers."""
    COORDINATOR = "coordinator"
    """This broker itself: what its groups and transactions keep. May be transactional, and without sequence numbers."""


LOG_APPEND_TIME = "LogAppendTime"


def check_produced(records: Buffer, config: LogConfig, origin: Origin = Origin.CLIENT) -> BatchHeader:
    """The header of the one batch that `records` must be, for a leader to append.

    Raises RecordsRejected: INVALID_RECORD for anything but one whole data batch of format 2 with offsets 0 to n-1,
    MESSAGE_TOO_LARGE above max.message.bytes, RECORD_LIST_TOO_LARGE above segment.bytes, CORRUPT_MESSAGE for damage,
    UNSUPPORTED_VERSION for a client's transactions, INVALID_TIMESTAMP and UNSUPPORTED_COMPRESSION_TYPE for attributes.
    Source: ProduceRequest.validateRecords, UnifiedLog.analyzeAndValidateRecords and LogValidator of Kafka.
    """
    header = _read_only_batch(records)
    size = header.size
    if size > config.max_message_bytes:
        raise RecordsRejected(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"a batch of {size} bytes is larger than max.message.bytes {config.max_message_bytes}",
        )
    if size > config.segment_bytes:
        raise RecordsRejected(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"a batch of {size} bytes is larger than segment.bytes {config.segment_bytes}",
        )
    if not crc_matches(records, header):
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, "the checksum of the batch is wrong")
    _check_offsets(header)
    _check_attributes(header)
    if origin is Origin.CLIENT:
        _check_client(header)
    return header


def _read_only_batch(records: Buffer) -> BatchHeader:
    size = len(records)
    if size <= MAGIC_AT:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, "a produce must hold one record batch per partition, not none")
    if (magic := records[MAGIC_AT]) != MAGIC:
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD,
            f"message format {magic} is not supported, only {MAGIC}. Use a client that speaks Kafka 0.11 or newer.",
        )
    try:
        header = read_header(records)
    except CorruptBatch as error:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, error.message) from error
    if header.size > size:
        raise RecordsRejected(ErrorCode.CORRUPT_MESSAGE, f"a batch of {header.size} bytes ends after {size}")
    if header.size < size:
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD,
            f"{size - header.size} bytes follow the batch; a produce must hold exactly one per partition",
        )
    return header


def _check_offsets(header: BatchHeader) -> None:
    if header.base_offset != 0:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, f"the base offset must be 0, not {header.base_offset}")
    if header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD,
            f"{header.record_count} records cannot have offsets 0 to {header.last_offset_delta}",
        )


def _check_client(header: BatchHeader) -> None:
    if header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise RecordsRejected(
            ErrorCode.INVALID_RECORD,
            f"producer {header.producer_id} sent epoch {header.producer_epoch} and sequence number "
            f"{header.base_sequence}; an idempotent producer numbers from 0",
        )
    if header.is_control:
        raise RecordsRejected(ErrorCode.INVALID_RECORD, "a client may not write control batches")
    if header.is_transactional:
        raise RecordsRejected(ErrorCode.UNSUPPORTED_VERSION, "transactions are not offered")


def _check_attributes(header: BatchHeader) -> None:
    if header.is_log_append_time:
        raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, "only the log gives LogAppendTime")
    if header.codec > _ZSTD:
        raise RecordsRejected(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression {header.codec} is not known")


def check_replicated(records: Buffer, batches: list[tuple[int, BatchHeader]]) -> None:
    """Check checksums and rising offsets of batches from a leader. Raises RecordsRejected: CORRUPT_MESSAGE."""
    expected = -1
    for position, header in batches:
        if not crc_matches(records, header, position):
            raise RecordsRejected(
                ErrorCode.CORRUPT_MESSAGE,
                f"the checksum of the batch at offset {header.base_offset} is wrong; it is fetched again",
            )
        if header.base_offset < expected:
            raise RecordsRejected(
                ErrorCode.CORRUPT_MESSAGE, f"offset {header.base_offset} follows {expected - 1}; offsets must rise"
            )
        expected = header.next_offset
