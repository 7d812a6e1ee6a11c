"""Metrics of agents and controllers alike: of the session with ZooKeeper that each has."""

from __future__ import annotations

from regency.runtime.metrics.names import Kind, MetricName, own

_GAUGE, _COUNTER, _TIMER = Kind.GAUGE, Kind.COUNTER, Kind.TIMER


def _session(name: str, explained: str) -> MetricName:
    return MetricName("kafka.server", "SessionExpireListener", name, _COUNTER, explained)


ZK_DISCONNECTS = _session("ZooKeeperDisconnectsPerSec", "Times contact with ZooKeeper was lost.")
ZK_CONNECTS = _session("ZooKeeperSyncConnectsPerSec", "Times a connection with ZooKeeper was made.")
ZK_EXPIRES = _session("ZooKeeperExpiresPerSec", "Sessions with ZooKeeper that expired.")
ZK_AUTH_FAILURES = _session("ZooKeeperAuthFailuresPerSec", "Times ZooKeeper refused our credentials.")
ZK_LATENCY = MetricName(
    "kafka.server", "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs", _TIMER, "Time of requests to ZooKeeper."
)

SESSION_AGE = own("regency_zookeeper_session_age_seconds", _GAUGE, "Age of the session with ZooKeeper; 0 without one.")

COMMON_METRICS: tuple[MetricName, ...] = (
    ZK_DISCONNECTS,
    ZK_CONNECTS,
    ZK_EXPIRES,
    ZK_AUTH_FAILURES,
    ZK_LATENCY,
    SESSION_AGE,
)
