"""What every daemon serves over HTTP: metrics, whether it lives, whether it is ready, and what its threads do."""

from __future__ import annotations

import gzip
import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import msgspec
from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, PROCESS_COLLECTOR
from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as write_text
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST as OPENMETRICS_TYPE
from prometheus_client.openmetrics.exposition import generate_latest as write_openmetrics

from regency.model.clock import Clock
from regency.model.settings import BrokerSettings
from regency.runtime.http.server import Handler, HttpServer, Request, Response, qualities
from regency.runtime.metrics.families import Block, MetricName, Source, Wanted, escape, head, values
from regency.runtime.metrics.table import BUILD_INFO

logger = logging.getLogger(__name__)

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
        self._version = version("regency")
        self._clock = clock
        self._lock = threading.Lock()
        self._kept: dict[tuple[bool, frozenset[str], frozenset[str]], tuple[int, bytes]] = {}

    def handle(self, request: Request) -> Response:
        """Answer a request for /metrics; `?name[]=N`, repeated, asks for some families or samples only.

        `topic[]=T`, repeated, leaves out series by topic of all others; an empty T is none.
        """
        openmetrics = _prefers_openmetrics(request.headers.get("accept", ""))
        names = frozenset(filter(None, request.query.get("name[]", ())))
        topics = frozenset(request.query.get("topic[]", ()))
        body = self.render(openmetrics, names, topics)
        headers = {"Content-Type": OPENMETRICS_TYPE if openmetrics else TEXT_TYPE, "Vary": "Accept, Accept-Encoding"}
        if qualities(request.headers.get("accept-encoding", "")).get("gzip", 0.0) > 0:
            headers["Content-Encoding"] = "gzip"
            body = gzip.compress(body, GZIP_LEVEL)
        return Response(200, body, headers)

    def render(
        self, openmetrics: bool, names: frozenset[str] = frozenset(), topics: frozenset[str] = frozenset()
    ) -> bytes:
        """Everything, or what is named, in one of the two formats; of topics all, or these."""
        key = (openmetrics, names, topics)
        with self._lock:
            now = self._clock.monotonic_ms()
            kept = self._kept.get(key)
            if kept is not None and now - kept[0] < KEPT_MS:
                return kept[1]
            body = self._render(openmetrics, names, topics)
            self._kept.pop(key, None)
            while len(self._kept) >= KEPT_ANSWERS:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = (self._clock.monotonic_ms(), body)
            return body

    def _render(self, openmetrics: bool, names: frozenset[str], topics: frozenset[str]) -> bytes:
        wanted = _wanted(names)
        families = [family for source in self._sources for family in source.collect(wanted)]
        metrics = [family for family in families if isinstance(family, Metric)]
        metrics += [
            values(BUILD_INFO, [((self._version,), 1)]),
            *(metric for collector in _OF_PYTHON for metric in collector.collect()),
        ]
        if names:
            metrics = [metric for metric in metrics if _names(metric) & names]
        written = (write_openmetrics if openmetrics else write_text)(_Collected(metrics))
        blocks = [block for block in families if isinstance(block, Block) and wanted(block.name)]
        texts = [head(block.name, openmetrics=openmetrics) + _lines(block, topics) for block in blocks]
        end = _OPENMETRICS_END if openmetrics else b""
        return written.removesuffix(end) + "".join(texts).encode() + end


def _lines(block: Block, topics: frozenset[str]) -> str:
    """Series of a family; with `topics` only those of these, and those that are of no topic."""
    if not topics or "topic" not in block.name.labels:
        return block.lines
    kept = tuple(f'topic="{escape(topic)}"' for topic in topics if topic)
    lines = block.lines.splitlines(keepends=True)
    return "".join([line for line in lines if 'topic="' not in line or any(each in line for each in kept)])


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


METRICS = "/metrics"
LIVE = "/livez"
READY = "/readyz"
THREADS = "/debug/threads"


class Condition(msgspec.Struct, frozen=True):
    """One thing that must hold. `missing` says what is not there yet, for people; empty where all is well.

    Called on the thread that serves the probe; it may wait some seconds, not more.
    """

    name: str
    missing: Callable[[], str]


class ConditionState(msgspec.Struct, frozen=True):
    """A condition in the answer to a probe."""

    name: str
    ok: bool
    missing: str = ""


class ProbeAnswer(msgspec.Struct, frozen=True):
    """Body of /livez and /readyz, as JSON."""

    ok: bool
    conditions: list[ConditionState]


def probe(conditions: Sequence[Condition]) -> Handler:
    """A handler that answers 200 where every condition holds, else 503; what is missing stands in the body."""

    def handle(_: Request) -> Response:
        states = []
        for condition in conditions:
            missing = condition.missing()
            states.append(ConditionState(condition.name, not missing, missing))
        answer = ProbeAnswer(all(state.ok for state in states), states)
        body = msgspec.json.format(msgspec.json.encode(answer), indent=2) + b"\n"
        return Response(200 if answer.ok else 503, body, {"Content-Type": "application/json"})

    return handle


def threads(_: Request) -> Response:
    """The stacks of all threads, by name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident, frame in sorted(sys._current_frames().items()):  # noqa: SLF001 (there is no other way to other threads)
        parts.append(
            f"{names.get(ident, 'not started by Python')} ({ident})\n" + "".join(traceback.format_stack(frame))
        )
    return Response(200, "\n".join(parts).encode(), {"Content-Type": "text/plain; charset=utf-8"})


def serving_host(settings: BrokerSettings) -> str:
    """Where agent and controller serve HTTP; empty: on every interface."""
    named = settings.regency_http_host
    return settings.inter_broker_listener.host if named is None else named


def daemon_server(
    sources: Sequence[Source],
    *,
    live: Sequence[Condition],
    ready: Sequence[Condition],
    clock: Clock,
    name: str,
    port_key: str,
) -> HttpServer:
    """The HTTP server of a daemon with these sources of metrics and these conditions."""
    routes = {METRICS: Exposition(sources, clock).handle, LIVE: probe(live), READY: probe(ready), THREADS: threads}
    return HttpServer(routes, name=name, port_key=port_key, probes=(LIVE, READY))


NOT_SERVED = -1


def write_probe_file(path: Path, addresses: Sequence[str], port: int) -> None:
    """Say that probes are asked at the first of `addresses` that answers, on `port`; NOT_SERVED: nowhere.

    A file that cannot be written is logged: the daemon does its work without it.
    """
    beside = path.with_name(f"{path.name}.tmp")
    try:
        beside.write_text(json.dumps({"addresses": list(addresses), "port": port}) + "\n", encoding="utf-8")
        beside.replace(path)
    except OSError as error:
        logger.warning("%s cannot be written, so no health check finds /readyz: %s", path, error.strerror or error)


def remove_probe_file(path: Path) -> None:
    """Leave nothing that names a port which another process may take."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        logger.warning("%s cannot be removed: %s", path, error.strerror or error)
