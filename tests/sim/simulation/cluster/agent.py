"""An agent process: the parts that `regency.broker_agent.assembly` makes, over simulated adapters."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

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
from regency.broker_agent.control.metadata_cache import MetadataCache, MetadataSnapshot
from regency.broker_agent.control.reporter import TIMEOUT_MS, Reporter
from regency.broker_agent.control.service import ControlService
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.process.data_loop import PatientWorker
from regency.broker_agent.process.watchdog import Watchdog
from regency.broker_agent.registry.producer_ids import ProducerIdsUnavailable, take_block
from regency.broker_agent.registry.registration import Registered, ensure_cluster_id, ensure_parents
from regency.broker_agent.replication.api import DeletedRecords
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.broker_agent.steps import at_once
from regency.kafka.fetching.values import CONSUMER, FetchedPartition, FetchParams, FetchPartition
from regency.model.ids import NO_BROKER_EPOCH, BrokerEpoch, LeaderEpoch, Offset, TopicPartition
from regency.model.settings import BrokerSettings
from regency.protos import control_pb2 as pb
from regency.protos import controller_pb2
from regency.runtime.disk import Disk
from regency.runtime.grpc.channels import ControllerClient, Dial, RenewedChannel
from regency.runtime.zookeeper.session import ZkConnectionLost, ZkSession, ZkSessionLost
from simulation.cluster.channels import CONTROL, KAFKA, ControlAsked, dialing, endpoints_of, host_of
from simulation.cluster.controller import SimShutdown
from simulation.cluster.edges import SimCleaner, SimLoop, SimTimer, SimWorker, driven
from simulation.cluster.fetching import FetchAsked, FetchServer, OffsetsAsked, SimTransport
from simulation.cluster.grouping import GroupAsked, GroupServer
from simulation.judging.invariants import broken
from simulation.kernel.scheduler import Process, Scheduler
from simulation.kernel.threads import new_uuid
from simulation.network import Network, Respond, Serve

T = TypeVar("T")

CONTACT_AGAIN_US = 500_000

LOOP_TIMEOUT_MS = 10_000
"""A stop waits so long for each of the steps that are the data loop's."""


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


class DeleteAsked(NamedTuple):
    """A client's DeleteRecords on its way."""

    timeout_ms: int
    offsets: dict[TopicPartition, Offset]


class MetadataAsked(NamedTuple):
    """A client's Metadata request on its way."""


class ProducerIdAsked(NamedTuple):
    """InitProducerId on its way."""


class SimReports:
    """ReportPort for an actor: what GrpcReports is for the data loop, on channels as it has them."""

    def __init__(self, dial: Dial) -> None:
        self._channel = RenewedChannel(dial)

    async def tell(
        self, endpoint: str, report: controller_pb2.ReportReplicasRequest, /
    ) -> controller_pb2.ReportReplicasResponse:
        return self._channel.call(
            endpoint, lambda channel: ControllerClient(channel).report_replicas, report, timeout_ms=TIMEOUT_MS
        )

    async def pause(self) -> None:
        """See ReportPort: an actor stands still only where it says so."""


class SimAgent:
    """One agent process. `start` is its first actor; `disk` is what one before it left."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        settings: BrokerSettings,
        disk: Disk,
        open_session: Callable[[Process], ZkSession],
        *,
        turn_us: Callable[[], int] | None = None,
    ) -> None:
        """`turn_us`: how long what is put off by no time waits for its turn; None: not at all, without groups."""
        self.process = process
        self.settings = settings
        self.broker_id = settings.broker_id
        self.leaving = False
        """Whether it has been told to stop."""
        self.is_guarded = False
        """Whether its watchdog has begun to look."""
        self.on_control: Callable[[Any, pb.ControlResponse], None] | None = None
        """Told of every control request and its answer."""
        self.on_delete: Callable[[Mapping[TopicPartition, Offset]], None] = lambda _asked: None
        """Told what a client wants to be deleted, before it is."""
        self.on_deleted: Callable[[Mapping[TopicPartition, DeletedRecords]], None] = lambda _answer: None
        """Told what a client is answered, before it is."""
        self.on_left: Callable[[bool, controller_pb2.ControlledShutdownResponse | None], None] = lambda _moved, _told: (
            None
        )
        """Told whether it takes all that it led for moved away before it stops, and the controller's last answer."""
        self.on_stop_asked: Callable[[], None] = lambda: None
        """Has the process stop in order, as at SIGTERM: its controller told it to."""
        self.on_end: Callable[[str], None] = lambda _why: process.kill()
        """What happens when the agent finds that it must end."""
        self._scheduler = scheduler
        self._network = network
        self._open_session = open_session
        self._host = host_of(settings.broker_id)
        self._loop = SimLoop(scheduler, process)
        self._turn_us = turn_us
        self.is_rightful: Callable[[str], bool] = lambda _group_id: True
        """Says of a group whether ZooKeeper has this agent lead it."""
        self.groups: GroupServer | None = None
        """Once clients are served."""
        self._zookeeper_worker = SimWorker(scheduler, process, self._loop, "zookeeper")
        self._adapters = self._make_adapters(disk)
        self._session: ZkSession | None = None
        self._logs: LogManager | None = None
        self._parts: Parts | None = None
        self._service: ControlService | None = None
        self._unheard = MetadataCache()
        self._stack = ExitStack()
        self._producer_ids: list[int] = []
        self._stop_asked = False

    def post(self, work: Callable[[], None]) -> None:
        self._loop.post(work)

    @property
    def parts(self) -> Parts | None:
        """What it is made of; None until its logs are open."""
        return self._parts

    @property
    def metadata(self) -> MetadataCache:
        return self._unheard if self._parts is None else self._parts.metadata

    @property
    def session(self) -> ZkSession | None:
        return self._session

    @property
    def logs(self) -> LogManager | None:
        return self._logs

    @property
    def replicas(self) -> ReplicaManager | None:
        return None if self._parts is None else self._parts.replicas

    @property
    def service(self) -> ControlService | None:
        return self._service

    def broker_epoch(self) -> BrokerEpoch:
        return NO_BROKER_EPOCH if self._parts is None else self._parts.registration.epoch()

    def start(self) -> None:
        """Start every part in order; the registration is last. Runs in an actor."""
        parts = self._parts = build(self.settings, self._adapters, self._open())
        self._scheduler.spawn(self.process, "isr-writer", parts.writer.run)
        self._stack.callback(parts.writer.stop)
        self._stack.callback(self._adapters.timer.close)
        self._stack.callback(self._loop.call, parts.replicas.shutdown, timeout_ms=LOOP_TIMEOUT_MS)
        self._serve_clients(parts)
        self._service = parts.service
        self._listen(CONTROL, self._serve_control)
        self._start_reporter(parts)
        self._stack.callback(parts.registration.stop)
        parts.registration.start()
        limit_ms = self.settings.regency_loop_watchdog_ms
        watchdog = Watchdog(lambda: self._loop.shown, self.process.clock.monotonic_ms, limit_ms, self._hangs)
        watchdog.start()
        self._stack.callback(watchdog.stop)
        self.is_guarded = True

    def leave(self) -> None:
        """Have leadership moved away. Runs in an actor."""
        if self._parts is not None:
            self._parts.replicas.fetchers.leave()
        port = SimShutdown(self._scheduler, self._network, self.process, self._host, self.metadata)
        ruled = self.metadata.ruling is not None
        leave = controlled_shutdown.leave(self.settings, self.broker_id, self.metadata, self.broker_epoch, port)
        moved = driven(leave)
        if ruled:
            self.on_left(moved, port.answer)

    def serve_control_at(self, port: int) -> None:
        """Serve control requests at another port, too, until the process ends; whoever calls has it registered."""
        self._network.listen(f"{self._host}:{port}", self._host, self.process, self._serve_control)

    def _hangs(self, silent_ms: int) -> None:
        """The watchdog ends it, by its settings: whoever supervises it starts another."""
        self.on_end(f"the data loop has hung for {silent_ms} ms")

    def stop(self) -> None:
        """The rest of a stop in order: ports, fetchers, checkpoints, logs, the session. Runs in an actor."""
        self._stack.close()

    def _open(self) -> Opened:
        session = self._session = self._open_session(self.process)
        self._stack.callback(session.close)
        self._in_contact(lambda: ensure_parents(session))
        cluster_id = self._in_contact(lambda: ensure_cluster_id(session))
        failures = DirectoryFailures(self.broker_id, session, self._adapters)
        logs = self._logs = open_logs(self.settings, self._adapters, cluster_id, failures.failed)
        self._stack.callback(self._loop.call, logs.close, timeout_ms=LOOP_TIMEOUT_MS)
        refuse_without_directory(logs)
        found = opened(self.settings, self._adapters, session, logs, failures)
        self._in_contact(lambda: read_configs(found))
        return found

    def _in_contact(self, call: Callable[[], T]) -> T:
        while True:
            try:
                return call()
            except (ZkConnectionLost, ZkSessionLost):
                self._scheduler.sleep_us(CONTACT_AGAIN_US)

    def _serve_clients(self, parts: Parts) -> None:
        sessions = FetchSessionCache(
            self.settings.max_incremental_fetch_session_cache_slots,
            new_id=lambda: self._scheduler.random.randrange(1, 2**31 - 1),
        )
        server = FetchServer(parts.replicas, sessions, parts.metadata, self.process.clock.monotonic_ms)
        groups = self.groups = GroupServer(
            parts.groups,
            parts.metadata,
            self.broker_id,
            self.process.clock.wall_ms,
            self.is_rightful,
        )

        def serve(request: Any, respond: Respond) -> Callable[[], None] | None:
            if isinstance(request, GroupAsked):
                groups.serve(request, respond)
                return None
            return self._serve_kafka(parts.replicas, server, parts.session, request, respond)

        self._listen(KAFKA, serve, of_loop=True)
        if self._turn_us is not None:
            self._stack.callback(self._loop.call, parts.groups.close, timeout_ms=LOOP_TIMEOUT_MS)

    def _later(self, delay_ms: int, work: Callable[[], None]) -> None:
        if delay_ms or self._turn_us is None:
            self._loop.later(delay_ms, work)
        else:
            self._scheduler.at(self._turn_us(), work, self.process, of_loop=True)

    def _start_reporter(self, parts: Parts) -> None:
        """The host has its controller process from `World`."""
        dial = dialing(self._scheduler, self._network, self.process, self._host)
        reports, epoch = SimReports(dial), parts.registration.epoch
        reporter = Reporter(self.broker_id, parts.replicas, parts.metadata, epoch, reports, self.process.clock)
        interval_ms = self.settings.regency_report_interval_ms
        stopped: list[bool] = []
        self._stack.callback(stopped.append, True)

        def run() -> None:
            self._scheduler.sleep_us(self.process.clock.delay_us(interval_ms))
            while not stopped:
                if not self.process.loop_stands:  # on which it would report
                    driven(reporter.report())
                self._scheduler.sleep_us(self.process.clock.delay_us(interval_ms))

        self._scheduler.spawn(self.process, "reporter", run)

    def _on_registered(self, registered: Registered) -> None:
        self._scheduler.trace.note("agent", self.process.name, "registered under broker epoch %d", registered.epoch)

    def _asked_to_stop(self) -> None:
        if not self._stop_asked:
            self._stop_asked = True
            self.on_stop_asked()

    def _end(self, name: str, error: BaseException) -> None:
        """Raises InvariantBroken where all that lacked were descriptors."""
        why = f"{name} has failed: {error}"
        if f"[Errno {errno.EMFILE}]" in why:
            raise broken("shortages-outlived", f"broker {self.broker_id} ends: {why}")
        self.on_end(why)

    def _make_adapters(self, disk: Disk) -> Adapters:
        scheduler, process = self._scheduler, self.process
        return Adapters(
            clock=process.clock,
            loop=self._loop,
            later=self._later,
            timer=SimTimer(scheduler, process),
            worker=PatientWorker(SimWorker(scheduler, process, self._loop, "worker"), self._loop.later),
            zookeeper_worker=self._zookeeper_worker,
            transport=lambda spec, deliver: SimTransport(scheduler, self._network, process, self._host, spec, deliver),
            disk=disk,
            new_uuid=partial(new_uuid, scheduler),
            cleaner=SimCleaner(scheduler, process, self._loop, disk),
            endpoints=lambda: endpoints_of(self.broker_id),
            open_history=lambda: lambda change, written: None,
            recovery_threads=0,
            registered=self._on_registered,
            refused=lambda error: self.on_end(str(error)),
            asked_to_stop=self._asked_to_stop,
            end=self._end,
        )

    def _listen(self, port: int, serve: Serve, *, of_loop: bool = False) -> None:
        address = f"{self._host}:{port}"
        self._network.listen(address, self._host, self.process, serve, of_loop=of_loop)
        self._stack.callback(self._network.unlisten, address, self.process)

    # What others ask

    def _serve_control(self, request: ControlAsked, respond: Respond) -> None:
        service = self.service
        assert service is not None
        methods: dict[type[Any], Callable[[Any], Any]] = {
            pb.LeaderAndIsrRequest: service.leader_and_isr,
            pb.UpdateMetadataRequest: service.update_metadata,
            pb.StopReplicaRequest: service.stop_replica,
            pb.DescribeReplicasRequest: service.describe_replicas,
            pb.ShutDownRequest: service.shut_down,
        }
        aside = (pb.DescribeReplicasRequest, pb.ShutDownRequest)

        def run() -> None:
            message = request.rpc.FromString(request.data)
            answer = methods[request.rpc](message)
            if self.on_control is not None and request.rpc not in aside:
                self.on_control(message, answer)
            respond(answer.SerializeToString())

        self._scheduler.spawn(self.process, "control", run)

    def _serve_kafka(
        self, replicas: ReplicaManager, server: FetchServer, session: ZkSession, request: Any, respond: Respond
    ) -> Callable[[], None] | None:
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
                respond(at_once(replicas.list_offset(tp, timestamp, epoch, CONSUMER)))
            case DeleteAsked():
                self._serve_delete(replicas, request, respond)
            case MetadataAsked():
                respond(self.metadata.current)
            case ProducerIdAsked():
                self._serve_producer_id(session, respond)
        return None

    def _serve_poll(self, replicas: ReplicaManager, request: PollAsked, respond: Respond) -> Callable[[], None]:
        def answer(results: dict[TopicPartition, FetchedPartition]) -> None:
            respond({name: _copied(row) for name, row in results.items()})

        return replicas.fetch(request.params, request.partitions, answer)

    def _serve_delete(self, replicas: ReplicaManager, request: DeleteAsked, respond: Respond) -> None:
        def answer(results: dict[TopicPartition, DeletedRecords]) -> None:
            self.on_deleted(results)
            respond(results)

        self.on_delete(request.offsets)
        replicas.delete_records(request.timeout_ms, request.offsets, answer)

    def _serve_producer_id(self, session: ZkSession, respond: Respond) -> None:
        if self._producer_ids:
            respond(self._producer_ids.pop(0))
            return

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
