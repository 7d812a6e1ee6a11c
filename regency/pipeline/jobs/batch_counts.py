"""Sums of what the progress of a streaming query tells batch by batch. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

_NO_WATERMARK = "1970-01-01T00:00:00.000Z"
"""What Spark tells in the place of a watermark until a batch with times is done."""


class BatchCounts:
    """Takes progress reports, the same ones again and again if need be, and sums up each batch once."""

    def __init__(self) -> None:
        self._last: int | None = None
        self._observed = Counter[tuple[str, str]]()
        self.batches = 0
        """Batches that were done."""
        self.late = 0
        """Rows that stateful operators dropped as they came behind the watermark."""
        self.held = 0
        """Rows in state after the last batch."""
        self.watermark: str | None = None
        """The last batch's; None while there is none."""

    def take(self, reports: Iterable[Mapping[str, Any]]) -> bool:
        """Reports as `StreamingQuery.recentProgress` has them, in order; those of idle triggers are left out.

        Says whether any was new.
        """
        before = self.batches
        for report in reports:
            number = report["batchId"]
            if "addBatch" not in report["durationMs"] or (self._last is not None and number <= self._last):
                continue
            self._last = number
            self.batches += 1
            self._sum_up(report)
        return self.batches > before

    def observed(self, name: str, field: str) -> int:
        """The sum of a field of an observed metric."""
        return self._observed[name, field]

    def _sum_up(self, report: Mapping[str, Any]) -> None:
        for name, metric in (report.get("observedMetrics") or {}).items():
            for field, value in metric.asDict().items():
                self._observed[name, field] += value or 0
        operators = report.get("stateOperators") or ()
        self.late += sum(operator["numRowsDroppedByWatermark"] for operator in operators)
        self.held = sum(operator["numRowsTotal"] for operator in operators)
        watermark = (report.get("eventTime") or {}).get("watermark", self.watermark)
        self.watermark = None if watermark == _NO_WATERMARK else watermark
