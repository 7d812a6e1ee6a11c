"""What all cases are run in: a Spark with both connectors, a cluster, a place for files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

CONNECTORS = ("kafka", "regency")
REFUSALS = (PySparkException, Py4JError)
"""What Spark raises for a query that is refused or fails."""


@dataclass(frozen=True, slots=True)
class Session:
    """Handed to every case."""

    spark: Any
    servers: str
    folder: Path

    def reader(self, connector: str, options: Mapping[str, str], *, stream: bool) -> Any:
        made = (self.spark.readStream if stream else self.spark.read).format(connector)
        return made.option("kafka.bootstrap.servers", self.servers).options(**options).load()

    def checkpoint(self, name: str) -> Path:
        return self.folder / "checkpoints" / name
