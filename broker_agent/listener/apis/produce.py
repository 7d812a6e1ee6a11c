"""Produce: hands record batches to the ReplicaManager. Looks at the header of a batch, at records only of compacted
topics, for their keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Final

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import LONGEST_WAIT_MS, Exchange, guarded
from regency.broker_agent.listener.stats import Closing, records_in
from regency.broker_agent.replication.api import ProduceResult
from regency.broker_agent.steps import Steps
from regency.kafka.codec import Message, ProducedRow, ProduceResponse, Request
from regency.kafka.record_keys import RecordsRefused, is_quick, records_without_key
from regency.model.ids import TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.topic_names import is_internal

NO_ACKS: Final = 0
PARTITIONS_PER_STEP: Final = 200
BYTES_PER_STEP: Final = 8 << 20
"""Appended before others have a turn."""
NAMES_PER_STEP: Final = 5_000
LOOKED_AT_ONCE: Final = 32 << 10
"""Bytes of a batch whose keys are looked for on the data loop: some hundred records."""
FEW_LOOKS: Final = 8
"""Batches of a request for which that is done."""
MOST_RECORD_ERRORS: Final = 1_000
"""Records that are named in an answer. Kafka: all."""
ADMIN_CLIENT: Final = "__admin_client"
"""Client id of Kafka's own brokers where they write to internal topics; no other client may."""
_NAMES_RECORDS_FROM: Final = 8
"""Version of Produce (KIP-467)."""
_ATTRIBUTES_END: Final = 23
_NO_RECORDS: Final = memoryview(b"")
_ZSTD: Final = 4
_COMPRESSION: Final = 0x07

Results = Mapping[TopicPartition, ProduceResult]


def handle(services: Services, exchange: Exchange) -> None:
    """Append what is acceptable, at once where it is not much; answer when the ReplicaManager has, for all of it.

    With acks=0 there is no answer, and any error closes the connection: the client learns in no other way that it
    sends to the wrong broker.
    """
    message = exchange.request.message
    compacted = [topic for topic in message.topic_data if services.replicas.is_compacted(topic.name)]
    to_look_at = {
        TopicPartition(topic.name, partition.index): partition.records
        for topic in compacted
        for partition in topic.partition_data
        if partition.records
    }
    if all(is_quick(records, LOOKED_AT_ONCE) for records in to_look_at.values()) and len(to_look_at) <= FEW_LOOKS:
        exchange.change(_append(services, exchange, _without_keys(to_look_at)))
        return
    owner = exchange.owner
    owner.hold(True)  # what this request appends comes before what follows it

    def looked(looking: asyncio.Future[dict[TopicPartition, ProduceResult]]) -> None:
        owner.hold(False)
        if looking.cancelled():
            return
        error = looking.exception()
        if isinstance(error, Exception):
            exchange.fail(error)
        else:
            exchange.change(_append(services, exchange, looking.result()))

    owner.aside.run(_without_keys, to_look_at).add_done_callback(looked)


def _without_keys(batches: Mapping[TopicPartition, memoryview]) -> dict[TopicPartition, ProduceResult]:
    """Refusals of batches for compacted topics with records that have no key. On any thread."""
    refused = {}
    for key, records in batches.items():
        try:
            missing = records_without_key(records)
        except RecordsRefused as error:
            refused[key] = _result(error.error, error.message)
            continue
        if missing:
            why = f"Compacted topic cannot accept message without key in topic partition {key}."
            more = f"; the first {MOST_RECORD_ERRORS} are named" if len(missing) > MOST_RECORD_ERRORS else ""
            refused[key] = ProduceResult(
                ErrorCode.INVALID_RECORD,
                message=f"{len(missing)} records of the batch have no key, which a compacted topic demands{more}.",
                record_errors=tuple((index, why) for index in missing[:MOST_RECORD_ERRORS]),
            )
    return refused


def _append(services: Services, exchange: Exchange, keyless: Results) -> Steps[None]:
    """In parts, each with acknowledgements and a timeout of its own; but for what is refused as `keyless`."""
    message, version = exchange.request.message, exchange.request.version
    refused = yield from _refused_as_a_whole(message)
    outcome = _Outcome(services, exchange)
    part = _Part()
    for topic in message.topic_data:
        for partition in topic.partition_data:
            key = TopicPartition(topic.name, partition.index)
            refusal = refused or _guarded(topic.name, exchange.request) or _check(partition.records, version)
            refusal = refusal or keyless.get(key)
            part.add(key, partition.records or _NO_RECORDS, refusal)
            partition.records = None  # the request is kept until it is answered, its bytes need not be
            if part.is_full:
                outcome.expect(part)
                part = _Part()
                yield
    outcome.expect(part, is_last=True)


class _Part:
    """Some partitions of a request: what is appended before others have their turn."""

    def __init__(self) -> None:
        self.batches: dict[TopicPartition, memoryview] = {}
        self.sizes: dict[TopicPartition, tuple[int, int]] = {}
        self.refused: dict[TopicPartition, ProduceResult] = {}
        self._left = BYTES_PER_STEP

    def add(self, key: TopicPartition, records: memoryview, refusal: ProduceResult | None) -> None:
        """One more partition."""
        if refusal is not None:
            self.refused[key] = refusal
        else:
            self.batches[key] = records
            self.sizes[key] = len(records), records_in(records)
            self._left -= len(records)

    @property
    def is_full(self) -> bool:
        """Whether this is enough for one step."""
        return self._left <= 0 or len(self.batches) + len(self.refused) >= PARTITIONS_PER_STEP


class _Outcome:
    """The results of all parts, answered when the last one is there."""

    def __init__(self, services: Services, exchange: Exchange) -> None:
        self._services = services
        self._exchange = exchange
        self._results: dict[TopicPartition, ProduceResult] = {}
        self._expected = 1
        """Parts without results, and one for those to come."""

    def expect(self, part: _Part, *, is_last: bool = False) -> None:
        """Append a part; its results come now or later."""
        self._expected += not is_last
        sizes, refused = part.sizes, part.refused  # not the records: they are let go of when they are appended

        def respond(appended: Results) -> None:
            results = {**appended, **refused}
            self._services.stats.traffic.produced(results, sizes)
            self._results.update(results)
            self._expected -= 1
            if not self._expected:
                guarded(self._exchange, lambda: _respond(self._exchange, self._results))

        message = self._exchange.request.message
        if part.batches:
            timeout_ms = min(message.timeout_ms, LONGEST_WAIT_MS)
            self._services.replicas.append(message.acks, timeout_ms, part.batches, respond)
        else:
            respond({})


def failure(request: Request) -> Message | None:
    """The answer when the handler failed; None with acks=0, which has none."""
    if request.message.acks == NO_ACKS:
        return None
    return _answer(request, dict.fromkeys(_named(request.message), _result(ErrorCode.UNKNOWN_SERVER_ERROR, "")))


def _respond(exchange: Exchange, results: Results) -> None:
    request = exchange.request
    for result in results.values():
        if result.error is not ErrorCode.NONE:
            exchange.count_error(result.error)
    if request.message.acks != NO_ACKS:
        exchange.take(partial(_answer, request, results))
        return
    errors = [f"{key}: {result.error.name}" for key, result in results.items() if result.error is not ErrorCode.NONE]
    if errors:
        exchange.refuse(Closing.UNACKNOWLEDGED, "; ".join(errors[:3]))
    else:
        exchange.answer_nothing()


def _answer(request: Request, results: Results) -> Message:
    version = request.version
    topic_class = ProduceResponse.TopicProduceResponse
    row_class = topic_class.PartitionProduceResponse.BatchIndexAndErrorMessage
    topics = []
    for topic in request.message.topic_data:
        partitions = []
        for partition in topic.partition_data:
            result = results[TopicPartition(topic.name, partition.index)]
            partitions.append(
                ProducedRow(
                    index=partition.index,
                    error_code=int(_told(result.error, version)),
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=result.log_start_offset,
                    error_message=result.message or None,
                    record_errors=[
                        row_class(version=version, batch_index=index, batch_index_error_message=why)
                        for index, why in (result.record_errors if version >= _NAMES_RECORDS_FROM else ())
                    ],
                )
            )
        topics.append(topic_class(version=version, name=topic.name, partition_responses=partitions))
    return ProduceResponse(version=version, responses=topics)


def _told(error: ErrorCode, version: int) -> ErrorCode:
    """Clients of version 3 do not know KAFKA_STORAGE_ERROR (KIP-112)."""
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if error is ErrorCode.KAFKA_STORAGE_ERROR and version <= 3 else error


def _refused_as_a_whole(message: Message) -> Steps[ProduceResult | None]:
    """A refusal of every partition where the request itself cannot be done."""
    if message.transactional_id is not None:
        return _result(ErrorCode.UNSUPPORTED_VERSION, "Transactions are not offered.")
    seen: set[TopicPartition] = set()
    for looked_at, key in enumerate(_named(message), 1):
        if key in seen:
            return _result(ErrorCode.INVALID_REQUEST, "A partition is named twice in one request.")
        seen.add(key)
        if looked_at % NAMES_PER_STEP == 0:
            yield
    return None


def _guarded(topic: str, request: Request) -> ProduceResult | None:
    """A refusal where brokers keep the topic for themselves."""
    if not is_internal(topic) or request.client_id == ADMIN_CLIENT:
        return None
    return _result(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Clients do not write to the internal topic {topic}.")


def _check(records: memoryview | None, version: int) -> ProduceResult | None:
    """What the version of the request does not allow; all other rules are the log's.

    Source: ProduceRequest.validateRecords of Kafka: zstd only from version 7.
    """
    if not records or len(records) < _ATTRIBUTES_END:
        return None
    if version < 7 and records[_ATTRIBUTES_END - 1] & _COMPRESSION == _ZSTD:
        return _result(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce version 7 or newer.")
    return None


def _named(message: Message) -> Iterator[TopicPartition]:
    for topic in message.topic_data:
        for partition in topic.partition_data:
            yield TopicPartition(topic.name, partition.index)


def _result(error: ErrorCode, message: str) -> ProduceResult:
    return ProduceResult(error, message=message)
