"""The Topic dashboard: what flows through topics, where their partitions are, and which are not well."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard

from regency_dashboards.kit import (
    CLUSTER,
    GREEN,
    NEUTRAL,
    ORANGE,
    TOPIC,
    ZERO_IS_BETTER,
    ZERO_IS_GOOD,
    PanelBuilder,
    board,
    graph,
    rows,
    stat_panel,
    topics,
)
from regency_dashboards.queries import highest, rate, total

PARTITION = "kafka_topic_partition"
GROUP = "kafka_consumergroup"
TRAFFIC = "kafka_server_brokertopicmetrics"
OF_TOPICS = f'{TOPIC}, topic!=""'
"""What is counted by topic, without the totals of brokers."""
NOT_LEFT_OUT = f"unless on() (sum(regency_controller_partitions_left_out{{{CLUSTER}}}) > 0)"
"""Only where partitions have series of their own."""


def build() -> dashboard.Dashboard:
    """The dashboard."""
    return board(
        "regency-topic",
        "Regency / Topic",
        "Topics: traffic, size, and each of their partitions.",
        {
            "At a glance": _glance(),
            "Traffic": _traffic(),
            "Consumer groups": _groups(),
            "Partitions": _partitions(),
        },
        topics(),
    )


def _glance() -> Iterator[PanelBuilder]:
    yield stat_panel(
        "Topics",
        f"count({PARTITION}s{{{TOPIC}}})",
        "Topics chosen above. Good: as many as you made.",
        NEUTRAL,
    )
    yield stat_panel(
        "Partitions",
        total(f"{PARTITION}s", TOPIC),
        "Their partitions. Good: hundreds to a few thousand on a broker.",
        NEUTRAL,
    )
    yield stat_panel(
        "Without a leader",
        f"(sum({PARTITION}s{{{TOPIC}}}) - (count({PARTITION}_leader{{{TOPIC}}}) or vector(0))) {NOT_LEFT_OUT}",
        "Nobody can write to or read from them. Good: 0. See the runbook, KafkaOfflinePartitions. Empty where the "
        "controller leaves the series of partitions out (regency.controller.metrics.max.partitions).",
        ZERO_IS_GOOD,
    )
    yield stat_panel(
        "Under min ISR",
        total("kafka_cluster_partition_underminisr", TOPIC),
        "They refuse acks=all. Good: 0. See the runbook, KafkaUnderMinIsrPartitions.",
        ZERO_IS_GOOD,
    )
    yield stat_panel(
        "At min ISR",
        total("kafka_cluster_partition_atminisr", TOPIC),
        "They refuse acks=all when one more replica is lost. Good: 0 where the replication factor is greater than "
        "min.insync.replicas.",
        ZERO_IS_BETTER,
    )
    yield stat_panel(
        "Under-replicated",
        total(f"{PARTITION}_under_replicated_partition", TOPIC),
        "A replica is not in sync. Good: 0, but for the time a broker is down or catches up.",
        ZERO_IS_BETTER,
    )
    yield stat_panel(
        "Not led by the preferred",
        f"sum(1 - {PARTITION}_leader_is_preferred{{{TOPIC}}})",
        "Led by another than their first replica. Good: 0; `regency leaders elect` gives leadership back.",
        ZERO_IS_BETTER,
    )
    yield stat_panel(
        "Records kept",
        f"sum({PARTITION}_current_offset{{{TOPIC}}} - {PARTITION}_oldest_offset{{{TOPIC}}})",
        "From the start of the logs to the high watermark. Good: levels off where retention deletes.",
        NEUTRAL,
    )


def _traffic() -> Iterator[PanelBuilder]:
    for title, name, unit, about in (
        (
            "Records in",
            "messagesin",
            "si:records/s",
            "Records a second that producers wrote. Good: what you expect; 0 is producers that stopped.",
        ),
        ("Bytes in", "bytesin", "Bps", "What producers wrote, compressed as they sent it. Good: what you expect."),
        ("Bytes out", "bytesout", "Bps", "What consumers read, not followers. Good: bytes in times the consumers."),
        (
            "Produce requests",
            "totalproducerequests",
            "reqps",
            "Partitions producers name a second. Good: far fewer than records; else raise linger.ms.",
        ),
        (
            "Fetch requests",
            "totalfetchrequests",
            "reqps",
            "Partitions consumers fetch a second. Good: far fewer than records; else raise fetch.min.bytes.",
        ),
    ):
        yield graph(
            title,
            {"{{topic}}": rate(f"{TRAFFIC}_{name}_total", OF_TOPICS, by="topic")},
            about,
            unit=unit,
            stacked=True,
        )
    yield graph(
        "Requests refused",
        {
            f"{kind} {{{{topic}}}}": rate(f"{TRAFFIC}_failed{kind}requests_total", OF_TOPICS, by="topic")
            for kind in ("produce", "fetch")
        },
        "Good: 0, but for moments of a failover. See the Broker dashboard for the error codes.",
        unit="reqps",
    )


def _groups() -> Iterator[PanelBuilder]:
    yield graph(
        "Lag",
        {"{{consumergroup}} {{topic}}": highest(f"{GROUP}_lag_sum", TOPIC, by="consumergroup, topic")},
        "Records from what a group has committed to the high watermarks. Good: small, or falling. A gap is a partition "
        "of which no leader tells it. See the runbook, KafkaConsumerGroupFallsBehind.",
    )
    yield graph(
        "Committed",
        {
            "{{consumergroup}} {{topic}}": f"sum by (consumergroup, topic) "
            f"(clamp_min(deriv({GROUP}_current_offset_sum{{{TOPIC}}}[$__rate_interval]), 0))"
        },
        "Records a second that groups commit. Good: as many as are written. 0 with a lag is a group that stands.",
        unit="si:records/s",
    )
    yield graph(
        "Members",
        {
            "{{consumergroup}}": f"max by (consumergroup) ({GROUP}_members{{{CLUSTER}}}) "
            f"and on (consumergroup) {GROUP}_lag_sum{{{TOPIC}}}"
        },
        "Members of the groups that have committed offsets here. Good: steady, and at most as many as partitions: "
        "others have nothing to read.",
    )
    yield rows(
        "Lag by partition",
        {"committed": f"{GROUP}_current_offset{{{TOPIC}}}", "lag": f"{GROUP}_lag{{{TOPIC}}}"},
        ["consumergroup", "topic", "partition"],
        "Good: alike in all partitions. One that is alone behind has a slow reader, or most of the keys.",
        units={"committed": "none", "lag": "none"},
    )


def _partitions() -> Iterator[PanelBuilder]:
    yield rows(
        "Partitions",
        {
            "leader": f"{PARTITION}_leader{{{TOPIC}}}",
            "replicas": f"{PARTITION}_replicas{{{TOPIC}}}",
            "in sync": f"{PARTITION}_in_sync_replica{{{TOPIC}}}",
            "under min ISR": f"kafka_cluster_partition_underminisr{{{TOPIC}}}",
            "oldest offset": f"{PARTITION}_oldest_offset{{{TOPIC}}}",
            "high watermark": f"{PARTITION}_current_offset{{{TOPIC}}}",
            "bytes": f"kafka_log_log_size{{{TOPIC}}}",
            "lag of followers": f"kafka_server_fetcherlagmetrics_consumerlag{{{TOPIC}}}",
        },
        ["topic", "partition"],
        "Good: as many in sync as replicas, no lag. Where there is no leader, its column is empty.",
        units={"leader": "none", "bytes": "bytes", "oldest offset": "none", "high watermark": "none"},
    )
    yield graph(
        "Largest lag of a follower",
        {"{{topic}}": highest("kafka_server_fetcherlagmetrics_consumerlag", TOPIC, by="topic")},
        "Records. Good: near 0, or falling.",
    )
    yield graph(
        "Replicas out of sync",
        {"{{topic}}": f"sum by (topic) ({PARTITION}_replicas{{{TOPIC}}} - {PARTITION}_in_sync_replica{{{TOPIC}}})"},
        "Replicas that are not in sync. Good: 0; look for the broker that is missing, or slow.",
        steps=((None, GREEN), (1, ORANGE)),
    )
    yield graph(
        "Size on disk, all replicas",
        {"{{topic}}": total("kafka_log_log_size", TOPIC, by="topic")},
        "Good: levels off once retention deletes as much as comes in.",
        unit="bytes",
        stacked=True,
    )
    yield graph(
        "Segments",
        {"{{topic}}": total("kafka_log_log_numlogsegments", TOPIC, by="topic")},
        "Files of all replicas. Good: some for each replica. Very many small ones: segment.bytes or segment.ms is too"
        " small.",
    )
    yield graph(
        "Leaders, by broker",
        {"{{instance}}": f"sum by (instance) (kafka_cluster_partition_insyncreplicascount{{{TOPIC}}} > bool 0)"},
        "How many of their partitions each broker leads: leaders alone know the in-sync replicas. Good: about the "
        "same.",
        stacked=True,
    )
