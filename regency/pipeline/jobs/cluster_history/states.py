"""The states that each partition was in, one after another, and from when to when."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history import words

NOBODY = -1
BY_STATE, BY_DELETION, BY_NEW_LIFE = "next state", "deletion", "new life"
"""What ends a state: the next one; the order to delete the topic; that the topic is created again."""
_MERGED = ("controller_epoch", "at_ms", "role", "source", "number", "time_ms", "version", "from", "to", "why")
"""The order of `merge_decisions`; what differs though it has the same number stands somehow, and always so."""
_PARTITION = ("topic", "partition")
_LATER = (
    "filter(ends, each -> each.at_ms >= began_ms and (each.controller_epoch > controller_epoch or "
    "each.controller_epoch = controller_epoch and (role <> 'controller' or each.number > number)))"
)
"""Of the ends of a topic, those decided after a state: an earlier life's may be of the same millisecond, or clock."""


def states(decisions: DataFrame) -> DataFrame:
    """Table `states`: every known state of every partition, in the order of `in_order_of_states`.

    `life` counts from 1 how often the topic was created; `place` counts the states of a life. `began_ms` does not go
    back from one state to the next; `ended_ms` is where the next one begins, in this life or the next, or where the
    topic is to be deleted, and null in the last; `ended_by` says which.
    `was_leader`, `was_isr`, `was_epoch` are what the decision itself says was before; `replicas` are those that its
    reason names. `next_...` is about the state after it in the same life; `complete` is whether that has the next
    version, so that none between them is missing.
    """
    known = decisions.where(f.col("topic").isNotNull())
    merged = Window.partitionBy(*_PARTITION).orderBy(*_MERGED)
    up_to_here = merged.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    created = f.sum((f.col("version") == 0).cast("int")).over(up_to_here)
    placed = (
        known.withColumn("life", f.greatest(created, f.lit(1)))
        .withColumn("merged", f.row_number().over(merged))
        .withColumn("was_leader", _word("from", words.LEADER_BEFORE).try_cast("long"))
        .withColumn("was_isr", _ids(_word("from", words.ISR_BEFORE)))
        .withColumn("was_epoch", _word("from", words.EPOCH_BEFORE).try_cast("long"))
        .withColumn("replicas", _replicas())
    )
    by_agent = f.col("role") == "agent"
    told = placed.withColumn("was_leader", f.when(by_agent, f.col("leader")).otherwise(f.col("was_leader"))).withColumn(
        "was_epoch", f.when(by_agent, f.col("leader_epoch")).otherwise(f.col("was_epoch"))
    )
    ordered = Window.partitionBy(*_PARTITION).orderBy("life", "version", "merged")
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    in_life = Window.partitionBy(*_PARTITION, "life").orderBy("version", "merged")
    timed = told.withColumn("began_ms", f.max("at_ms").over(so_far)).withColumn("place", f.row_number().over(in_life))
    linked = timed.withColumn("next_ms", f.lead("began_ms").over(ordered))
    for name in ("version", "leader", "isr", "leader_epoch", "event", "why", "role", "controller_epoch", "number"):
        linked = linked.withColumn(f"next_{name}", f.lead(name).over(in_life))
    ended = _ended(linked, decisions)
    return ended.withColumn("complete", f.coalesce(f.col("next_version") == f.col("version") + 1, f.lit(True))).drop(
        "at_ms", "next_ms", "merged", "phases", "from", "to", "subject", "same_number"
    )


def _ended(linked: DataFrame, decisions: DataFrame) -> DataFrame:
    """`ended_ms` and `ended_by`: the next state, or the first order to delete the topic that was not taken back."""
    notes = decisions.where(f.col("subject").startswith("topic ")).withColumn("of", f.expr("substring(subject, 7)"))
    after = f.lead("to").over(Window.partitionBy("of").orderBy(*_MERGED))
    stands = (f.col("to") == "to be deleted") & (f.coalesce("after", f.lit("")) != "not to be deleted")
    ends = (
        notes.where(f.col("to").isin("to be deleted", "not to be deleted", "gone"))
        .withColumn("after", after)
        .where(stands | (f.col("to") == "gone"))
        .groupBy("of")
        .agg(f.sort_array(f.collect_list(f.struct("at_ms", "controller_epoch", "number"))).alias("ends"))
    )
    joined = linked.join(ends, f.col("topic") == f.col("of"), "left").drop("of")
    deleted = f.get(f.expr(_LATER), f.lit(0)).getField("at_ms")
    following = f.when(f.col("next_version").isNotNull(), BY_STATE).when(f.col("next_ms").isNotNull(), BY_NEW_LIFE)
    comes_first = f.col("deleted_ms") <= f.coalesce("next_ms", "deleted_ms")
    return (
        joined.withColumn("deleted_ms", deleted)
        .withColumn("ended_ms", f.least("next_ms", "deleted_ms"))
        .withColumn("ended_by", f.when(comes_first, BY_DELETION).otherwise(following))
        .drop("ends", "deleted_ms")
    )


def _replicas() -> Column:
    """All replicas at the time of a state, where its reason names them."""
    moving = f.concat(_ids(_word("why", words.MOVING, 1)), _ids(_word("why", words.MOVING, 2)))
    return f.coalesce(_ids(_word("why", words.MOVED)), moving, _ids(_word("why", words.CHOSEN_OF)))


def _word(column: str, pattern: str, group: int = 1) -> Column:
    """What a group of a pattern matches; null where it does not match."""
    return f.when(f.col(column).rlike(pattern), f.regexp_extract(column, pattern, group))


def _ids(text: Column) -> Column:
    """Ids with commas between; null where one of them is none."""
    numbers = f.transform(f.split(text, ", *"), lambda each: each.try_cast("long"))
    known = f.when(~f.exists(numbers, lambda each: each.isNull()), numbers)
    return f.when(text == "", f.array().cast("array<long>")).otherwise(known)
