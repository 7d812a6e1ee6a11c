"""Metrics of a controller. One that does not rule exports 0 for what only the ruling one knows, or no series at all."""

from __future__ import annotations

from typing import Final

from regency.runtime.metrics.families import Kind, MetricName, own

_DOMAIN: Final = "kafka.controller"


def _gauge(name: str, explained: str) -> MetricName:
    return MetricName(_DOMAIN, "KafkaController", name, Kind.GAUGE, explained)


def _timer(state: str, explained: str) -> MetricName:
    return MetricName(_DOMAIN, "ControllerStats", f"{state}RateAndTimeMs", Kind.TIMER, explained)


def _channel(name: str, kind: Kind, explained: str, labels: tuple[str, ...] = ("broker_id",)) -> MetricName:
    return MetricName(_DOMAIN, "ControllerChannelManager", name, kind, explained, labels)


ACTIVE_CONTROLLER_COUNT = _gauge(
    "ActiveControllerCount", "1 where this controller rules, else 0; the sum over the cluster is 1."
)
OFFLINE_PARTITIONS_COUNT = _gauge(
    "OfflinePartitionsCount", "Partitions without a leader, those that never had one among them; not while deleted."
)
PREFERRED_REPLICA_IMBALANCE_COUNT = _gauge(
    "PreferredReplicaImbalanceCount", "Partitions that their preferred replica does not lead; not while deleted."
)
CONTROLLER_STATE = _gauge(
    "ControllerState", "What its thread works on, by Kafka's numbers (0 Idle ... 16); also where it does not rule."
)
GLOBAL_TOPIC_COUNT = _gauge("GlobalTopicCount", "Topics, those that are being deleted among them.")
GLOBAL_PARTITION_COUNT = _gauge("GlobalPartitionCount", "Partitions that have or had a leader.")
TOPICS_TO_DELETE_COUNT = _gauge("TopicsToDeleteCount", "Topics whose deletion was asked for and is not over.")
REPLICAS_TO_DELETE_COUNT = _gauge(
    "ReplicasToDeleteCount", "Replicas of those topics of which no broker has confirmed the deletion."
)
TOPICS_INELIGIBLE_TO_DELETE_COUNT = _gauge(
    "TopicsIneligibleToDeleteCount", "Topics whose deletion waits: for a broker, a directory or a reassignment."
)
REPLICAS_INELIGIBLE_TO_DELETE_COUNT = _gauge(
    "ReplicasIneligibleToDeleteCount", "Replicas that cannot be deleted now: their broker or directory is away."
)
ACTIVE_BROKER_COUNT = _gauge("ActiveBrokerCount", "Registered brokers.")
FENCED_BROKER_COUNT = _gauge("FencedBrokerCount", "Always 0: with ZooKeeper no broker is fenced.")

UNCLEAN_LEADER_ELECTIONS = MetricName(
    _DOMAIN,
    "ControllerStats",
    "UncleanLeaderElectionsPerSec",
    Kind.COUNTER,
    "Leaders elected out of sync: acknowledged records may be lost.",
)
STATE_TIMERS: Final = {
    "ControllerChange": _timer("ControllerChange", "Races, failovers and resignations."),
    "BrokerChange": _timer("LeaderElection", "Brokers that came or went, with the elections that follow."),
    "TopicChange": _timer("TopicChange", "Topics and partitions that were created or appeared."),
    "TopicDeletion": _timer("TopicDeletion", "Deletions: their requests, and what brokers confirm."),
    "AlterPartitionReassignment": _timer("PartitionReassignment", "Reassignments: requests and steps."),
    "AutoLeaderBalance": _timer("AutoLeaderBalance", "Automatic rebalance of leaders."),
    "ManualLeaderBalance": _timer("ManualLeaderBalance", "Leader elections that were asked for."),
    "ControlledShutdown": _timer("ControlledShutdown", "Brokers that leave in order."),
    "IsrChange": _timer("IsrChange", "ISRs that leaders have changed."),
    "LeaderAndIsrResponseReceived": _timer(
        "LeaderAndIsrResponseReceived", "Answers of agents that oblige to look at something, and reconciling."
    ),
    "LogDirChange": _timer("LogDirChange", "Log directories that failed."),
    "ControllerShutdown": _timer("ControllerShutdown", "The end of the process."),
    "UncleanLeaderElectionEnable": _timer("UncleanLeaderElectionEnable", "Unclean elections that were waiting."),
    "TopicUncleanLeaderElectionEnable": _timer("TopicUncleanLeaderElectionEnable", "Settings that changed."),
    "ListPartitionReassignment": _timer("ListPartitionReassignment", "Questions what is being reassigned."),
}
"""By the name of the controller's state, as Kafka names them; Idle and UpdateMetadataResponseReceived have none."""

EVENT_QUEUE_SIZE = MetricName(_DOMAIN, "ControllerEventManager", "EventQueueSize", Kind.GAUGE, "Events that wait.")
EVENT_QUEUE_TIME = MetricName(
    _DOMAIN, "ControllerEventManager", "EventQueueTimeMs", Kind.TIMER, "How long events waited, milliseconds."
)
TOTAL_QUEUE_SIZE = _channel(
    "TotalQueueSize", Kind.GAUGE, "Desired states that wait to be sent to a broker, of all brokers.", ()
)
QUEUE_SIZE = _channel("QueueSize", Kind.GAUGE, "Desired states that wait to be sent to the broker.")
REQUEST_RATE_AND_QUEUE_TIME = _channel(
    "RequestRateAndQueueTimeMs",
    Kind.TIMER,
    "Requests to the broker, and how long the oldest state in each waited before it was sent, milliseconds.",
)

CONTROLLER_EPOCH = own(
    "regency_controller_epoch", Kind.GAUGE, "Controller epoch in which this controller rules; 0 where it does not."
)
FAILOVERS = own("regency_controller_failovers", Kind.COUNTER, "Failovers this process has done.")
FAILOVER_SECONDS = own(
    "regency_controller_failover_seconds",
    Kind.GAUGE,
    "How long each part of the ruling controller's failover took, seconds.",
    ("phase",),
)
FENCED_WRITES = own(
    "regency_controller_fenced_writes", Kind.COUNTER, "Writes refused by ZooKeeper because another controller rules."
)
UNACKNOWLEDGED_STATES = own(
    "regency_controller_unacknowledged_states",
    Kind.GAUGE,
    "Desired states of partitions that the broker has not acknowledged, sent or not.",
    ("broker_id",),
)
OLDEST_UNACKNOWLEDGED = own(
    "regency_controller_oldest_unacknowledged_seconds",
    Kind.GAUGE,
    "How long the oldest of what the broker has not acknowledged is wanted already, seconds.",
    ("broker_id",),
)
ELECTIONS = own(
    "regency_controller_leader_elections",
    Kind.COUNTER,
    "Leaders elected, one for each partition, by why; those of new partitions are not among them.",
    ("why",),
)
REPAIRS = own(
    "regency_controller_repairs",
    Kind.COUNTER,
    "Differences between what brokers reported and should host that were put right, by what was done.",
    ("kind",),
)
EVENTS = own("regency_controller_events", Kind.COUNTER, "Events handled, by kind.", ("event",))
PARTITIONS_LEFT_OUT = own(
    "regency_controller_partitions_left_out",
    Kind.GAUGE,
    "Partitions without series of their own: more than regency.controller.metrics.max.partitions.",
)

_PARTITION = ("topic", "partition")
"""What follows is kafka_exporter's, of the ruling controller only."""
BROKERS = own("kafka_brokers", Kind.GAUGE, "Registered brokers.")
BROKER_INFO = own("kafka_broker_info", Kind.GAUGE, "1 for each registered broker.", ("id", "address"))
TOPIC_PARTITIONS = own("kafka_topic_partitions", Kind.GAUGE, "Partitions of the topic.", ("topic",))
CURRENT_OFFSET = own(
    "kafka_topic_partition_current_offset",
    Kind.GAUGE,
    "High watermark as the leader reported it last; no series before it has.",
    _PARTITION,
)
OLDEST_OFFSET = own(
    "kafka_topic_partition_oldest_offset",
    Kind.GAUGE,
    "Log start offset as the leader reported it last; no series before it has.",
    _PARTITION,
)
LEADER = own("kafka_topic_partition_leader", Kind.GAUGE, "The leader's broker id; no series without one.", _PARTITION)
REPLICAS = own("kafka_topic_partition_replicas", Kind.GAUGE, "Assigned replicas.", _PARTITION)
IN_SYNC_REPLICAS = own("kafka_topic_partition_in_sync_replica", Kind.GAUGE, "Members of the ISR.", _PARTITION)
LEADER_IS_PREFERRED = own(
    "kafka_topic_partition_leader_is_preferred", Kind.GAUGE, "1 where the preferred replica leads, else 0.", _PARTITION
)
UNDER_REPLICATED = own(
    "kafka_topic_partition_under_replicated_partition",
    Kind.GAUGE,
    "1 where the ISR has fewer members than replicas are assigned, else 0.",
    _PARTITION,
)
