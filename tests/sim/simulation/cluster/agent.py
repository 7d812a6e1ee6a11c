"""An agent process: production parts wired in the order of `regency.broker_agent.agent`, over simulated ports."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from regency.broker_agent.control_service import ControlService
from regency.broker_agent.isr_store import IsrWriter
from regency.broker_agent.log.disk import Disk
from regency.broker_agent.log.log_manager import LogManager
from regency.broker_agent.metadata import MetadataSnapshot
from regency.broker_agent.metadata_cache import MetadataCache
from regency.broker_agent.producer_ids import ProducerIdsUnavailable, take_block
from regency.broker_agent.registration import (
    Registered,
    Registration,
    SessionFile,
    ensure_cluster_id,
    ensure_parents,
    newest_registration,
)
from regency.broker_agent.replication.api import CONSUMER, FetchedPartition, FetchParams, FetchPartition
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.fetcher_pool import FetcherPool, TransportSpec
from regency.broker_agent.replication.fetcher_thread import Outcome
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.broker_agent.strays import Strays
from regency.broker_agent.topic_configs import TopicConfigs
from regency.model import znode_paths, znodes
from regency.model.facts import Broker
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, LeaderEpoch, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings
from regency.protos import control_pb2 as pb
from regency.runtime.zk_session import Create, ZkConnectionLost, ZkError, ZkSession, ZkSessionLost
from simulation.cluster.addresses import CONTROL, KAFKA, endpoints_of, host_of
from simulation.cluster.controller import ControlAsked, ShutdownAsked
from simulation.cluster.edges import SimLoop, SimTimer, SimWorker, ask
from simulation.cluster.fetching import FetchAsked, FetchServer, OffsetsAsked, SimTransport
from simulation.kernel.scheduler import Process, Scheduler
from simulation.kernel.threads import new_uuid
from simulation.network import NetFailed, Network, Respond

T = TypeVar("T")

CONTACT_AGAIN_US = 500_000


class ProduceAsked(NamedTuple):
    """A producer's request on its way."""

    acks: int
    timeout_ms: int
    batches: dict[TopicPartition, bytes]


class PollAsked(NamedTuple):
    """A consumer's Fetch on its way."""

    params: FetchParams
    partitions: tuple[FetchPartition, ...]


class ListAsked(NamedTuple):
    """A consumer's ListOffsets on its way."""

    topic_partition: TopicPartition
    timestamp: int
    leader_epoch: LeaderEpoch


class MetadataAsked(NamedTuple):
    """A client's Metadata request on its way."""


class ProducerIdAsked(NamedTuple):
    """InitProducerId on its way."""


class SimAgent:
    """One agent process. `start` is its first actor; `disk` is what the process before it left."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        settings: BrokerSettings,
        disk: Disk,
        open_session: Callable[[Process], ZkSession],
    ) -> None:
        self.process = process
        self.settings = settings
        self.broker_id = settings.broker_id
        self.metadata = MetadataCache()
        self.replicas: ReplicaManager | None = None
        self.logs: LogManager | None = None
        self.session: ZkSession | None = None
        self.service: ControlService | None = None
        self.leaving = False
        self.on_control: Callable[[Any, pb.ControlResponse], None] | None = None
        """Told of every control request and its answer."""
        self.on_end: Callable[[str], None] = lambda _why: process.kill()
        """What happens when the agent finds that it must end."""
        self._scheduler = scheduler
        self._network = network
        self._disk = disk
        self._open_session = open_session
        self._host = host_of(settings.broker_id)
        self._loop = SimLoop(scheduler, process)
        self._worker = SimWorker(scheduler, process, self._loop, "worker")
        self._zookeeper_worker = SimWorker(scheduler, process, self._loop, "zookeeper")
        self._timer = SimTimer(scheduler, process)
        self._registration: Registration | None = None
        self._fetchers: FetcherPool | None = None
        self._fetch_server: FetchServer | None = None
        self._producer_ids: list[int] = []

    def broker_epoch(self) -> BrokerEpoch:
        """Newest registered epoch; -1 before the first."""
        return self._registration.epoch() if self._registration is not None else NO_BROKER_EPOCH

    def start(self) -> None:
        """Start every part in order; the registration is last. Runs in an actor."""
        self.session = session = self._open_session(self.process)
        self._in_contact(lambda: ensure_parents(session))
        earlier = self._in_contact(lambda: newest_registration(session))
        cluster_id = self._in_contact(lambda: ensure_cluster_id(session))
        self.logs = logs = self._open_logs(cluster_id)
        configs = TopicConfigs(
            self.broker_id,
            self.settings.log_config(),
            session,
            self._zookeeper_worker,
            self._loop.post,
            self._loop.later,
            logs.set_config,
        )
        self._in_contact(lambda: self._read_configs(configs, logs))
        self._registration = registration = self._build_registration(session)
        writer = IsrWriter(
            self.broker_id,
            session,
            self.process.clock,
            self._loop.post,
            registration.owner_generation,
            lambda change, written: None,
            self.metadata.broker_epoch,
            self.settings.regency_isr_notification_quiet_ms,
            self.settings.regency_isr_notification_max_delay_ms,
        )
        self._scheduler.spawn(self.process, "isr-writer", writer.run)
        self.replicas = replicas = self._build_replicas(logs, writer, configs)
        self._listen(replicas)
        strays = Strays(self._loop, self.broker_id, session, logs, replicas)
        self.service = ControlService(
            self._loop, replicas, logs, self.metadata, configs, strays, self.broker_epoch, earlier
        )
        self._network.listen(f"{self._host}:{CONTROL}", self._host, self.process, self._serve_control)
        registration.start()

    def leave(self) -> None:
        """Have leadership moved away, as controlled_shutdown.leave does. Runs in an actor."""
        self.leaving = True
        assert self._fetchers is not None
        self._fetchers.leave()
        for _ in range(self.settings.controlled_shutdown_max_retries):
            ruling = self.metadata.ruling
            if ruling is None:
                return
            request = ShutdownAsked(self.broker_id, self.broker_epoch())
            answer = self._ask(ruling.endpoint, request, self.settings.controller_socket_timeout_ms)
            done = not isinstance(answer, NetFailed | Exception) and answer.error is ErrorCode.NONE
            if done and not answer.remaining:
                return
            self._scheduler.sleep_us(self.process.clock.delay_us(self.settings.controlled_shutdown_retry_backoff_ms))

    def serve_control_at(self, port: int) -> None:
        """Serve control requests at another port, too, until the process ends; whoever calls has it registered."""
        self._network.listen(f"{self._host}:{port}", self._host, self.process, self._serve_control)

    def stop(self) -> None:
        """The rest of a stop in order: ports, fetchers, checkpoints, logs, the session. Runs in an actor."""
        for port in (KAFKA, CONTROL):
            self._network.unlisten(f"{self._host}:{port}", self.process)
        assert self._registration is not None
        assert self.replicas is not None
        assert self.logs is not None
        assert self.session is not None
        self._registration.stop()
        self._loop.call(self.replicas.shutdown, timeout_ms=10_000)
        self._timer.close()
        self._loop.call(self.logs.close, timeout_ms=10_000)
        self.session.close()

    # Parts

    def _ask(self, address: str, request: Any, timeout_ms: int) -> Any:
        return ask(self._scheduler, self._network, self.process, self._host, address, request, timeout_ms)

    def _in_contact(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except (ZkConnectionLost, ZkSessionLost):
                self._scheduler.sleep_us(CONTACT_AGAIN_US)

    def _open_logs(self, cluster_id: str) -> LogManager:
        return LogManager.open(
            [Path(directory) for directory in self.settings.log_dirs],
            self.settings.log_config(),
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            clock=self.process.clock,
            worker=self._worker,
            recovery_threads=0,
            on_dir_failure=lambda path, why: self._loop.post(lambda: self._dir_failed(path, why)),
            disk=self._disk,
            new_uuid=partial(new_uuid, self._scheduler),
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
            lambda: Broker(self.broker_id, NO_BROKER_EPOCH, endpoints_of(self.broker_id), None),
            SessionFile(Path(self.settings.log_dirs[0]), self._disk),
            self.process.clock,
            self._zookeeper_worker,
            self._loop.post,
            self._loop.later,
            self._on_registered,
            self._on_refused,
        )

    def _build_replicas(self, logs: LogManager, writer: IsrWriter, configs: TopicConfigs) -> ReplicaManager:
        clock = self.process.clock
        self._fetchers = fetchers = FetcherPool(self.settings, clock, self.broker_epoch, self._transport)
        replicas = ReplicaManager(
            self.broker_id, self.settings, logs, clock, self._timer, writer, self.metadata, fetchers, configs.of
        )
        self._timer.bind(replicas.run_due)
        self.metadata.subscribe(lambda _: replicas.on_metadata_changed())
        sessions = FetchSessionCache(
            self.settings.max_incremental_fetch_session_cache_slots,
            new_id=lambda: self._scheduler.random.randrange(1, 2**31 - 1),
        )
        self._fetch_server = FetchServer(replicas, sessions, self.metadata, clock.monotonic_ms)
        return replicas

    def _transport(self, spec: TransportSpec, deliver: Callable[[Outcome], None]) -> SimTransport:
        return SimTransport(self._scheduler, self._network, self.process, self._host, spec, deliver)

    def _on_registered(self, registered: Registered) -> None:
        self._scheduler.trace.note("agent", self.process.name, "registered under broker epoch %d", registered.epoch)

    def _on_refused(self, error: BaseException) -> None:
        self.on_end(str(error))

    def _dir_failed(self, path: Path, why: str) -> None:
        if self.replicas is None:
            return
        assert self.logs is not None
        assert self.session is not None
        self.replicas.handle_dir_failure(path, why)
        if len(self.logs.offline_dirs) >= len(self.settings.log_dirs):
            self.on_end(f"the last log directory has failed: {why}")
            return
        session = self.session
        path_prefix = znode_paths.log_dir_event_prefix()
        notification = Create(path_prefix, znodes.encode_log_dir_event(self.broker_id), sequential=True)

        def told(outcome: object) -> None:
            if isinstance(outcome, ZkError):
                self._loop.later(1000, tell)

        def tell() -> None:
            self._zookeeper_worker.submit(lambda: session.multi([notification]), told)

        tell()

    # What others ask

    def _listen(self, replicas: ReplicaManager) -> None:
        self._network.listen(
            f"{self._host}:{KAFKA}",
            self._host,
            self.process,
            lambda request, respond: self._serve_kafka(replicas, request, respond),
        )

    def _serve_control(self, request: ControlAsked, respond: Respond) -> None:
        service = self.service
        assert service is not None
        methods: dict[type[Any], Callable[[Any], pb.ControlResponse]] = {
            pb.LeaderAndIsrRequest: service.leader_and_isr,
            pb.UpdateMetadataRequest: service.update_metadata,
            pb.StopReplicaRequest: service.stop_replica,
        }

        def run() -> None:
            message = request.rpc.FromString(request.data)
            answer = methods[request.rpc](message)
            if self.on_control is not None:
                self.on_control(message, answer)
            respond(answer.SerializeToString())

        self._scheduler.spawn(self.process, "control", run)

    def _serve_kafka(self, replicas: ReplicaManager, request: Any, respond: Respond) -> Callable[[], None] | None:
        server = self._fetch_server
        assert server is not None
        match request:
            case FetchAsked():
                return server.fetch(request, respond)
            case OffsetsAsked():
                respond(server.offsets(request))
            case ProduceAsked():
                replicas.append(request.acks, request.timeout_ms, request.batches, respond)
            case PollAsked():
                return self._serve_poll(replicas, request, respond)
            case ListAsked():
                tp, timestamp, epoch = request
                respond(replicas.list_offset(tp, timestamp, epoch, CONSUMER))
            case MetadataAsked():
                respond(self.metadata.current)
            case ProducerIdAsked():
                self._serve_producer_id(respond)
        return None

    def _serve_poll(self, replicas: ReplicaManager, request: PollAsked, respond: Respond) -> Callable[[], None]:
        def answer(results: dict[TopicPartition, FetchedPartition]) -> None:
            respond({name: _copied(row) for name, row in results.items()})

        return replicas.fetch(request.params, request.partitions, answer)

    def _serve_producer_id(self, respond: Respond) -> None:
        if self._producer_ids:
            respond(self._producer_ids.pop(0))
            return
        session = self.session
        assert session is not None

        def took(outcome: Any) -> None:
            if isinstance(outcome, ProducerIdsUnavailable):
                respond(outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._producer_ids.extend(range(outcome.first, outcome.last + 1))
                respond(self._producer_ids.pop(0))

        self._zookeeper_worker.submit(lambda: take_block(session, self.broker_id), took)

    @property
    def view(self) -> MetadataSnapshot:
        """What it knows of the cluster."""
        return self.metadata.current


def _copied(row: FetchedPartition) -> FetchedPartition:
    return FetchedPartition(
        row.error,
        row.high_watermark,
        row.log_start_offset,
        bytes(row.records),
        row.diverging,
        row.leader,
        row.leader_epoch,
    )
