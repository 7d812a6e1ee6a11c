"""The Controller dashboard: who rules, what the ruling controller is busy with, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator

from grafana_foundation_sdk.builders import dashboard

from regency_dashboards.kit import (
    CLUSTER,
    GREEN,
    NEUTRAL,
    ONE_IS_GOOD,
    ORANGE,
    RED,
    ZERO_IS_BETTER,
    ZERO_IS_GOOD,
    PanelBuilder,
    board,
    graph,
    stat_panel,
    timeline,
)
from regency_dashboards.queries import highest, increase, lowest, quantile, rate, total

CONTROLLER = "kafka_controller_kafkacontroller"
STATS = "kafka_controller_controllerstats"
QUEUE = "kafka_controller_controllereventmanager"
CHANNELS = "kafka_controller_controllerchannelmanager"

HANDLERS = {
    "failover": "controllerchange",
    "broker change": "leaderelection",
    "topic change": "topicchange",
    "topic deletion": "topicdeletion",
    "reassignment": "partitionreassignment",
    "automatic balance": "autoleaderbalance",
    "leader election asked for": "manualleaderbalance",
    "controlled shutdown": "controlledshutdown",
    "ISR change": "isrchange",
    "answers of brokers": "leaderandisrresponsereceived",
    "log directory change": "logdirchange",
}
"""Timers of the controller's subjects, by what people call them; BrokerChange's is LeaderElectionRateAndTimeMs."""

STATES = dict(
    enumerate(
        (
            ("idle", "transparent"),
            ("failover", RED),
            ("broker change", ORANGE),
            ("topic change", "blue"),
            ("topic deletion", "blue"),
            ("reassignment", "blue"),
            ("automatic balance", "blue"),
            ("leader election asked for", "blue"),
            ("controlled shutdown", ORANGE),
            ("ISR change", GREEN),
            ("answers of brokers", GREEN),
            ("log directory change", ORANGE),
            ("resigning", RED),
            ("unclean election allowed", ORANGE),
            ("unclean election allowed for a topic", ORANGE),
            ("listing reassignments", GREEN),
            ("answers about metadata", GREEN),
            ("features", GREEN),
        )
    )
)


def build() -> dashboard.Dashboard:
    """The dashboard."""
    return board(
        "regency-controller",
        "Regency / Controller",
        "The candidates and the one that rules. What only the ruling one says is 0 on the others.",
        {
            "At a glance": _glance(),
            "Failovers and fencing": _failovers(),
            "Events: one thread handles one at a time": _events(),
            "Requests to brokers": _brokers(),
            "What it governs": _backlog(),
            "Every candidate": _candidates(),
        },
    )


def _glance() -> Iterator[PanelBuilder]:
    yield stat_panel(
        "Rules now",
        total(f"{CONTROLLER}_activecontrollercount", CLUSTER),
        "Good: 1 for each cluster. See the runbook, KafkaNoActiveController.",
        ONE_IS_GOOD,
    )
    yield stat_panel(
        "Candidates",
        f"count({CONTROLLER}_activecontrollercount{{{CLUSTER}}})",
        "Controller processes that answer. Good: as many as agents; with fewer, fewer can take over.",
        NEUTRAL,
    )
    yield stat_panel(
        "Epoch",
        highest("regency_controller_epoch", CLUSTER),
        "How many controllers have ruled. Good: changes only when a broker stops or dies.",
        NEUTRAL,
        unit="none",
    )
    yield stat_panel(
        "Events waiting",
        highest(f"{QUEUE}_eventqueuesize", CLUSTER),
        "Good: 0 to 10. A queue that stays long means that the controller is slower than what happens.",
        ((None, GREEN), (50, ORANGE), (100, RED)),
    )
    yield stat_panel(
        "States not acknowledged",
        total("regency_controller_unacknowledged_states", CLUSTER),
        "What brokers were told and have not said they did. Good: 0 but for moments.",
        ZERO_IS_BETTER,
    )
    yield stat_panel(
        "The oldest of them",
        highest("regency_controller_oldest_unacknowledged_seconds", CLUSTER),
        "Good: 0, or a few seconds while a broker is busy. Longer: the broker is away or refuses; `regency doctor` "
        "says which.",
        ((None, GREEN), (10, ORANGE), (60, RED)),
        unit="s",
    )
    yield stat_panel(
        "Offline partitions",
        total(f"{CONTROLLER}_offlinepartitionscount", CLUSTER),
        "Partitions without a leader. Good: 0. See the runbook, KafkaOfflinePartitions.",
        ZERO_IS_GOOD,
    )
    yield stat_panel(
        "Not led by the preferred",
        total(f"{CONTROLLER}_preferredreplicaimbalancecount", CLUSTER),
        "Partitions led by another than their first replica. Good: 0; returns there by itself with "
        "auto.leader.rebalance.enable, or with `regency leaders elect`.",
        ZERO_IS_BETTER,
    )


def _failovers() -> Iterator[PanelBuilder]:
    yield timeline(
        "Who rules",
        highest(f"{CONTROLLER}_activecontrollercount", CLUSTER, by="instance"),
        "{{instance}}",
        "Good: one line is green, and for long.",
        {0: ("stands by", "transparent"), 1: ("rules", GREEN)},
    )
    yield graph(
        "Last failover, by phase",
        {"{{phase}}": highest("regency_controller_failover_seconds", CLUSTER, by="phase")},
        "How long each phase of the last failover took. Good: under a second in all for some thousand partitions.",
        unit="s",
        stacked=True,
    )
    yield graph(
        "Fenced writes, repairs",
        {
            "fenced writes": increase("regency_controller_fenced_writes_total", CLUSTER),
            "repairs": increase("regency_controller_repairs_total", CLUSTER),
        },
        "Writes of deposed controllers that ZooKeeper refused, and differences between what brokers report and should"
        " hold that were put right. Good: 0. One fenced write with a failover is the protection at work.",
    )


def _events() -> Iterator[PanelBuilder]:
    yield timeline(
        "What it does",
        highest(f"{CONTROLLER}_controllerstate", CLUSTER, by="instance"),
        "{{instance}}",
        "What the controller's thread was doing when it was scraped. Good: idle nearly always.",
        STATES,
    )
    yield graph(
        "Events handled",
        {legend: rate(f"{STATS}_{state}rateandtimems_count", CLUSTER) for legend, state in HANDLERS.items()},
        "Events a second, by subject. Good: nothing while nothing changes; ISR changes and answers while brokers come"
        " back.",
        unit="ops",
    )
    yield graph(
        "Time to handle one (p99)",
        {legend: quantile(f"{STATS}_{state}rateandtimems", "0.99", CLUSTER) for legend, state in HANDLERS.items()},
        "In the last minutes. Good: under 100 ms. A failover or a broker with thousands of partitions takes longer.",
        unit="ms",
    )
    yield graph(
        "Waiting in the queue",
        {
            f"p{text}": quantile(f"{QUEUE}_eventqueuetimems", share, CLUSTER)
            for text, share in (("50", "0.50"), ("99", "0.99"))
        },
        "How long events wait before they are handled. Good: under 100 ms; elections wait as long.",
        unit="ms",
    )


def _brokers() -> Iterator[PanelBuilder]:
    yield graph(
        "Waiting to be sent",
        {"to {{broker_id}}": highest(f"{CHANNELS}_queuesize", CLUSTER, by="broker_id")},
        "Desired states and metadata not yet taken up by a request. Good: near 0. One broker alone is a broker that "
        "is away or slow; it does not hold the others back.",
    )
    yield graph(
        "Time to be answered (p99)",
        {"{{broker_id}}": quantile(f"{CHANNELS}_requestrateandqueuetimems", "0.99", CLUSTER, by="broker_id")},
        "From wanting to send until the broker answered. Good: under 100 ms.",
        unit="ms",
    )
    yield graph(
        "Requests answered",
        {"{{broker_id}}": rate(f"{CHANNELS}_requestrateandqueuetimems_count", CLUSTER, by="broker_id")},
        "Control requests a second. Good: few; nothing is sent while nothing changes but for reconciling.",
        unit="reqps",
    )
    yield graph(
        "States not acknowledged",
        {"{{broker_id}}": total("regency_controller_unacknowledged_states", CLUSTER, by="broker_id")},
        "By broker. Good: 0 but for moments.",
    )
    yield graph(
        "Age of the oldest",
        {"{{broker_id}}": highest("regency_controller_oldest_unacknowledged_seconds", CLUSTER, by="broker_id")},
        "Good: near 0. It is sent again until it is acknowledged, so a line that rises is a broker that cannot.",
        unit="s",
        steps=((None, GREEN), (60, RED)),
    )


def _backlog() -> Iterator[PanelBuilder]:
    yield graph(
        "Brokers",
        {
            "live": total(f"{CONTROLLER}_activebrokercount", CLUSTER),
            "fenced": total(f"{CONTROLLER}_fencedbrokercount", CLUSTER),
        },
        "Brokers registered in ZooKeeper. Good: all that you run.",
    )
    yield graph(
        "Topics and partitions",
        {
            "topics": total(f"{CONTROLLER}_globaltopiccount", CLUSTER),
            "partitions": total(f"{CONTROLLER}_globalpartitioncount", CLUSTER),
        },
        "Good: as many as you made.",
    )
    yield graph(
        "Waiting to be deleted",
        {
            "topics": total(f"{CONTROLLER}_topicstodeletecount", CLUSTER),
            "replicas": total(f"{CONTROLLER}_replicastodeletecount", CLUSTER),
            "topics that cannot be": total(f"{CONTROLLER}_topicsineligibletodeletecount", CLUSTER),
            "replicas that cannot be": total(f"{CONTROLLER}_replicasineligibletodeletecount", CLUSTER),
        },
        "Good: returns to 0. What cannot be deleted waits for a broker that is away, or for a reassignment.",
    )


def _candidates() -> Iterator[PanelBuilder]:
    yield graph(
        "Age of sessions",
        {"{{instance}} {{daemon}}": lowest("regency_zookeeper_session_age_seconds", CLUSTER, by="instance, daemon")},
        "Good: grows. A fall to 0 is a new session with ZooKeeper: on the controller that rules, a failover.",
        unit="s",
    )
    yield graph(
        "Failovers done",
        {"{{instance}}": total("regency_controller_failovers_total", CLUSTER, by="instance")},
        "How often each process took over since it started. Good: few, and on different brokers.",
    )
    yield graph(
        "Events, by kind",
        {"{{event}}": rate("regency_controller_events_total", CLUSTER, by="event")},
        "What the controllers' threads handle a second, also those that do not rule. Good: next to nothing while all "
        "is well.",
        unit="ops",
    )
