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


def _cleaner(name: str, explained: str) -> MetricName:
    return MetricName("kafka.log", "LogCleaner", name, _GAUGE, explained)


CLEANER_MAP = _cleaner("max-buffer-utilization-percent", "How full the map of keys was in the last cleaning.")
CLEANER_RECOPY = _cleaner("cleaner-recopy-percent", "Share of its log that the last cleaning wrote again.")
CLEANER_TIME = _cleaner("max-clean-time-secs", "How long the last cleaning took.")
CLEANER_DELAY = _cleaner("max-compaction-delay-secs", "By how long a log is past max.compaction.lag.ms.")
CLEANER_DEAD = _cleaner("DeadThreadCount", "1 while the process that compacts logs died at the last one, else 0.")


def _cleaner_manager(name: str, explained: str, labels: tuple[str, ...] = ()) -> MetricName:
    return MetricName("kafka.log", "LogCleanerManager", name, _GAUGE, explained, labels)


CLEANER_DIRTY = _cleaner_manager("max-dirty-percent", "Largest share of a log that is not compacted and could be.")
CLEANER_LOOKED = _cleaner_manager("time-since-last-run-ms", "Time since it was last looked for a log to compact.")
UNCLEANABLE = _cleaner_manager(
    "uncleanable-partitions-count",
    "Logs that are not compacted any more until the broker is started again: its log says why.",
    ("logDirectory",),
)
UNCLEANABLE_BYTES = _cleaner_manager("uncleanable-bytes", "What could be compacted in these.", ("logDirectory",))


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


def _groups(name: str, explained: str) -> MetricName:
    return MetricName("kafka.coordinator.group", "GroupMetadataManager", name, _GAUGE, explained)


GROUPS = _groups("NumGroups", "Groups whose coordinator this broker is.")
GROUP_OFFSETS = _groups("NumOffsets", "Offsets that these groups have committed, by partition.")
GROUPS_BY_STATE: tuple[tuple[str, MetricName], ...] = (
    ("PreparingRebalance", _groups("NumGroupsPreparingRebalance", "Of them, those that wait for members to join.")),
    ("CompletingRebalance", _groups("NumGroupsCompletingRebalance", "Those that wait for their leader's assignment.")),
    ("Stable", _groups("NumGroupsStable", "Those whose members have their assignments.")),
    ("Dead", _groups("NumGroupsDead", "Those that are gone and not forgotten; here there are none.")),
    ("Empty", _groups("NumGroupsEmpty", "Those without members.")),
)


def _coordinator(name: str, explained: str) -> MetricName:
    return MetricName("kafka.server", "group-coordinator-metrics", name, _GAUGE, explained)


GROUP_LOAD_MAX = _coordinator(
    "partition-load-time-max", "Milliseconds that loading a partition of groups took at most, since the start."
)
GROUP_LOAD_AVG = _coordinator("partition-load-time-avg", "And on average.")
GROUP_COMMITS = _coordinator("offset-commit-count", "Offsets committed, since the start.")
GROUP_EXPIRATIONS = _coordinator("offset-expiration-count", "Offsets gone by age, since the start.")
GROUP_DELETIONS = _coordinator("offset-deletion-count", "Offsets deleted by clients, since the start.")
GROUP_REBALANCES = _coordinator(
    "group-completed-rebalance-count", "Assignments that leaders of groups have brought, since the start."
)
GROUPS_LOADING = own(
    "regency_group_partitions_loading", _GAUGE, "Partitions of groups that this broker leads and has not loaded yet."
)
GROUP_LOAD_FAILURES = own(
    "regency_group_load_failures",
    _COUNTER,
    "Attempts to load a partition of groups that failed; it is tried again, and its groups wait.",
)
GROUP_RECORDS_LEFT_OUT = own(
    "regency_group_records_left_out", _COUNTER, "Records of groups that could not be used when they were loaded."
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
CLEANINGS = own("regency_log_cleanings", _COUNTER, "Times a log was compacted.")
CLEANED_READ = own("regency_log_cleaning_read_bytes", _COUNTER, "Bytes of record batches that cleanings have read.")
CLEANED_WRITTEN = own("regency_log_cleaning_written_bytes", _COUNTER, "Bytes that they have written.")
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


def _group(name: str, explained: str, labels: tuple[str, ...] = ()) -> MetricName:
    """As kafka_exporter names what it tells of groups; here the broker tells it that coordinates the group."""
    return MetricName("", "", f"kafka_consumergroup_{name}", _GAUGE, explained, ("consumergroup", *labels))


GROUP_MEMBERS = _group("members", "Members of a group coordinated here.")
GROUP_OFFSET = _group("current_offset", "Offset that the group has committed.", _PARTITION)
GROUP_LAG = _group("lag", "Records from there to the high watermark; no series while no leader tells that.", _PARTITION)
GROUP_OFFSET_SUM = _group("current_offset_sum", "Sum of the group's offsets in a topic.", ("topic",))
GROUP_LAG_SUM = _group(
    "lag_sum",
    "Records that the group is behind in a topic; no series while that is not known of all of it.",
    ("topic",),
)
GROUP_LAG_UNKNOWN = own(
    "regency_consumergroup_lag_unknown_partitions", _GAUGE, "Committed offsets here of which the lag is not known."
)
GROUP_LEFT_OUT = own(
    "regency_consumergroup_left_out_offsets",
    _GAUGE,
    "Committed offsets here without series, for there are more than regency.group.metrics.max.",
)
GROUP_AGE = own(
    "regency_consumergroup_age_seconds", _GAUGE, "How long ago offsets and ends of logs were looked at, for these."
)
GROUP_METRICS = (
    GROUP_MEMBERS,
    GROUP_OFFSET,
    GROUP_LAG,
    GROUP_OFFSET_SUM,
    GROUP_LAG_SUM,
    GROUP_LAG_UNKNOWN,
    GROUP_LEFT_OUT,
    GROUP_AGE,
)
SCRAPE_WAIT = own(
    "regency_scrape_loop_seconds", _GAUGE, "Time that reading the partitions took for this scrape, on the data loop."
)
