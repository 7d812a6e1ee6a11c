"""Regency: a cluster of broker agents that keep a replicated log, governed by a controller elected through ZooKeeper.

`from regency import Cluster` starts one, for tests and for breaking it, and attaches to one of `regency up`; its errors
are here too. All is loaded on first use.
"""

from __future__ import annotations

import logging as _logging
from importlib import import_module as _import_module

__version__ = "0.1.0"
_WHERE = {
    "Cluster": "regency.cluster.cluster",
    "Lab": "regency.cluster.lab",
    "RegencyError": "regency.model.errors",
    "SettingsInvalid": "regency.model.settings",
    **dict.fromkeys(
        (
            "ClusterError",
            "ClusterFileMalformed",
            "ClusterNotRunning",
            "ClusterRunning",
            "ClusterStartFailed",
            "ClusterTimeout",
            "EmbeddedZooKeeperMissing",
            "NoFreePorts",
            "TopicRefused",
            "UnknownBroker",
        ),
        "regency.cluster.errors",
    ),
}
__all__ = [  # noqa: PLE0604, RUF100  (names that __getattr__ finds)
    "Cluster",
    "ClusterError",
    "ClusterFileMalformed",
    "ClusterNotRunning",
    "ClusterRunning",
    "ClusterStartFailed",
    "ClusterTimeout",
    "EmbeddedZooKeeperMissing",
    "Lab",
    "NoFreePorts",
    "RegencyError",
    "SettingsInvalid",
    "TopicRefused",
    "UnknownBroker",
    "__version__",
]

_logging.getLogger(__name__).addHandler(_logging.NullHandler())  # silent unless the library's user configures logging


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'regency' has no attribute {name!r}")
    return getattr(_import_module(_WHERE[name]), name)  # daemons and codecs must not pay for it


def __dir__() -> list[str]:
    return __all__
