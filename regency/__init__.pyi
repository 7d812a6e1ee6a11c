from regency.cluster.cluster import Cluster as Cluster
from regency.cluster.errors import ClusterError as ClusterError
from regency.cluster.errors import ClusterFileMalformed as ClusterFileMalformed
from regency.cluster.errors import ClusterNotRunning as ClusterNotRunning
from regency.cluster.errors import ClusterRunning as ClusterRunning
from regency.cluster.errors import ClusterStartFailed as ClusterStartFailed
from regency.cluster.errors import ClusterTimeout as ClusterTimeout
from regency.cluster.errors import EmbeddedZooKeeperMissing as EmbeddedZooKeeperMissing
from regency.cluster.errors import NoFreePorts as NoFreePorts
from regency.cluster.errors import TopicRefused as TopicRefused
from regency.cluster.errors import UnknownBroker as UnknownBroker
from regency.cluster.lab import Lab as Lab
from regency.model.errors import RegencyError as RegencyError
from regency.model.settings import SettingsInvalid as SettingsInvalid

__version__: str
