"""What an agent is made of: which parts there are, in which order they are made and started, who is told of what.

Passive: threads, clocks, the disk, sockets and the ZooKeeper session come from the `Ports` and the `Edge` it is given.
An agent process gives real ones, the simulation simulated ones; what is decided here holds for both. An edge whose
coroutines never wait can be driven without asyncio.

Order of starting: ZooKeeper session and cluster id, log directories (locked and recovered), ports, the controller
process, and last the registration: who is registered can serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec

from regency.broker_agent.control.follower_epochs import Answered, FollowerEpochs
from regency.broker_agent.control.gate import read_office, registered_epoch
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.broker_agent.control.service import ControlService
from regency.broker_agent.control.strays import Strays
from regency.broker_agent.log.directories.log_loading import NO_DIRECTORY_WORKS
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import LogDirInvalid
from regency.broker_agent.ports import IsrChange, IsrWritten, Timer, Worker
from regency.broker_agent.process.patient_worker import PatientWorker
from regency.broker_agent.registry.isr_store import IsrWriter
from regency.broker_agent.registry.registration import (
    Registered,
    Registration,
    SessionFile,
    ensure_cluster_id,
    ensure_parents,
)
from regency.broker_agent.registry.topic_configs import TopicConfigs
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool, MakeTransport
from regency.broker_agent.replication.fetcher.throttle import Throttles
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.facts import Broker, Endpoint
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, BrokerId
from regency.model.settings import BrokerSettings
from regency.model.settings.dynamic import ThrottleRates
from regency.model.znodes import paths as znode_paths
from regency.runtime.disk import Disk
from regency.runtime.zookeeper.session import Create, ZkError, ZkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")

TELL_AGAIN_MS = 1000
"""After so long the controller is told again of a failed directory, where ZooKeeper could not be reached."""


class Loop(Protocol):
    """The way to the data loop, from any thread."""

    def post(self, work: Callable[[], None], /) -> None:
        """Run `work` on the loop soon, in the order of posting."""
        ...

    def call(self, work: Callable[[], T], *, timeout_ms: int) -> T:
        """Run `work` on the loop and wait for its result; from another thread only."""
        ...


class OwnedTimer(Timer, Protocol):
    """A timer whose owner is made later than it."""

    def bind(self, run_due: Callable[[int], None], /) -> None:
        """Say whom to wake."""
        ...

    def close(self) -> None:
        """Wake nobody any more."""
        ...


class Ports(msgspec.Struct, frozen=True):
    """What the parts use of the world outside."""

    clock: Clock
    loop: Loop
    later: Callable[[int, Callable[[], None]], None]
    """Runs work on the data loop after so many milliseconds; called on the data loop."""
    timer: OwnedTimer
    worker: Worker
    """For disks."""
    zookeeper_worker: Worker
    transport: MakeTransport
    disk: Disk
    new_uuid: Callable[[], UUID]
    endpoints: Callable[[], tuple[Endpoint, ...]]
    """Where this agent can be reached, as it registers."""
    open_history: Callable[[], Callable[[IsrChange, IsrWritten], None]]
    """Opens what is told of every ISR change that is in ZooKeeper, on the ISR writer's thread."""
    recovery_threads: int
    """Per log directory."""
    progress: Callable[[int, int], None] | None = None
    """Told how many logs are opened, and of how many, on these threads."""


class Edge(Protocol):
    """What only a process can do: wait, start threads, serve, end. What must be undone is put on `stack`."""

    async def connect(self) -> ZkSession:
        """A session with ZooKeeper."""
        ...

    async def in_contact(self, call: Callable[[], T], /) -> T:
        """Make a call that blocks and may run twice, off the data loop; again while contact with ZooKeeper is lost."""
        ...

    async def blocking(self, call: Callable[[], T], /) -> T:
        """Make a call that blocks, off the data loop."""
        ...

    async def on_loop(self, call: Callable[[], None], /) -> None:
        """Make a call on the data loop."""
        ...

    def start_writer(self, writer: IsrWriter) -> None:
        """Run the ISR writer on a thread of its own."""
        ...

    async def serve_clients(
        self, replicas: ReplicaManager, session: ZkSession, cluster_id: str, stack: AsyncExitStack
    ) -> None:
        """Listen to clients and followers."""
        ...

    async def serve_controllers(self, service: ControlService, stack: AsyncExitStack) -> None:
        """Listen to controllers."""
        ...

    async def start_beside(self, replicas: ReplicaManager, stack: AsyncExitStack) -> None:
        """Start what runs beside the parts: this host's controller process, reports."""
        ...

    async def until_registered(self) -> None:
        """Return once `registered` was called, where anybody waits for that. Raises what `refused` was told."""
        ...

    def registered(self, registered: Registered) -> None:
        """This broker is registered, again or for the first time."""
        ...

    def refused(self, error: BaseException) -> None:
        """This broker cannot be registered: its id is taken, or worse."""
        ...

    def asked_to_stop(self) -> None:
        """The controller wants this broker to leave: stop in order, leadership first."""
        ...

    def end(self, name: str, error: BaseException) -> None:
        """A part that the agent cannot do without has failed: end the process."""
        ...


class Assembly:
    """The parts of one agent. Those that are made by `start` are None until then. Lives on the data loop."""

    def __init__(self, settings: BrokerSettings, ports: Ports, edge: Edge) -> None:
        self.metadata = MetadataCache()
        self.session: ZkSession | None = None
        self.logs: LogManager | None = None
        self.replicas: ReplicaManager | None = None
        self.service: ControlService | None = None
        self._settings = settings
        self._broker_id = settings.broker_id
        self._ports = ports
        self._edge = edge
        self._registration: Registration | None = None
        self.disk_worker = PatientWorker(ports.worker, ports.later)

    def broker_epoch(self) -> BrokerEpoch:
        """Newest registered epoch of this broker; -1 before the first."""
        return self._registration.epoch() if self._registration is not None else NO_BROKER_EPOCH

    @property
    def is_registered(self) -> bool:
        """Whether this broker is registered in ZooKeeper now, as far as is known. Any thread."""
        return self._registration is not None and self._registration.owner_generation() is not None

    async def start(self, stack: AsyncExitStack) -> None:
        """Make and start every part in order; closing `stack` stops them in the opposite one. Raises RegencyError."""
        edge = self._edge
        self.session = session = await edge.connect()
        stack.callback(session.close)
        await edge.in_contact(lambda: ensure_parents(session))
        cluster_id = await edge.in_contact(lambda: ensure_cluster_id(session))
        self.logs = logs = await edge.blocking(lambda: self._open_logs(cluster_id))
        stack.push_async_callback(edge.on_loop, logs.close)
        _refuse_without_directory(logs)
        configs = self._make_configs(session, logs)
        await edge.in_contact(lambda: _read_configs(configs, logs))
        self._registration = registration = self._make_registration(session, logs)
        writer = self._make_writer(session, registration)
        edge.start_writer(writer)
        stack.callback(writer.stop)
        self.replicas = replicas = self._make_replicas(session, logs, writer, configs)
        stack.callback(self._ports.timer.close)
        stack.push_async_callback(edge.on_loop, replicas.shutdown)
        await edge.serve_clients(replicas, session, cluster_id, stack)
        self.service = service = self._make_service(session, logs, replicas, configs)
        await edge.serve_controllers(service, stack)
        await edge.start_beside(replicas, stack)
        stack.callback(registration.stop)
        await edge.blocking(registration.start)
        await edge.until_registered()

    def follow_no_more(self) -> None:
        """Before leadership is moved away: a broker that leaves does not fetch itself into ISRs again."""
        if self.replicas is not None:
            self.replicas.fetchers.leave()

    def _open_logs(self, cluster_id: str) -> LogManager:
        ports = self._ports
        return LogManager.open(
            [Path(directory) for directory in self._settings.log_dirs],
            self._settings.log_config(),
            broker_id=self._broker_id,
            cluster_id=cluster_id,
            clock=ports.clock,
            worker=self.disk_worker,
            recovery_threads=ports.recovery_threads,
            on_dir_failure=lambda path, why: ports.loop.post(lambda: self._dir_failed(path, why)),
            disk=ports.disk,
            new_uuid=ports.new_uuid,
            progress=ports.progress,
            producer_expiration_ms=self._settings.producer_id_expiration_ms,
        )

    def _make_configs(self, session: ZkSession, logs: LogManager) -> TopicConfigs:
        return TopicConfigs(
            self._broker_id,
            self._settings.log_config(),
            session,
            self._ports.zookeeper_worker,
            self._ports.loop.post,
            self._ports.later,
            logs.set_configs,
            logs.topics,
            ThrottleRates(
                self._settings.leader_replication_throttled_rate,
                self._settings.follower_replication_throttled_rate,
                self._settings.replica_alter_log_dirs_io_max_bytes_per_second,
            ),
        )

    def _make_registration(self, session: ZkSession, logs: LogManager) -> Registration:
        settings, ports = self._settings, self._ports
        return Registration(
            session,
            lambda: Broker(self._broker_id, NO_BROKER_EPOCH, ports.endpoints(), settings.broker_rack),
            SessionFile(Path(settings.log_dirs[0]), ports.disk),
            logs.continuity,
            ports.clock,
            ports.zookeeper_worker,
            ports.loop.post,
            ports.later,
            self._edge.registered,
            self._edge.refused,
        )

    def _make_writer(self, session: ZkSession, registration: Registration) -> IsrWriter:
        return IsrWriter(
            self._broker_id,
            session,
            self._ports.clock,
            self._ports.loop.post,
            registration.owner_generation,
            self._ports.open_history(),
            self.metadata.broker_epoch,
            self._settings.regency_isr_notification_quiet_ms,
            self._settings.regency_isr_notification_max_delay_ms,
        )

    def _make_replicas(
        self, session: ZkSession, logs: LogManager, writer: IsrWriter, configs: TopicConfigs
    ) -> ReplicaManager:
        ports = self._ports

        def ask(broker: BrokerId, answered: Answered) -> None:
            ports.zookeeper_worker.submit(lambda: registered_epoch(session, broker), answered)

        throttles = Throttles(self._settings, configs.rates, configs.of)
        replicas = ReplicaManager(
            self._broker_id,
            self._settings,
            logs,
            ports.clock,
            ports.timer,
            writer,
            FollowerEpochs(self.metadata, ask, ports.clock),
            FetcherPool(
                self._settings, ports.clock, self.broker_epoch, ports.transport, logs.settle, throttles.follower
            ),
            configs.of,
            throttles,
        )
        configs.on_throttles = replicas.on_throttles_changed
        ports.timer.bind(replicas.run_due)
        self.metadata.subscribe(lambda _: replicas.on_metadata_changed())
        return replicas

    def _make_service(
        self,
        session: ZkSession,
        logs: LogManager,
        replicas: ReplicaManager,
        configs: TopicConfigs,
    ) -> ControlService:
        loop = self._ports.loop

        def remind() -> None:
            loop.post(lambda: self._ports.later(TELL_AGAIN_MS, look_again))

        def look_again() -> None:
            self._ports.zookeeper_worker.submit(service.look_for_strays, looked)

        def looked(outcome: object) -> None:
            if isinstance(outcome, BaseException):
                logger.warning("stray logs could not be looked for: %s", outcome)
                remind()

        strays = Strays(loop, self._broker_id, session, logs, replicas, remind)
        service = ControlService(
            loop,
            replicas,
            logs,
            self.metadata,
            configs,
            strays,
            self.broker_epoch,
            lambda: read_office(session, self._broker_id),
            shut_down=self._edge.asked_to_stop,
        )
        return service

    def _dir_failed(self, path: Path, why: str) -> None:
        logger.error("log directory %s failed: %s", path, why)
        replicas, logs, session = self.replicas, self.logs, self.session
        if replicas is not None:
            replicas.handle_dir_failure(path, why)
        if logs is not None and not any(each.is_working for each in logs.directories):
            self._edge.end("the last log directory", OSError(f"{path}: {why}"))
            return
        if replicas is None or session is None:
            return  # the controller is told when it names what is lost
        notification = Create(
            znode_paths.log_dir_event_prefix(), znodes.encode_log_dir_event(self._broker_id), sequential=True
        )

        def told(outcome: object) -> None:
            if isinstance(outcome, ZkError):
                self._ports.later(TELL_AGAIN_MS, tell)

        def tell() -> None:
            self._ports.zookeeper_worker.submit(lambda: session.multi([notification]), told)

        tell()


def _read_configs(configs: TopicConfigs, logs: LogManager) -> None:
    configs.watch()
    topics = sorted({partition.topic for partition in logs.all()})
    configs.load(topics)
    logs.set_configs({topic: configs.of(topic) for topic in topics})


def _refuse_without_directory(logs: LogManager) -> None:
    """Raise LogDirInvalid where the last directory failed while what was found in it was written down."""
    if not any(each.is_working for each in logs.directories):
        first = logs.directories[0].directory
        raise LogDirInvalid(first.path, first.failure or "", hint=NO_DIRECTORY_WORKS)
