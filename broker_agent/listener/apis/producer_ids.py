"""InitProducerId: an id for an idempotent producer (KIP-98)."""

from __future__ import annotations

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Exchange
from regency.kafka.codec import InitProducerIdResponse, Message, Request
from regency.model.errors import RegencyError
from regency.model.ids import NO_PRODUCER_ID, ProducerId
from regency.model.kafka_errors import ErrorCode


def handle(services: Services, exchange: Exchange) -> None:
    """A new id with epoch 0. Transactions are refused.

    UNSUPPORTED_VERSION, because clients take it for final and say so: the errors about coordinators make them look for
    one for ever. An id that a client still has is not continued: without transactions Kafka gives a new one too.
    """
    request = exchange.request
    if request.message.transactional_id is not None:
        exchange.answer(_answer(request.version, ErrorCode.UNSUPPORTED_VERSION))
    else:
        exchange.run(_allocate(services, request.version))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _answer(request.version, ErrorCode.UNKNOWN_SERVER_ERROR)


async def _allocate(services: Services, version: int) -> Message:
    try:
        return _answer(version, ErrorCode.NONE, await services.producer_ids.allocate())
    except RegencyError as error:
        if not error.retriable:
            raise
        # The one error that idempotent producers of every client wait out without looking for a coordinator.
        return _answer(version, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


def _answer(version: int, error: ErrorCode, producer_id: ProducerId = NO_PRODUCER_ID) -> Message:
    return InitProducerIdResponse(
        version=version,
        error_code=int(error),
        producer_id=producer_id,
        producer_epoch=0 if error is ErrorCode.NONE else -1,
    )
