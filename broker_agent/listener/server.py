"""The Kafka listener of an agent: accepts connections, hands requests to the handlers of their APIs. Data loop only."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from regency.broker_agent.control.admin_forwarder import AdminForwarder
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.listener.acceptor import Acceptor
from regency.broker_agent.listener.apis import (
    acls,
    api_versions,
    cluster,
    coordinators,
    delete_records,
    describe_configs,
    fetch,
    forwarded,
    group_offsets,
    groups,
    list_offsets,
    log_dirs,
    membership,
    metadata,
    produce,
    producers,
)
from regency.broker_agent.listener.apis.auto_creation import AutoCreation
from regency.broker_agent.listener.apis.services import Services
from regency.broker_agent.listener.buffers import IncomingRequests, UnsentAnswers
from regency.broker_agent.listener.connection import Connection
from regency.broker_agent.listener.exchange import Exchange
from regency.broker_agent.listener.places import Places
from regency.broker_agent.listener.stats import Closing, ListenerStats
from regency.broker_agent.listener.turns import Aside, Turns
from regency.broker_agent.registry.producer_ids import ProducerIds
from regency.broker_agent.registry.topic_configs import StoredConfigs
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.kafka.apis import FORWARDED, ApiKey
from regency.kafka.codec import Message, Request
from regency.kafka.decoder import UnsupportedApi
from regency.model.clock import Clock
from regency.model.facts import Endpoint
from regency.model.settings import BrokerSettings
from regency.runtime.descriptors import connection_share, limit
from regency.runtime.logging import is_power_of_ten

logger = logging.getLogger(__name__)

STOP_GRACE_MS: Final = 1000
"""How long requests that have begun may take to be answered when the listener stops."""


class KafkaListener:
    """Serves Kafka's protocol on one or more endpoints. Built and used on the data loop.

    A request for an API or version that is not offered closes the connection, as in Kafka; only ApiVersions is answered
    (KIP-511). `stats` is for metrics.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        replica_manager: ReplicaManager,
        sessions: FetchSessionCache,
        metadata: MetadataCache,
        admin: AdminForwarder,
        producer_ids: ProducerIds,
        configs: StoredConfigs,
        groups: GroupCoordinator,
        cluster_id: str,
        clock: Clock,
    ) -> None:
        self.stats = ListenerStats()
        self.turns = Turns()
        self.aside = Aside()
        self.unsent = UnsentAnswers(settings.regency_queued_max_response_bytes, self.stats, clock)
        self.incoming = IncomingRequests(settings.queued_max_request_bytes, self.stats, clock)
        self._auto_creation = AutoCreation(settings, admin)
        self._services = Services(
            settings,
            replica_manager,
            sessions,
            metadata,
            admin,
            producer_ids,
            configs,
            groups,
            cluster_id,
            clock,
            self._auto_creation,
            self.stats,
            self.unsent,
            self.aside,
        )
        self.clock = clock
        self.max_request_bytes = settings.socket_request_max_bytes
        self.max_idle_ms = settings.connections_max_idle_ms
        self._acceptors: list[Acceptor] = []
        self._places = Places(settings, connection_share(limit()))
        self._all_gone = asyncio.Event()
        self._all_gone.set()

    async def start(self, endpoint: Endpoint) -> int:
        """Listen on `endpoint`, an empty host meaning every address, and give the bound port. Raises OSError."""
        bound = _bind(endpoint, self._services.settings)
        self._acceptors.append(Acceptor(bound, lambda: Connection(self, endpoint.listener), self.stats))
        port: int = bound.getsockname()[1]
        logger.info("listening for %s on %s:%d", endpoint.listener, endpoint.host or "*", port)
        return port

    async def stop(self, *, grace_ms: int = STOP_GRACE_MS) -> None:
        """Accept nothing more, let requests that have begun end within `grace_ms`, close every connection."""
        while self._acceptors:
            self._acceptors.pop().close()
        self._auto_creation.stop()
        for connection in self._places:
            connection.finish()
        try:
            await asyncio.wait_for(self._all_gone.wait(), grace_ms / 1000)
        except TimeoutError:
            for connection in self._places:
                connection.abort()
            await self._all_gone.wait()
        self.aside.close()

    def opened(self, connection: Connection) -> Closing | None:
        """A connection was accepted; why it must be closed, where there are too many."""
        self.stats.accepted += 1
        self.stats.open += 1
        self.stats.open_by_listener[connection.listener] += 1
        self._all_gone.clear()
        return self._places.take(connection)

    def closed(self, connection: Connection) -> None:
        """A connection is gone."""
        self._places.give_back(connection)
        self.stats.open -= 1
        self.stats.open_by_listener[connection.listener] -= 1
        if not len(self._places):
            self._all_gone.set()

    def handle(self, exchange: Exchange) -> None:
        """Call the handler of the request, if its sender has a place."""
        if not self._places.keeps(exchange.owner, exchange.request):
            exchange.refuse(Closing.NO_DESCRIPTORS, "it is no follower")
            return
        HANDLERS[exchange.request.api_key].handle(self._services, exchange)

    def failed(self, exchange: Exchange, error: Exception) -> bool:
        """Log what a handler raised, with its traceback when it is new, and answer UNKNOWN_SERVER_ERROR if possible."""
        self.stats.handler_failures += 1
        request = exchange.request
        if is_power_of_ten(self.stats.handler_failures):
            logger.error(
                "%s v%d of client %s failed; %d such failures so far",
                request.api_key.name,
                request.version,
                request.client_id,
                self.stats.handler_failures,
                exc_info=error,
            )
        try:
            answer = None if request.is_large else HANDLERS[request.api_key].failure(request)
            if answer is None:
                return False
            exchange.answer(answer)
        except Exception:
            logger.debug("no error answer to %s v%d", request.api_key.name, request.version, exc_info=True)
            return False
        return True

    def reject_version(self, unsupported: UnsupportedApi) -> bytes | bytearray | None:
        """The v0 answer to an ApiVersions of an unknown version; None for everything else."""
        if unsupported.api_key == ApiKey.API_VERSIONS:
            return api_versions.unsupported_version(unsupported.correlation_id)
        return None


def _bind(endpoint: Endpoint, settings: BrokerSettings) -> socket.socket:
    """A listening socket: one, as Kafka has, so that port 0 gives one port; IPv4 where the name has both families."""
    backlog = settings.socket_listen_backlog_size
    if endpoint.host:
        addresses = socket.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
        family, *_, address = min(addresses, key=lambda found: found[0] != socket.AF_INET)
        bound = socket.create_server((str(address[0]), int(address[1])), family=family, backlog=backlog)
    elif socket.has_dualstack_ipv6():
        address = ("", endpoint.port)
        bound = socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog)
    else:
        bound = socket.create_server(("", endpoint.port), backlog=backlog)
    # Accepted sockets inherit both. -1 leaves them to the operating system.
    for option, size in (
        (socket.SO_SNDBUF, settings.socket_send_buffer_bytes),
        (socket.SO_RCVBUF, settings.socket_receive_buffer_bytes),
    ):
        if size > 0:
            bound.setsockopt(socket.SOL_SOCKET, option, size)
    return bound


class Handler(NamedTuple):
    """`handle` answers, now or later. `failure` builds UNKNOWN_SERVER_ERROR, or None where nothing can be said."""

    handle: Callable[[Services, Exchange], None]
    failure: Callable[[Request], Message | None]


HANDLERS: Final[Mapping[ApiKey, Handler]] = {
    ApiKey.PRODUCE: Handler(produce.handle, produce.failure),
    ApiKey.FETCH: Handler(fetch.handle, fetch.failure),
    ApiKey.LIST_OFFSETS: Handler(list_offsets.handle, list_offsets.failure),
    ApiKey.METADATA: Handler(metadata.handle, metadata.failure),
    ApiKey.OFFSET_COMMIT: Handler(group_offsets.handle_commit, group_offsets.failure_of_commit),
    ApiKey.OFFSET_FETCH: Handler(group_offsets.handle_fetch, group_offsets.failure_of_fetch),
    ApiKey.FIND_COORDINATOR: Handler(coordinators.handle, coordinators.failure),
    ApiKey.JOIN_GROUP: Handler(membership.handle_join, membership.failure_of_join),
    ApiKey.HEARTBEAT: Handler(membership.handle_heartbeat, membership.failure_of_heartbeat),
    ApiKey.LEAVE_GROUP: Handler(membership.handle_leave, membership.failure_of_leave),
    ApiKey.SYNC_GROUP: Handler(membership.handle_sync, membership.failure_of_sync),
    ApiKey.DESCRIBE_GROUPS: Handler(groups.handle_describe, groups.failure_of_describe),
    ApiKey.LIST_GROUPS: Handler(groups.handle_list, groups.failure_of_list),
    ApiKey.API_VERSIONS: Handler(api_versions.handle, api_versions.failure),
    ApiKey.DELETE_RECORDS: Handler(delete_records.handle, delete_records.failure),
    ApiKey.INIT_PRODUCER_ID: Handler(producers.handle, producers.failure),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: Handler(list_offsets.handle_epochs, list_offsets.failure_of_epochs),
    ApiKey.DESCRIBE_ACLS: Handler(acls.handle, acls.failure),
    ApiKey.DESCRIBE_CONFIGS: Handler(describe_configs.handle, describe_configs.failure),
    ApiKey.ALTER_REPLICA_LOG_DIRS: Handler(log_dirs.handle_alter, log_dirs.failure_of_alter),
    ApiKey.DESCRIBE_LOG_DIRS: Handler(log_dirs.handle_describe, log_dirs.failure_of_describe),
    ApiKey.DELETE_GROUPS: Handler(groups.handle_delete, groups.failure_of_delete),
    ApiKey.OFFSET_DELETE: Handler(group_offsets.handle_delete, group_offsets.failure_of_delete),
    ApiKey.DESCRIBE_CLUSTER: Handler(cluster.handle, cluster.failure),
    ApiKey.DESCRIBE_PRODUCERS: Handler(producers.handle_describe, producers.failure_of_describe),
    **dict.fromkeys(FORWARDED, Handler(forwarded.handle, forwarded.failure)),
}
