"""Facts about the cluster: frozen values that any layer may hold. No behaviour beyond what follows from the fields.

Settings and znodes spell an endpoint LISTENER://host:port, IPv6 hosts in brackets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from regency.model.ids import NO_LEADER, BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, ZkVersion

MAX_PARTITIONS: Final = 25_000
"""Partitions a topic created through the controller may have: its znode must stay well below 1 MiB."""


class Endpoint(msgspec.Struct, frozen=True):
    """Where a listener of a broker is reached. `port` is 1 to 65535."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        return f"{self.listener}://{self.host}:{self.port}"


class Broker(msgspec.Struct, frozen=True):
    """A registered broker: identity, incarnation and listeners, Kafka's listeners first."""

    id: BrokerId
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of the listener of that name, if the broker has one."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)


class LeaderAndIsr(msgspec.Struct, frozen=True, gc=False):
    """Who leads a partition and who is in sync, as the state znode holds it at `zk_version`."""

    leader: BrokerId
    leader_epoch: LeaderEpoch
    isr: tuple[BrokerId, ...]
    zk_version: ZkVersion = ZkVersion(0)

    @property
    def has_leader(self) -> bool:
        """Whether anybody leads."""
        return self.leader != NO_LEADER


class LeaderIsrAndControllerEpoch(msgspec.Struct, frozen=True, gc=False):
    """A leadership decision and the epoch of the controller that made or relayed it."""

    leader_and_isr: LeaderAndIsr
    controller_epoch: ControllerEpoch


class ReplicaAssignment(msgspec.Struct, frozen=True):
    """Brokers assigned to a partition, preferred leader first (KIP-455 for adding and removing)."""

    replicas: tuple[BrokerId, ...]
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    deleting: tuple[BrokerId, ...] = ()
    """No replicas any more, but their logs are not known to be deleted yet. Ours alone: Kafka forgets them."""

    @property
    def is_reassigning(self) -> bool:
        """Whether a reassignment is under way."""
        return bool(self.adding or self.removing)

    @property
    def target(self) -> tuple[BrokerId, ...]:
        """The replicas when the reassignment is done."""
        return tuple(replica for replica in self.replicas if replica not in self.removing)

    @property
    def origin(self) -> tuple[BrokerId, ...]:
        """The replicas before the reassignment began."""
        return tuple(replica for replica in self.replicas if replica not in self.adding)


class TopicAssignment(msgspec.Struct, frozen=True):
    """Content of a topic znode at `zk_version`. `topic_id` is None where no controller has given one yet."""

    topic: str
    partitions: dict[int, ReplicaAssignment]
    topic_id: TopicId | None = None
    zk_version: ZkVersion = ZkVersion(0)
    czxid: int = 0


PLAINTEXT: Final = "PLAINTEXT"
"""Listener name and security protocol without encryption or authentication."""

_ENDPOINT = re.compile(r"([^:/,\s]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/,\s\[\]]*)):([0-9]{1,5})")
_WILDCARDS = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - compared with, never bound


def format_endpoint(endpoint: Endpoint) -> str:
    """`LISTENER://host:port`, an IPv6 address in brackets."""
    host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
    return f"{endpoint.listener}://{host}:{endpoint.port}"


def parse_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    """Read `LISTENER://host:port`; the protocol is that of the listener's name in `protocols`, else the name itself.

    Names become upper case, as Kafka does. The host may be empty and the port 0 to 65535. Raises ValueError.
    """
    match = _ENDPOINT.fullmatch(text)
    if match is None or int(match[4]) > 65535:
        raise ValueError(f"{text[:300]!r} is not LISTENER://host:port with a port up to 65535")
    listener = match[1].upper()
    return Endpoint(listener, match[2] or match[3] or "", int(match[4]), protocols.get(listener, listener))


def is_wildcard(host: str) -> bool:
    """Whether a socket bound to this host listens on every interface: an address that no client can connect to."""
    return host in _WILDCARDS
