"""The jars of Spark's Kafka connector that somebody has put into a directory."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from regency.model.errors import RegencyError

SPARKS = ("spark-sql-kafka-0-10_2.13", "spark-token-provider-kafka-0-10_2.13")
"""Of the group org.apache.spark, in Spark's version."""
OTHERS = {"kafka-clients": "org.apache.kafka", "commons-pool2": "org.apache.commons"}
"""Their groups; in the versions that the POM of the first of Spark's names."""


class JarsMissing(RegencyError):
    """The directory does not hold what Spark's Kafka connector needs, once each."""

    code = "bench_jars_missing"


def jars_in(folder: Path, spark_version: str) -> list[Path]:
    """The four jars, in the order of their names. Raises JarsMissing that names coordinates."""
    there = sorted(folder.glob("*.jar"))
    chosen, missing = [], []
    for name in SPARKS:
        found = [path for path in there if path.name == f"{name}-{spark_version}.jar"]
        chosen += found
        if not found:
            missing.append(f"org.apache.spark:{name}:{spark_version}")
    for name, group in OTHERS.items():
        found = _versions_of(name, there)
        if len(found) > 1:
            raise JarsMissing(
                f"{folder} holds {name} in several versions: {', '.join(path.name for path in found)}.",
                hint=f"Keep the one that the POM of {SPARKS[0]} names.",
            )
        chosen += found
        if not found:
            missing.append(f"{group}:{name} (the version that the POM of {SPARKS[0]} names)")
    if missing:
        raise JarsMissing(
            f"{folder} has not all jars of Spark's Kafka connector; missing: {', '.join(missing)}.",
            hint="Put them there, by these Maven coordinates; the version is that of the pyspark that runs.",
        )
    return chosen


def _versions_of(name: str, there: Iterable[Path]) -> list[Path]:
    return [path for path in there if re.fullmatch(rf"{re.escape(name)}-\d[\w.-]*\.jar", path.name)]
