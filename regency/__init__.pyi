from regency.cluster.cluster import Cluster as Cluster

__version__: str
