"""The Cluster dashboard: is it well, what failed over, who is in sync, what flows."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard

from regency_dashboards.kit import (
    CLUSTER,
    GREEN,
    NEUTRAL,
    ONE_IS_BETTER,
    ONE_IS_GOOD,
    RED,
    ZERO_IS_BETTER,
    ZERO_IS_GOOD,
    PanelBuilder,
    bars,
    board,
    graph,
    stat_panel,
    timeline,
)
from regency_dashboards.queries import highest, increase, quantile, rate, total

CONTROLLER = "kafka_controller_kafkacontroller"
REPLICAS = "kafka_server_replicamanager"
TRAFFIC = "kafka_server_brokertopicmetrics"
STATS = "kafka_controller_controllerstats"
TOTALS = f'{CLUSTER}, topic=""'
"""The totals of brokers, without what is counted by topic."""


def build() -> dashboard.Dashboard:
    """The dashboard."""
    return board(
        "regency-cluster",
        "Regency / Cluster",
        "Health of a cluster at a glance. Start here.",
        {
            "Health at a glance": _health(),
            "Failovers": _failovers(),
            "Replication": _replication(),
            "Traffic and size": _traffic(),
        },
    )


def _health() -> Iterator[PanelBuilder]:
    yield stat_panel(
        "Controllers that rule",
        total(f"{CONTROLLER}_activecontrollercount", CLUSTER),
        "How many candidates say that they rule. Good: 1 for each cluster. 0: nobody is elected leader and nothing "
        "can be changed; see the runbook, KafkaNoActiveController. 2 for a few seconds is a deposed one that has not "
        "noticed.",
        ONE_IS_GOOD,
    )
    yield stat_panel(
        "Brokers registered",
        total(f"{CONTROLLER}_activebrokercount", CLUSTER),
        "Brokers that the ruling controller sees in ZooKeeper. Good: all that you run. If one is missing while its "
        "process runs, its agent has no ZooKeeper session: see the Broker dashboard.",
        NEUTRAL,
    )
    yield stat_panel(
        "Versions running",
        f"count(count by (version) (regency_build_info{{{CLUSTER}}}))",
        "Different versions among agents and controllers. Good: 1, and 2 while an upgrade goes from broker to broker. "
        "Otherwise `regency_build_info` names who was left behind.",
        ONE_IS_BETTER,
    )
    yield stat_panel(
        "Processes not answering",
        f'sum(1 - up{{{CLUSTER}, job="kafka-broker"}})',
        "Agents and controllers that Prometheus cannot scrape. Good: 0. Otherwise look which with `regency status`, "
        "and start it again.",
        ZERO_IS_GOOD,
    )
    yield stat_panel(
        "Offline partitions",
        total(f"{CONTROLLER}_offlinepartitionscount", CLUSTER),
        "Partitions without a leader: nobody can write to or read from them. Good: 0. Otherwise bring back a broker "
        "of their in-sync replica sets; `regency explain` names it.",
        ZERO_IS_GOOD,
    )
    yield stat_panel(
        "Under min ISR",
        total(f"{REPLICAS}_underminisrpartitioncount", CLUSTER),
        "Partitions with fewer replicas in sync than min.insync.replicas: acks=all is refused. Good: 0. Otherwise "
        "bring back the brokers that are missing.",
        ZERO_IS_GOOD,
    )
    yield stat_panel(
        "Under-replicated",
        total(f"{REPLICAS}_underreplicatedpartitions", CLUSTER),
        "Partitions of which a replica is not in sync. Good: 0, but for the time a broker is down or catches up.",
        ZERO_IS_BETTER,
    )
    yield stat_panel(
        "Offline log directories",
        total("kafka_log_logmanager_offlinelogdirectorycount", CLUSTER),
        "Log directories that a broker has given up after an error of the disk. Good: 0. Otherwise repair the disk and "
        "restart that agent; `regency log dirs` says which.",
        ZERO_IS_GOOD,
    )
    yield stat_panel(
        "Alerts firing",
        f'count(ALERTS{{{CLUSTER}, alertstate="firing"}}) or vector(0)',
        "Alerts of deploy/prometheus/alerts.yml that fire now. Good: 0. Each has a section in docs/operate/runbook.md.",
        ZERO_IS_GOOD,
    )


def _failovers() -> Iterator[PanelBuilder]:
    yield timeline(
        "Who rules",
        highest(f"{CONTROLLER}_activecontrollercount", CLUSTER, by="instance"),
        "{{instance}}",
        "Which candidate rules. Good: one line is green, and for long. The hand-over is as long as nobody is green.",
        {0: ("stands by", "transparent"), 1: ("rules", GREEN)},
    )
    yield graph(
        "Controller epoch",
        {"{{kafka_cluster}}": highest("regency_controller_epoch", CLUSTER, by="kafka_cluster")},
        "How many controllers have ruled. Good: flat. Each step is a failover; many steps mean that candidates lose "
        "their ZooKeeper sessions: see the Controller dashboard.",
    )
    yield bars(
        "Last failover, by phase",
        highest("regency_controller_failover_seconds", CLUSTER, by="phase"),
        "{{phase}}",
        "How long the ruling controller took for each phase of its last failover. Good: under a second in all for some "
        "thousand partitions. A long phase of reading is ZooKeeper; a long one of electing is many dead leaders.",
        ((None, GREEN), (5, RED)),
        unit="s",
    )
    yield graph(
        "Leader elections",
        {"{{why}}": increase("regency_controller_leader_elections_total", CLUSTER, by="why")},
        "Elections, one for each partition, by why: the leader went offline, a move, back to the preferred leader, a "
        "shutdown in order. Good: 0 while nothing changes. Restarted: all in sync were back after a power cut, and a "
        "longer log leads instead. Unclean ones lose acknowledged records: good is 0, always.",
        stacked=True,
    )
    yield graph(
        "Time for a broker's change",
        {"p99": quantile(f"{STATS}_leaderelectionrateandtimems", "0.99", CLUSTER)},
        "How long handling a broker that came or went took, in the last minutes. Good: under 100 ms for some thousand "
        "partitions; it grows with the partitions that the broker leads and with ZooKeeper's latency.",
        unit="ms",
    )
    yield graph(
        "Partitions without a leader",
        {"{{kafka_cluster}}": total(f"{CONTROLLER}_offlinepartitionscount", CLUSTER, by="kafka_cluster")},
        "Good: 0; a short peak while a broker dies is the failover itself.",
    )


def _replication() -> Iterator[PanelBuilder]:
    yield graph(
        "Under-replicated partitions, by leader",
        {"{{instance}}": total(f"{REPLICAS}_underreplicatedpartitions", CLUSTER, by="instance")},
        "Good: 0. All brokers but one at the same number: that one is down or cannot keep up.",
        stacked=True,
    )
    yield graph(
        "In-sync replica sets",
        {
            "shrinks": rate(f"{REPLICAS}_isrshrinks_total", CLUSTER),
            "expansions": rate(f"{REPLICAS}_isrexpands_total", CLUSTER),
            "failed": rate(f"{REPLICAS}_failedisrupdates_total", CLUSTER),
        },
        "Changes a second. Good: 0, or a peak of shrinks and later as many expansions around a restart. Both without "
        "end mean that followers are too slow; failed ones that ZooKeeper or the leader's state is not what it "
        "believes.",
        unit="ops",
    )
    yield graph(
        "Largest lag of a follower",
        {"{{instance}}": highest("kafka_server_replicafetchermanager_maxlag", CLUSTER, by="instance")},
        "Records by which the slowest partition of each broker is behind its leader. Good: near 0, or falling. A "
        "constant rise means that the broker is too slow for what is produced.",
    )
    yield graph(
        "Leaders, by broker",
        {"{{instance}}": total(f"{REPLICAS}_leadercount", CLUSTER, by="instance")},
        "Partitions that each broker leads. Good: about the same on all. After a restart the balance returns by itself "
        "where auto.leader.rebalance.enable is on, or with `regency leaders elect`.",
        stacked=True,
    )
    yield graph(
        "Replicas, by broker",
        {"{{instance}}": total(f"{REPLICAS}_partitioncount", CLUSTER, by="instance")},
        "Partitions that each broker keeps a replica of. Good: about the same on all; `regency partitions plan` "
        "spreads them.",
        stacked=True,
    )
    yield graph(
        "Reassigning, offline replicas",
        {
            "reassigning": total(f"{REPLICAS}_reassigningpartitions", CLUSTER),
            "offline replicas": total(f"{REPLICAS}_offlinereplicacount", CLUSTER),
        },
        "Partitions being moved, and replicas in offline log directories. Good: moves end, offline is 0.",
    )


def _traffic() -> Iterator[PanelBuilder]:
    for title, name, unit, what in (
        ("Bytes in", "bytesin", "Bps", "produced to"),
        ("Bytes out", "bytesout", "Bps", "consumed from"),
        ("Records in", "messagesin", "si:records/s", "produced to"),
    ):
        yield graph(
            title,
            {"{{instance}}": rate(f"{TRAFFIC}_{name}_total", TOTALS, by="instance")},
            f"What clients {what} each broker, replication not counted. Good: spread evenly. One broker with most of "
            "it leads the busy partitions.",
            unit=unit,
            stacked=True,
        )
    yield graph(
        "Replicated bytes",
        {
            "in": rate(f"{TRAFFIC}_replicationbytesin_total", CLUSTER),
            "out": rate(f"{TRAFFIC}_replicationbytesout_total", CLUSTER),
        },
        "What followers fetch. Good: bytes in times (replication factor - 1); more while a broker catches up.",
        unit="Bps",
    )
    yield graph(
        "Consumer groups that are most behind",
        {"{{consumergroup}}": f"topk(10, sum by (consumergroup) (kafka_consumergroup_lag_sum{{{CLUSTER}}}))"},
        "Records from what they have committed to the high watermarks. Good: small, or falling. The Topic dashboard "
        "has members and partitions. See the runbook, KafkaConsumerGroupFallsBehind.",
    )
    yield graph(
        "Size on disk",
        {"{{instance}}": total("kafka_log_log_size", CLUSTER, by="instance")},
        "Bytes of all logs of a broker. Good: levels off once retention deletes as much as comes in.",
        unit="bytes",
        stacked=True,
    )
    yield graph(
        "Topics and partitions",
        {
            "topics": total(f"{CONTROLLER}_globaltopiccount", CLUSTER),
            "partitions": total(f"{CONTROLLER}_globalpartitioncount", CLUSTER),
        },
        "What the ruling controller governs. Good: as many as you made. A sudden rise is often a client that creates "
        "topics by mistake (auto.create.topics.enable).",
    )
