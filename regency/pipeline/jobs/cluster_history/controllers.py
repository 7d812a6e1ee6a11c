"""What controllers did: failovers with their parts, and elections by cause."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history.days import DAY_MS
from regency.pipeline.jobs.cluster_history.leaderless import Note, Noticed, deaths
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
