"""Answers a scrape: asks the sources, writes Prometheus' text or OpenMetrics, keeps the answer for a second."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterable, Sequence

import msgspec
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as write_text
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as write_openmetrics

from regency.model.clock import Clock
from regency.runtime.http.messages import Request, Response, qualities
from regency.runtime.metrics.families import Block, Source, Wanted, head
from regency.runtime.metrics.names import MetricName

TEXT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
KEPT_MS = 1000
"""Two Prometheus servers that scrape at once cost one rendering."""
KEPT_ANSWERS = 8
GZIP_LEVEL = 1
"""A tenth of the size at a third of the time of the usual level."""
_OPENMETRICS_END = b"# EOF\n"
_OF_PYTHON = (PROCESS_COLLECTOR, PLATFORM_COLLECTOR, GC_COLLECTOR)
"""prometheus_client's own: process_*, python_info, python_gc_*."""


class Exposition:
    """`/metrics` of one process. `handle` may be called by several threads; one renders at a time."""

    def __init__(self, sources: Sequence[Source], clock: Clock) -> None:
        self._sources = sources
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[bool, frozenset[str]], tuple[int, bytes]] = {}

    def handle(self, request: Request) -> Response:
        """Answer a request for /metrics; `?name[]=N`, repeated, asks for some families or samples only."""
        openmetrics = _prefers_openmetrics(request.headers.get("accept", ""))
        body = self.render(openmetrics, frozenset(request.query.get("name[]", ())))
        headers = {"Content-Type": OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, "Vary": "Accept, Accept-Encoding"}
        if qualities(request.headers.get("accept-encoding", "")).get("gzip", 0.0) > 0:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body, GZIP_LEVEL)
        return Response(200, body, headers)

    def render(self, openmetrics: bool, names: frozenset[str] = frozenset()) -> bytes:
        """Everything, or what is named, in one of the two formats."""
        key = (openmetrics, names)
        with self._lock:
            now = self._clock.monotonic_ms()
            kept = self._kept.get(key)
            if kept is not None and now - kept[0] < KEPT_MS:
                return kept[1]
            body = self._render(openmetrics, names)
            self._kept.pop(key, None)
            while len(self._kept) >= KEPT_ANSWERS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (self._clock.monotonic_ms(), body)
            return body

    def _render(self, openmetrics: bool, names: frozenset[str]) -> bytes:
        wanted = _wanted(names)
        families = [family for source in self._sources for family in source.collect(wanted)]
        metrics = [family for family in families if isinstance(family, Metric)]
        metrics += [metric for collector in _OF_PYTHON for metric in collector.collect()]
        if names:
            metrics = [metric for metric in metrics if _names(metric) & names]
        written = (write_openmetrics if openmetrics else write_text)(_Collected(metrics))
        blocks = [block for block in families if isinstance(block, Block) and wanted(block.name)]
        texts = [head(block.name, openmetrics=openmetrics) + block.lines for block in blocks]
        end = _OPENMETRICS_END if openmetrics else b""
        return written.removesuffix(end) + "".join(texts).encode() + end


def _prefers_openmetrics(accept: str) -> bool:
    offered = qualities(accept)
    return offered.get("application/openmetrics-text", 0.0) > offered.get("text/plain", 0.0)


def _wanted(names: frozenset[str]) -> Wanted:
    if not names:
        return _every
    return lambda name: name.family in names or any(sample in names for sample in name.samples)


def _every(_: MetricName) -> bool:
    return True


def _names(metric: Metric) -> set[str]:
    return {metric.name, *(sample.name for sample in metric.samples)}


class _Collected(msgspec.Struct):
    """What prometheus_client's writers take, holding what was collected already."""

    metrics: list[Metric]

    def collect(self) -> Iterable[Metric]:
        """The metrics."""
        return self.metrics
