"""Regency: a cluster of broker agents that keep a replicated log, governed by a controller elected through ZooKeeper.

`from regency import Cluster` starts one, for tests and for breaking it; it is loaded on first use.
"""

from __future__ import annotations

import logging

__version__ = "0.1.0"
__all__ = ["Cluster", "__version__"]

logging.getLogger(__name__).addHandler(logging.NullHandler())  # a library is silent unless its user configures logging


def __getattr__(name: str) -> object:
    if name == "Cluster":
        from regency.cluster.cluster import Cluster  # noqa: PLC0415  (daemons and codecs must not pay for it)

        return Cluster
    raise AttributeError(f"module 'regency' has no attribute {name!r}")
