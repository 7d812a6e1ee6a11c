"""When replicas were out of the ISR: from the state that took them out until one that shows them in it, or no more."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from regency.pipeline.jobs.cluster_history import words
from regency.pipeline.jobs.cluster_history.states import BY_DELETION, BY_NEW_LIFE

BY_RETURN, BY_UNSEEN_RETURN, BY_REASSIGNMENT = "return", "unrecorded return", "reassignment"
"""What ends an absence, beside the end of the topic's life (BY_DELETION, BY_NEW_LIFE)."""
REPLICA = ("topic", "partition", "broker")
_LIFE = ("topic", "partition", "life")


def absences(states: DataFrame, end_ms: int) -> DataFrame:
    """Table `isr_absences`: a replica that left the ISR, until it came back or was a replica no more.

    `back_ms` is when it came back, where that is recorded; `ended_ms`, `ended_by`: when and how it ended, null where it
    was still out at `end_ms` (`open`). An unrecorded return was before `ended_ms`, where a state shows the replica in
    the ISR: `out_ms` is then up to the last state that shows it out, so the least it can be. `complete`: no state
    between is missing. A replica that leaves because it is moved away is not absent.
    """
    ended = _ends(_seen(states))
    last = f.coalesce("known_ms", f.greatest(f.lit(end_ms), f.col("left_ms")))
    came_back = f.col("ended_by") == BY_RETURN
    return ended.select(
        *REPLICA,
        "life",
        "left_ms",
        f.when(came_back, f.col("ended_ms")).alias("back_ms"),
        "ended_ms",
        (last - f.col("left_ms")).alias("out_ms"),
        f.col("ended_by").isNull().alias("open"),
        "ended_by",
        "complete",
        "left_by",
        "left_why",
        f.when(came_back, f.col("end_event")).alias("back_by"),
    )


def _seen(states: DataFrame) -> DataFrame:
    """Each state of a life with each replica that leaves the ISR in that life, and what it shows of it.

    `was_in`: before it, null where that is not known; `is_in`: in it; `leaves`: out by it, and a replica still;
    `moved`: no replica any more, as far as it says.
    """
    in_life = Window.partitionBy(*_LIFE).orderBy("place")
    follows = f.col("version") == f.lag("version").over(in_life) + 1
    before = f.coalesce("was_isr", f.when(follows, f.lag("isr").over(in_life)))
    so_far = in_life.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    missing = f.col("version") > f.lag("version").over(in_life) + 1
    known = states.withColumn("before", before).withColumn("missing", missing)
    known = known.withColumn("gaps", f.count_if("missing").over(so_far))
    gone = f.explode(f.array_except("before", "isr")).alias("broker")
    leavers = known.where(f.col("before").isNotNull()).select(*_LIFE, gone).distinct()
    dropped = f.col("event").isin(*words.REASSIGNMENTS) & f.array_contains("before", f.col("broker"))
    moved = f.coalesce(~f.array_contains("replicas", f.col("broker")), dropped, f.lit(False))
    return (
        known.join(leavers, list(_LIFE))
        .withColumn("was_in", f.array_contains("before", f.col("broker")))
        .withColumn("is_in", f.array_contains("isr", f.col("broker")))
        .withColumn("moved", moved & ~f.col("is_in"))
        .withColumn("leaves", f.coalesce("was_in", f.lit(False)) & ~f.col("is_in") & ~f.col("moved"))
    )


def _ends(seen: DataFrame) -> DataFrame:
    """A row for each time a replica leaves, with the first of what ends that, which the next leaving may show."""
    order = Window.partitionBy(*_LIFE, "broker").orderBy("place")
    so_far = order.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    numbered = seen.withColumn("absence", f.count_if(f.col("leaves")).over(so_far)).withColumn(
        "known_out_ms", f.lag("began_ms").over(order)
    )
    left = f.when(f.col("leaves"), f.struct("began_ms", "place", "event", "why", "gaps"))
    found = (
        numbered.withColumn("end", _end())
        .where("absence > 0")
        .groupBy(*_LIFE, "broker", "absence")
        .agg(
            f.max(left).alias("left"),
            f.min_by("end", f.when(f.col("end").isNotNull(), f.col("place"))).alias("end"),
            f.max_by(f.struct("began_ms", "gaps"), "place").alias("last"),
        )
    )
    again = f.lead("left.began_ms").over(Window.partitionBy(*_LIFE, "broker").orderBy("absence"))
    unseen = _ended(again, BY_UNSEEN_RETURN, f.col("last.began_ms"), f.lit(None).cast("string"), f.col("last.gaps"))
    end = f.coalesce("end", f.when(again.isNotNull(), unseen))
    gaps = f.coalesce("end.gaps", "last.gaps")
    return found.withColumn("end", end).select(
        *_LIFE,
        "broker",
        f.col("left.began_ms").alias("left_ms"),
        f.col("left.event").alias("left_by"),
        f.col("left.why").alias("left_why"),
        "end.ended_ms",
        "end.ended_by",
        "end.known_ms",
        "end.end_event",
        ((gaps == f.col("left.gaps")) & ~f.col("end.ended_by").eqNullSafe(BY_UNSEEN_RETURN)).alias("complete"),
    )


def _end() -> Column:
    """How the absence that lasts when a state begins ends in it, or with it; null where it goes on."""
    event, gaps, began = f.col("event"), f.col("gaps"), f.col("began_ms")
    out_before = f.coalesce(~f.col("was_in"), f.lit(False))
    ends_life = f.col("ended_by").isin(BY_DELETION, BY_NEW_LIFE)
    with_life = f.when(ends_life, _ended(f.col("ended_ms"), f.col("ended_by"), f.col("ended_ms"), event, gaps))
    known = f.when(out_before, began).otherwise(f.col("known_out_ms"))
    return (
        f.when(f.col("leaves"), with_life)
        .when(f.col("is_in") & out_before, _ended(began, BY_RETURN, began, event, gaps))
        .when(
            f.coalesce("was_in", f.lit(False)) | f.col("is_in"),
            _ended(began, BY_UNSEEN_RETURN, f.col("known_out_ms"), event, gaps),
        )
        .when(f.col("moved"), _ended(began, BY_REASSIGNMENT, known, event, gaps))
        .otherwise(with_life)
    )


def _ended(ms: Column, by: Column | str, known_ms: Column, event: Column, gaps: Column) -> Column:
    """`known_ms`: until when it is known to have been out."""
    how = f.lit(by) if isinstance(by, str) else by
    return f.struct(
        ms.alias("ended_ms"),
        how.alias("ended_by"),
        known_ms.alias("known_ms"),
        event.alias("end_event"),
        gaps.alias("gaps"),
    )
