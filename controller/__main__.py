"""`python -m regency.controller`: one candidate as a process. Wiring, signals and the end; nothing else."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from regency.controller.admin.services import ControllerService, Inspection, admin_service
from regency.controller.channel.agents import GrpcAgent
from regency.controller.channel.channel_manager import ControllerChannelManager
from regency.controller.controller import Controller
from regency.controller.doctor.examination import Examiner
from regency.controller.doctor.summary import Summariser
from regency.controller.events import EventLoop, EventQueue, ShutDown
from regency.controller.metrics import ControllerMetrics, EventMeter, RequestMeter, live_conditions, ready_conditions
from regency.controller.request_gate import RequestGate
from regency.history.files import HistoryWriter
from regency.model.clock import SystemClock
from regency.model.settings import BrokerSettings
from regency.runtime.daemon_options import HELP_OPTIONS, SettingsOptions, run_daemon, settings_options
from regency.runtime.descriptors import raise_limit
from regency.runtime.grpc.servers import GrpcServer
from regency.runtime.http.probes import daemon_server, serving_host
from regency.runtime.logging import configure
from regency.runtime.supervise import die_with_parent, start_thread
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.meter import ZkMeter

logger = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.0005
GC_THRESHOLDS = (100_000, 50, 1000)
"""Seldom: a context of millions of objects holds no cycles, and looking for some takes longer than a failover."""
END_WAIT_S = 1.0
"""How long the end may take, seconds; then the process goes as it stands."""
RPC_THREADS = 16


class ControllerProcess:
    """What one controller process consists of. Connects to ZooKeeper at once; raises RegencyError."""

    def __init__(self, settings: BrokerSettings) -> None:
        clock = SystemClock()
        broker, history = settings.broker_id, Path(settings.regency_history_dir)
        timeout_ms = settings.controller_socket_timeout_ms
        self._settings = settings
        self._ended = threading.Event()
        self._failed = False
        sessions = ZkMeter(clock)
        self._session = connect(
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            digest_auth=settings.zookeeper_digest_auth,
            name=f"controller-{broker}",
            clock=clock,
            connect_timeout_ms=settings.zookeeper_connection_timeout_ms,
            set_acl=settings.zookeeper_set_acl,
            latencies=sessions.latencies,
            on_refusal=sessions.count_refusal,
        )
        sessions.watch(self._session)
        self._queue = EventQueue(clock)
        events, requests = EventMeter(self._queue, clock), RequestMeter(clock)
        self._controller = Controller(
            settings,
            self._session,
            self._queue,
            open_channels=lambda origin, tell: ControllerChannelManager(
                origin,
                control_listener=settings.control_plane_listener_name,
                inter_broker_listener=settings.inter_broker_listener_name,
                connect=lambda endpoint: GrpcAgent(endpoint, timeout_ms=timeout_ms),
                tell=tell,
                clock=clock,
                requested=requests.requested,
            ),
            clock=clock,
            history=HistoryWriter(history, "controller"),
        )
        self._loop = EventLoop(self._queue, events.timed(self._controller.process))
        session_id = lambda: self._session.session_id  # noqa: E731
        gate = RequestGate(self._controller, self._queue, self._loop, timeout_ms=timeout_ms)
        reporting = ControllerService(
            self._controller, gate, self._loop, broker=broker, session_id=session_id, clock=clock
        )
        examiner = Examiner(self._controller, gate, self._session, broker, clock)
        summariser = Summariser(
            self._controller,
            self._queue,
            self._loop,
            self._session,
            broker=broker,
            defaults=settings.log_config(),
            clock=clock,
        )
        inspection = Inspection(broker, history, examiner, summariser)
        services = [reporting.handler(), admin_service(gate), inspection.handler()]
        self._server = GrpcServer(services, threads=RPC_THREADS, name="controller-rpc")
        metrics = ControllerMetrics(
            self._controller,
            self._queue,
            self._loop,
            events=events,
            requests=requests,
            clock=clock,
            max_partitions=settings.regency_controller_metrics_max_partitions,
        )
        self._http = daemon_server(
            [metrics, sessions],
            live=live_conditions(self._loop, events),
            ready=ready_conditions(self._controller, session_id),
            clock=clock,
            name="controller-http",
            port_key="regency.controller.http.port",
        )
        self.http_port = -1
        """Where metrics and probes are served; -1: nowhere."""

    def start(self) -> int:
        """Serve, and begin to race. Returns the port. Raises PortUnavailable, ZkError."""
        if self._settings.regency_controller_http_port >= 0:
            self.http_port = self._http.bind(serving_host(self._settings), self._settings.regency_controller_http_port)
            self._http.start(self._on_death)
        listener = self._settings.controller_listener
        port = self._server.bind(listener.host, listener.port)
        self._server.start()
        reached = self._settings.advertised(listener, bound_port=port, hostname=socket.gethostname())
        start_thread("controller-event-thread", self._loop.run, self._on_death, ends=True)
        self._controller.start(f"{reached.host}:{reached.port}")
        return port

    def wait(self) -> bool:
        """Wait until the end is asked for, or something ended that must not. Returns whether all was well."""
        self._ended.wait()
        return not self._failed

    def end(self) -> None:
        """Ask for the end. From any thread, also from a signal handler."""
        self._ended.set()

    def close(self) -> None:
        """Resign, give the session up so that /controller vanishes at once, stop serving."""
        self._controller.retry.abandon()
        self._queue.preempt_all(ShutDown())
        self._session.close()
        self._server.stop(0)
        self._http.stop()

    def _on_death(self, name: str, error: BaseException) -> None:
        logger.critical("%s ended, so this process ends: %s", name, error, exc_info=error)
        self._failed = True
        self._ended.set()


def watch_parent(pipe: int, process: ControllerProcess) -> None:
    """End the process when the other end of `pipe` is closed, as it is when the parent dies."""
    with contextlib.suppress(OSError):
        while os.read(pipe, 1024):
            pass
    logger.info("the parent is gone, so this process ends")
    process.end()


@click.command("python -m regency.controller", context_settings=HELP_OPTIONS)
@settings_options
@click.option("--parent-pipe", type=int, metavar="FD", help="End when this pipe is closed.")
def candidate(parent_pipe: int | None, **options: Any) -> int:
    """Run one controller candidate until SIGTERM or SIGINT."""
    source = SettingsOptions(**options)
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    configure("controller")
    if parent_pipe is not None:
        die_with_parent()
    settings = source.load()
    configure(f"controller-{settings.broker_id}", state_changes=settings.regency_state_change_log)
    raise_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*GC_THRESHOLDS)
    process = ControllerProcess(settings)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.end())
    if parent_pipe is not None:
        start_thread("parent-watch", lambda: watch_parent(parent_pipe, process), lambda *_: process.end(), ends=True)
    port = process.start()
    sys.stdout.write(json.dumps({"port": port, "http": process.http_port}) + "\n")
    sys.stdout.flush()
    status = 0 if process.wait() else 1
    last_resort = threading.Timer(END_WAIT_S, os._exit, (status,))
    last_resort.daemon = True
    last_resort.start()
    process.close()
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one candidate. The exit status: 0 ended, 1 failed, 2 wrong use."""
    return run_daemon(candidate, arguments)


if __name__ == "__main__":
    status = main()
    logging.shutdown()
    os._exit(status)  # threads of gRPC and of calls that hang must not keep the process
