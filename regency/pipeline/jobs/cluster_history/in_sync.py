"""Who left the ISR, when it came back, who flaps, and which brokers are slow by that."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history.controllers import CREATED, ELECTED

HOUR_MS = 3_600_000
FELL_BEHIND = "isr_shrink"
"""The event by which a leader takes out a replica that is behind for longer than replica.lag.time.max.ms."""
_REPLICA = ("topic", "partition", "broker")


def absences(states: DataFrame, end_ms: int) -> DataFrame:
    """Table `isr_absences`: a replica that left the ISR, until it came back.

    `back_ms` is null where the history does not have its return; `open` says that it was still out at the end.
    """
    changes = states.where(f.col("was_isr").isNotNull())
    left = changes.withColumn("broker", f.explode(f.array_except("was_isr", "isr"))).withColumn("leaves", f.lit(True))
    came = changes.withColumn("broker", f.explode(f.array_except("isr", "was_isr"))).withColumn("leaves", f.lit(False))
    order = Window.partitionBy(*_REPLICA, "life").orderBy("version")
    steps = left.unionByName(came)
    for name in ("leaves", "began_ms", "event"):
        steps = steps.withColumn(f"then_{name}", f.lead(name).over(order))
    returns = ~f.coalesce("then_leaves", f.lit(True))
    back = f.when(returns, f.col("then_began_ms"))
    still = f.col("then_leaves").isNull()
    return steps.where("leaves").select(
        *_REPLICA,
        "life",
        f.col("began_ms").alias("left_ms"),
        back.alias("back_ms"),
        f.when(
            returns | still, f.coalesce(back, f.greatest(f.lit(end_ms), f.col("began_ms"))) - f.col("began_ms")
        ).alias("out_ms"),
        still.alias("open"),
        f.col("event").alias("left_by"),
        f.col("why").alias("left_why"),
        f.when(returns, f.col("then_event")).alias("back_by"),
    )


def flapping(found: DataFrame) -> DataFrame:
    """Table `isr_flapping`: of each replica that left the ISR how often, and how often it came back.

    `most_in_an_hour` is the largest number of times it left within any 60 minutes.
    """
    hour = Window.partitionBy(*_REPLICA).orderBy("left_ms").rangeBetween(-HOUR_MS, Window.currentRow)
    return (
        found.withColumn("within", f.count("*").over(hour))
        .groupBy(*_REPLICA)
        .agg(
            f.count("*").alias("left"),
            f.count_if(f.col("left_by") == FELL_BEHIND).alias("fell_behind"),
            f.count("back_ms").alias("came_back"),
            f.max("within").alias("most_in_an_hour"),
            f.sum("out_ms").alias("out_ms"),
            f.max("out_ms").alias("longest_ms"),
        )
    )


def brokers(found: DataFrame, leaderless: DataFrame, decisions: DataFrame, chosen: DataFrame) -> DataFrame:
    """Table `brokers`: what the records say of each; the slowest have the largest `behind_ms` and `catch_up_...`.

    `behind_...`: its replicas out of the ISR because they fell behind, though it was alive. `catch_up_...`: from its
    registration until a replica was back that had left because it was dead or shutting down. `chosen`: states with
    outcomes.
    """
    notes = decisions.where((f.col("role") == "controller") & f.col("subject").rlike(r"^broker \d{1,10}$")).withColumn(
        "broker", f.substring_index("subject", " ", -1).cast("long")
    )
    lives = notes.groupBy("broker").agg(
        f.count_if(f.col("to") == "dead").alias("deaths"),
        f.count_if((f.col("from") != "absent") & f.col("to").startswith("live, epoch")).alias("bounces"),
        (f.max_by("to", f.struct("controller_epoch", "number")) == "forgotten").alias("forgotten"),
    )
    slow = f.col("left_by") == FELL_BEHIND
    registered = notes.where(f.col("to").startswith("live, epoch")).select("broker", f.col("at_ms").alias("live_ms"))
    caught = (
        found.where(~slow & f.col("back_ms").isNotNull())
        .join(f.broadcast(registered), "broker")
        .where((f.col("live_ms") >= f.col("left_ms")) & (f.col("live_ms") <= f.col("back_ms")))
        .groupBy(*_REPLICA, "life", "left_ms")
        .agg((f.max("back_ms") - f.max("live_ms")).alias("ms"))
        .groupBy("broker")
        .agg(
            f.count("*").alias("catch_ups"),
            f.percentile("ms", f.lit(0.5)).alias("catch_up_median_ms"),
            f.max("ms").alias("catch_up_longest_ms"),
        )
    )
    behind = found.groupBy("broker").agg(
        f.count("*").alias("left_isr"),
        f.count_if(slow).alias("fell_behind"),
        f.sum(f.when(slow, f.col("out_ms"))).alias("behind_ms"),
        f.percentile(f.when(slow, f.col("out_ms")), f.lit(0.5)).alias("behind_median_ms"),
        f.max(f.when(slow, f.col("out_ms"))).alias("behind_longest_ms"),
    )
    lost = (
        leaderless.where(f.col("broker").isNotNull())
        .groupBy("broker")
        .agg(f.sum("ms").alias("leaderless_ms"), f.count("*").alias("leaderless_intervals"))
    )
    joined = lives
    for other in (behind, caught, lost, _led(chosen)):
        joined = joined.join(other, "broker", "full")
    counts = ("deaths", "bounces", "left_isr", "fell_behind", "catch_ups", "leaderless_intervals", "elected")
    zeros: dict[str, int | bool] = dict.fromkeys((*counts, "behind_ms", "leaderless_ms"), 0)
    return joined.fillna({**zeros, "forgotten": False})


def _led(chosen: DataFrame) -> DataFrame:
    became = chosen.where(f.col("outcome").isin(CREATED, ELECTED))
    return became.groupBy(f.col("leader").alias("broker")).agg(f.count("*").alias("elected"))
