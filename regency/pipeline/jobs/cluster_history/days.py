"""Sums by day (UTC) of the times without a leader: of each partition, and by the broker that led before."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

DAY_MS = 86_400_000


def day_of(ms: Column) -> Column:
    """The day of a time in milliseconds, in UTC whatever the session's time zone."""
    return f.date_add(f.lit("1970-01-01").cast("date"), f.floor(ms / DAY_MS).cast("int"))


def by_partition_day(found: DataFrame) -> DataFrame:
    """Table `leaderless_by_partition_day`: milliseconds and intervals of each partition on each day (UTC)."""
    return _by_day(found).groupBy("topic", "partition", "day").agg(*_sums())


def by_broker_day(found: DataFrame) -> DataFrame:
    """Table `leaderless_by_broker_day`: the same by who led before, over all of its partitions together."""
    partitions = f.count_distinct("topic", "partition").alias("partitions")
    return _by_day(found).groupBy("broker", "day").agg(*_sums(), partitions)


def _sums() -> tuple[Column, Column]:
    return f.sum("day_ms").alias("ms"), f.count("*").alias("intervals")


def _by_day(found: DataFrame) -> DataFrame:
    """A row for each day that an interval touches, with the milliseconds on it."""
    end = f.col("began_ms") + f.col("ms")
    last = f.greatest(f.col("began_ms"), end - 1)
    days = f.sequence(f.floor(f.col("began_ms") / DAY_MS), f.floor(last / DAY_MS))
    split = found.withColumn("number", f.explode(days)).withColumn("midnight", f.col("number") * DAY_MS)
    own = f.least(end, f.col("midnight") + DAY_MS) - f.greatest(f.col("began_ms"), f.col("midnight"))
    return split.withColumn("day_ms", own).withColumn("day", day_of(f.col("midnight")))
