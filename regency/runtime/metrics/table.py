"""Every metric there is, but for prometheus_client's own (process_*, python_*): what docs and tests go by.

What agents and controllers have alike is named here: their version, and the session with ZooKeeper.
"""

from __future__ import annotations

from types import ModuleType
from typing import Final

from regency.runtime.metrics import table_agent, table_controller
from regency.runtime.metrics.families import Kind, MetricName, own


def _session(name: str, explained: str) -> MetricName:
    return MetricName("kafka.server", "SessionExpireListener", name, Kind.COUNTER, explained)


ZK_DISCONNECTS = _session("ZooKeeperDisconnectsPerSec", "Times contact with ZooKeeper was lost.")
ZK_CONNECTS = _session("ZooKeeperSyncConnectsPerSec", "Times a connection with ZooKeeper was made.")
ZK_EXPIRES = _session("ZooKeeperExpiresPerSec", "Sessions with ZooKeeper that expired.")
ZK_AUTH_FAILURES = _session("ZooKeeperAuthFailuresPerSec", "Times ZooKeeper refused our credentials.")
ZK_LATENCY = MetricName(
    "kafka.server", "ZooKeeperClientMetrics", "ZooKeeperRequestLatencyMs", Kind.TIMER, "Time of requests to ZooKeeper."
)

SESSION_AGE = own(
    "regency_zookeeper_session_age_seconds", Kind.GAUGE, "Age of the session with ZooKeeper; 0 without one."
)

BUILD_INFO = own("regency_build_info", Kind.GAUGE, "1; the version of Regency that this process runs.", ("version",))

COMMON_METRICS: Final = (BUILD_INFO, ZK_DISCONNECTS, ZK_CONNECTS, ZK_EXPIRES, ZK_AUTH_FAILURES, ZK_LATENCY, SESSION_AGE)


def _named(table: ModuleType) -> tuple[MetricName, ...]:
    return tuple(value for value in vars(table).values() if isinstance(value, MetricName))


AGENT_METRICS: Final = (
    *_named(table_agent),
    *(name for _, name in table_agent.TRAFFIC + table_agent.REQUEST_TIMES + table_agent.GROUPS_BY_STATE),
)
CONTROLLER_METRICS: Final = (*_named(table_controller), *table_controller.STATE_TIMERS.values())
ALL_METRICS: Final = (*AGENT_METRICS, *COMMON_METRICS, *CONTROLLER_METRICS)
