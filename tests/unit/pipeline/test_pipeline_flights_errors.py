"""Which errors of Spark tell of a record that is no flight."""

from __future__ import annotations

import pytest

from regency.pipeline.jobs.flights.job import bad_record_in

PLAN = """
=== Streaming Query ===
Identifier: [id = fb6fd0bf-e891-4389-b749-42a6f236e7dd, runId = 4220ec69-da68-45e0-a785-c82b1c21c7cf]
Current Committed Offsets: {}

Logical Plan:
~WriteToMicroBatchDataSourceV1 FileSink[file:/delays], fb6fd0bf-e891-4389-b749-42a6f236e7dd, [path=/delays], Append
+- ~Project [flight#8.carrier AS carrier#21, hour#10, flight#8.dep_delay AS dep_delay#22]
   +- ~Filter CASE WHEN isnull(wrong#13) THEN true ELSE cast(raise_error(USER_RAISED_EXCEPTION, map(errorMessage, \
concat(no flight: , place#6, : , wrong#13, .)), NullType) as boolean) END
"""
STREAM = "[STREAM_FAILED] Query [id = fb6fd0bf, runId = 4220ec69] terminated with exception: "
REFUSED = "[USER_RAISED_EXCEPTION] no flight: my.topic_a-b-0, offset 3000: it is no JSON object of a flight."


@pytest.mark.parametrize(
    "told",
    [
        f"{STREAM}{REFUSED} SQLSTATE: P0001 SQLSTATE: XXKST{PLAN}",
        (
            f"{STREAM}Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent failure: Lost "
            f"task 0.3 in stage 0.0 (TID 3) (h executor 1): org.apache.spark.SparkRuntimeException: {REFUSED}\n"
            f"\tat a.B.c(B.scala)\n\nDriver stacktrace: SQLSTATE: XXKST{PLAN}"
        ),
    ],
)
def test_a_bad_record_is_told_with_its_place(told: str) -> None:
    assert bad_record_in(told) == "my.topic_a-b-0, offset 3000: it is no JSON object of a flight."


@pytest.mark.parametrize(
    "why",
    [
        "No space left on device SQLSTATE: XXKST",
        (
            "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when Python streaming data source perform "
            "initialOffset: regency.pipeline.errors.TopicUnknown: The cluster has no topic nosuch."
        ),
        "[USER_RAISED_EXCEPTION] something else. SQLSTATE: P0001",
    ],
)
def test_what_else_ends_a_query_is_no_bad_record_though_its_plan_has_the_words(why: str) -> None:
    assert "no flight: " in PLAN
    assert bad_record_in(f"{STREAM}{why}{PLAN}") is None
