"""DescribeCluster: the live brokers, the controller, the cluster's id (KIP-700)."""

from __future__ import annotations

from typing import Final

from regency.broker_agent.listener.exchange import Exchange
from regency.broker_agent.listener.lookup import endpoints
from regency.broker_agent.listener.services import Services
from regency.broker_agent.wire.codec import DescribeClusterResponse, Message, Request
from regency.model.kafka_errors import ErrorCode

CLUSTER_OPERATIONS: Final = frozenset({5, 7, 8, 9, 10, 11, 12})
"""Create, alter, describe, cluster action, configs, idempotent write: all, as there is no authorizer."""


def handle(services: Services, exchange: Exchange) -> None:
    """Answer from the current metadata."""
    request = exchange.request
    snapshot = services.metadata.current
    brokers = [
        DescribeClusterResponse.DescribeClusterBroker(
            version=request.version, broker_id=broker, host=endpoint.host, port=endpoint.port, rack=rack
        )
        for broker, (endpoint, rack) in endpoints(snapshot, exchange.listener).items()
    ]
    exchange.answer(
        DescribeClusterResponse(
            version=request.version,
            cluster_id=services.cluster_id,
            controller_id=snapshot.controller_id,
            brokers=brokers,
            authorized_operations=(
                CLUSTER_OPERATIONS if request.message.include_cluster_authorized_operations else None
            ),
        )
    )


def failure(request: Request) -> Message:
    """The answer when the handler failed."""
    return DescribeClusterResponse(
        version=request.version, error_code=int(ErrorCode.UNKNOWN_SERVER_ERROR), cluster_id="", brokers=[]
    )
