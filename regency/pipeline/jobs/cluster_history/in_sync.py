"""Which brokers are slow, by the absences of replicas from the ISR."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history.absences import BY_UNSEEN_RETURN
from regency.pipeline.jobs.cluster_history.controllers import BROKER, CREATED, ELECTED, IS_BROKER
from regency.pipeline.jobs.cluster_history.flapping import FELL_BEHIND

REPLICA = ("topic", "partition", "broker")


def brokers(found: DataFrame, leaderless: DataFrame, decisions: DataFrame, chosen: DataFrame) -> DataFrame:
    """Table `brokers`: what the records say of each; the slowest have the largest `behind_ms` and `catch_up_...`.

    `behind_...`: its replicas out of the ISR because they fell behind, though it was alive; the median is without those
    whose return is not recorded, of which only the least is known. `catch_up_...`: from its registration until a
    replica was back that had left because it was dead or shutting down. `chosen`: states with outcomes.
    """
    notes = decisions.where((f.col("role") == "controller") & f.col("subject").rlike(IS_BROKER)).withColumn(
        "broker", f.expr(BROKER)
    )
    lives = notes.groupBy("broker").agg(
        f.count_if(f.col("to") == "dead").alias("deaths"),
        f.count_if((f.col("from") != "absent") & f.col("to").startswith("live, epoch")).alias("bounces"),
        (f.max_by("to", f.struct("controller_epoch", "number")) == "forgotten").alias("forgotten"),
    )
    slow = f.col("left_by") == FELL_BEHIND
    measured = slow & ~f.col("ended_by").eqNullSafe(BY_UNSEEN_RETURN)
    registered = notes.where(f.col("to").startswith("live, epoch")).select("broker", f.col("at_ms").alias("live_ms"))
    caught = (
        found.where(~slow & f.col("back_ms").isNotNull())
        .join(f.broadcast(registered), "broker")
        .where((f.col("live_ms") >= f.col("left_ms")) & (f.col("live_ms") <= f.col("back_ms")))
        .groupBy(*REPLICA, "life", "left_ms")
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
        f.percentile(f.when(measured, f.col("out_ms")), f.lit(0.5)).alias("behind_median_ms"),
        f.max(f.when(slow, f.col("out_ms"))).alias("behind_longest_ms"),
    )
    lost = (
        leaderless.where(f.col("broker").isNotNull())
        .groupBy("broker")
        .agg(f.sum("ms").alias("leaderless_ms"), f.count("*").alias("leaderless_intervals"))
    )
    parts = reduce(
        lambda told, other: told.unionByName(other, allowMissingColumns=True),
        (lives, behind, caught, lost, _led(chosen)),
    )
    joined = parts.groupBy("broker").agg(*(f.max(name).alias(name) for name in parts.columns[1:]))
    counts = ("deaths", "bounces", "left_isr", "fell_behind", "catch_ups", "leaderless_intervals", "elected")
    zeros: dict[str, int | bool] = dict.fromkeys((*counts, "behind_ms", "leaderless_ms"), 0)
    return joined.fillna({**zeros, "forgotten": False})


def _led(chosen: DataFrame) -> DataFrame:
    became = chosen.where(f.col("outcome").isin(CREATED, ELECTED))
    return became.groupBy(f.col("leader").alias("broker")).agg(f.count("*").alias("elected"))
