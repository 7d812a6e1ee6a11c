"""Metrics of a controller."""

from __future__ import annotations

from regency.runtime.metrics.names import Kind, MetricName

ACTIVE_CONTROLLER_COUNT = MetricName(
    "kafka.controller",
    "KafkaController",
    "ActiveControllerCount",
    Kind.GAUGE,
    "1 where this controller rules, else 0; the sum over the cluster is 1.",
)

CONTROLLER_METRICS: tuple[MetricName, ...] = (ACTIVE_CONTROLLER_COUNT,)
