"""When partitions were without a leader, and for how long: intervals, and their sums by partition, broker and day.

A partition is without a leader while its state names none, and from the moment in which a controller notices that the
broker its state names is dead, until a state names a leader that lives.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history.reading import day_of
from regency.pipeline.jobs.cluster_history.states import NOBODY

DAY_MS = 86_400_000


def intervals(states: DataFrame, decisions: DataFrame, end_ms: int) -> DataFrame:
    """Table `leaderless`: an interval per row; `ended_ms` null = still so at the end of the history, `end_ms`.

    `broker` led before, null where nobody ever did; `complete`: no state within it is missing from the history.
    """
    parts = _parts(states, decisions)
    order = Window.partitionBy("topic", "partition", "life").orderBy("place")
    goes_on = (f.col("leader") == NOBODY) & f.coalesce(f.lag(f.col("part_ms").isNotNull()).over(order), f.lit(False))
    first = f.col("part_ms").isNotNull() & ~goes_on
    numbered = parts.withColumn("interval", f.sum(first.cast("int")).over(order)).withColumn(
        "led", f.coalesce(f.when(f.col("leader") != NOBODY, f.col("leader")), f.col("was_leader"))
    )
    here = numbered.where(f.col("part_ms").isNotNull())
    by = f.col("place")
    found = here.groupBy("topic", "partition", "life", "interval").agg(
        f.min("part_ms").alias("began_ms"),
        f.max_by("ended_ms", by).alias("ended_ms"),
        f.min_by("led", by).alias("broker"),
        f.min_by("part_event", by).alias("began_by"),
        f.min_by("part_why", by).alias("why"),
        f.max_by("next_event", by).alias("ended_by"),
        f.max_by("next_leader", by).alias("new_leader"),
        f.min("complete").alias("complete"),
    )
    last = f.greatest(f.coalesce("ended_ms", f.lit(end_ms)), f.col("began_ms"))
    return (
        found.withColumn("broker", f.when(f.col("broker") != NOBODY, f.col("broker")))
        .withColumn("open", f.col("ended_ms").isNull())
        .withColumn("ms", last - f.col("began_ms"))
        .drop("interval")
    )


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


def _parts(states: DataFrame, decisions: DataFrame) -> DataFrame:
    """States with `part_ms`: from when, in that state, nobody led; null where somebody led through all of it."""
    dead = _deaths(decisions)
    wins = _wins(decisions)
    gone = (
        (f.col("next_role") == "controller")
        & (f.col("next_controller_epoch") == f.col("death_epoch"))
        & (f.col("leader") == f.col("death_broker"))
        & (f.col("next_number") > f.col("death_number"))
        & (f.coalesce("alive_number", f.lit(2**62)) > f.col("next_number"))
    )
    led = f.col("leader") != NOBODY
    replaced = (f.col("next_leader") != f.col("leader")) | (f.col("next_leader_epoch") > f.col("leader_epoch"))
    unseen = ~f.array_contains("next_isr", f.col("leader")) | (f.col("next_leader") == f.col("leader"))
    at_failover = (f.col("next_event") == "failover") & (f.col("next_role") == "controller") & unseen
    joined = states.join(f.broadcast(dead), gone, "left").join(
        f.broadcast(wins), f.col("next_controller_epoch") == f.col("win_epoch"), "left"
    )
    noticed = f.coalesce("death_ms", f.when(at_failover, f.col("win_ms")))
    from_then = f.greatest("began_ms", f.least(noticed, "ended_ms"))
    part = f.when(~led, f.col("began_ms")).when(replaced & noticed.isNotNull(), from_then)
    event = f.when(led, f.col("next_event")).otherwise(f.col("event"))
    why = f.when(led, f.col("next_why")).otherwise(f.col("why"))
    return joined.withColumn("part_ms", part).withColumn("part_event", event).withColumn("part_why", why)


def _deaths(decisions: DataFrame) -> DataFrame:
    """When a controller noted a broker dead, and with which number it noted it alive again in the same epoch."""
    notes = (
        decisions.where((f.col("role") == "controller") & f.col("subject").rlike(r"^broker \d{1,10}$"))
        .where((f.col("to") == "dead") | f.col("to").startswith("live, epoch"))
        .withColumn("death_broker", f.substring_index("subject", " ", -1).try_cast("long"))
    )
    order = Window.partitionBy("controller_epoch", "death_broker").orderBy("number", "at_ms")
    numbered = notes.withColumn("alive_number", f.lead("number").over(order)).where(f.col("to") == "dead")
    return numbered.select(
        "death_broker",
        f.col("controller_epoch").alias("death_epoch"),
        f.col("number").alias("death_number"),
        f.col("at_ms").alias("death_ms"),
        "alive_number",
    )


def _wins(decisions: DataFrame) -> DataFrame:
    """When each controller epoch began."""
    won = decisions.where((f.col("subject") == "controller") & (f.col("from") == "a candidate"))
    return won.groupBy(f.col("controller_epoch").alias("win_epoch")).agg(f.min("at_ms").alias("win_ms"))
