"""The settings of a broker agent and its controller, as values. Import from `regency.model.settings`.

Defaults here are the only ones; names, units and ranges stand in `keys`.
"""

from __future__ import annotations

import msgspec

from regency.model.endpoints import PLAINTEXT, is_wildcard
from regency.model.facts import Endpoint
from regency.model.ids import BrokerId
from regency.model.settings.log_config import NEVER, LogConfig
from regency.model.settings.values import INT_MAX

_HOUR_MS = 3_600_000


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One attribute per key of server.properties, dots as underscores; what each means: `describe_settings()`.

    Units: `_ms` milliseconds, `_bytes` bytes, `_seconds` seconds. What Kafka spreads over several keys (log.roll.hours
    and log.roll.ms, log.dir and log.dirs, …) is resolved into one. `warnings` says what has no effect here.
    """

    warnings: tuple[str, ...] = ()
    given: tuple[tuple[str, str], ...] = ()
    """Keys with an effect that were set, with their text, so that it can be told which values are defaults."""

    broker_id: BrokerId = BrokerId(-1)
    """-1 only where no settings were read."""
    broker_rack: str | None = None

    listeners: tuple[Endpoint, ...] = (Endpoint(PLAINTEXT, "", 9092),)
    """Where to listen for Kafka's protocol. Host "": every interface; port 0: any free one."""
    control_listeners: tuple[Endpoint, ...] = ()
    """Those entries of `listeners` that are named as one of the two gRPC listeners."""
    advertised_listeners: tuple[Endpoint, ...] = ()
    """What others shall connect to, where it differs from what is bound. Port 0: the bound one."""
    inter_broker_listener_name: str = PLAINTEXT
    control_plane_listener_name: str = "CONTROL"
    """gRPC listener of the agent."""
    controller_listener_name: str = "CONTROLLER"
    """gRPC listener of the agent's controller process."""
    socket_send_buffer_bytes: int = 102_400
    socket_receive_buffer_bytes: int = 102_400
    socket_listen_backlog_size: int = 50
    socket_request_max_bytes: int = 104_857_600
    queued_max_request_bytes: int = 256 << 20
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    connections_max_idle_ms: int = 600_000
    request_timeout_ms: int = 30_000

    zookeeper_connect: str = ""
    zookeeper_session_timeout_ms: int = 18_000
    zookeeper_connection_timeout_ms: int = 18_000
    zookeeper_set_acl: bool = False
    zookeeper_digest_auth: str = ""
    """`user:password`, or empty."""

    num_partitions: int = 1
    default_replication_factor: int = 1
    auto_create_topics_enable: bool = True
    delete_topic_enable: bool = True
    min_insync_replicas: int = 1
    unclean_leader_election_enable: bool = False

    auto_leader_rebalance_enable: bool = True
    leader_imbalance_per_broker_percentage: int = 10
    leader_imbalance_check_interval_seconds: int = 300
    controller_socket_timeout_ms: int = 30_000
    controlled_shutdown_enable: bool = True
    controlled_shutdown_max_retries: int = 3
    controlled_shutdown_retry_backoff_ms: int = 5_000

    replica_lag_time_max_ms: int = 30_000
    replica_fetch_max_bytes: int = 1_048_576
    replica_fetch_response_max_bytes: int = 10_485_760
    replica_fetch_min_bytes: int = 1
    replica_fetch_wait_max_ms: int = 500
    replica_fetch_backoff_ms: int = 1_000
    replica_socket_timeout_ms: int = 30_000
    replica_high_watermark_checkpoint_interval_ms: int = 5_000
    leader_replication_throttled_rate: int = NEVER
    follower_replication_throttled_rate: int = NEVER
    replication_quota_window_num: int = 11
    replication_quota_window_size_seconds: int = 1
    replica_alter_log_dirs_io_max_bytes_per_second: int = NEVER
    num_replica_fetchers: int = 1
    max_incremental_fetch_session_cache_slots: int = 1_000
    fetch_max_bytes: int = 57_671_680
    message_max_bytes: int = 1_048_588

    log_dirs: tuple[str, ...] = ("/tmp/kafka-logs",)  # noqa: S108 - Kafka's default
    num_recovery_threads_per_data_dir: int = 1
    log_segment_bytes: int = 1 << 30
    log_roll_ms: int = 168 * _HOUR_MS
    log_roll_jitter_ms: int = 0
    log_retention_ms: int = 168 * _HOUR_MS
    """-1: for ever."""
    log_retention_bytes: int = -1
    """-1: without limit."""
    log_retention_check_interval_ms: int = 300_000
    log_cleanup_policy: tuple[str, ...] = ("delete",)
    log_index_size_max_bytes: int = 10 << 20
    log_index_interval_bytes: int = 4_096
    log_flush_interval_messages: int = NEVER
    log_flush_interval_ms: int = NEVER
    log_flush_scheduler_interval_ms: int = NEVER
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_segment_delete_delay_ms: int = 60_000
    log_preallocate: bool = False
    log_message_timestamp_type: str = "CreateTime"
    compression_type: str = "producer"
    producer_id_expiration_ms: int = 86_400_000
    producer_id_expiration_check_interval_ms: int = 600_000

    regency_history_dir: str = ""
    """Never empty once constructed: the first log directory's name with `-history` where nothing else was said."""
    regency_isr_notification_quiet_ms: int = 50
    regency_isr_notification_max_delay_ms: int = 500
    regency_http_port: int = 9_404
    """Of the agent; -1: not served, 0: any free port. jmx_exporter's usual port."""
    regency_controller_http_port: int = 9_405
    regency_controller_metrics_max_partitions: int = 100_000
    regency_http_host: str | None = None
    """None: as the inter-broker listener."""
    regency_queued_max_response_bytes: int = 256 << 20
    regency_report_interval_ms: int = 1_000
    regency_loop_watchdog_ms: int = 30_000
    """0: no watchdog."""
    regency_reconcile_interval_ms: int = 30_000
    regency_state_change_log: bool = False

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
        return LogConfig(
            segment_bytes=self.log_segment_bytes,
            segment_ms=self.log_roll_ms,
            segment_jitter_ms=self.log_roll_jitter_ms,
            segment_index_bytes=self.log_index_size_max_bytes,
            index_interval_bytes=self.log_index_interval_bytes,
            flush_messages=self.log_flush_interval_messages,
            flush_ms=self.log_flush_interval_ms,
            retention_ms=self.log_retention_ms,
            retention_bytes=self.log_retention_bytes,
            file_delete_delay_ms=self.log_segment_delete_delay_ms,
            max_message_bytes=self.message_max_bytes,
            cleanup_policy=self.log_cleanup_policy,
            min_insync_replicas=self.min_insync_replicas,
            unclean_leader_election_enable=self.unclean_leader_election_enable,
            message_timestamp_type=self.log_message_timestamp_type,
            compression_type=self.compression_type,
            preallocate=self.log_preallocate,
        )
