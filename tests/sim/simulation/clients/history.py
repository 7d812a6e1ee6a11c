"""Where simulated clients write down what they did and saw, in the terms of `regency.judge.operations`; and the final
read of every partition, as its leader has it after everything healed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from regency.judge.operations import FinalRead, Operation
from regency.kafka.fetching.values import CONSUMER, FetchedPartition, FetchParams, FetchPartition, ListedOffset
from regency.model.ids import NO_BROKER_EPOCH, BrokerId, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.clients.records import keyed_values_in, runs_of, values_in
from simulation.clients.view import ClusterView, Leader
from simulation.cluster.agent import ListAsked, PollAsked
from simulation.cluster.channels import CLIENTS
from simulation.cluster.edges import ask
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import Network

LATEST, EARLIEST = -1, -2
"""Timestamps of ListOffsets that stand for a log's ends."""


class History:
    """The operations of one run so far; also gives out what must be unique in it. Values count from 1."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._values = 0
        self._sessions: dict[str, int] = {}

    def record(self, operation: Operation) -> None:
        self.operations.append(operation)

    def next_value(self) -> int:
        """A value no other record of the run has."""
        self._values += 1
        return self._values

    def next_session(self, client: str) -> int:
        """Number of the client's next session, from 0; goes on over its restarts."""
        session = self._sessions.get(client, 0)
        self._sessions[client] = session + 1
        return session


def began_ms(now_us: int) -> int:
    """Milliseconds of something that begins now, rounded down: rounding never makes two operations look ordered."""
    return now_us // 1000


def ended_ms(now_us: int) -> int:
    """Milliseconds of something that ends now, rounded up."""
    return -(-now_us // 1000)


TIMEOUT_MS = 2_000
AGAIN_US = 200_000
_FETCH_BYTES = 1_000_000


class FinalReader:
    """Reads partitions one after another. `run` is an actor; `reads` and `unread` tell how far it got."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        partitions: Sequence[TopicPartition],
        brokers: Sequence[BrokerId],
        *,
        within_ms: int = 30_000,
        keyed: Collection[str] = (),
    ) -> None:
        """`keyed`: topics whose records have keys."""
        self.reads: list[FinalRead] = []
        self.unread: list[TopicPartition] = list(partitions)
        self.done = False
        """Whether it has ended, be it for lack of time."""
        self._scheduler = scheduler
        self._network = network
        self._process = process
        self._keyed = keyed
        self._within_us = within_ms * 1_000
        self._view = ClusterView(scheduler, network, process, brokers, partitions, lambda: None)

    def run(self) -> None:
        """Read everything, or as much as there is time for."""
        until_us = self._scheduler.now_us + self._within_us
        while self.unread and self._scheduler.now_us < until_us:
            partition = self.unread[0]
            leader = self._view.leader(partition)
            read = self._read(partition, leader) if leader is not None else None
            if read is None:
                self._view.refresh()
                self._scheduler.sleep_us(AGAIN_US)
                continue
            self.reads.append(read)
            self.unread.remove(partition)
        self.done = True

    def _read(self, partition: TopicPartition, leader: Leader) -> FinalRead | None:
        """The partition from its log start to its high watermark; None where the leader does not answer well."""
        start = self._list(partition, leader, EARLIEST)
        end = self._list(partition, leader, LATEST)
        if start is None or end is None:
            return None
        position = start
        found: list[tuple[int, int]] = []
        while position < end:
            row = self._fetch(partition, leader, position)
            if row is None or row.error is not ErrorCode.NONE:
                return None
            behind = -1
            if partition.topic in self._keyed:
                got, behind = keyed_values_in(bytes(row.records))
            else:
                got = values_in(bytes(row.records))
            got = [each for each in got if each[0] >= position]
            behind = max(behind, got[-1][0] + 1 if got else -1)
            if behind <= position:
                return None
            found += got
            position = behind
            end = max(end, row.high_watermark)
        topic, number = partition
        completed_ms = ended_ms(self._scheduler.now_us)
        return FinalRead(topic, number, start, end, runs_of(found), completed_ms)

    def _list(self, partition: TopicPartition, leader: Leader, timestamp: int) -> int | None:
        answer = self._ask(leader, ListAsked(partition, timestamp, leader.epoch))
        return answer.offset if isinstance(answer, ListedOffset) and answer.error is ErrorCode.NONE else None

    def _fetch(self, partition: TopicPartition, leader: Leader, position: int) -> FetchedPartition | None:
        params = FetchParams(CONSUMER, NO_BROKER_EPOCH, 0, 1, _FETCH_BYTES)
        row = FetchPartition(partition, leader.topic_id, Offset(position), _FETCH_BYTES, leader.epoch)
        answer = self._ask(leader, PollAsked(params, (row,)))
        return answer.get(partition) if isinstance(answer, dict) else None

    def _ask(self, leader: Leader, request: Any) -> Any:
        return ask(self._scheduler, self._network, self._process, CLIENTS, leader.address, request, TIMEOUT_MS)
