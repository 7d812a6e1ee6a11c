"""DescribeCluster: the live brokers, the controller, the cluster's id (KIP-700)."""

from __future__ import annotations

from typing import Final

from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Exchange
from regency.kafka.codec import DescribeClusterResponse, Message, Request
from regency.model.facts import Endpoint
from regency.model.kafka_errors import ErrorCode

CLUSTER_OPERATIONS: Final = frozenset({5, 7, 8, 9, 10, 11, 12})
"""Create, alter, describe, cluster action, configs, idempotent write: all, as there is no authorizer."""

FIRST_SNAPSHOT_MS: Final = 5_000
"""How long an agent without metadata lets a client wait: until no controller rules, there is nothing to tell."""

BROKERS: Final = 1
CONTROLLERS: Final = 2
FIRST_WITH_ENDPOINT_TYPE: Final = 1


def handle(services: Services, exchange: Exchange) -> None:
    """Answer from the current metadata.

    Asked for controllers (KIP-919) it names the gRPC endpoints of the brokers' controller processes, which no Kafka
    client speaks to, but our own tools do: all of them are candidates, ruling or not. One that rules while its broker
    is not live, as its agent is paused or dead, is named too. An agent that has just started waits for its first
    snapshot before it names brokers, as with Metadata: it would say that there are none.
    """
    request = exchange.request
    asked = request.message.endpoint_type if request.version >= FIRST_WITH_ENDPOINT_TYPE else BROKERS
    if asked not in (BROKERS, CONTROLLERS):
        exchange.answer(_refusal(request, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"There is no endpoint type {asked}."))
    elif asked == BROKERS and services.metadata.current.version == 0:
        exchange.run(_first(services, exchange))
    else:
        exchange.answer(_described(services, exchange, asked))


async def _first(services: Services, exchange: Exchange) -> Message:
    await services.metadata.wait_for(lambda snapshot: snapshot.version > 0, FIRST_SNAPSHOT_MS)
    return _described(services, exchange, BROKERS)


def _described(services: Services, exchange: Exchange, asked: int) -> Message:
    request, snapshot = exchange.request, services.metadata.current
    listener = exchange.listener if asked == BROKERS else services.settings.controller_listener_name
    found = snapshot.endpoints(listener)
    ruling = services.metadata.ruling
    if asked == CONTROLLERS and ruling is not None and ruling.id not in found:
        host, _, port = ruling.endpoint.rpartition(":")
        found[ruling.id] = (Endpoint(listener, host.strip("[]"), int(port)), None)
    nodes = [
        DescribeClusterResponse.DescribeClusterBroker(
            version=request.version, broker_id=broker, host=endpoint.host, port=endpoint.port, rack=rack
        )
        for broker, (endpoint, rack) in found.items()
    ]
    return DescribeClusterResponse(
        version=request.version,
        endpoint_type=asked,
        cluster_id=services.cluster_id,
        controller_id=snapshot.controller_id,
        brokers=nodes,
        authorized_operations=(CLUSTER_OPERATIONS if request.message.include_cluster_authorized_operations else None),
    )


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return _refusal(request, ErrorCode.UNKNOWN_SERVER_ERROR, None)


def _refusal(request: Request, error: ErrorCode, message: str | None) -> Message:
    return DescribeClusterResponse(
        version=request.version, error_code=int(error), error_message=message, cluster_id="", brokers=[]
    )
