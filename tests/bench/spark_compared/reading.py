"""Runs a batch read."""

from __future__ import annotations

from spark_compared.cases_reading import ReadCase
from spark_compared.session import REFUSALS, Session
from spark_compared.verdicts import Got, Outcome, Refused


def read(session: Session, connector: str, case: ReadCase) -> Outcome:
    """All rows, sorted, with the columns, whether they may be null, and the number of tasks."""
    try:
        frame = session.reader(connector, case.options, stream=False)
        rows = sorted((tuple(row) for row in frame.collect()), key=repr)
        tasks = frame.rdd.getNumPartitions()
    except REFUSALS as error:
        return Refused(str(error))
    return Got(rows, frame.schema.json(), tasks)
