"""A simulated producer, modelled on Kafka's Java client; with `like_librdkafka` it has that client's known hole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from regency.broker_agent.replication.api import ProduceResult
from regency.judge.operations import ALL, UNKNOWN, EpochBumped, Outcome, Send
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.clients.history import History, began_ms, ended_ms
from simulation.clients.lane import REFUSED_BEFORE_APPEND, Batch, BatchState, Handed, Lane, ProducerConfig, Session
from simulation.clients.records import build_batch, key_of
from simulation.clients.view import ClusterView, Connections, Leader
from simulation.cluster.agent import ProduceAsked, ProducerIdAsked
from simulation.cluster.channels import CLIENTS
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import NetFailed, Network

__all__ = ["Producer", "ProducerConfig"]

MOST_QUEUED = 12
"""Records of a partition that wait to be sent; more are not handed over, as a full buffer would block the sender."""

LAST_EPOCH = 32_767
_RETRIED = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.BROKER_NOT_AVAILABLE})
_NEW_SESSION = frozenset(
    {ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.UNKNOWN_PRODUCER_ID}
)

DEFAULT = ProducerConfig()


class Producer:
    """One producer process's client. Everything it does is a callback of its process."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        history: History,
        name: str,
        partitions: Sequence[TopicPartition],
        brokers: Sequence[BrokerId],
        config: ProducerConfig = DEFAULT,
        keyed: Collection[str] = (),
    ) -> None:
        """`keyed`: topics whose records have keys."""
        self.name = name
        self.acknowledged = 0
        """Records acknowledged so far."""
        self.on_promise: Callable[[TopicPartition, int, bytes], None] | None = None
        """Told of every batch acknowledged with acks=all: its partition, its first offset, and the batch as sent."""
        self._scheduler = scheduler
        self._network = network
        self._process = process
        self._history = history
        self._config = config
        self._keyed = keyed
        self._stopped = False
        self._closed = False
        self._bumping = False
        self._asking_id = False
        self._session = Session(history.next_session(name))
        self._lanes = {partition: Lane(partition, self._session) for partition in partitions}
        self._connections = Connections(network, process)
        self._view = ClusterView(scheduler, network, process, brokers, partitions, self._pump_all)
        process.on_death(self.finish)

    # What its user does

    def start(self) -> None:
        """Learn of the cluster, and produce in bursts and pauses until `stop`."""
        self._begin_session()
        self._view.refresh()
        self._after(self._pause_ms(), self._burst)
        self._after(1_000, self._expire)

    def stop(self) -> None:
        """Hand over nothing more; what was handed over is still sent."""
        self._stopped = True

    @property
    def drained(self) -> bool:
        return all(lane.empty for lane in self._lanes.values())

    def send(self, partition: TopicPartition, count: int = 1) -> None:
        """Hand over some records, unless the buffer is full."""
        lane = self._lanes[partition]
        expires = self._now_ms() + self._config.delivery_timeout_ms
        for _ in range(min(count, MOST_QUEUED - len(lane.queue))):
            lane.queue.append(Handed(self._history.next_value(), began_ms(self._scheduler.now_us), expires))
        self._pump(lane)

    def look_again(self) -> None:
        """Ask who leads."""
        self._view.refresh()

    def finish(self) -> None:
        """Write down what has no outcome: nobody waits for it any more. Harmless twice."""
        if self._closed:
            return
        self._closed = self._stopped = True
        for lane in self._lanes.values():
            self._give_up(lane)
        self._connections.close()

    # Pace

    def _pause_ms(self) -> float:
        chance = self._scheduler.random
        if chance.random() < 0.03:
            return 1_000 + 3_000 * chance.random()
        return chance.expovariate(self._config.records_per_s / 2_500)

    def _burst(self) -> None:
        if self._stopped:
            return
        chance = self._scheduler.random
        partitions = list(self._lanes)
        for _ in range(1 if chance.random() < 0.6 else 2):
            self.send(chance.choice(partitions), 1 + int(chance.random() * 3))
        self._after(self._pause_ms(), self._burst)

    # Sending

    def _pump_all(self) -> None:
        for lane in self._lanes.values():
            self._pump(lane)

    def _pump(self, lane: Lane) -> None:
        if lane.empty or self._closed or self._bumping:
            return
        leader = self._view.leader(lane.partition)
        if leader is None:
            self._view.refresh()
            return
        config = self._config
        if lane.session is not self._session and not lane.batches:
            lane.begin(self._session)
        now = self._now_ms()
        for batch in lane.due(now, ordered=config.idempotent, pipelined=config.like_librdkafka):
            self._transmit(lane, batch, leader)
        # What was begun in an older session ends in it; then the partition goes on in the new one.
        while lane.session is self._session and lane.session.ready and lane.may_take:
            self._transmit(lane, lane.take(1 + int(self._scheduler.random.random() * 3)), leader)

    def _transmit(self, lane: Lane, batch: Batch, leader: Leader) -> None:
        config = self._config
        if not batch.records:
            self._seal(lane, batch)
        batch.state = BatchState.IN_FLIGHT
        batch.attempt += 1
        attempt = batch.attempt
        request = ProduceAsked(config.acks, config.request_timeout_ms * 3 // 4, {lane.partition: batch.records})
        if config.acks == 0:
            self._connections.ask(leader.address, request, self._answered_unasked, config.request_timeout_ms)
            self._settle(lane, batch, Outcome.ACKNOWLEDGED, leader=leader.broker)
            return
        self._connections.ask(
            leader.address,
            request,
            lambda answer: self._answered(lane, batch, attempt, leader, answer),
            config.request_timeout_ms,
        )

    def _seal(self, lane: Lane, batch: Batch) -> None:
        session = self._session
        if self._config.idempotent:
            lane.assign_sequence(batch)
        batch.records = build_batch(
            [each.value for each in batch.handed],
            timestamp_ms=self._process.clock.wall_ms(),
            producer_id=session.producer_id,
            producer_epoch=session.producer_epoch,
            sequence=batch.sequence,
            keyed=lane.partition.topic in self._keyed,
        )

    def _answered_unasked(self, answer: Any) -> None:
        """With acks=0 nobody waits; but a broken connection is noticed, and an error breaks it."""
        if isinstance(answer, NetFailed) or any(each.error is not ErrorCode.NONE for each in answer.values()):
            self._view.refresh()

    # Outcomes

    def _answered(self, lane: Lane, batch: Batch, attempt: int, leader: Leader, answer: Any) -> None:
        if self._closed or batch.attempt != attempt or batch not in lane.batches:
            return
        if isinstance(answer, NetFailed):
            self._try_again(lane, batch, maybe_written=not answer.unsent)
            self._view.refresh()
        else:
            self._decide(lane, batch, leader, answer[lane.partition])
        if self._bumping:
            self._bump_when_quiet()
        else:
            self._pump(lane)

    def _decide(self, lane: Lane, batch: Batch, leader: Leader, result: ProduceResult) -> None:
        error = result.error
        config = self._config
        if error is ErrorCode.NONE:
            self._settle(lane, batch, Outcome.ACKNOWLEDGED, offset=result.base_offset, leader=leader.broker)
        elif error is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._settle(lane, batch, Outcome.ACKNOWLEDGED, leader=leader.broker)
        elif error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and batch is not lane.batches[0]:
            self._try_again(lane, batch, maybe_written=False)
        elif config.idempotent and error in _NEW_SESSION:
            self._scheduler.trace.note("client", self.name, "is answered %s for %s", error.name, lane.partition)
            self._out_of_order(lane, batch)
        elif error.retriable or error in _RETRIED:
            self._try_again(lane, batch, maybe_written=error not in REFUSED_BEFORE_APPEND)
            if error not in REFUSED_BEFORE_APPEND:
                self._view.refresh()
        else:
            batch.maybe_written = batch.maybe_written or error not in REFUSED_BEFORE_APPEND
            self._fail(lane, batch)

    def _try_again(self, lane: Lane, batch: Batch, *, maybe_written: bool) -> None:
        config = self._config
        batch.maybe_written = batch.maybe_written or maybe_written
        backoff = min(config.retry_backoff_ms << min(batch.attempt - 1, 6), config.retry_backoff_max_ms)
        backoff = int(backoff * (0.8 + 0.4 * self._scheduler.random.random()))
        batch.state = BatchState.WAITING
        batch.not_before_ms = self._now_ms() + backoff
        self._after(backoff, lambda: self._pump(lane))

    def _out_of_order(self, lane: Lane, batch: Batch) -> None:
        """Nothing before it is without an outcome, and still the leader lacks something."""
        if self._config.like_librdkafka:
            self._try_again(lane, batch, maybe_written=False)
            self._bumping = True
        else:
            self._fail(lane, batch)

    def _fail(self, lane: Lane, batch: Batch) -> None:
        """An attempt was answered, and there will be no other one."""
        batch.state = BatchState.WAITING
        if self._config.idempotent:
            self._fail_all(lane)
        else:
            self._drop(lane, batch)

    def _drop(self, lane: Lane, batch: Batch) -> None:
        known = batch.state is BatchState.WAITING and not batch.maybe_written
        self._settle(lane, batch, Outcome.FAILED if known else Outcome.INDETERMINATE)

    def _settle(
        self, lane: Lane, batch: Batch, outcome: Outcome, *, offset: int = UNKNOWN, leader: int = UNKNOWN
    ) -> None:
        lane.batches.remove(batch)
        known = outcome is Outcome.ACKNOWLEDGED
        self.acknowledged += len(batch.handed) if known else 0
        if known and self._config.acks == ALL and offset >= 0 and self.on_promise is not None:
            self.on_promise(lane.partition, offset, batch.records)
        for index, handed in enumerate(batch.handed):
            at = offset + index if offset >= 0 and self._config.acks != 0 else UNKNOWN
            number = batch.first_number + index
            self._record(lane, handed, batch.session.number, number, outcome, at, leader, batch.attempt)

    def _record(
        self,
        lane: Lane,
        handed: Handed,
        session: int,
        number: int,
        outcome: Outcome,
        offset: int = UNKNOWN,
        leader: int = UNKNOWN,
        attempts: int = 0,
    ) -> None:
        topic, partition = lane.partition
        config = self._config
        self._history.record(
            Send(
                self.name,
                session,
                number,
                topic,
                partition,
                handed.value,
                config.acks,
                config.idempotent,
                handed.invoked_ms,
                ended_ms(self._scheduler.now_us),
                outcome,
                offset,
                leader,
                attempts,
                key_of(handed.value) if topic in self._keyed else "",
            )
        )

    # Giving up

    def _expire(self) -> None:
        if self._closed:
            return
        now = self._now_ms()
        for lane in self._lanes.values():
            late = [batch for batch in lane.batches if batch.handed[0].expires_ms <= now]
            if late and self._config.idempotent and not self._config.like_librdkafka:
                self._fail_all(lane)
            else:
                for batch in late:
                    self._drop(lane, batch)
                if late and self._config.like_librdkafka:
                    self._bumping = True
            while lane.queue and lane.queue[0].expires_ms <= now:
                self._give_up_queued(lane)
        if self._bumping:
            self._bump_when_quiet()
        else:
            self._pump_all()
        self._after(1_000, self._expire)

    def _fail_all(self, lane: Lane) -> None:
        note = self._scheduler.trace.note
        note("client", self.name, "gives up %d batches for %s, new session", len(lane.batches), lane.partition)
        for batch in list(lane.batches):
            self._drop(lane, batch)
        if lane.session is self._session:
            self._begin_session()

    def _give_up(self, lane: Lane) -> None:
        for batch in list(lane.batches):
            self._drop(lane, batch)
        while lane.queue:
            self._give_up_queued(lane)

    def _give_up_queued(self, lane: Lane) -> None:
        if lane.session is not self._session and not lane.batches:
            lane.begin(self._session)
        handed = lane.queue.popleft()
        self._record(lane, handed, lane.session.number, lane.next_number, Outcome.FAILED)
        lane.next_number += 1

    # Sessions

    def _begin_session(self) -> None:
        """Go on under a new epoch of the producer id, or under a new id."""
        before = self._session
        if before.producer_id >= 0 or before.ready:
            self._session = Session(self._history.next_session(self.name))
        session = self._session
        if not self._config.idempotent:
            session.ready = True
            return
        if before.producer_id >= 0 and before.producer_epoch < LAST_EPOCH and self._scheduler.random.random() < 0.5:
            session.producer_id, session.producer_epoch, session.ready = (
                before.producer_id,
                before.producer_epoch + 1,
                True,
            )
        else:
            self._ask_id()

    def _ask_id(self) -> None:
        if self._asking_id:
            return
        self._asking_id = True
        self._network.call(
            self._process,
            CLIENTS,
            self._view.any_address(),
            ProducerIdAsked(),
            self._got_id,
            timeout_us=self._process.clock.delay_us(self._config.request_timeout_ms),
        )

    def _got_id(self, answer: Any) -> None:
        self._asking_id = False
        if self._closed:
            return
        if not isinstance(answer, int):
            self._after(self._config.retry_backoff_ms * 2, self._ask_id)
            return
        session = self._session
        session.producer_id, session.producer_epoch, session.ready = answer, 0, True
        self._pump_all()

    def _bump_when_quiet(self) -> None:
        """librdkafka: once nothing is under way, take a new epoch and send everything without an outcome under it."""
        for lane in self._lanes.values():
            if any(batch.state is BatchState.IN_FLIGHT for batch in lane.batches):
                return
        self._bumping = False
        session = self._session
        session.producer_epoch += 1
        for lane in self._lanes.values():
            lane.next_sequence = 0
            for batch in lane.batches:
                batch.records = b""
            if any(batch.maybe_written for batch in lane.batches):
                topic, partition = lane.partition
                now = began_ms(self._scheduler.now_us)
                self._history.record(EpochBumped(topic, partition, now, self.name))
        self._pump_all()

    # Time

    def _now_ms(self) -> int:
        return self._process.clock.monotonic_ms()

    def _after(self, delay_ms: float, work: Callable[[], object]) -> None:
        self._scheduler.at(self._process.clock.delay_us(delay_ms), work, self._process)
