"""The settings of a broker agent and its controller, as values. Import from `regency.model.settings`.

Each key is said once: the attribute has its type and default, the annotation its name, range, unit and meaning.
"""

from __future__ import annotations

from typing import Annotated, Final, get_type_hints

import msgspec

from regency.model.facts import PLAINTEXT, Endpoint, is_wildcard
from regency.model.ids import BrokerId
from regency.model.settings.keys import (
    BOOLEAN,
    CLEANUP_POLICY,
    COMPRESSION,
    HTTP_PORT,
    LIST,
    NATURAL,
    NO_LIMIT,
    POSITIVE,
    SYSTEM_DEFAULT,
    TEXT,
    TIMESTAMP_TYPE,
    TOPIC_KEY_OF,
    Key,
)
from regency.model.settings.log_config import NEVER, LogConfig
from regency.model.settings.values import INT_MAX, Number, Real, Text, long

_HOUR_MS = 3_600_000


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute per key of server.properties, dots as underscores; with what the key means.

    Units: `_ms` milliseconds, `_bytes` bytes, `_seconds` seconds. What Kafka spreads over several keys (log.roll.hours
    and log.roll.ms, log.dir and log.dirs, …) is resolved into one. `warnings` says what has no effect here.
    """

    warnings: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    """Keys with an effect that were set, with their text, so that it can be told which values are defaults."""

    broker_id: Annotated[
        BrokerId,
        Key(Number(0, INT_MAX, "ids are not generated"), "Number of this broker, unlike every other's.", required=True),
    ] = BrokerId(-1)
    """-1 only where no settings were read."""
    broker_rack: Annotated[
        str | None, Key(TEXT, "Rack or zone of this broker: replicas of a partition are spread over racks.")
    ] = None
    listeners: Annotated[
        tuple[Endpoint, ...],
        Key(
            LIST,
            "Where to listen, NAME://host:port separated by commas. No host: every interface. Port 0: any free one. "
            "May place the two gRPC listeners too.",
            default="PLAINTEXT://:9092",
            whole=False,
        ),
    ] = (Endpoint(PLAINTEXT, "", 9092),)
    """Where to listen for Kafka's protocol. Host "": every interface; port 0: any free one."""
    control_listeners: tuple[Endpoint, ...] = ()
    """Those entries of `listeners` that are named as one of the two gRPC listeners."""
    advertised_listeners: Annotated[
        tuple[Endpoint, ...],
        Key(
            LIST,
            "What clients and brokers shall connect to, where it differs from `listeners`. Port 0: the bound one.",
            whole=False,
        ),
        Key(
            LIST,
            "Security protocol of each listener, NAME:PROTOCOL separated by commas. Only PLAINTEXT is supported.",
            name="listener.security.protocol.map",
            default="PLAINTEXT:PLAINTEXT",
            whole=False,
        ),
    ] = ()
    inter_broker_listener_name: Annotated[
        str,
        Key(TEXT, "The Kafka listener that other brokers fetch from.", default="PLAINTEXT", whole=False),
        Key(
            Text(("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")),
            "Another way to name the listener that other brokers fetch from: the one named like this protocol.",
            name="security.inter.broker.protocol",
            default="PLAINTEXT",
            whole=False,
        ),
    ] = PLAINTEXT
    control_plane_listener_name: Annotated[
        str, Key(TEXT, "The gRPC listener on which controllers reach this agent.")
    ] = "CONTROL"
    controller_listener_name: Annotated[
        str,
        Key(
            TEXT,
            "The gRPC listener on which agents reach this agent's controller process.",
            name="regency.controller.listener.name",
        ),
    ] = "CONTROLLER"
    socket_send_buffer_bytes: Annotated[
        int, Key(Number(-1, INT_MAX, SYSTEM_DEFAULT), "Send buffer of a client's socket.", "bytes")
    ] = 102_400
    socket_receive_buffer_bytes: Annotated[
        int, Key(Number(-1, INT_MAX, SYSTEM_DEFAULT), "Receive buffer of a client's.", "bytes")
    ] = 102_400
    socket_listen_backlog_size: Annotated[
        int, Key(POSITIVE, "Connections the operating system keeps waiting to be accepted.")
    ] = 1_024
    socket_request_max_bytes: Annotated[
        int, Key(POSITIVE, "Largest request that is read; a larger one ends its connection.", "bytes")
    ] = 104_857_600
    queued_max_request_bytes: Annotated[
        int,
        Key(
            long(-1, "-1: no bound"),
            "Requests that have not come in whole, over all connections; where they are more, large ones are "
            "received one after another, and slow ones end their connections.",
            "bytes",
        ),
    ] = 256 << 20
    max_connections: Annotated[int, Key(NATURAL, "Connections at one time, over all listeners.")] = INT_MAX
    max_connections_per_ip: Annotated[int, Key(NATURAL, "Connections at one time from one address.")] = INT_MAX
    connections_max_idle_ms: Annotated[
        int, Key(long(-1, "-1: never"), "A connection idle for this long is closed.", "ms")
    ] = 600_000
    request_timeout_ms: Annotated[
        int, Key(POSITIVE, "How long a broker waits for the answer of another one.", "ms")
    ] = 30_000
    zookeeper_connect: Annotated[
        str, Key(TEXT, "Servers of the ensemble, host:port,host:port, and a chroot.", required=True)
    ] = ""
    zookeeper_session_timeout_ms: Annotated[
        int, Key(POSITIVE, "Silence after which ZooKeeper declares this broker dead.", "ms")
    ] = 18_000
    zookeeper_connection_timeout_ms: Annotated[
        int,
        Key(
            POSITIVE,
            "How long to wait at the start for the first session. Default: zookeeper.session.timeout.ms.",
            "ms",
        ),
    ] = 18_000
    zookeeper_set_acl: Annotated[bool, Key(BOOLEAN, "Let only this identity change the znodes it creates.")] = False
    zookeeper_digest_auth: Annotated[
        str,
        Key(
            Text(may_be_empty=True),
            "user:password to authenticate with at ZooKeeper.",
            name="regency.zookeeper.digest.auth",
        ),
    ] = ""
    """`user:password`, or empty."""
    num_partitions: Annotated[int, Key(POSITIVE, "Partitions of a topic created without a count.")] = 1
    default_replication_factor: Annotated[
        int, Key(Number(1, 32767), "Replicas of a topic created without a factor.")
    ] = 1
    auto_create_topics_enable: Annotated[
        bool, Key(BOOLEAN, "Create a topic that a client asks for and that is not there.")
    ] = True
    delete_topic_enable: Annotated[bool, Key(BOOLEAN, "Allow the deletion of topics.")] = True
    min_insync_replicas: Annotated[
        int, Key(POSITIVE, "In-sync replicas below which a produce with acks=all is refused.")
    ] = 1
    unclean_leader_election_enable: Annotated[
        bool,
        Key(
            BOOLEAN,
            "Let a replica that is not in sync lead where no other lives: records that were acknowledged are lost.",
        ),
    ] = False
    auto_leader_rebalance_enable: Annotated[
        bool, Key(BOOLEAN, "Give leadership back to preferred replicas from time to time.")
    ] = True
    leader_imbalance_per_broker_percentage: Annotated[
        int,
        Key(
            Number(0, 100),
            "Share of a broker's preferred partitions led elsewhere above which they are given back.",
            "percent",
        ),
    ] = 10
    leader_imbalance_check_interval_seconds: Annotated[int, Key(long(1), "How often that share is looked at.", "s")] = (
        300
    )
    controller_socket_timeout_ms: Annotated[
        int, Key(POSITIVE, "How long the controller waits for an answer of a broker.", "ms")
    ] = 30_000
    controlled_shutdown_enable: Annotated[bool, Key(BOOLEAN, "Hand leadership over before stopping.")] = True
    controlled_shutdown_max_retries: Annotated[int, Key(NATURAL, "How often that is tried again.")] = 3
    controlled_shutdown_retry_backoff_ms: Annotated[int, Key(long(), "Pause between two tries.", "ms")] = 5_000
    replica_lag_time_max_ms: Annotated[int, Key(long(1), "A follower behind for longer leaves the ISR.", "ms")] = 30_000
    replica_fetch_max_bytes: Annotated[int, Key(NATURAL, "Bytes a follower asks for of one partition.", "bytes")] = (
        1_048_576
    )
    replica_fetch_response_max_bytes: Annotated[
        int, Key(NATURAL, "Bytes a follower asks for in one request.", "bytes")
    ] = 10_485_760
    replica_fetch_min_bytes: Annotated[
        int, Key(NATURAL, "Bytes a leader waits for before it answers a follower.", "bytes")
    ] = 1
    replica_fetch_wait_max_ms: Annotated[
        int, Key(NATURAL, "Longest such wait; at most replica.lag.time.max.ms.", "ms")
    ] = 500
    replica_fetch_backoff_ms: Annotated[int, Key(NATURAL, "Pause of a follower after an error.", "ms")] = 1_000
    replica_socket_timeout_ms: Annotated[int, Key(POSITIVE, "How long a follower waits for an answer.", "ms")] = 30_000
    replica_high_watermark_checkpoint_interval_ms: Annotated[
        int, Key(long(1), "How often high watermarks go to disk.", "ms")
    ] = 5_000
    leader_replication_throttled_rate: Annotated[
        int,
        Key(
            long(),
            "Most that this broker sends of the replicas in leader.replication.throttled.replicas that are not in "
            "sync.",
            "bytes/s",
        ),
    ] = NEVER
    follower_replication_throttled_rate: Annotated[
        int,
        Key(
            long(),
            "Most that it fetches for the replicas in follower.replication.throttled.replicas that are not in sync.",
            "bytes/s",
        ),
    ] = NEVER
    replication_quota_window_num: Annotated[int, Key(POSITIVE, "Windows over which these two rates are averaged.")] = 11
    replication_quota_window_size_seconds: Annotated[int, Key(POSITIVE, "Length of such a window.", "s")] = 1
    replica_alter_log_dirs_io_max_bytes_per_second: Annotated[
        int,
        Key(
            long(1),
            "Most that is copied while replicas are moved from one of this broker's log directories to another.",
            "bytes/s",
        ),
    ] = NEVER
    num_replica_fetchers: Annotated[int, Key(POSITIVE, "Connections to each leading broker.")] = 1
    max_incremental_fetch_session_cache_slots: Annotated[int, Key(NATURAL, "Fetch sessions kept (KIP-227).")] = 1_000
    fetch_max_bytes: Annotated[
        int, Key(Number(1024), "Most bytes sent in one answer to a fetch; 7 MiB where it is more.", "bytes")
    ] = 57_671_680
    message_max_bytes: Annotated[int, Key(NATURAL, "Largest record batch that is accepted.", "bytes")] = 1_048_588
    log_dirs: Annotated[
        tuple[str, ...],
        Key(LIST, "Directories of the logs. Default: log.dir.", default="/tmp/kafka-logs"),  # noqa: S108
        Key(
            TEXT,
            "Directory of the logs, where log.dirs names none.",
            name="log.dir",
            default="/tmp/kafka-logs",  # noqa: S108
            whole=False,
        ),
    ] = ("/tmp/kafka-logs",)  # noqa: S108 - Kafka's default
    num_recovery_threads_per_data_dir: Annotated[
        int, Key(POSITIVE, "Threads for each directory that recover logs at the start.")
    ] = 1
    log_segment_bytes: Annotated[int, Key(Number(14), "Size at which a new segment is begun.", "bytes")] = 1 << 30
    log_roll_ms: Annotated[
        int,
        Key(long(1), "Age at which a new segment is begun. Default: log.roll.hours.", "ms"),
        Key(
            POSITIVE,
            "As log.roll.ms, which counts where both stand.",
            "hours",
            name="log.roll.hours",
            default="168",
            whole=False,
        ),
    ] = 168 * _HOUR_MS
    log_roll_jitter_ms: Annotated[
        int,
        Key(long(), "Most by which that age is shortened at random.", "ms"),
        Key(
            NATURAL,
            "As log.roll.jitter.ms, which counts where both stand.",
            "hours",
            name="log.roll.jitter.hours",
            default="0",
            whole=False,
        ),
    ] = 0
    log_retention_ms: Annotated[
        int,
        Key(long(-1, "-1: for ever"), "How long records are kept. Default: log.retention.minutes.", "ms"),
        Key(
            Number(-1, INT_MAX, "-1: for ever"),
            "As log.retention.ms, which counts where both stand. Default: log.retention.hours.",
            "minutes",
            name="log.retention.minutes",
            whole=False,
        ),
        Key(
            Number(-1, INT_MAX, "-1: for ever"),
            "As log.retention.ms and log.retention.minutes, which count where they stand.",
            "hours",
            name="log.retention.hours",
            default="168",
            whole=False,
        ),
    ] = 168 * _HOUR_MS
    log_retention_bytes: Annotated[
        int, Key(long(-1, NO_LIMIT), "Size above which a partition's oldest segments go.", "bytes")
    ] = -1
    log_retention_check_interval_ms: Annotated[int, Key(long(1), "How often that is looked at.", "ms")] = 300_000
    log_cleanup_policy: Annotated[tuple[str, ...], Key(CLEANUP_POLICY, "What happens to old segments.")] = ("delete",)
    log_cleaner_enable: Annotated[bool, Key(BOOLEAN, "Compact logs whose cleanup.policy has `compact`.")] = True
    log_cleaner_dedupe_buffer_size: Annotated[
        int,
        Key(
            long(1 << 20),
            "Memory for the keys of one cleaning, 24 bytes each; where it is full, a log is cleaned in several goes.",
            "bytes",
        ),
    ] = 128 << 20
    log_cleaner_io_buffer_load_factor: Annotated[
        float, Key(Real(0.1, 1), "How full that memory may be: fuller takes more keys and longer.")
    ] = 0.9
    log_cleaner_io_buffer_size: Annotated[int, Key(Number(1 << 16), "Bytes that are cleaned at a time.", "bytes")] = (
        4 << 20
    )
    log_cleaner_io_max_bytes_per_second: Annotated[
        int, Key(long(1), "Most that cleanings read and write.", "bytes/s")
    ] = NEVER
    log_cleaner_backoff_ms: Annotated[
        int, Key(long(1), "How often it is looked for a log to clean while there is none.", "ms")
    ] = 15_000
    log_cleaner_min_cleanable_ratio: Annotated[
        float, Key(Real(0, 1), "Share of a log not cleaned yet above which it is cleaned.")
    ] = 0.5
    log_cleaner_min_compaction_lag_ms: Annotated[
        int, Key(long(), "Age of a record below which no cleaning looks at it.", "ms")
    ] = 0
    log_cleaner_max_compaction_lag_ms: Annotated[
        int, Key(long(1), "Age of a record by which its log is cleaned whatever its share is.", "ms")
    ] = NEVER
    log_cleaner_delete_retention_ms: Annotated[
        int, Key(long(), "How long a record without value stays after the cleaning that found it.", "ms")
    ] = 86_400_000
    log_index_size_max_bytes: Annotated[int, Key(Number(4), "Largest index of a segment.", "bytes")] = 10 << 20
    log_index_interval_bytes: Annotated[int, Key(NATURAL, "Bytes of log between two entries of an index.", "bytes")] = (
        4_096
    )
    log_flush_interval_messages: Annotated[int, Key(long(1), "Records after which a log is forced to disk.")] = NEVER
    log_flush_interval_ms: Annotated[
        int, Key(long(), "Time after which a log is forced to disk. Default: log.flush.scheduler.interval.ms.", "ms")
    ] = NEVER
    log_flush_scheduler_interval_ms: Annotated[
        int, Key(long(1), "How often it is looked for logs to be forced to disk. Default: every second.", "ms")
    ] = NEVER
    log_flush_offset_checkpoint_interval_ms: Annotated[
        int, Key(POSITIVE, "How often recovery points go to disk.", "ms")
    ] = 60_000
    log_flush_start_offset_checkpoint_interval_ms: Annotated[
        int, Key(POSITIVE, "How often log start offsets go to disk.", "ms")
    ] = 60_000
    log_segment_delete_delay_ms: Annotated[
        int, Key(long(), "Time between taking a file out of use and deleting it.", "ms")
    ] = 60_000
    log_preallocate: Annotated[bool, Key(BOOLEAN, "Reserve the space of a segment when it is begun.")] = False
    log_message_timestamp_type: Annotated[
        str, Key(TIMESTAMP_TYPE, "Whether records keep their own time or get the broker's.")
    ] = "CreateTime"
    compression_type: Annotated[
        str, Key(COMPRESSION, "`producer` keeps batches as they came; nothing else takes effect.")
    ] = "producer"
    producer_id_expiration_ms: Annotated[
        int, Key(POSITIVE, "An idempotent producer silent for longer is forgotten.", "ms")
    ] = 86_400_000
    producer_id_expiration_check_interval_ms: Annotated[int, Key(POSITIVE, "How often that is looked at.", "ms")] = (
        600_000
    )
    group_min_session_timeout_ms: Annotated[
        int, Key(NATURAL, "Shortest session timeout that a member of a consumer group may ask for.", "ms")
    ] = 6_000
    group_max_session_timeout_ms: Annotated[int, Key(NATURAL, "Longest such session timeout.", "ms")] = 1_800_000
    group_initial_rebalance_delay_ms: Annotated[
        int,
        Key(NATURAL, "How long a group that was empty waits for more members before its first rebalance ends.", "ms"),
    ] = 3_000
    group_max_size: Annotated[int, Key(POSITIVE, "Members that a group may have.")] = INT_MAX
    offset_metadata_max_bytes: Annotated[
        int, Key(NATURAL, "Longest text that may be committed along with an offset.", "characters")
    ] = 4_096
    offsets_load_buffer_size: Annotated[
        int, Key(POSITIVE, "Most that is read at once while the offsets of groups are loaded.", "bytes")
    ] = 5 << 20
    offsets_retention_minutes: Annotated[
        int, Key(POSITIVE, "Age at which committed offsets that no member uses go.", "minutes")
    ] = 10_080
    offsets_retention_check_interval_ms: Annotated[int, Key(long(1), "How often that is looked at.", "ms")] = 600_000
    offsets_topic_num_partitions: Annotated[
        int, Key(POSITIVE, "Partitions of __consumer_offsets, when it is created. The same on every broker.")
    ] = 50
    offsets_topic_segment_bytes: Annotated[
        int, Key(Number(14), "Size at which a new segment of __consumer_offsets is begun.", "bytes")
    ] = 100 << 20
    offsets_topic_replication_factor: Annotated[
        int,
        Key(
            Number(1, 32767),
            "Replicas of __consumer_offsets, when it is created: where fewer brokers live it is not, and groups wait.",
        ),
    ] = 3
    offsets_topic_compression_codec: Annotated[
        int, Key(Number(0, 1, "0: none, 1: gzip"), "How what groups write is compressed.")
    ] = 0
    offsets_commit_timeout_ms: Annotated[
        int, Key(POSITIVE, "How long a commit waits for the replicas of its partition.", "ms")
    ] = 5_000
    regency_http_port: Annotated[
        int, Key(HTTP_PORT, "Where the agent serves /metrics, /livez, /readyz and /debug/threads.")
    ] = 9_404
    regency_controller_http_port: Annotated[
        int, Key(HTTP_PORT, "Where the agent's controller process serves the same.")
    ] = 9_405
    regency_controller_metrics_max_partitions: Annotated[
        int,
        Key(NATURAL, "Most partitions of a cluster for which its ruling controller exports series of each; 0: none."),
    ] = 100_000
    regency_http_host: Annotated[
        str | None,
        Key(
            Text(may_be_empty=True),
            "Where both listen. Empty: every interface. Default: host of the listener that other brokers fetch from.",
        ),
    ] = None
    """None: as the inter-broker listener."""
    regency_history_dir: Annotated[
        str, Key(TEXT, "Directory of the decision records. Default: the first log directory's name with -history.")
    ] = ""
    """Never empty once constructed: the first log directory's name with `-history` where nothing else was said."""
    regency_isr_notification_quiet_ms: Annotated[
        int, Key(NATURAL, "ISR changes are announced when the last is this old,", "ms")
    ] = 50
    regency_isr_notification_max_delay_ms: Annotated[
        int, Key(NATURAL, "or when the first of them is this old.", "ms")
    ] = 500
    regency_loop_watchdog_ms: Annotated[
        int,
        Key(
            Number(0, special="0: never; else 5000 or more"),
            "An agent whose data loop hangs for so long, as in a disk that does not answer, writes all stacks and "
            "ends.",
            "ms",
        ),
    ] = 30_000
    regency_queued_max_response_bytes: Annotated[
        int,
        Key(
            long(1 << 20),
            "Answers that clients have not read yet, over all connections; where they are more, consumers get no "
            "records; what is read as a follower is held back by nothing but this: at twice as many those that have "
            "read nothing for the longest lose their connections.",
            "bytes",
        ),
    ] = 256 << 20
    regency_group_metrics_max: Annotated[
        int,
        Key(
            NATURAL,
            "Consumer groups and committed offsets together of which a coordinator has metrics; groups that do not fit "
            "are left out and counted.",
        ),
    ] = 10_000
    regency_report_interval_ms: Annotated[
        int, Key(POSITIVE, "Shortest time between two reports to the controller.", "ms")
    ] = 1_000
    regency_reconcile_interval_ms: Annotated[
        int, Key(POSITIVE, "How often a controller compares reports with its wishes.", "ms")
    ] = 30_000
    regency_state_change_log: Annotated[
        bool,
        Key(BOOLEAN, "Log every state change of a partition or replica, and every leader and follower that begins."),
    ] = False

    def __post_init__(self) -> None:
        if not self.regency_history_dir:
            msgspec.structs.force_setattr(self, "regency_history_dir", self.log_dirs[0].rstrip("/") + "-history")

    @property
    def inter_broker_listener(self) -> Endpoint:
        """The Kafka listener that other brokers fetch from."""
        return next(end for end in self.listeners if end.listener == self.inter_broker_listener_name)

    @property
    def control_plane_listener(self) -> Endpoint:
        """Where the agent's gRPC server listens: as `listeners` says, else the inter-broker host, any free port."""
        return self._control_listener(self.control_plane_listener_name)

    @property
    def controller_listener(self) -> Endpoint:
        """Where the controller's gRPC server listens: as `listeners` says, else as the agent's, any free port."""
        return self._control_listener(self.controller_listener_name)

    def _control_listener(self, name: str) -> Endpoint:
        named = next((end for end in self.control_listeners if end.listener == name), None)
        return named or Endpoint(name, self.inter_broker_listener.host, 0)

    def advertised(self, listener: Endpoint, *, bound_port: int, hostname: str) -> Endpoint:
        """What others shall be told of a listener that is bound to `bound_port`. `hostname` is this machine's.

        The host is the advertised one, else the bound one, else (bound to every interface) the one advertised for other
        brokers, else `hostname`.
        """
        given = {end.listener: end for end in self.advertised_listeners}
        own = given.get(listener.listener)
        brokers = given.get(self.inter_broker_listener_name)
        if own is not None:
            host = own.host
        elif not is_wildcard(listener.host):
            host = listener.host
        else:
            host = brokers.host if brokers is not None else hostname
        port = own.port if own is not None and own.port else bound_port
        return Endpoint(listener.listener, host, port, listener.security_protocol)

    def log_config(self) -> LogConfig:
        """What a topic's log is configured with where the topic says nothing."""
        own = {topic_key: getattr(self, key.replace(".", "_")) for key, topic_key in TOPIC_KEY_OF.items()}
        return LogConfig(**{topic_key.replace(".", "_"): value for topic_key, value in own.items()})


KEYS: Final[dict[str, Key]] = {
    key.name: key
    for attribute, annotation in get_type_hints(BrokerSettings, include_extras=True).items()
    for key in (each.at(attribute) for each in getattr(annotation, "__metadata__", ()))
}
"""Every key that has an effect, by name, in the order they are explained in."""
