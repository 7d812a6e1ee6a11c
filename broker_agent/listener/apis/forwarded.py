"""Admin requests that the controller answers: handed on as they came, with who sent them (KIP-590).

The agent reads of a request how long its client waits, and what it names where the answer is that there is no
controller; of a reply, what the agent's metadata shows before the client has the answer. As with Kafka a client then
finds its topics and leaders at this broker, and of a deleted topic nothing, though its replicas may still be going.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import partial
from itertools import repeat
from typing import Final

from regency.broker_agent.control.admin_forwarder import NotController, envelope
from regency.broker_agent.control.metadata_cache import MetadataSnapshot
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Answer, Building, Exchange
from regency.kafka.admin_answers import Named, answer, refuse, rows_of
from regency.kafka.apis import ApiKey
from regency.kafka.codec import Message, Request, decode_body
from regency.model.ids import NO_LEADER
from regency.model.kafka_errors import ErrorCode
from regency.protos.admin_pb2 import Awaited
from regency.runtime.grpc.channels import RpcFailed

TIMEOUT_MS: Final = 20_000
"""How long the controller may take where a request brings no timeout: clients give up after 30 s."""

AT_ANY_BROKER: Final = frozenset({ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS})
REPEATABLE: Final = frozenset({ApiKey.LIST_PARTITION_REASSIGNMENTS})

LATE: Final = {
    ApiKey.CREATE_TOPICS: "The topic was created; its leaders are not known here yet.",
    ApiKey.CREATE_PARTITIONS: "The partitions were added; their leaders are not known here yet.",
    ApiKey.DELETE_TOPICS: "The topic is being deleted; it is still known here.",
    ApiKey.ELECT_LEADERS: "The leader was elected, and is not known here yet.",
}


def handle(services: Services, exchange: Exchange) -> None:
    """Let the controller answer, and wait until the metadata here shows what it did, or the client's time is over."""
    exchange.run(_forward(services, exchange))


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return refuse(request, ErrorCode.UNKNOWN_SERVER_ERROR, "")


async def _forward(services: Services, exchange: Exchange) -> Building | Answer:
    request = exchange.request
    timeout_ms = getattr(request.message, "timeout_ms", TIMEOUT_MS)
    deadline = services.clock.monotonic_ms() + timeout_ms
    all_known = partial(_all_partitions, services.metadata.current)
    try:
        reply = await services.admin.forward(
            envelope(request.api_key, request.version, bytes(request.body), exchange.context),
            timeout_ms=timeout_ms,
            require_local=request.api_key not in AT_ANY_BROKER,
            repeatable=request.api_key in REPEATABLE,
        )
    except NotController as error:
        return partial(refuse, request, ErrorCode.NOT_CONTROLLER, str(error), all_known)
    except RpcFailed as error:
        return partial(refuse, request, ErrorCode.REQUEST_TIMED_OUT, str(error), all_known)
    if reply.outcome.error_code != ErrorCode.NONE:
        return partial(refuse, request, ErrorCode(reply.outcome.error_code), reply.outcome.message, all_known)
    if reply.awaited:
        left_ms = deadline - services.clock.monotonic_ms()
        await services.metadata.wait_for(lambda view: next(_missing(view, reply.awaited), None) is None, left_ms)
        late = set(_missing(services.metadata.current, reply.awaited))
        if late:
            late |= {(topic, None) for topic, _ in late}
            return partial(_mark_late, request, reply.response, late)
    return reply.response


def _missing(view: MetadataSnapshot, awaited: Collection[Awaited]) -> Iterator[Named]:
    """What the metadata does not show yet."""
    for each in awaited:
        topic = view.topics.get(each.topic)
        if not each.partition and topic is not None and each.topic_id in (b"", topic.topic_id.bytes):
            yield each.topic, None
        for number, leader in zip(each.partition, each.leader or repeat(NO_LEADER), strict=False):
            partition = None if topic is None else topic.partitions.get(number)
            if partition is None or partition.leader == NO_LEADER or leader not in (NO_LEADER, partition.leader):
                yield each.topic, number


def _mark_late(request: Request, response: bytes, late: Collection[Named]) -> Message:
    """The controller's answer, except for what could not be seen here in time."""
    error, why = ErrorCode.REQUEST_TIMED_OUT, LATE[request.api_key]
    rows = rows_of(request.api_key, decode_body(request.api_key, request.version, response))
    return answer(
        request,
        [
            row._replace(error=error, message=why, num_partitions=-1, replication_factor=-1)
            if row.error is ErrorCode.NONE and (row.name, row.number) in late
            else row
            for row in rows
        ],
    )


def _all_partitions(view: MetadataSnapshot) -> list[tuple[str, int]]:
    return [(name, number) for name, topic in view.topics.items() for number in topic.partitions]
