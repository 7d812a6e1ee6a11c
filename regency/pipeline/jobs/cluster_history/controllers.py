"""What controllers did, failovers with their parts and elections by cause; and which brokers are slow."""

from __future__ import annotations

from functools import reduce
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history.absences import BY_UNSEEN_RETURN, FELL_BEHIND
from regency.pipeline.jobs.cluster_history.leaderless import DAY_MS, Note, Noticed, deaths
from regency.pipeline.jobs.cluster_history.lives import NOBODY

IS_BROKER, BROKER = r"^broker \d{1,10}$", "try_cast(substring_index(subject, ' ', -1) as long)"
"""Of the subject of a decision about a broker: a regular expression, and which broker it is."""
CREATED = "created"
ELECTED = "elected"


class Facts(NamedTuple):
    """What is known of a history as a whole."""

    many: int
    begin: int
    end: int
    doubtful: bool
    """Whether different decisions have the same number."""
    topic_notes: int
    """Decisions about topics."""
    noticed: Noticed


def facts(decisions: DataFrame) -> Facts:
    """One pass. The driver has all deaths and starts of brokers, and elections of controllers."""
    note = f.struct("controller_epoch", f.expr(BROKER), "number", "at_ms", f.col("to") == "dead")
    of_broker = (f.col("role") == "controller") & f.col("subject").rlike(IS_BROKER)
    tells = (f.col("to") == "dead") | f.col("to").startswith("live, epoch")
    won = (f.col("subject") == "controller") & (f.col("from") == "a candidate")
    [row] = decisions.agg(
        f.count("*"),
        f.min("at_ms"),
        f.max("at_ms"),
        f.coalesce(f.max("same_number") > 1, f.lit(False)),
        f.count_if(f.col("subject").startswith("topic ")),
        f.collect_list(f.when(of_broker & tells, note)).alias("notes"),
        f.collect_list(f.when(won, f.struct("controller_epoch", "at_ms"))).alias("wins"),
    ).collect()
    wins = dict(sorted((tuple(each) for each in row.wins), reverse=True))
    many, begin, end, doubtful, topic_notes = row[:5]
    return Facts(many, begin, end, doubtful, topic_notes, Noticed(deaths(Note(*each) for each in row.notes), wins))


def failovers(decisions: DataFrame) -> DataFrame:
    """Table `failovers`: a controller epoch per row. What the history does not have is null.

    `took_ms` is by the controller's own clock, from the election to the last hand-over; `vacant_ms` is from the moment
    in which the last controller resigned, and null where it did not live to say so.
    """
    notes = decisions.where(f.col("subject") == "controller")
    won = f.col("from") == "a candidate"
    resigned = f.col("to") == "a candidate"
    done = f.col("phases").isNotNull()
    took = f.expr("aggregate(phases, 0L, (sum, each) -> try_add(sum, try_cast(get(each, 1) as long)))")
    elected = decisions.where((f.col("event") == "failover") & f.col("topic").isNotNull())
    found = notes.groupBy("controller_epoch").agg(
        f.max("source").alias("broker"),
        f.min(f.when(won, f.col("at_ms"))).alias("won_ms"),
        f.max(f.when(done, took)).alias("took_ms"),
        f.max(f.when(done, f.col("why"))).alias("what"),
        f.max(done).alias("finished"),
        f.max(f.when(resigned, f.col("at_ms"))).alias("resigned_ms"),
        f.max(f.when(resigned, f.col("why"))).alias("resigned_why"),
    )
    decided = elected.groupBy("controller_epoch").agg(
        f.count("*").alias("decided"), f.count_if(f.col("leader") == NOBODY).alias("left_without_leader")
    )
    order = Window.orderBy("controller_epoch")
    before = f.lag(f.struct("controller_epoch", "resigned_ms")).over(order)
    return (
        found.join(decided, "controller_epoch", "left")
        .fillna(0, subset=["decided", "left_without_leader"])
        .withColumn("before", before)
        .withColumn(
            "vacant_ms",
            f.when(
                (f.col("before.controller_epoch") == f.col("controller_epoch") - 1)
                & f.col("before.resigned_ms").isNotNull(),
                f.greatest(f.col("won_ms") - f.col("before.resigned_ms"), f.lit(0)),
            ),
        )
        .drop("before")
    )


def phases(decisions: DataFrame) -> DataFrame:
    """Table `failover_phases`: the parts of each failover in their order."""
    done = decisions.where(f.col("phases").isNotNull())
    parts = done.select(
        "controller_epoch", f.col("source").alias("broker"), f.posexplode("phases").alias("place", "part")
    )
    return parts.select(
        "controller_epoch",
        "broker",
        "place",
        f.get("part", f.lit(0)).alias("phase"),
        f.get("part", f.lit(1)).try_cast("long").alias("ms"),
    )


def elections(states: DataFrame) -> DataFrame:
    """Table `elections`: how often controllers chose leaders, by day (UTC), cause and outcome.

    `unclean`: the new leader was not in the ISR before.
    """
    days = f.floor(f.col("began_ms") / DAY_MS).cast("int")
    return (
        with_outcomes(states)
        .groupBy(f.date_from_unix_date(days).alias("day"), f.col("event").alias("cause"), "outcome", "unclean")
        .agg(f.count("*").alias("elections"))
    )


def with_outcomes(states: DataFrame) -> DataFrame:
    """The states by which controllers chose a leader, with `outcome` and `unclean`; not those about the ISR alone."""
    ruled = states.where(f.col("role") == "controller")
    leader, was = f.col("leader"), f.col("was_leader")
    outcome = (
        f.when(was.isNull() & (leader != NOBODY), CREATED)
        .when((leader == NOBODY) & (was.isNull() | (was != NOBODY)), "left without a leader")
        .when((leader != NOBODY) & (leader != was), ELECTED)
        .when((leader != NOBODY) & (f.col("leader_epoch") > f.col("was_epoch")), "same leader, new epoch")
    )
    unclean = (leader != NOBODY) & ~f.coalesce(f.array_contains("was_isr", leader), f.lit(True))
    chosen = ruled.withColumn("outcome", outcome).where(f.col("outcome").isNotNull())
    return chosen.withColumn("unclean", unclean)


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
