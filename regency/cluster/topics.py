"""Making a topic through Kafka's protocol, asked of the broker whose controller rules."""

from __future__ import annotations

from collections.abc import Mapping

from regency.cluster.errors import ClusterError, TopicRefused
from regency.model.kafka_errors import ErrorCode

BROKERS_DEFAULT = -1
_VERSION = 7
_TIMEOUT_MS = 30_000
_CONNECT_TIMEOUT_MS = 5_000


def create_topic(
    address: str, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, str]
) -> None:
    """Create a topic; `address` is host:port of the ruling broker. Raises TopicRefused, and ClusterError for no answer,
    after which it may be there or not."""
    from regency.kafka.codec import CreateTopicsRequest  # noqa: PLC0415  (kafka-python takes a quarter of a second)
    from regency.kafka.peer import PeerConnection, PeerUnavailable  # noqa: PLC0415

    topic = CreateTopicsRequest.CreatableTopic
    asked = topic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[],
        configs=[topic.CreatableTopicConfig(name=key, value=value) for key, value in config.items()],
    )
    request = CreateTopicsRequest(topics=[asked], timeout_ms=_TIMEOUT_MS, validate_only=False)
    host, _, port = address.rpartition(":")
    connection = PeerConnection(
        host,
        int(port),
        client_id="regency-cluster",
        connect_timeout_ms=_CONNECT_TIMEOUT_MS,
        request_timeout_ms=_TIMEOUT_MS + _CONNECT_TIMEOUT_MS,
    )
    try:
        (answer,) = connection.exchange(request, _VERSION).topics
    except PeerUnavailable as error:
        raise ClusterError(f"Topic {name}: no answer, so it may be there or not: {error}") from error
    finally:
        connection.close()
    if answer.error_code != ErrorCode.NONE:
        kind = ErrorCode(answer.error_code).name if answer.error_code in set(ErrorCode) else answer.error_code
        reason = answer.error_message or "the broker gives no reason"
        raise TopicRefused(f"Topic {name} was not created: {kind}: {reason}", answer.error_code)
