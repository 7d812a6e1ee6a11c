"""Keys that Kafka knows and that have no effect here: which of them may be ignored, and which must be refused.

Ignoring a key is refused where someone who wrote it would be less safe than they believe.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

_NO_ENCRYPTION = "TLS is not supported yet: only PLAINTEXT listeners are"
_NO_AUTHENTICATION = "SASL authentication is not supported yet"
_NO_KRAFT = "this cluster keeps its metadata in ZooKeeper; take the key out, and name the broker by broker.id"
_REMOVED = "Kafka removed this key in 3.0; use listeners and advertised.listeners"
_NO_CONSUMER_PROTOCOL = "only the classic protocol of groups is offered, as in Kafka with ZooKeeper"
_NO_POLICY = "policies in Java classes are not supported, and requests would pass unchecked"


def _is_set(value: str) -> bool:
    return value != ""


def _is_true(value: str) -> bool:
    return value.lower() == "true"


def _is_not(harmless: str) -> Callable[[str], bool]:
    return lambda value: value.lower() not in (harmless, "")


_REFUSED: Final[dict[str, tuple[Callable[[str], bool], str]]] = {
    "authorizer.class.name": (_is_set, "authorization is not supported yet: everybody would be allowed everything"),
    "allow.everyone.if.no.acl.found": (_is_not("true"), "authorization is not supported yet"),
    "ssl.client.auth": (_is_not("none"), _NO_ENCRYPTION),
    "delegation.token.master.key": (_is_set, _NO_AUTHENTICATION),
    "delegation.token.secret.key": (_is_set, _NO_AUTHENTICATION),
    "create.topic.policy.class.name": (_is_set, _NO_POLICY),
    "alter.config.policy.class.name": (_is_set, _NO_POLICY),
    "offsets.commit.required.acks": (
        _is_not("-1"),
        "only -1 is offered: with less, commits that were confirmed are lost",
    ),
    "group.coordinator.rebalance.protocols": (_is_not("classic"), _NO_CONSUMER_PROTOCOL),
    "zookeeper.ssl.client.enable": (_is_true, "TLS to ZooKeeper is not supported yet"),
    "zookeeper.metadata.migration.enable": (_is_true, _NO_KRAFT),
    "remote.log.storage.system.enable": (_is_true, "tiered storage is not supported"),
    "process.roles": (_is_set, _NO_KRAFT),
    "node.id": (_is_set, _NO_KRAFT),
    "controller.listener.names": (_is_set, _NO_KRAFT),
    "port": (_is_set, _REMOVED),
    "host.name": (_is_set, _REMOVED),
    "advertised.port": (_is_set, _REMOVED),
    "advertised.host.name": (_is_set, _REMOVED),
}
"""Exact keys: which values are refused, and why. Other values are ignored."""

_REFUSED_PREFIXES: Final = (
    ("sasl.", _NO_AUTHENTICATION),
    ("listener.name.", "settings of single listeners concern TLS and SASL, which are not supported yet"),
    ("controller.quorum.", _NO_KRAFT),
)

_IGNORED: Final = frozenset(
    {
        "inter.broker.protocol.version",
        "log.message.format.version",
        "broker.id.generation.enable",
        "reserved.broker.max.id",
        "num.network.threads",
        "num.io.threads",
        "background.threads",
        "queued.max.requests",
        "max.connections.per.ip.overrides",
        "max.connection.creation.rate",
        "connections.max.reauth.ms",
        "connection.failed.authentication.delay.ms",
        "socket.connection.setup.timeout.ms",
        "socket.connection.setup.timeout.max.ms",
        "early.start.listeners",
        "delete.records.purgatory.purge.interval.requests",
        "fetch.purgatory.purge.interval.requests",
        "producer.purgatory.purge.interval.requests",
        "replica.socket.receive.buffer.bytes",
        "zookeeper.max.in.flight.requests",
        "max.request.partition.size.limit",
        "replica.selector.class",
        "num.replica.alter.log.dirs.threads",
        "log.dir.failure.timeout.ms",
        "log.deletion.max.segments.per.run",
        "log.cleaner.threads",
        "log.message.timestamp.difference.max.ms",
        "log.message.timestamp.before.max.ms",
        "log.message.timestamp.after.max.ms",
        "log.message.downconversion.enable",
        "zookeeper.sync.time.ms",
        "zookeeper.clientCnxnSocket",
        "broker.heartbeat.interval.ms",
        "broker.session.timeout.ms",
        "initial.broker.registration.timeout.ms",
        "super.users",
        "security.providers",
        "principal.builder.class",
        "client.quota.callback.class",
        "auto.include.jmx.reporter",
        "telemetry.max.bytes",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
        "eligible.leader.replicas.enable",
        "unclean.leader.election.interval.ms",
        "controlled.shutdown.timeout.ms",
        "metadata.log.dir",
    }
)

_IGNORED_PREFIXES: Final = (
    "ssl.",
    "zookeeper.ssl.",
    "delegation.token.",
    "password.encoder.",
    "log.local.",
    "remote.log.",
    "remote.fetch.",
    "remote.list.",
    "transaction.",
    "transactional.id.",
    "group.consumer.",
    "group.coordinator.",
    "group.share.",
    "share.",
    "quota.",
    "controller.quota.",
    "alter.log.dirs.replication.quota.",
    "metadata.log.",
    "metadata.max.",
    "controller.performance.",
    "controller.metrics.",
    "metric.",
    "metrics.",
    "kafka.metrics.",
    "kafka.csv.metrics.",
    "confluent.",
)


def refusal(key: str, value: str) -> str | None:
    """Why this key with this value must be refused; None where it need not."""
    if key in _REFUSED:
        is_refused, why = _REFUSED[key]
        return why if is_refused(value) else None
    return next((why for prefix, why in _REFUSED_PREFIXES if key.startswith(prefix)), None)


def is_ignored(key: str) -> bool:
    """Whether Kafka knows this key, and ignoring it does no harm."""
    return key in _IGNORED or key in _REFUSED or key.startswith(_IGNORED_PREFIXES)
