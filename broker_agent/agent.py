"""Builds an agent, starts its parts in order, keeps them supervised, and stops them in order. Decides nothing else.

Order of starting (design section 5): ZooKeeper session and cluster id, log directories (locked and recovered), ports,
the controller process, and last the registration. Stopping: leadership is moved away, then ports, fetchers,
checkpoints, logs, the session, the child.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import os
import signal
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from regency.broker_agent import controlled_shutdown
from regency.broker_agent.admin_forwarder import AdminForwarder
from regency.broker_agent.child import ControllerChild
from regency.broker_agent.contact import in_contact
from regency.broker_agent.control_service import ControlService
from regency.broker_agent.data_loop import DataLoop, LoopTimer, LoopWorker
from regency.broker_agent.isr_history import IsrHistory
from regency.broker_agent.isr_store import IsrWriter
from regency.broker_agent.listener.server import KafkaListener
from regency.broker_agent.log.log_manager import LogManager
from regency.broker_agent.metadata_cache import MetadataCache
from regency.broker_agent.producer_ids import ProducerIds
from regency.broker_agent.readiness import say_ready_once_known
from regency.broker_agent.registration import (
    Registered,
    Registration,
    SessionFile,
    ensure_cluster_id,
    ensure_parents,
    newest_registration,
)
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.fetcher_pool import FetcherPool, threads
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.broker_agent.reporter import Reporter
from regency.broker_agent.strays import Strays
from regency.broker_agent.topic_configs import TopicConfigs
from regency.history.writer import HistoryWriter
from regency.model import znode_paths, znodes
from regency.model.clock import SystemClock
from regency.model.endpoints import format_endpoint
from regency.model.facts import Broker, Endpoint
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch
from regency.model.settings import BrokerSettings
from regency.runtime.grpc_servers import GrpcServer, PortUnavailable
from regency.runtime.supervise import start_task, start_thread
from regency.runtime.zk_client import connect
from regency.runtime.zk_session import Create, ZkError, ZkSession

logger = logging.getLogger(__name__)

WORKERS = 4
ZOOKEEPER_WORKERS = 2
CONTROL_THREADS = 4
"""Threads of the control server; one request is executed at a time, the others wait for their turn or are reads."""

GRACE_MS = 1000

LOGS_PER_LINE = 1000
"""Logs opened at the start for each line about it."""


async def run_agent(settings: BrokerSettings, child_arguments: Sequence[str]) -> int:
    """Run an agent until SIGTERM or SIGINT; the exit status. `child_arguments` name the settings for the child too.

    Raises RegencyError when it cannot start.
    """
    agent = Agent(settings, child_arguments)
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

    def __init__(self, settings: BrokerSettings, child_arguments: Sequence[str]) -> None:
        self._settings = settings
        self._broker_id = settings.broker_id
        self._clock = SystemClock()
        self._loop = DataLoop(end_process)
        self._worker = LoopWorker(self._loop, WORKERS, "worker")
        self._zookeeper_worker = LoopWorker(self._loop, ZOOKEEPER_WORKERS, "zookeeper")
        self._timer = LoopTimer(self._clock, end_process)
        self._metadata = MetadataCache()
        self._child = ControllerChild(child_arguments, self._fix_child_port)
        self._endpoints: list[Endpoint] = []
        self._registration: Registration | None = None
        self._registered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._stop_following: Callable[[], None] = _follows_nothing
        self._on_dir_failure: Callable[[Path, str], None] = _no_logs_yet
        self.stop_asked = asyncio.Event()
        self._hurried = asyncio.Event()

    def ask_to_stop(self) -> None:
        """Stop in order; asked again: without moving leadership away first."""
        if self.stop_asked.is_set():
            self._hurried.set()
        self.stop_asked.set()

    def abandon(self) -> None:
        """End now, while logs may still be under recovery on another thread: the next start recovers them."""
        self._child.kill()
        os._exit(0)

    def broker_epoch(self) -> BrokerEpoch:
        """Newest registered epoch of this broker; -1 before the first."""
        return self._registration.epoch() if self._registration is not None else NO_BROKER_EPOCH

    async def start(self, stack: AsyncExitStack) -> None:
        """Start every part; what must be undone is put on `stack`. Raises RegencyError."""
        settings = self._settings
        stack.callback(self._zookeeper_worker.close)
        stack.callback(self._worker.close)
        stack.push_async_callback(self._child.stop)
        session = await asyncio.to_thread(
            connect,
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            digest_auth=settings.zookeeper_digest_auth,
            name=f"agent-{self._broker_id}",
            connect_timeout_ms=settings.zookeeper_connection_timeout_ms,
            set_acl=settings.zookeeper_set_acl,
        )
        stack.callback(session.close)
        await in_contact(ensure_parents, session)
        earlier = await in_contact(newest_registration, session)
        cluster_id = await in_contact(ensure_cluster_id, session)
        logs = await asyncio.to_thread(self._open_logs, cluster_id)
        stack.callback(logs.close)
        configs = TopicConfigs(
            self._broker_id,
            settings.log_config(),
            session,
            self._zookeeper_worker,
            self._loop.post,
            self._later,
            logs.set_config,
        )
        await in_contact(self._read_configs, configs, logs)
        self._registration = self._build_registration(session)
        writer = self._start_isr_writer(session, stack)
        replicas = self._build_replicas(logs, writer, configs, stack)
        self._stop_following = replicas.fetchers.leave
        self._on_dir_failure = functools.partial(self._dir_failed, replicas, logs, session)
        await self._start_listener(replicas, session, cluster_id, stack)
        strays = Strays(self._loop, self._broker_id, session, logs, replicas)
        self._start_control(replicas, logs, configs, strays, earlier, stack)
        await self._start_child(stack)
        reporter = Reporter(
            self._broker_id,
            replicas,
            lambda: list(logs.all()),
            self._metadata,
            self.broker_epoch,
            settings.regency_report_interval_ms,
        )
        self._supervise("the reporter", reporter.run(), stack)
        stack.callback(self._registration.stop)
        await asyncio.to_thread(self._registration.start)
        await self._registered
        ports = {endpoint.listener: endpoint.port for endpoint in self._endpoints}
        ready = say_ready_once_known(self._broker_id, ports, self._metadata, self.broker_epoch)
        stack.callback(asyncio.ensure_future(ready).cancel)

    async def leave(self) -> None:
        """Have leadership moved away, unless the settings or a second signal say otherwise."""
        if not self._settings.controlled_shutdown_enable:
            return
        self._stop_following()
        leaving = asyncio.ensure_future(
            controlled_shutdown.leave(self._settings, self._broker_id, self._metadata, self.broker_epoch)
        )
        hurried = asyncio.ensure_future(self._hurried.wait())
        await asyncio.wait({leaving, hurried}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        hurried.cancel()

    def _open_logs(self, cluster_id: str) -> LogManager:
        return LogManager.open(
            [Path(directory) for directory in self._settings.log_dirs],
            self._settings.log_config(),
            broker_id=self._broker_id,
            cluster_id=cluster_id,
            clock=self._clock,
            worker=self._worker,
            recovery_threads=self._settings.num_recovery_threads_per_data_dir,
            on_dir_failure=lambda path, why: self._loop.post(lambda: self._on_dir_failure(path, why)),
            progress=_tell_progress,
        )

    def _read_configs(self, configs: TopicConfigs, logs: LogManager) -> None:
        configs.watch()
        topics = sorted({partition.topic for partition in logs.all()})
        configs.load(topics)
        for topic in topics:
            logs.set_config(topic, configs.of(topic))

    def _build_registration(self, session: ZkSession) -> Registration:
        return Registration(
            session,
            lambda: Broker(self._broker_id, NO_BROKER_EPOCH, tuple(self._endpoints), self._settings.broker_rack),
            SessionFile(Path(self._settings.log_dirs[0])),
            self._clock,
            self._zookeeper_worker,
            self._loop.post,
            self._later,
            self._on_registered,
            self._on_refused,
        )

    def _start_isr_writer(self, session: ZkSession, stack: AsyncExitStack) -> IsrWriter:
        assert self._registration is not None
        files = HistoryWriter(Path(self._settings.regency_history_dir), "agent")
        history = IsrHistory(self._broker_id, files, self._clock)
        writer = IsrWriter(
            self._broker_id,
            session,
            self._clock,
            self._loop.post,
            self._registration.owner_generation,
            history.record,
            self._metadata.broker_epoch,
            self._settings.regency_isr_notification_quiet_ms,
            self._settings.regency_isr_notification_max_delay_ms,
        )
        start_thread("isr-writer", writer.run, end_process, ends=True)
        stack.callback(writer.stop)
        return writer

    def _build_replicas(
        self, logs: LogManager, writer: IsrWriter, configs: TopicConfigs, stack: AsyncExitStack
    ) -> ReplicaManager:
        fetchers = FetcherPool(self._settings, self._clock, self.broker_epoch, threads(self._loop.post))
        replicas = ReplicaManager(
            self._broker_id,
            self._settings,
            logs,
            self._clock,
            self._timer,
            writer,
            self._metadata,
            fetchers,
            configs.of,
        )
        self._timer.bind(replicas.run_due)
        self._metadata.subscribe(lambda _: replicas.on_metadata_changed())
        stack.callback(self._timer.close)
        stack.callback(replicas.shutdown)
        return replicas

    async def _start_listener(
        self, replicas: ReplicaManager, session: ZkSession, cluster_id: str, stack: AsyncExitStack
    ) -> None:
        admin = AdminForwarder(self._broker_id, self._metadata, lambda: self._child.port, self._clock)
        stack.callback(admin.close)
        producer_ids = ProducerIds(self._broker_id, session, self._zookeeper_worker)
        producer_ids.prefetch()
        listener = KafkaListener(
            self._settings,
            replicas,
            FetchSessionCache(self._settings.max_incremental_fetch_session_cache_slots),
            self._metadata,
            admin,
            producer_ids,
            cluster_id,
            self._clock,
        )
        stack.push_async_callback(listener.stop)
        for endpoint in self._settings.listeners:
            try:
                port = await listener.start(endpoint)
            except OSError as error:
                raise PortUnavailable(
                    f"Cannot listen on {format_endpoint(endpoint)}: {error.strerror or error}.",
                    hint="Choose another port in listeners, or stop the process that has this one.",
                ) from error
            self._announce(endpoint, port)

    def _start_control(
        self,
        replicas: ReplicaManager,
        logs: LogManager,
        configs: TopicConfigs,
        strays: Strays,
        earlier: BrokerEpoch,
        stack: AsyncExitStack,
    ) -> None:
        own_epoch = self.broker_epoch
        service = ControlService(self._loop, replicas, logs, self._metadata, configs, strays, own_epoch, earlier)
        server = GrpcServer([service.handler()], threads=CONTROL_THREADS, name="control")
        endpoint = self._settings.control_plane_listener
        self._announce(endpoint, server.bind(endpoint.host, endpoint.port))
        server.start()
        stack.push_async_callback(asyncio.to_thread, server.stop, GRACE_MS)

    async def _start_child(self, stack: AsyncExitStack) -> None:
        self._announce(self._settings.controller_listener, await self._child.start())
        self._supervise("the watch over the controller process", self._child.watch(), stack)

    def _fix_child_port(self, port: int) -> Sequence[str]:
        """What makes a restarted child listen where the first one did."""
        settings = self._settings
        if settings.controller_listener.port:
            return ()
        name = settings.controller_listener_name
        others = [end for end in (*settings.listeners, *settings.control_listeners) if end.listener != name]
        fixed = msgspec.structs.replace(settings.controller_listener, port=port)
        return ("--override", "listeners=" + ",".join(format_endpoint(end) for end in (*others, fixed)))

    def _announce(self, endpoint: Endpoint, port: int) -> None:
        self._endpoints.append(self._settings.advertised(endpoint, bound_port=port, hostname=socket.gethostname()))

    def _supervise(self, name: str, run: Coroutine[object, object, None], stack: AsyncExitStack) -> None:
        task = start_task(name, run, end_process)
        stack.callback(task.cancel)

    def _later(self, delay_ms: int, work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._loop.post, work)

    def _on_registered(self, registered: Registered) -> None:
        del registered
        if not self._registered.done():
            self._registered.set_result(None)

    def _on_refused(self, error: BaseException) -> None:
        if not self._registered.done():
            self._registered.set_exception(error)
            return
        end_process("the registration", error)

    def _dir_failed(self, replicas: ReplicaManager, logs: LogManager, session: ZkSession, path: Path, why: str) -> None:
        logger.error("log directory %s failed: %s", path, why)
        replicas.handle_dir_failure(path, why)
        if len(logs.offline_dirs) >= len(self._settings.log_dirs):
            end_process("the last log directory", OSError(f"{path}: {why}"))
        notification = Create(
            znode_paths.log_dir_event_prefix(), znodes.encode_log_dir_event(self._broker_id), sequential=True
        )

        def told(outcome: object) -> None:
            if isinstance(outcome, ZkError):
                self._later(1000, tell)

        def tell() -> None:
            self._zookeeper_worker.submit(lambda: session.multi([notification]), told)

        tell()


def _tell_progress(done: int, count: int) -> None:
    if done == count or done % LOGS_PER_LINE == 0:
        logger.info("opened %d of %d logs", done, count)


def _follows_nothing() -> None:
    """Before there are replicas."""


def _no_logs_yet(path: Path, why: str) -> None:
    logger.error("log directory %s failed: %s", path, why)


def end_process(name: str, error: BaseException) -> None:
    """A part that must not fail has failed: end now, and let the next start recover. Never returns."""
    logger.critical("%s has failed; the agent ends: %s", name, error, exc_info=error)
    logging.shutdown()
    os._exit(1)
