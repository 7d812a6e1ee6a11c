"""Fetches between brokers, and from consumers: the facts of Kafka's Fetch, sessions included, without its bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from regency.broker_agent.control.metadata_cache import MetadataCache
from regency.broker_agent.replication.api import LeaderAddress
from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.replication.fetcher.fetcher_pool import TransportSpec
from regency.broker_agent.replication.fetcher.fetcher_thread import Command, Failed, Outcome, Rested
from regency.broker_agent.replication.replica_manager import ReplicaManager
from regency.broker_agent.steps import at_once
from regency.kafka.fetching.values import (
    FetchedPartition,
    FetchParams,
    FetchPartition,
    FetchPlan,
    FetchReply,
    ListedOffset,
    OffsetsPlan,
    OffsetsReply,
    Pause,
)
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.kernel.scheduler import Process, Scheduler, Timer
from simulation.network import Call, Connection, NetFailed, Network, Respond


class FetchAsked(NamedTuple):
    """A follower's Fetch on its way."""

    replica: BrokerId
    plan: FetchPlan


class OffsetsAsked(NamedTuple):
    """A follower's ListOffsets on its way."""

    replica: BrokerId
    plan: OffsetsPlan


class FetchServer:
    """A leader's side: what the listener's Fetch handler does, on the data loop."""

    def __init__(
        self, replicas: ReplicaManager, sessions: FetchSessionCache, metadata: MetadataCache, now_ms: Callable[[], int]
    ) -> None:
        self._replicas = replicas
        self._sessions = sessions
        self._metadata = metadata
        self._now_ms = now_ms

    def fetch(self, asked: FetchAsked, respond: Respond) -> Callable[[], None] | None:
        """Answer a follower now or after a long poll."""
        plan = asked.plan
        limits = plan.limits
        params = FetchParams(asked.replica, plan.replica_epoch, limits.max_wait_ms, limits.min_bytes, limits.max_bytes)
        wanted: list[FetchPartition] = []
        unknown: list[FetchPartition] = []
        for entry in plan.partitions:
            (wanted if self._known(entry) else unknown).append(entry)
        forgotten = [name for name, _ in plan.forgotten if name not in {entry.topic_partition for entry in wanted}]
        epoch = plan.session_epoch
        if unknown and epoch > 0:
            respond(FetchReply(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 0, []))
            return None
        context = self._sessions.resolve(
            plan.session_id, -1 if unknown else epoch, wanted, forgotten, True, self._now_ms()
        )
        if isinstance(context, ErrorCode):
            respond(FetchReply(context, 0, []))
            return None

        def answer(results: Mapping[TopicPartition, FetchedPartition]) -> None:
            session_id, news = at_once(context.finish(results))
            rows = list(news.items())
            rows += [(entry.topic_partition, FetchedPartition(ErrorCode.UNKNOWN_TOPIC_ID)) for entry in unknown]
            respond(FetchReply(ErrorCode.NONE, session_id, [(name, _frozen(row)) for name, row in rows]))

        return self._replicas.fetch(params, context.partitions, answer)

    def offsets(self, asked: OffsetsAsked) -> OffsetsReply:
        rows: list[tuple[TopicPartition, ListedOffset]] = [
            (name, at_once(self._replicas.list_offset(name, asked.plan.timestamp, epoch, asked.replica)))
            for name, epoch in asked.plan.partitions
        ]
        return OffsetsReply(rows)

    def _known(self, entry: FetchPartition) -> bool:
        assert entry.topic_id is not None
        name = self._metadata.current.names.get(entry.topic_id) or self._replicas.topic_name(entry.topic_id)
        return name == entry.topic_partition.topic


class SimTransport:
    """A fetcher's transport over the simulated network: what FetcherThread is over sockets."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        host: str,
        spec: TransportSpec,
        deliver: Callable[[Outcome], None],
    ) -> None:
        self._scheduler = scheduler
        self._network = network
        self._process = process
        self._host = host
        self._spec = spec
        self._address = spec.address
        self._deliver = deliver
        self._connection = Connection(process, of_loop=True)
        self._call: Call | None = None
        self._pause: Timer | None = None
        self._closed = False

    def send(self, command: Command) -> None:
        """Do this next; a pause is ended by any command."""
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        if isinstance(command, Pause):
            if command.milliseconds is not None:
                delay = self._process.clock.delay_us(command.milliseconds)
                self._pause = self._scheduler.at(delay, self._rested, self._process, of_loop=True)
            return
        asked: FetchAsked | OffsetsAsked
        if isinstance(command, FetchPlan):
            asked = FetchAsked(self._spec.replica, command)
        else:
            asked = OffsetsAsked(self._spec.replica, command)
        self._call = self._network.call(
            self._process,
            self._host,
            f"{self._address.host}:{self._address.port}",
            asked,
            self._answered,
            timeout_us=self._process.clock.delay_us(self._spec.request_timeout_ms),
            connection=self._connection,
        )

    @property
    def alive(self) -> bool:
        return True

    def redirect(self, address: LeaderAddress) -> None:
        """Talk to this address from now on; a running exchange fails."""
        self._address = address
        self._connect()
        call, self._call = self._call, None
        if call is not None and not call.answered:
            call.close()
            failed = Failed("the connection was closed")
            self._scheduler.at(1, lambda: self._tell(failed), self._process, of_loop=True)

    def close(self) -> None:
        self._network.hung_up(self._connection)
        self._closed = True
        if self._pause is not None:
            self._pause.cancel()
        if self._call is not None:
            self._call.close()

    def _answered(self, answer: Any) -> None:
        self._call = None
        if isinstance(answer, NetFailed):
            self._connect()
            self._tell(Failed(answer.why))
        else:
            self._tell(answer)

    def _connect(self) -> None:
        """As FetcherThread: after a failure, and to another address, it connects anew."""
        self._network.hung_up(self._connection)
        self._connection = Connection(self._process, of_loop=True)

    def _rested(self) -> None:
        self._pause = None
        self._tell(Rested())

    def _tell(self, outcome: Outcome) -> None:
        if not self._closed:
            self._deliver(outcome)


def _frozen(row: FetchedPartition) -> FetchedPartition:
    """A copy of the records: what is on its way does not change with the sender's memory."""
    if isinstance(row.records, bytes):
        return row
    return FetchedPartition(row.error, row.high_watermark, row.log_start_offset, bytes(row.records), row.diverging)
