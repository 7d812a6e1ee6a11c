"""What the ruling controller tells this agent: LeaderAndIsr, UpdateMetadata, StopReplica, DescribeReplicas.

Requests are executed one at a time, on the control server's thread; what touches partitions runs on the data loop, in
slices, so that ten thousand partitions do not keep clients waiting. Expected failures are codes in the answer, never
gRPC errors. Epochs and roles of partitions are the ReplicaManager's business.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from regency.broker_agent.control import messages as control_messages
from regency.broker_agent.control.gate import ControlGate, Header, Office, RefusedRequest, RepeatedRequest
from regency.broker_agent.control.messages import ControlMessageMalformed
from regency.broker_agent.control.metadata_cache import MetadataCache, Refused, RulingController
from regency.broker_agent.control.strays import LOOP_TIMEOUT_MS, Strays
from regency.broker_agent.log.directories.log_manager import LogManager
from regency.broker_agent.ports import Loop
from regency.broker_agent.registry.topic_configs import TopicConfigs
from regency.broker_agent.replication.api import AppliedState, PartitionState, ReplicaDescription
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.model.clock import Clock
from regency.model.crash_points import crash_point
from regency.model.errors import RegencyError, ZnodeMalformed
from regency.model.ids import NO_LEADER_EPOCH, ZERO_TOPIC_ID, BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition
from regency.model.kafka_errors import FENCING, ErrorCode
from regency.protos import control_pb2
from regency.runtime.grpc.servers import ServiceHandler, service, unary
from regency.runtime.zookeeper.session import ZkError

logger = logging.getLogger(__name__)

SLICE = 100
"""Partitions handled by the data loop at a time at most."""
FEW = 10
SLICE_MS = 10
"""So many at once, and more while less time has passed: to make a log takes a millisecond or two, to go on with one far
less."""

MOST_ASKING = 2
"""So many requests of unknown epochs may wait for ZooKeeper at a time: the threads that are left serve the controller.

A new controller needs two at most: one for its requests, one for what it asks about logs.
"""

T = TypeVar("T")


class ControlService:
    """Serves regency.control.v1.AgentControl.

    `own_epoch` tells this broker's registered epoch, -1 before the first registration. `office` asks ZooKeeper who
    rules and as what this process is registered: blocks, and raises ZkError or ZnodeMalformed. `shut_down` has the
    agent end in order; it is called on the data loop.
    """

    def __init__(
        self,
        loop: Loop,
        replicas: ReplicaManager,
        logs: LogManager,
        metadata: MetadataCache,
        configs: TopicConfigs,
        strays: Strays,
        own_epoch: Callable[[], BrokerEpoch],
        office: Callable[[], Office],
        clock: Clock,
        *,
        shut_down: Callable[[], None],
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._replicas = replicas
        self._logs = logs
        self._metadata = metadata
        self._configs = configs
        self._strays = strays
        self._own_epoch = own_epoch
        self._shut_down = shut_down
        self._office = office
        self._gate = ControlGate()
        self._asking = 0
        """Requests that wait for ZooKeeper."""
        self._turn = threading.Lock()
        self._epochs = threading.Lock()
        """Held for moments: while the gate adopts epochs, or compares them for who waits for no turn; and to count."""
        self.fenced: Counter[ErrorCode] = Counter()
        """Requests, and partitions in them, refused for an epoch or an identity that is over; any thread may read."""

    def handler(self) -> ServiceHandler:
        """The service for a GrpcServer."""
        answer = control_pb2.ControlResponse
        return service(
            "regency.control.v1.AgentControl",
            {
                "LeaderAndIsr": unary(self.leader_and_isr, control_pb2.LeaderAndIsrRequest, answer),
                "UpdateMetadata": unary(self.update_metadata, control_pb2.UpdateMetadataRequest, answer),
                "StopReplica": unary(self.stop_replica, control_pb2.StopReplicaRequest, answer),
                "DescribeReplicas": unary(
                    self.describe_replicas, control_pb2.DescribeReplicasRequest, control_pb2.DescribeReplicasResponse
                ),
                "ShutDown": unary(self.shut_down, control_pb2.ShutDownRequest, answer),
            },
        )

    @property
    def controller_epoch(self) -> ControllerEpoch:
        """Newest controller epoch seen; 0 before the first request."""
        return self._gate.controller_epoch

    def leader_and_isr(self, request: control_pb2.LeaderAndIsrRequest) -> control_pb2.ControlResponse:
        """Become leader or follower of the named partitions."""
        return self._execute(request.header, lambda: self._leader_and_isr(request))

    def stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.ControlResponse:
        """Stop fetching the named partitions, or forget and delete them."""
        return self._execute(request.header, lambda: self._stop_replica(request))

    def update_metadata(self, request: control_pb2.UpdateMetadataRequest) -> control_pb2.ControlResponse:
        """Take deltas or a piece of a snapshot."""
        return self._execute(request.header, lambda: self._update_metadata(request))

    def look_for_strays(self) -> None:
        """Look again for strays, where ZooKeeper could not be asked about them. Waits for its turn, and blocks."""
        with self._turn:
            self._strays.look_again()

    def describe_replicas(self, request: control_pb2.DescribeReplicasRequest) -> control_pb2.DescribeReplicasResponse:
        """Say how far the logs of the named partitions go. Has no place in the sequence, and waits for no turn.

        It changes nothing, and partitions without a leader wait for it; why it may be read in the middle of another
        request: docs/internals/architecture.md.
        """
        refused = self._refusal(_header(request.header))
        if refused is not None:
            self._count_fenced((refused.error,))
            return control_pb2.DescribeReplicasResponse(error_code=refused.error, message=refused.why)
        try:
            topics = [self._describe_topic(topic) for topic in request.topics]
        except RegencyError as error:
            return control_pb2.DescribeReplicasResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, message=str(error))
        return control_pb2.DescribeReplicasResponse(topics=topics)

    def shut_down(self, request: control_pb2.ShutDownRequest) -> control_pb2.ControlResponse:
        """Begin to end as at SIGTERM. Has no place in the sequence: leadership is moved away by asking for it."""
        facts = _header(request.header)
        refused = self._refusal(facts)
        if refused is not None:
            return self._refuse(facts, refused)
        with self._turn:
            logger.info("controller %d tells this broker to leave", request.header.controller_id)
            self._call(self._shut_down)
            return self._stamp(control_pb2.ControlResponse())

    def _execute(
        self, header: control_pb2.Header, work: Callable[[], control_pb2.ControlResponse]
    ) -> control_pb2.ControlResponse:
        facts = _header(header)
        unconfirmed = self._confirm(facts)
        if unconfirmed is not None:
            return self._refuse(facts, unconfirmed)
        with self._turn:
            with self._epochs:
                verdict = self._gate.admit(facts, self._own_epoch())
            if isinstance(verdict, RefusedRequest):
                return self._refuse(facts, verdict)
            if isinstance(verdict, RepeatedRequest):
                return verdict.answer
            crash_point("agent.control.after_admission")
            answer = self._stamp(self._run(lambda: self._begun(header, work)))
            crash_point("agent.control.before_remembered")
            self._gate.answered(facts, answer)
            crash_point("agent.control.after_remembered")
            return answer

    def _refusal(self, header: Header) -> RefusedRequest | None:
        """Why a request that has no place in the sequence is not executed."""
        unconfirmed = self._confirm(header)
        if unconfirmed is not None:
            return unconfirmed
        with self._epochs:
            return self._gate.check_epochs(header, self._own_epoch())

    def _confirm(self, header: Header) -> RefusedRequest | None:
        """Have ZooKeeper say what is true of epochs not heard of yet; those that are known wait for nothing here."""
        with self._epochs:
            own_epoch = self._own_epoch()
            if not self._gate.is_unheard_of(header, own_epoch):
                return None
            busy = self._asking >= MOST_ASKING
            self._asking += not busy
            question = self._gate.ask()
        if busy:
            return RefusedRequest(ErrorCode.NETWORK_EXCEPTION, "other requests of unknown epochs wait for ZooKeeper")
        try:
            office = self._office()
        except (ZkError, ZnodeMalformed) as error:
            who = f"controller epoch {header.controller_epoch} of broker {header.controller_id}"
            why = f"{who}, for incarnation {header.broker_epoch}, cannot be confirmed in ZooKeeper: {error}"
            return RefusedRequest(ErrorCode.NETWORK_EXCEPTION, why)
        finally:
            with self._epochs:
                self._asking -= 1
        with self._epochs:
            self._gate.take_in(office, own_epoch, question)
        return None

    def _refuse(self, header: Header, refused: RefusedRequest) -> control_pb2.ControlResponse:
        self._count_fenced((refused.error,))
        logger.info(
            "refused a request of controller %d, epoch %d: %s",
            header.controller_id,
            header.controller_epoch,
            refused.why,
        )
        return self._stamp(control_pb2.ControlResponse(error_code=refused.error, message=refused.why))

    def _begun(
        self, header: control_pb2.Header, work: Callable[[], control_pb2.ControlResponse]
    ) -> control_pb2.ControlResponse:
        """Do the work, once it is known whose it is."""
        known = self._metadata.ruling
        if known is None or header.controller_epoch > known.epoch:
            ruling = RulingController(
                BrokerId(header.controller_id), ControllerEpoch(header.controller_epoch), header.controller_endpoint
            )
            logger.info("follows controller %d at %s in epoch %d", ruling.id, ruling.endpoint, ruling.epoch)
            self._call(lambda: self._metadata.saw_controller(ruling))
            self._strays.begin()
        return work()

    def _run(self, work: Callable[[], control_pb2.ControlResponse]) -> control_pb2.ControlResponse:
        try:
            return work()
        except ControlMessageMalformed as error:
            logger.warning("refused a control request: %s", error)
            return control_pb2.ControlResponse(error_code=ErrorCode.INVALID_REQUEST, message=str(error))
        except RegencyError as error:
            logger.warning("could not do what the controller asked: %s", error)
            return control_pb2.ControlResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR, message=str(error))

    def _stamp(self, answer: control_pb2.ControlResponse) -> control_pb2.ControlResponse:
        answer.broker_epoch = self._own_epoch()
        answer.controller_epoch = self._gate.controller_epoch
        return answer

    def _leader_and_isr(self, request: control_pb2.LeaderAndIsrRequest) -> control_pb2.ControlResponse:
        states = control_messages.decode_states(request.topics)
        leaders = control_messages.decode_leaders(request.leaders)
        if request.full:
            self._strays.named(states)
        self._strays.set_earlier_aside(states)
        applied = self._read_configs(states)
        ready = [state for state in states if state.topic_partition not in applied]
        self._in_slices(ready, lambda piece: applied.update(self._replicas.apply_states(piece, leaders)))
        if request.full and request.last_chunk:
            crash_point("agent.control.before_whole")
            self._call(self._replicas.first_full_request_done)
            crash_point("agent.control.before_strays")
            self._strays.all_named()
        self._count_fenced(outcome.error for outcome in applied.values())
        ids = {state.topic_partition: state.topic_id for state in states}
        return control_pb2.ControlResponse(topics=control_messages.encode_errors(applied, ids))

    def _read_configs(self, states: Sequence[PartitionState]) -> dict[TopicPartition, AppliedState]:
        """Read what new logs are configured with; the result names the partitions that must wait for it."""
        new: list[PartitionState] = []

        def collect(piece: Sequence[PartitionState]) -> None:
            new.extend(state for state in piece if self._logs.get(state.topic_partition) is None)

        self._in_slices(states, collect)
        if not new:
            return {}
        try:
            self._configs.load(sorted({state.topic_partition.topic for state in new}))
        except ZkError as error:
            logger.warning("%d new replicas wait: settings of their topics cannot be read: %s", len(new), error)
            refused = AppliedState(ErrorCode.NETWORK_EXCEPTION, NO_LEADER_EPOCH)
            return {state.topic_partition: refused for state in new}
        return {}

    def _stop_replica(self, request: control_pb2.StopReplicaRequest) -> control_pb2.ControlResponse:
        stops = control_messages.decode_stops(request.topics)
        applied: dict[TopicPartition, AppliedState] = {}
        self._in_slices(stops, lambda piece: applied.update(self._replicas.stop_replicas(piece)))
        self._count_fenced(outcome.error for outcome in applied.values())
        ids = {stop.topic_partition: stop.topic_id for stop in stops}
        return control_pb2.ControlResponse(topics=control_messages.encode_errors(applied, ids))

    def _count_fenced(self, errors: Iterable[ErrorCode]) -> None:
        with self._epochs:
            self.fenced.update(error for error in errors if error in FENCING)

    def _update_metadata(self, request: control_pb2.UpdateMetadataRequest) -> control_pb2.ControlResponse:
        prepared = self._metadata.prepare(control_messages.decode_update(request))
        if isinstance(prepared, Refused):
            return control_pb2.ControlResponse(error_code=ErrorCode.INVALID_REQUEST, message=prepared.why)
        crash_point("agent.metadata.before_publication")
        self._call(lambda: self._metadata.publish(prepared))
        return control_pb2.ControlResponse()

    def _describe_topic(self, topic: control_pb2.PartitionRefs) -> control_pb2.ReplicaDescriptions:
        topic_id = control_messages.decode_topic_id(topic.topic_id)
        wanted = [TopicPartition(topic.topic, partition) for partition in topic.partition]
        held: dict[TopicPartition, ReplicaDescription | None] = {}

        def collect(piece: Sequence[TopicPartition]) -> None:
            held.update(self._replicas.describe_logs(piece))

        self._in_slices(wanted, collect)
        described: list[tuple[int, ErrorCode, ReplicaDescription | None]] = []
        for partition in wanted:
            replica = held.get(partition)
            if replica is None:
                lost = partition in held
                error = ErrorCode.KAFKA_STORAGE_ERROR if lost else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                described.append((partition.partition, error, None))
            elif replica.topic_id not in (ZERO_TOPIC_ID, topic_id):
                described.append((partition.partition, ErrorCode.INCONSISTENT_TOPIC_ID, None))
            else:
                described.append((partition.partition, ErrorCode.NONE, replica))
        return control_messages.encode_descriptions(topic.topic, topic.topic_id, described)

    def _in_slices(self, items: Sequence[T], work: Callable[[Sequence[T]], None]) -> None:
        done = 0
        while done < len(items):
            crash_point("agent.control.before_slice")
            done = self._call(partial(self._slice, items, done, work))

    def _slice(self, items: Sequence[T], start: int, work: Callable[[Sequence[T]], None]) -> int:
        """Do a few after another, for as long as the loop may be held; where to go on. On the data loop."""
        end, stop_ms = min(start + SLICE, len(items)), self._clock.monotonic_ms() + SLICE_MS
        while True:
            piece = items[start : min(start + FEW, end)]
            work(piece)
            start += len(piece)
            if start == end or self._clock.monotonic_ms() >= stop_ms:
                return start

    def _call(self, work: Callable[[], T]) -> T:
        return self._loop.call(work, timeout_ms=LOOP_TIMEOUT_MS)


def _header(header: control_pb2.Header) -> Header:
    return Header(
        ControllerEpoch(header.controller_epoch),
        BrokerEpoch(header.broker_epoch),
        header.seq,
        BrokerId(header.controller_id),
    )
