"""The agent process: threads, sockets, signals and the child around the parts that `assembly` makes.

Stopping: leadership is moved away, then ports, fetchers, checkpoints, logs, the session, the child.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import ParamSpec, TypeVar
from uuid import uuid4

import msgspec

from regency.broker_agent.assembly import (
    Adapters,
    DirectoryFailures,
    Opened,
    Parts,
    build,
    open_logs,
    opened,
    read_configs,
    refuse_without_directory,
)
from regency.broker_agent.control import controlled_shutdown
from regency.broker_agent.control.admin_forwarder import AdminForwarder
from regency.broker_agent.control.reporter import GrpcReports, Reporter
from regency.broker_agent.control.service import ControlService
from regency.broker_agent.listener.server import KafkaListener
from regency.broker_agent.log.cleaning.remote import RemoteCleaner
from regency.broker_agent.metrics.group_lag import GroupLag
from regency.broker_agent.metrics.probes import Recovery, live_conditions, ready_conditions, say_ready_once_known
from regency.broker_agent.metrics.source import AgentMetrics, BrokerState
from regency.broker_agent.ports import IsrChange, IsrWritten
from regency.broker_agent.process.child import ControllerChild
from regency.broker_agent.process.data_loop import DataLoop, LoopTimer, LoopWorker, PatientWorker
from regency.broker_agent.process.job_child import CLEANER_COMMAND, JobChild
from regency.broker_agent.process.loop_meter import LoopMeter
from regency.broker_agent.process.watchdog import Watchdog
from regency.broker_agent.registry.isr_store import IsrHistory
from regency.broker_agent.registry.producer_ids import ProducerIds
from regency.broker_agent.registry.registration import Registered, ensure_cluster_id, ensure_parents
from regency.broker_agent.registry.topic_configs import StoredConfigs
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.fetcher.fetcher_pool import threads
from regency.history.files import HistoryWriter
from regency.model.clock import SystemClock
from regency.model.facts import Endpoint, format_endpoint
from regency.model.settings import BrokerSettings
from regency.runtime.disk import OsDisk
from regency.runtime.grpc.servers import GrpcServer, PortUnavailable
from regency.runtime.http.probes import NOT_SERVED, daemon_server, remove_probe_file, serving_host, write_probe_file
from regency.runtime.supervise import start_task, start_thread
from regency.runtime.zookeeper.client import connect
from regency.runtime.zookeeper.meter import ZkMeter
from regency.runtime.zookeeper.session import ZkConnectionLost, ZkSession, ZkSessionLost

logger = logging.getLogger(__name__)

T = TypeVar("T")

WORKERS = 4
ZOOKEEPER_WORKERS = 2
CONTROL_THREADS = 4
"""Threads of the control server; one request is executed at a time, the others wait for their turn or are reads."""

DESCRIPTORS_IN_RESERVE = 8
"""For the log: one for the data loop and one for each worker, and some."""

GRACE_MS = 1000


async def run_agent(
    settings: BrokerSettings, child_arguments: Sequence[str], meter: LoopMeter, probe_file: Path | None = None
) -> int:
    """Run an agent until SIGTERM or SIGINT; the exit status. `child_arguments` name the settings for the child too.

    `meter` is of the loop this runs on; `probe_file` is to say where /readyz is.

    Raises RegencyError when it cannot start.
    """
    agent = Agent(settings, child_arguments, meter, probe_file)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, agent.ask_to_stop)
    async with AsyncExitStack() as stack:
        starting = asyncio.ensure_future(agent.start(stack))
        stop_asked = asyncio.ensure_future(agent.stop_asked.wait())
        await asyncio.wait({starting, stop_asked}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            logger.info("told to stop before it was ready")
            agent.abandon()
        starting.result()
        await stop_asked
        await agent.leave()
    logger.info("stopped")
    return 0


class Agent:
    """One broker agent in this process. Lives on the data loop."""

    def __init__(
        self, settings: BrokerSettings, child_arguments: Sequence[str], meter: LoopMeter, probe_file: Path | None
    ) -> None:
        self._settings = settings
        self._probe_file = probe_file
        self._broker_id = settings.broker_id
        self._clock = SystemClock()
        self._loop = DataLoop(end_process)
        self._worker = LoopWorker(self._loop, WORKERS, "worker")
        self._zookeeper_worker = LoopWorker(self._loop, ZOOKEEPER_WORKERS, "zookeeper")
        self._child = ControllerChild(child_arguments, self._fix_child_ports)
        self._cleaner = JobChild(CLEANER_COMMAND, self._loop.post)
        self._recovery = Recovery()
        self._http_port = -1
        self._endpoints: list[Endpoint] = []
        """As they are told to others."""
        self._bound: dict[str, tuple[str, int]] = {}
        """Where it listens itself: host and port by listener."""
        self._registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.stop_asked = asyncio.Event()
        self._hurried = asyncio.Event()
        self._disk_worker = PatientWorker(self._worker, self._later)
        self._adapters = self._make_adapters()
        self._parts: Parts | None = None
        self._meter = meter
        self._sessions = ZkMeter(self._clock)
        self._metrics = AgentMetrics(self._loop, meter, self._recovery, self._disk_worker, self._clock)

    def ask_to_stop(self) -> None:
        """Stop in order; asked again: without moving leadership away first."""
        if self.stop_asked.is_set():
            self._hurried.set()
        self.stop_asked.set()

    def abandon(self) -> None:
        """End now, while logs may still be under recovery on another thread: the next start recovers them."""
        self._child.kill()
        os._exit(0)

    async def start(self, stack: AsyncExitStack) -> None:
        """Start every part; what must be undone is put on `stack`. Raises RegencyError."""
        stack.callback(self._zookeeper_worker.close)
        stack.callback(self._worker.close)
        stack.push_async_callback(self._child.stop)
        stack.push_async_callback(self._cleaner.stop)
        self._meter.start()
        stack.callback(self._meter.stop)
        self._serve_http(stack)
        parts = await self._start_parts(stack)
        watchdog = Watchdog(lambda: self._meter.looked, LoopMeter.now_ms, self._settings.regency_loop_watchdog_ms)
        watchdog.start()
        stack.callback(watchdog.stop)
        self._metrics.state = BrokerState.RUNNING
        ports = {endpoint.listener: endpoint.port for endpoint in self._endpoints}
        ports |= {"HTTP": self._http_port, "CONTROLLER_HTTP": self._child.http_port}
        ports = {name: port for name, port in ports.items() if port > 0}
        bound = dict(self._bound)
        for name in ports.keys() - bound.keys():  # those of HTTP
            bound[name] = (serving_host(self._settings), ports[name])
        ready = say_ready_once_known(self._broker_id, ports, bound, parts.metadata, parts.registration.epoch)
        stack.callback(asyncio.ensure_future(ready).cancel)

    async def _start_parts(self, stack: AsyncExitStack) -> Parts:
        found, cluster_id = await self._open(stack)
        parts = self._parts = self._metrics.parts = build(self._settings, self._adapters, found)
        start_thread("isr-writer", parts.writer.run, end_process, ends=True)
        stack.callback(parts.writer.stop)
        stack.callback(self._adapters.timer.close)
        stack.callback(parts.replicas.shutdown)
        await self._serve_clients(parts, cluster_id, stack)
        await self._serve_controllers(parts.service, stack)
        await self._start_beside(parts, stack)
        lag = self._metrics.groups = GroupLag(self._settings, self._loop, parts.groups, parts.metadata, self._clock)
        stack.callback(lag.stop)
        start_thread("group-lag", lag.run, end_process, ends=True)
        stack.callback(parts.registration.stop)
        await asyncio.to_thread(parts.registration.start)
        await self._registered
        return parts

    async def _open(self, stack: AsyncExitStack) -> tuple[Opened, str]:
        """The session, the logs and the settings of topics, and the id of the cluster."""
        session = await self._connect()
        stack.callback(session.close)
        await in_contact(ensure_parents, session)
        cluster_id = await in_contact(ensure_cluster_id, session)
        failures = DirectoryFailures(self._broker_id, session, self._adapters)
        logs = await asyncio.to_thread(open_logs, self._settings, self._adapters, cluster_id, failures.failed)
        stack.callback(logs.close)
        refuse_without_directory(logs)
        found = opened(self._settings, self._adapters, session, logs, failures)
        await in_contact(read_configs, found)
        return found, cluster_id

    async def leave(self) -> None:
        """Have leadership moved away, unless the settings or a second signal say otherwise."""
        self._metrics.state = BrokerState.HANDING_OVER
        if self._settings.controlled_shutdown_enable:
            await self._hand_over()
        self._metrics.state = BrokerState.STOPPING

    async def _hand_over(self) -> None:
        parts = self._parts
        assert parts is not None, "it has started"
        parts.replicas.fetchers.leave()  # a broker that leaves does not fetch itself into ISRs again
        leaving = asyncio.ensure_future(
            controlled_shutdown.leave(
                self._settings,
                self._broker_id,
                parts.metadata,
                parts.registration.epoch,
                controlled_shutdown.GrpcShutdown(parts.metadata, self._broker_id),
            )
        )
        hurried = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait({leaving, hurried}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        hurried.cancel()

    async def _connect(self) -> ZkSession:
        settings = self._settings
        within_s = settings.zookeeper_connection_timeout_ms / 1000
        logger.info("waits %g s at most for a session with ZooKeeper at %s", within_s, settings.zookeeper_connect)
        session = await asyncio.to_thread(
            connect,
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            digest_auth=settings.zookeeper_digest_auth,
            name=f"agent-{self._broker_id}",
            connect_timeout_ms=settings.zookeeper_connection_timeout_ms,
            set_acl=settings.zookeeper_set_acl,
            latencies=self._sessions.latencies,
            on_refusal=self._sessions.count_refusal,
        )
        self._sessions.watch(session)
        return session

    async def _serve_clients(self, parts: Parts, cluster_id: str, stack: AsyncExitStack) -> None:
        session, metadata = parts.session, parts.metadata
        own = self._settings.controller_listener
        admin = AdminForwarder(
            self._broker_id,
            metadata,
            lambda: self._advertised(own, self._child.port).port,
            self._clock,
            lambda: session.connected,
        )
        stack.callback(admin.close)
        producer_ids = ProducerIds(self._broker_id, session, self._zookeeper_worker)
        producer_ids.prefetch()
        listener = KafkaListener(
            self._settings,
            parts.replicas,
            FetchSessionCache(self._settings.max_incremental_fetch_session_cache_slots),
            metadata,
            admin,
            producer_ids,
            StoredConfigs(session, self._zookeeper_worker),
            parts.groups,
            cluster_id,
            self._clock,
        )
        self._metrics.listener = listener.stats
        stack.push_async_callback(listener.stop)
        stack.callback(parts.groups.close)  # before the listener: members that wait are told to look elsewhere
        for endpoint in self._settings.listeners:
            try:
                port = await listener.start(endpoint)
            except OSError as error:
                raise PortUnavailable(
                    f"Cannot listen on {format_endpoint(endpoint)}: {error.strerror or error}.",
                    hint="Correct host and port in listeners, or stop the process that has this port.",
                ) from error
            self._announce(endpoint, port)

    async def _serve_controllers(self, service: ControlService, stack: AsyncExitStack) -> None:
        server = GrpcServer([service.handler()], threads=CONTROL_THREADS, name="control")
        endpoint = self._settings.control_plane_listener
        self._announce(endpoint, server.bind(endpoint.host, endpoint.port))
        server.start()
        stack.push_async_callback(asyncio.to_thread, server.stop, GRACE_MS)

    async def _start_beside(self, parts: Parts, stack: AsyncExitStack) -> None:
        """The controller process and the reporter."""
        self._announce(self._settings.controller_listener, await self._child.start())
        self._supervise("the watch over the controller process", self._child.watch(), stack)
        reports, epoch = GrpcReports(), parts.registration.epoch
        reporter = Reporter(self._broker_id, parts.replicas, parts.metadata, epoch, reports, self._clock)
        self._supervise("the reporter", reports.run(reporter, self._settings.regency_report_interval_ms), stack)

    def _on_registered(self, _registered: Registered) -> None:
        if not self._registered.done():
            self._registered.set_result(None)

    def _on_refused(self, error: BaseException) -> None:
        """The start fails, or the process ends."""
        if not self._registered.done():
            self._registered.set_exception(error)
            return
        end_process("the registration", error)

    def _make_adapters(self) -> Adapters:
        settings = self._settings
        return Adapters(
            clock=self._clock,
            loop=self._loop,
            later=self._later,
            timer=LoopTimer(self._clock, end_process),
            worker=self._disk_worker,
            zookeeper_worker=self._zookeeper_worker,
            transport=threads(self._loop.post),
            disk=OsDisk(reserve=DESCRIPTORS_IN_RESERVE),
            new_uuid=uuid4,
            cleaner=RemoteCleaner(self._cleaner.run),
            endpoints=lambda: tuple(self._endpoints),
            open_history=self._open_history,
            recovery_threads=settings.num_recovery_threads_per_data_dir,
            registered=self._on_registered,
            refused=self._on_refused,
            asked_to_stop=self.stop_asked.set,  # asked again it does not hurry, as a second signal does
            end=end_process,
            progress=self._recovery.tell,
        )

    def _open_history(self) -> Callable[[IsrChange, IsrWritten], None]:
        files = HistoryWriter(Path(self._settings.regency_history_dir), "agent")
        return IsrHistory(self._broker_id, files, self._clock).record

    def _serve_http(self, stack: AsyncExitStack) -> None:
        """Metrics and probes, from now on: also a start that takes long can be looked at."""
        settings = self._settings
        if settings.regency_http_port < 0:
            self._say_where([], NOT_SERVED, stack)
            return
        server = daemon_server(
            [self._metrics, self._sessions],
            live=live_conditions(self._loop),
            ready=ready_conditions(self._broker_id, lambda: self._parts, self._recovery, self.stop_asked.is_set),
            clock=self._clock,
            name="http",
            port_key="regency.http.port",
        )
        self._http_port = server.bind(serving_host(settings), settings.regency_http_port)
        stack.callback(server.stop)
        server.start(end_process)
        self._say_where(server.addresses, self._http_port, stack)

    def _say_where(self, addresses: Sequence[str], port: int, stack: AsyncExitStack) -> None:
        if self._probe_file is not None:
            write_probe_file(self._probe_file, addresses, port)
            stack.callback(remove_probe_file, self._probe_file)

    def _fix_child_ports(self, port: int, http_port: int) -> Sequence[str]:
        """What makes a restarted child listen where the first one did."""
        settings = self._settings
        fixed: list[str] = []
        if settings.regency_controller_http_port == 0 and http_port > 0:
            fixed += ["--set", f"regency.controller.http.port={http_port}"]
        if settings.controller_listener.port:
            return fixed
        name = settings.controller_listener_name
        others = [end for end in (*settings.listeners, *settings.control_listeners) if end.listener != name]
        own = msgspec.structs.replace(settings.controller_listener, port=port)
        return (*fixed, "--set", "listeners=" + ",".join(format_endpoint(end) for end in (*others, own)))

    def _announce(self, endpoint: Endpoint, port: int) -> None:
        self._bound[endpoint.listener] = (endpoint.host, port)
        self._endpoints.append(self._advertised(endpoint, port))

    def _advertised(self, endpoint: Endpoint, port: int) -> Endpoint:
        return self._settings.advertised(endpoint, bound_port=port, hostname=socket.gethostname())

    def _supervise(self, name: str, run: Coroutine[object, object, None], stack: AsyncExitStack) -> None:
        task = start_task(name, run, end_process)
        stack.callback(task.cancel)

    def _later(self, delay_ms: int, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._loop.post, work)


def end_process(name: str, error: BaseException) -> None:
    """A part that must not fail has failed: end now, and let the next start recover. Never returns."""
    logger.critical("%s has failed; the agent ends: %s", name, error, exc_info=error)
    logging.shutdown()
    os._exit(1)


P = ParamSpec("P")

RETRY_MS = 500


async def in_contact(call: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T:
    """Make a call that needs ZooKeeper, and may run twice, on a thread; again while contact is lost. For ever."""
    told = False
    while True:
        try:
            return await asyncio.to_thread(call, *arguments, **options)
        except (ZkConnectionLost, ZkSessionLost) as error:
            if not told:
                logger.warning("waiting for ZooKeeper: %s", error)
            told = True
        await asyncio.sleep(RETRY_MS / 1000)
