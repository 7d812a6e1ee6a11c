"""The Spark session of `regency pipeline`: Java as for the embedded ZooKeeper, a local master by default."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from regency.cluster.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
"""Master by default: every core of this machine."""

_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.log.level": "ERROR",
}


@contextmanager
def spark_session(
    name: str, *, master: str = LOCAL, settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session with the connector registered, stopped at the end. `settings` are Spark's, by name.

    Raises EmbeddedZooKeeperMissing where no Java of version 17 or later is found.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 (takes half a second, and is an extra)

    os.environ.setdefault("JAVA_HOME", str(find_java().resolve().parent.parent))
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in {**_SETTINGS, **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
