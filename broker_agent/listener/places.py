"""Who of those that connect gets a place: as many as settings and descriptors allow; followers before clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from regency.broker_agent.listener.connection import Connection
from regency.broker_agent.listener.exchange import ExchangeOwner
from regency.broker_agent.listener.stats import Closing
from regency.kafka.codec import Request
from regency.model.settings import BrokerSettings

ON_TRIAL: Final = 16
"""Connections, and at most a quarter of all, for which there is a descriptor until their first request tells whose
they are."""

NO_REPLICA: Final = -1
OTHERS_CAME: Final = "others came, and it had not asked for anything"


class Places:
    """The open connections. Data loop only.

    Where followers have a listener of their own, it is exempt, as in Kafka. On one that they share with clients, when
    no descriptor is left for clients, the first request of a connection decides: a follower's is served, any other ends
    the connection, and the oldest that sent none makes way for the next.
    """

    def __init__(self, settings: BrokerSettings, descriptors: int) -> None:
        """`descriptors`: how many connections may take, those on trial among them."""
        self._settings = settings
        self._most_on_trial = max(min(ON_TRIAL, descriptors // 4), 1)
        self._descriptors = descriptors - self._most_on_trial
        self._open: dict[Connection, None] = {}
        self._on_trial: dict[Connection, None] = {}
        self._per_host: dict[str, int] = {}

    def __iter__(self) -> Iterator[Connection]:
        return iter(tuple(self._open))

    def __len__(self) -> int:
        return len(self._open)

    def take(self, connection: Connection) -> Closing | None:
        """Count a connection in; why it must be closed, if it must."""
        self._open[connection] = None
        count = self._per_host.get(connection.peer_host, 0) + 1
        self._per_host[connection.peer_host] = count
        settings = self._settings
        if len(settings.listeners) > 1 and connection.listener == settings.inter_broker_listener_name:
            return None
        if len(self._open) > settings.max_connections or count > settings.max_connections_per_ip:
            return Closing.TOO_MANY
        if len(self._open) > self._descriptors:
            self._try(connection)
        return None

    def give_back(self, connection: Connection) -> None:
        """Count a connection out."""
        del self._open[connection]
        self._on_trial.pop(connection, None)
        self._per_host[connection.peer_host] -= 1
        if not self._per_host[connection.peer_host]:
            del self._per_host[connection.peer_host]

    def keeps(self, connection: ExchangeOwner, request: Request) -> bool:
        """Whether who sent a request has a place, from then on or as before."""
        if connection not in self._on_trial:
            return True
        if len(self._open) > self._descriptors and not _is_of_follower(request):
            return False
        del self._on_trial[connection]
        return True

    def _try(self, connection: Connection) -> None:
        if len(self._on_trial) >= self._most_on_trial:
            oldest = next(iter(self._on_trial))
            del self._on_trial[oldest]
            oldest.close_for(Closing.NO_DESCRIPTORS, OTHERS_CAME)
        self._on_trial[connection] = None


def _is_of_follower(request: Request) -> bool:
    message = request.message
    state = getattr(message, "replica_state", None)  # where Fetch has it from version 15 on
    return getattr(message if state is None else state, "replica_id", NO_REPLICA) > NO_REPLICA
