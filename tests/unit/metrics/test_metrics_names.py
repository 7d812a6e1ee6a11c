"""Names as jmx_exporter's published rules make them of Kafka's MBeans."""

from __future__ import annotations

import pytest

from regency.runtime.metrics.families import Kind, MetricName
from regency.runtime.metrics.table import ALL_METRICS


@pytest.mark.parametrize(
    ("domain", "type_", "name", "kind", "exported"),
    [
        ("kafka.server", "ReplicaManager", "LeaderCount", Kind.GAUGE, "kafka_server_replicamanager_leadercount"),
        (
            "kafka.server",
            "ReplicaManager",
            "IsrShrinksPerSec",
            Kind.COUNTER,
            "kafka_server_replicamanager_isrshrinks_total",
        ),
        (
            "kafka.network",
            "SocketServer",
            "NetworkProcessorAvgIdlePercent",
            Kind.GAUGE,
            "kafka_network_socketserver_networkprocessoravgidle_percent",
        ),
        (
            "kafka.server",
            "socket-server-metrics",
            "connection-count",
            Kind.GAUGE,
            "kafka_server_socket_server_metrics_connection_count",
        ),
        ("kafka.network", "RequestMetrics", "TotalTimeMs", Kind.TIMER, "kafka_network_requestmetrics_totaltimems"),
        ("", "", "regency_fenced_requests", Kind.COUNTER, "regency_fenced_requests_total"),
    ],
)
def test_a_name_is_exported_as_the_rules_say(domain: str, type_: str, name: str, kind: Kind, exported: str) -> None:
    assert MetricName(domain, type_, name, kind, "").exported == exported


def test_no_two_metrics_have_one_name_and_each_is_explained() -> None:
    samples = [sample for metric in ALL_METRICS for sample in metric.samples]
    assert len(samples) == len(set(samples))
    assert all(metric.help.endswith(".") for metric in ALL_METRICS)
    assert all(metric.domain or metric.name.startswith(("regency_", "kafka_")) for metric in ALL_METRICS)
