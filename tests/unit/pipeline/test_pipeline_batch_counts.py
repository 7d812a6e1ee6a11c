"""Progress reports of a streaming query, summed up."""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import Row

from regency.pipeline.jobs.flights.job import BatchCounts, FlightsCounts


def report(batch: int, rows: int, *, late: int = 0, held: int = 0, idle: bool = False, day: int = 1) -> dict[str, Any]:
    return {
        "batchId": batch,
        "durationMs": {"triggerExecution": 1} if idle else {"addBatch": 9, "triggerExecution": 12},
        "observedMetrics": {} if idle else {"input": Row(rows=rows, bad=None)},
        "stateOperators": [{"numRowsDroppedByWatermark": late, "numRowsTotal": held}],
        "eventTime": {"watermark": f"2013-01-0{day}T00:00:00.000Z"},
    }


def test_each_batch_counts_once_however_often_it_is_reported() -> None:
    counts = BatchCounts()
    first, second = report(0, 10, late=1, held=5), report(1, 7, late=2, held=3, day=4)
    assert counts.take([first])
    assert counts.take([first, second])
    assert not counts.take([first, second])
    assert (counts.batches, counts.observed("input", "rows"), counts.observed("input", "bad")) == (2, 17, 0)
    assert (counts.late, counts.held, counts.watermark) == (3, 3, "2013-01-04T00:00:00.000Z")


def test_there_is_no_watermark_until_a_batch_with_times_is_done() -> None:
    counts = BatchCounts()
    first = report(0, 10) | {"eventTime": {"watermark": "1970-01-01T00:00:00.000Z"}}
    assert counts.take([first])
    assert counts.watermark is None
    assert (
        FlightsCounts(10, 0, 0, 0, 3, 0, 1, counts.watermark).progress == "10 rows, 0 windows, no watermark yet, 0 sent"
    )
    assert counts.take([first, report(1, 5)])
    assert counts.watermark == "2013-01-01T00:00:00.000Z"
    assert FlightsCounts(1, 0, 1, 0, 3, 1, 2, counts.watermark).progress == (
        "1 row, 1 window, watermark 2013-01-01T00:00:00.000Z, 1 sent"
    )


def test_idle_triggers_are_no_batches_and_a_query_may_go_on_anywhere() -> None:
    counts = BatchCounts()
    assert (counts.batches, counts.held, counts.watermark) == (0, 0, None)
    assert not counts.take([report(41, 0, idle=True)])
    assert counts.take([report(41, 0, idle=True), report(41, 3), report(42, 0, idle=True)])
    assert (counts.batches, counts.observed("input", "rows"), counts.observed("none", "rows")) == (1, 3, 0)


def test_a_batch_without_state_or_event_time_is_counted() -> None:
    counts = BatchCounts()
    assert counts.take([{"batchId": 0, "durationMs": {"addBatch": 1}, "observedMetrics": {"sent": Row(rows=4)}}])
    assert (counts.observed("sent", "rows"), counts.late, counts.held, counts.watermark) == (4, 0, 0, None)
