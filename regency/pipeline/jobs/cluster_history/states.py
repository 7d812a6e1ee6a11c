"""The states that each partition was in, one after another, and from when to when."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

NOBODY = -1
_MERGED = ("controller_epoch", "at_ms", "role", "source", "number")
"""The order of `merge_decisions`."""
_PARTITION = ("topic", "partition")
_NUMBER = r"\d{1,10}"
"""In words that say what was before: what is none, or longer than any id or epoch, is not known."""


def states(decisions: DataFrame) -> DataFrame:
    """Table `states`: every known state of every partition, in the order of `in_order_of_states`.

    `life` counts from 1 how often the topic was created. `began_ms` does not go back from one state to the next;
    `ended_ms` is where the next one begins, in this life or the next, or where the topic is to be deleted, and null in
    the last.
    `was_leader`, `was_isr`, `was_epoch` are what the decision itself says was before. `next_...` is about the state
    after it in the same life; `complete` is whether that has the next version, so that none between them is missing.
    """
    known = decisions.where(f.col("topic").isNotNull())
    merged = Window.partitionBy(*_PARTITION).orderBy(*_MERGED)
    up_to_here = merged.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    created = f.sum((f.col("version") == 0).cast("int")).over(up_to_here)
    placed = (
        known.withColumn("life", f.greatest(created, f.lit(1)))
        .withColumn("place", f.row_number().over(merged))
        .withColumn("was_leader", _was(rf"^leader (-?{_NUMBER}),").cast("long"))
        .withColumn("was_isr", _isr(_was(rf"isr \[((?:{_NUMBER}(?:, *{_NUMBER})*)?)\]")))
        .withColumn("was_epoch", _was(rf"leader epoch ({_NUMBER})$").cast("long"))
    )
    by_agent = f.col("role") == "agent"
    told = placed.withColumn("was_leader", f.when(by_agent, f.col("leader")).otherwise(f.col("was_leader"))).withColumn(
        "was_epoch", f.when(by_agent, f.col("leader_epoch")).otherwise(f.col("was_epoch"))
    )
    ordered = Window.partitionBy(*_PARTITION).orderBy("life", "version", "place")
    so_far = ordered.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    in_life = Window.partitionBy(*_PARTITION, "life").orderBy("version", "place")
    timed = told.withColumn("began_ms", f.max("at_ms").over(so_far))
    linked = timed.withColumn("next_ms", f.lead("began_ms").over(ordered))
    for name in ("version", "leader", "isr", "leader_epoch", "event", "why", "role", "controller_epoch", "number"):
        linked = linked.withColumn(f"next_{name}", f.lead(name).over(in_life))
    ended = _ended_by_deletion(linked, decisions)
    return ended.withColumn("complete", f.coalesce(f.col("next_version") == f.col("version") + 1, f.lit(True))).drop(
        "at_ms", "next_ms", "place", "phases", "from", "to", "subject"
    )


def _ended_by_deletion(linked: DataFrame, decisions: DataFrame) -> DataFrame:
    """`ended_ms`: by the next state, or by the first order to delete the topic that was not taken back."""
    notes = decisions.where(f.col("subject").startswith("topic ")).withColumn("of", f.expr("substring(subject, 7)"))
    after = f.lead("to").over(Window.partitionBy("of").orderBy(*_MERGED))
    ends = (
        notes.where(f.col("to").isin("to be deleted", "not to be deleted", "gone"))
        .withColumn("after", after)
        .where((f.col("to") != "not to be deleted") & (f.coalesce("after", f.lit("")) != "not to be deleted"))
        .groupBy("of")
        .agg(f.sort_array(f.collect_list("at_ms")).alias("ends"))
    )
    joined = linked.join(ends, f.col("topic") == f.col("of"), "left").drop("of")
    end = f.expr("filter(ends, each -> each >= began_ms)")[0]
    return joined.withColumn("ended_ms", f.least("next_ms", end)).drop("ends")


def _was(pattern: str) -> Column:
    found = f.regexp_extract("from", pattern, 1)
    return f.when(f.col("from").rlike(pattern), found)


def _isr(text: Column) -> Column:
    return f.when(text == "", f.array().cast("array<long>")).otherwise(f.split(text, ", *").cast("array<long>"))
