"""What the controller takes from `server.properties`."""

from __future__ import annotations

from pathlib import Path

import msgspec

from regency.model.facts import Endpoint
from regency.model.ids import BrokerId
from regency.model.settings import BrokerSettings
from regency.model.settings.log_config import LogConfig

REPORTS_TO_WAIT_FOR = 3
"""So many intervals of reports may pass before an agent has told what it did."""


class ControllerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one controller process. Times in milliseconds."""

    broker_id: BrokerId
    listener: Endpoint = Endpoint("CONTROLLER", "", 0)
    """Where its gRPC server listens; port 0 takes any."""
    endpoint: str = ""
    """host:port at which agents reach that server, once it is bound."""
    control_listener: str = "CONTROL"
    """Listener of agents at which they take requests."""
    inter_broker_listener: str = "PLAINTEXT"
    """Listener of agents from which followers fetch."""
    num_partitions: int = 1
    default_replication_factor: int = 1
    log_config: LogConfig = LogConfig()
    """Defaults of topic settings."""
    delete_topic_enable: bool = True
    request_timeout_ms: int = 30_000
    shutdown_patience_ms: int = 105_000
    """The longest a broker may take to leave in order; one that is still there then is taken to stay."""
    auto_leader_rebalance: bool = True
    leader_imbalance_percentage: int = 10
    leader_imbalance_check_interval_ms: int = 300_000
    reconcile_interval_ms: int = 30_000
    """How often what brokers report is compared with what they shall host."""
    reconcile_confirm_ms: int = 3_000
    """What still differs so much later is put right: longer than agents take to report."""
    history_dir: Path | None = None


def controller_config(settings: BrokerSettings) -> ControllerConfig:
    """The controller's part of an agent's settings."""
    return ControllerConfig(
        broker_id=settings.broker_id,
        listener=settings.controller_listener,
        control_listener=settings.control_plane_listener_name,
        inter_broker_listener=settings.inter_broker_listener_name,
        num_partitions=settings.num_partitions,
        default_replication_factor=settings.default_replication_factor,
        log_config=settings.log_config(),
        delete_topic_enable=settings.delete_topic_enable,
        request_timeout_ms=settings.controller_socket_timeout_ms,
        shutdown_patience_ms=settings.controlled_shutdown_max_retries
        * (settings.controller_socket_timeout_ms + settings.controlled_shutdown_retry_backoff_ms),
        auto_leader_rebalance=settings.auto_leader_rebalance_enable,
        leader_imbalance_percentage=settings.leader_imbalance_per_broker_percentage,
        leader_imbalance_check_interval_ms=settings.leader_imbalance_check_interval_seconds * 1000,
        reconcile_interval_ms=settings.regency_reconcile_interval_ms,
        reconcile_confirm_ms=REPORTS_TO_WAIT_FOR * settings.regency_report_interval_ms,
        history_dir=Path(settings.regency_history_dir),
    )
