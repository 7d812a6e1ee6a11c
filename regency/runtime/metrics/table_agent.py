"""Metrics of an agent: names as Kafka's brokers have them, then our own."""

from __future__ import annotations

from regency.runtime.metrics.families import Kind, MetricName, own

_GAUGE, _COUNTER, _TIMER = Kind.GAUGE, Kind.COUNTER, Kind.TIMER
_PARTITION = ("topic", "partition")
_FOLLOWING = ("clientId",)
_REQUEST = ("request",)


def _replicas(name: str, kind: Kind, explained: str) -> MetricName:
    return MetricName("kafka.server", "ReplicaManager", name, kind, explained)


LEADER_COUNT = _replicas("LeaderCount", _GAUGE, "Partitions that this broker leads.")
PARTITION_COUNT = _replicas("PartitionCount", _GAUGE, "Replicas on this broker, offline ones too.")
OFFLINE_REPLICA_COUNT = _replicas("OfflineReplicaCount", _GAUGE, "Replicas in log directories that have failed.")
UNDER_REPLICATED = _replicas(
    "UnderReplicatedPartitions", _GAUGE, "Partitions led here with fewer replicas in sync than assigned."
)
UNDER_MIN_ISR = _replicas(
    "UnderMinIsrPartitionCount",
    _GAUGE,
    "Partitions led here with fewer in sync than min.insync.replicas, and than assigned.",
)
AT_MIN_ISR = _replicas(
    "AtMinIsrPartitionCount", _GAUGE, "Partitions led here with exactly min.insync.replicas in sync."
)
REASSIGNING = _replicas("ReassigningPartitions", _GAUGE, "Partitions led here whose replicas are being moved.")
ISR_SHRINKS = _replicas("IsrShrinksPerSec", _COUNTER, "ISR shrinks that are in ZooKeeper.")
ISR_EXPANDS = _replicas("IsrExpandsPerSec", _COUNTER, "ISR expansions that are in ZooKeeper.")
FAILED_ISR_UPDATES = _replicas(
    "FailedIsrUpdatesPerSec", _COUNTER, "ISR changes that were not written, or of which that is not known."
)


def _partition(name: str, explained: str) -> MetricName:
    return MetricName("kafka.cluster", "Partition", name, _GAUGE, explained, _PARTITION)


P_UNDER_REPLICATED = _partition("UnderReplicated", "1 on the leader while fewer are in sync than assigned, else 0.")
P_UNDER_MIN_ISR = _partition(
    "UnderMinIsr", "1 on the leader while fewer are in sync than min.insync.replicas, and than assigned."
)
P_AT_MIN_ISR = _partition("AtMinIsr", "1 on the leader while exactly min.insync.replicas are in sync, else 0.")
P_REPLICAS_COUNT = _partition("ReplicasCount", "Assigned replicas, on the leader; 0 on followers.")
P_IN_SYNC_COUNT = _partition("InSyncReplicasCount", "Replicas in sync, on the leader; 0 on followers.")


def _log(name: str, explained: str) -> MetricName:
    return MetricName("kafka.log", "Log", name, _GAUGE, explained, _PARTITION)


LOG_SIZE = _log("Size", "Bytes of record batches in the log.")
LOG_START = _log("LogStartOffset", "First offset that can be read.")
LOG_END = _log("LogEndOffset", "Offset of the next record.")
LOG_SEGMENTS = _log("NumLogSegments", "Segments of the log.")
OFFLINE_DIRECTORIES = MetricName(
    "kafka.log", "LogManager", "OfflineLogDirectoryCount", _GAUGE, "Log directories that have failed."
)
FLUSHES = MetricName(
    "kafka.log", "LogFlushStats", "LogFlushRateAndTimeMs", _TIMER, "Flushes of logs to the disk, and their time."
)


def _traffic(name: str, explained: str, labels: tuple[str, ...] = ()) -> MetricName:
    return MetricName("kafka.server", "BrokerTopicMetrics", name, _COUNTER, explained, labels)


TRAFFIC: tuple[tuple[str, MetricName], ...] = tuple(
    (field, _traffic(name, f"{explained} Without a topic: of all.", ("topic",)))
    for field, name, explained in (
        ("messages_in", "MessagesInPerSec", "Records that producers wrote."),
        ("bytes_in", "BytesInPerSec", "Bytes of record batches that producers wrote."),
        ("bytes_out", "BytesOutPerSec", "Bytes of record batches sent to consumers, not to followers."),
        ("bytes_rejected", "BytesRejectedPerSec", "Bytes of record batches refused for their size."),
        ("produces", "TotalProduceRequestsPerSec", "Partitions named in produce requests."),
        (
            "failed_produces",
            "FailedProduceRequestsPerSec",
            "Partitions whose produce was refused, but for reasons of everyday: no leader here, too large, corrupt.",
        ),
        ("fetches", "TotalFetchRequestsPerSec", "Partitions fetched; by topic only those of consumers."),
        (
            "failed_fetches",
            "FailedFetchRequestsPerSec",
            "Partitions whose fetch was refused, but for reasons of everyday: no leader here, offset out of range.",
        ),
    )
)
"""Attribute of the counters in the listener, and name. As in Kafka one series has no topic: the sum since the start."""

REPLICATION_IN = _traffic("ReplicationBytesInPerSec", "Bytes of record batches fetched from leaders.")
REPLICATION_OUT = _traffic("ReplicationBytesOutPerSec", "Bytes of record batches sent to followers.")
REASSIGNMENT_IN = _traffic(
    "ReassignmentBytesInPerSec", "Of the bytes fetched from leaders, those of replicas that a reassignment adds here."
)
REASSIGNMENT_OUT = _traffic(
    "ReassignmentBytesOutPerSec", "Of the bytes sent to followers, those to replicas that a reassignment adds."
)


def _fetchers(name: str, explained: str) -> MetricName:
    return MetricName("kafka.server", "ReplicaFetcherManager", name, _GAUGE, explained, _FOLLOWING)


MAX_LAG = _fetchers("MaxLag", "Most records that a replica here is behind its leader's high watermark.")
MIN_FETCH_RATE = _fetchers("MinFetchRate", "Requests a second of the slowest fetcher, over the last minute.")
DEAD_FETCHERS = _fetchers("DeadThreadCount", "Fetchers whose thread has ended by a defect: restart the broker.")
FAILED_PARTITIONS = _fetchers("FailedPartitionsCount", "Partitions not followed until the controller says so again.")
CONSUMER_LAG = MetricName(
    "kafka.server",
    "FetcherLagMetrics",
    "ConsumerLag",
    _GAUGE,
    "Records that a replica here is behind its leader's high watermark.",
    (*_FOLLOWING, *_PARTITION),
)


def _requests(name: str, kind: Kind, explained: str, labels: tuple[str, ...] = _REQUEST) -> MetricName:
    return MetricName("kafka.network", "RequestMetrics", name, kind, explained, labels)


REQUESTS = _requests("RequestsPerSec", _COUNTER, "Requests that were answered.", (*_REQUEST, "version"))
ERRORS = _requests(
    "ErrorsPerSec",
    _COUNTER,
    "Error codes in answers, one for each partition that has one; NONE for an answer without any.",
    (*_REQUEST, "error"),
)
REQUEST_TIMES: tuple[tuple[str, MetricName], ...] = (
    ("total", _requests("TotalTimeMs", _TIMER, "From the start of a request to the end of writing its answer.")),
    ("local", _requests("LocalTimeMs", _TIMER, "In which the data loop worked on it at once.")),
    ("remote", _requests("RemoteTimeMs", _TIMER, "In which it waited: for followers, for records, for ZooKeeper.")),
    ("queue", _requests("ResponseQueueTimeMs", _TIMER, "In which its answer waited for those before it.")),
    ("send", _requests("ResponseSendTimeMs", _TIMER, "In which its answer was handed to the operating system.")),
)
"""Attribute of the timers in the listener, and name."""

PURGATORY_SIZE = MetricName(
    "kafka.server",
    "DelayedOperationPurgatory",
    "PurgatorySize",
    _GAUGE,
    "Requests that wait for followers or records.",
    ("delayedOperation",),
)
CONNECTIONS = MetricName(
    "kafka.server",
    "socket-server-metrics",
    "connection-count",
    _GAUGE,
    "Open connections of clients and brokers; one data loop serves all.",
    ("listener", "networkProcessor"),
)
NETWORK_IDLE = MetricName(
    "kafka.network",
    "SocketServer",
    "NetworkProcessorAvgIdlePercent",
    _GAUGE,
    "Share of the last minute in which the data loop waited for something to happen, 0 to 1.",
)
HANDLERS_IDLE = MetricName(
    "kafka.server",
    "KafkaRequestHandlerPool",
    "RequestHandlerAvgIdlePercent",
    _GAUGE,
    "The same share: the data loop that serves the network handles the requests, too.",
)
BROKER_STATE = MetricName(
    "kafka.server",
    "KafkaServer",
    "BrokerState",
    _GAUGE,
    "1 starting, 2 recovering logs, 3 running, 6 handing leadership over, 7 stopping.",
)
DISK_READ = MetricName(
    "kafka.server", "KafkaServer", "linux-disk-read-bytes", _GAUGE, "Bytes this process had read from disks (Linux)."
)
DISK_WRITE = MetricName(
    "kafka.server", "KafkaServer", "linux-disk-write-bytes", _GAUGE, "Bytes this process had written to disks (Linux)."
)


DIRECTORY_TOTAL = own(
    "regency_log_directory_size_bytes", _GAUGE, "Size of the volume of a log directory that works.", ("directory",)
)
DIRECTORY_USABLE = own(
    "regency_log_directory_usable_bytes",
    _GAUGE,
    "Bytes this process can still write to that volume, as measured for the scrape before.",
    ("directory",),
)
CONTROLLER_EPOCH = own("regency_controller_epoch_seen", _GAUGE, "Newest controller epoch that this agent has seen.")
BROKER_EPOCH = own("regency_broker_epoch", _GAUGE, "Epoch of this broker's registration; -1 before the first.")
LOOP_LAG = own(
    "regency_data_loop_lag_ms", _TIMER, "How late the data loop comes to what is due; looked at once a second."
)
LOOP_STEP = own(
    "regency_loop_step_seconds",
    _GAUGE,
    "How long the data loop was at all that was ready at once: clock cpu is its thread's processor time, wall the time "
    "that went by. Quantiles of the last five minutes; 1 is the longest.",
    ("clock", "quantile"),
)
LOGS_OPENED = own("regency_recovery_logs_opened", _GAUGE, "Logs that this start has opened.")
LOGS_FOUND = own("regency_recovery_logs_found", _GAUGE, "Logs that this start has found.")
FENCED = own(
    "regency_fenced_requests",
    _COUNTER,
    "Requests, or partitions in them, refused for an epoch or an identity that is over or not known.",
    ("error",),
)
INCOMING = own("regency_incoming_request_bytes", _GAUGE, "Bytes of large requests that have come in and are not begun.")
UNSENT = own("regency_unsent_answer_bytes", _GAUGE, "Bytes of answers that clients have not read yet.")
HELD_BACK = own(
    "regency_fetches_held_back",
    _COUNTER,
    "Fetches of consumers that got no records, as regency.queued.max.response.bytes of answers were unsent.",
)
CLOSED = own(
    "regency_closed_connections",
    _COUNTER,
    "Connections the listener closed, and why: too_many by a limit that is set, no_descriptors by that of open files.",
    ("reason",),
)
SHORTAGES = own(
    "regency_shortages",
    _COUNTER,
    "Times something with a log was put off because the process or its machine lacked descriptors, memory or threads.",
)
ISR_PENDING = own("regency_isr_changes_pending", _GAUGE, "ISR changes whose outcome is not known yet.")
FOLLOWER_LAG = own(
    "regency_follower_lag_records",
    _GAUGE,
    "Records that the broker's replicas are behind the logs led here, together: from its last fetches, also while it "
    "is away.",
    ("broker_id",),
)
FOLLOWER_LAG_UNKNOWN = own(
    "regency_follower_lag_unknown_partitions",
    _GAUGE,
    "Partitions led here of which the broker's replica has not fetched since: its lag is not known.",
    ("broker_id",),
)
SCRAPE_WAIT = own(
    "regency_scrape_loop_seconds", _GAUGE, "Time that reading the partitions took for this scrape, on the data loop."
)
