"""What every daemon serves over HTTP: metrics, whether it lives, whether it is ready, and what its threads do."""

from __future__ import annotations

import json
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from regency.model.clock import Clock
from regency.model.settings import BrokerSettings
from regency.runtime.http.exposition import Exposition
from regency.runtime.http.messages import Request, Response
from regency.runtime.http.server import Handler, HttpServer
from regency.runtime.metrics.families import Source

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
    routes = {
        METRICS: Exposition(sources, clock).handle,
        LIVE: probe(live),
        READY: probe(ready),
        THREADS: threads,
    }
    return HttpServer(routes, name=name, port_key=port_key, probes=(LIVE, READY))


logger = logging.getLogger(__name__)

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
