"""What may go wrong while a cluster is started, watched or ended. Each error says what to do next."""

from __future__ import annotations

from typing import ClassVar

from regency.model.errors import RegencyError


class ClusterError(RegencyError):
    """Something about a cluster of processes failed."""

    code: ClassVar[str] = "cluster"


class EmbeddedZooKeeperMissing(ClusterError):
    """The jars or the Java that the embedded ZooKeeper runs on are not installed."""

    code = "embedded_zookeeper_missing"


class ClusterStartFailed(ClusterError):
    """A process ended, or did not answer in time, while it was being started."""

    code = "cluster_start_failed"


class ClusterRunning(ClusterError):
    """A cluster already runs in the directory."""

    code = "cluster_running"


class ClusterNotRunning(ClusterError):
    """No cluster runs in the directory, or the one asked for is stopped."""

    code = "cluster_not_running"


class ClusterFileMalformed(ClusterError):
    """cluster.json cannot be read as what belongs there."""

    code = "cluster_file_malformed"


class UnknownBroker(ClusterError):
    """The cluster has no broker of that id."""

    code = "unknown_broker"


class ClusterTimeout(ClusterError):
    """The cluster did not reach a state in time; the message lists what is missing."""

    code = "cluster_timeout"
    retriable = True


class NoFreePorts(ClusterError):
    """All ports of the range are taken or reserved."""

    code = "no_free_ports"
    retriable = True


class TopicRefused(ClusterError):
    """The cluster did not create a topic; `error_code` is Kafka's, its name is in the message."""

    code = "topic_refused"

    def __init__(self, message: str, error_code: int) -> None:
        super().__init__(message)
        self.error_code = error_code
