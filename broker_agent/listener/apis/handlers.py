"""Which handler answers which API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from regency.broker_agent.listener.apis import (
    api_versions,
    cluster,
    describe_configs,
    fetch,
    forwarded,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producer_ids,
)
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.exchange import Exchange
from regency.kafka.apis import FORWARDED, ApiKey
from regency.kafka.codec import Message, Request


class Handler(NamedTuple):
    """`handle` answers, now or later. `failure` builds UNKNOWN_SERVER_ERROR, or None where nothing can be said."""

    handle: Callable[[Services, Exchange], None]
    failure: Callable[[Request], Message | None]


HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    ApiKey.PRODUCE: Handler(produce.handle, produce.failure),
    ApiKey.FETCH: Handler(fetch.handle, fetch.failure),
    ApiKey.LIST_OFFSETS: Handler(list_offsets.handle, list_offsets.failure),
    ApiKey.METADATA: Handler(metadata.handle, metadata.failure),
    ApiKey.API_VERSIONS: Handler(api_versions.handle, api_versions.failure),
    ApiKey.INIT_PRODUCER_ID: Handler(producer_ids.handle, producer_ids.failure),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(list_offsets.handle_epochs, list_offsets.failure_of_epochs),
    ApiKey.DESCRIBE_CONFIGS: Handler(describe_configs.handle, describe_configs.failure),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(log_dirs.handle_alter, log_dirs.failure_of_alter),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(log_dirs.handle_describe, log_dirs.failure_of_describe),
    ApiKey.DESCRIBE_CLUSTER: Handler(cluster.handle, cluster.failure),
    **dict.fromkeys(FORWARDED, Handler(forwarded.handle, forwarded.failure)),
}
