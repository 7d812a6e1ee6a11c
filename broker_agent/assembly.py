"""What an agent is made of: its parts, and how they know each other.

Passive and synchronous: threads, clocks, the disk and the ZooKeeper session come from the `Adapters` that an agent's
process gives, real ones, and the simulation, simulated ones. Both start the parts in the same order: ZooKeeper session
and cluster id; log directories, locked and recovered; settings of topics; `build`; then the ISR writer, the listener,
the control server, the controller process, and last the registration, since a broker that is registered can serve.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeVar
from uuid import UUID

import msgspec

from regency.broker_agent.control.follower_epochs import Answered, FollowerEpochs
from regency.broker_agent.control.gate import read_office, registered_epoch
from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.broker_agent.control.service import ControlService
from regency.broker_agent.control.strays import Strays
from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.broker_agent.log.directories.log_cleaning import Cleaner, LogCleaning
from regency.broker_agent.log.directories.log_loading import NO_DIRECTORY_WORKS
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.log.errors import LogDirInvalid
from regency.broker_agent.ports import IsrChange, IsrWritten, Loop, Timer, Worker
from regency.broker_agent.registry.isr_store import IsrWriter
from regency.broker_agent.registry.registration import Registered, Registration, SessionFile
from regency.broker_agent.registry.topic_configs import TopicConfigs
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool, MakeTransport
from regency.broker_agent.replication.fetcher.throttle import Throttles
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model import znodes
from regency.model.clock import Clock
from regency.model.facts import Broker, Endpoint
from regency.model.ids import NO_BROKER_EPOCH, BrokerId
from regency.model.settings import BrokerSettings
from regency.model.settings.dynamic import ThrottleRates
from regency.model.znodes import paths as znode_paths
from regency.runtime.disk import Disk
from regency.runtime.zookeeper.session import Create, ZkError, ZkSession

logger = logging.getLogger(__name__)

T = TypeVar("T")

TELL_AGAIN_MS = 1000
"""After so long a failed directory is reported to the controller again, where ZooKeeper could not be reached."""


class OwnedTimer(Timer, Protocol):
    """A timer whose owner is made later than it."""

    def bind(self, run_due: Callable[[int], None], /) -> None:
        """Say whom to wake."""
        ...

    def close(self) -> None:
        """Wake no loop any more."""
        ...


class Adapters(msgspec.Struct, frozen=True):
    """What the parts use of the world outside, and whom they call there. Callbacks come on the data loop."""

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
    cleaner: Cleaner
    """Compacts logs."""
    endpoints: Callable[[], tuple[Endpoint, ...]]
    """Where this agent can be reached, as it registers."""
    open_history: Callable[[], Callable[[IsrChange, IsrWritten], None]]
    """Opens what records every ISR change that is in ZooKeeper, on the ISR writer's thread."""
    recovery_threads: int
    """Per log directory."""
    registered: Callable[[Registered], None]
    """This broker is registered, again or for the first time."""
    refused: Callable[[BaseException], None]
    """This broker cannot be registered: its id is taken, or worse."""
    asked_to_stop: Callable[[], None]
    """The controller wants this broker to leave: stop in order, leadership first."""
    end: Callable[[str, BaseException], None]
    """A part that the agent cannot do without has failed: end the process."""
    progress: Callable[[int, int], None] | None = None
    """Called with how many logs are opened, and of how many, on the threads that open them."""


class Opened(msgspec.Struct, frozen=True):
    """What an agent has before it has parts: a session, logs that are open, settings of topics that are read."""

    session: ZkSession
    logs: LogManager
    configs: TopicConfigs
    failures: DirectoryFailures


class Parts(msgspec.Struct, frozen=True):
    """The parts of an agent, see `build`."""

    session: ZkSession
    logs: LogManager
    metadata: MetadataCache
    registration: Registration
    writer: IsrWriter
    replicas: ReplicaManager
    groups: GroupCoordinator
    service: ControlService


class DirectoryFailures:
    """What is done about a log directory that fails, from the first moment on. Data loop only."""

    def __init__(self, broker_id: BrokerId, session: ZkSession, adapters: Adapters) -> None:
        self._broker_id = broker_id
        self._session = session
        self._adapters = adapters
        self.logs: LogManager | None = None
        self.replicas: ReplicaManager | None = None
        """Both are set once they are there; what fails before is seen by who opens the logs."""

    def failed(self, path: Path, why: str) -> None:
        """Serve its replicas no more, and notify the controller; where it was the last directory, end."""
        logger.error("log directory %s failed: %s", path, why)
        if self.replicas is not None:
            self.replicas.handle_dir_failure(path, why)
        if self.logs is not None and not any(each.is_working for each in self.logs.directories):
            self._adapters.end("the last log directory", OSError(f"{path}: {why}"))
            return
        if self.replicas is not None:  # else the controller learns of it when it names what is lost
            self._notify()

    def _notify(self) -> None:
        notification = Create(
            znode_paths.log_dir_event_prefix(), znodes.encode_log_dir_event(self._broker_id), sequential=True
        )

        def done(outcome: object) -> None:
            if isinstance(outcome, ZkError):
                self._adapters.later(TELL_AGAIN_MS, self._notify)

        self._adapters.zookeeper_worker.submit(lambda: self._session.multi([notification]), done)


def open_logs(
    settings: BrokerSettings, adapters: Adapters, cluster_id: str, on_failure: Callable[[Path, str], None]
) -> LogManager:
    """Lock, load and recover the log directories; blocks. Raises LogDirInvalid where one must not be used."""
    return LogManager.open(
        [Path(directory) for directory in settings.log_dirs],
        settings.log_config(),
        broker_id=settings.broker_id,
        cluster_id=cluster_id,
        clock=adapters.clock,
        worker=adapters.worker,
        recovery_threads=adapters.recovery_threads,
        on_dir_failure=lambda path, why: adapters.loop.post(lambda: on_failure(path, why)),
        disk=adapters.disk,
        new_uuid=adapters.new_uuid,
        progress=adapters.progress,
        producer_expiration_ms=settings.producer_id_expiration_ms,
    )


def opened(
    settings: BrokerSettings, adapters: Adapters, session: ZkSession, logs: LogManager, failures: DirectoryFailures
) -> Opened:
    """With the settings of topics and the throttles of this broker, which are still to be read."""
    configs = TopicConfigs(
        settings.broker_id,
        settings.log_config(),
        session,
        adapters.zookeeper_worker,
        adapters.loop.post,
        adapters.later,
        logs.set_configs,
        logs.topics,
        ThrottleRates(
            settings.leader_replication_throttled_rate,
            settings.follower_replication_throttled_rate,
            settings.replica_alter_log_dirs_io_max_bytes_per_second,
        ),
    )
    failures.logs = logs
    return Opened(session, logs, configs, failures)


def read_configs(found: Opened) -> None:
    """Read the settings of all topics that have logs here; blocks, and may run twice. Raises ZkError."""
    configs, logs = found.configs, found.logs
    configs.watch()
    topics = sorted({partition.topic for partition in logs.all()})
    configs.load(topics)
    logs.set_configs({topic: configs.of(topic) for topic in topics})


def build(settings: BrokerSettings, adapters: Adapters, found: Opened) -> Parts:
    """Make the parts and have them know each other. Nothing runs yet."""
    metadata = MetadataCache()
    registration = Registration(
        found.session,
        lambda: Broker(settings.broker_id, NO_BROKER_EPOCH, adapters.endpoints(), settings.broker_rack),
        SessionFile(Path(settings.log_dirs[0]), adapters.disk),
        found.logs.continuity,
        adapters.clock,
        adapters.zookeeper_worker,
        adapters.loop.post,
        adapters.later,
        adapters.registered,
        adapters.refused,
    )
    writer = IsrWriter(
        settings.broker_id,
        found.session,
        adapters.clock,
        adapters.loop.post,
        registration.owner_generation,
        adapters.open_history(),
        metadata.broker_epoch,
        settings.regency_isr_notification_quiet_ms,
        settings.regency_isr_notification_max_delay_ms,
    )
    replicas = _replica_manager(settings, adapters, found, metadata, registration, writer)
    found.failures.replicas = replicas
    found.configs.on_throttles = replicas.on_throttles_changed
    adapters.timer.bind(replicas.run_due)
    metadata.subscribe(lambda _: replicas.on_metadata_changed())
    groups = GroupCoordinator(
        settings,
        replicas,
        metadata,
        found.session,
        adapters.zookeeper_worker,
        adapters.clock,
        adapters.later,
        adapters.new_uuid,
    )
    service = _control_service(settings, adapters, found, metadata, registration, replicas)
    return Parts(found.session, found.logs, metadata, registration, writer, replicas, groups, service)


def _replica_manager(
    settings: BrokerSettings,
    adapters: Adapters,
    found: Opened,
    metadata: MetadataCache,
    registration: Registration,
    writer: IsrWriter,
) -> ReplicaManager:
    configs, logs = found.configs, found.logs

    def ask(broker: BrokerId, answered: Answered) -> None:
        adapters.zookeeper_worker.submit(lambda: registered_epoch(found.session, broker), answered)

    throttles = Throttles(settings, configs.rates, configs.of)
    return ReplicaManager(
        settings.broker_id,
        settings,
        logs,
        adapters.clock,
        adapters.timer,
        writer,
        FollowerEpochs(metadata, ask, adapters.clock),
        FetcherPool(settings, adapters.clock, registration.epoch, adapters.transport, logs.settle, throttles.follower),
        configs.of,
        throttles,
        LogCleaning(logs, adapters.cleaner, adapters.clock, settings),
    )


def _control_service(
    settings: BrokerSettings,
    adapters: Adapters,
    found: Opened,
    metadata: MetadataCache,
    registration: Registration,
    replicas: ReplicaManager,
) -> ControlService:
    broker, session, loop = settings.broker_id, found.session, adapters.loop

    def remind() -> None:
        loop.post(lambda: adapters.later(TELL_AGAIN_MS, look_again))

    def look_again() -> None:
        adapters.zookeeper_worker.submit(service.look_for_strays, looked)

    def looked(outcome: object) -> None:
        if isinstance(outcome, BaseException):
            logger.warning("stray logs could not be looked for: %s", outcome)
            remind()

    service = ControlService(
        loop,
        replicas,
        found.logs,
        metadata,
        found.configs,
        Strays(loop, broker, session, found.logs, replicas, remind),
        registration.epoch,
        lambda: read_office(session, broker),
        adapters.clock,
        shut_down=adapters.asked_to_stop,
    )
    return service


def refuse_without_directory(logs: LogManager) -> None:
    """Raise LogDirInvalid where the last directory failed while what was found in it was written down."""
    if not any(each.is_working for each in logs.directories):
        first = logs.directories[0].directory
        raise LogDirInvalid(first.path, first.failure or "", hint=NO_DIRECTORY_WORKS)
