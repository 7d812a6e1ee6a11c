"""Metrics of an agent."""

from __future__ import annotations

from regency.runtime.metrics.names import Kind, MetricName

LEADER_COUNT = MetricName(
    "kafka.server", "ReplicaManager", "LeaderCount", Kind.GAUGE, "Partitions that this broker leads."
)

AGENT_METRICS: tuple[MetricName, ...] = (LEADER_COUNT,)
