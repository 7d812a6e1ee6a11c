"""A simulated consumer without a group: it reads its partitions from the start, and tells what it got."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import msgspec

from regency.judge.operations import ListedEnd, Poll, Seek
from regency.kafka.fetching.values import CONSUMER, FetchedPartition, FetchParams, FetchPartition, ListedOffset
from regency.model.ids import NO_BROKER_EPOCH, BrokerId, Offset, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from simulation.clients.history import EARLIEST, LATEST, History, began_ms, ended_ms
from simulation.clients.records import keyed_values_in, runs_of, values_in
from simulation.clients.view import ClusterView, Connections, Leader
from simulation.cluster.agent import ListAsked, PollAsked
from simulation.kernel.scheduler import Process, Scheduler
from simulation.network import NetFailed, Network


class ConsumerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a consumer behaves; times in milliseconds of its own clock."""

    reset: int = EARLIEST
    """auto.offset.reset: EARLIEST or LATEST."""
    wait_ms: int = 1_000
    """Of a long poll."""
    rest_ms: int = 100
    """Up to so long it works on what it got, before it polls again; not once it shall only reach the end."""
    request_timeout_ms: int = 4_000
    backoff_ms: int = 150
    seek_chance: float = 0.02
    """That it seeks back after a poll."""
    restart_chance: float = 0.004
    """That it begins a new session after a poll, for one of its partitions: from the start, or where it was."""
    list_every_ms: int = 2_000
    """Ends are asked for about so often; 0 for never."""
    small_fetch_chance: float = 0.2
    """That a fetch may bring one batch only."""


DEFAULT = ConsumerConfig()


class _Reader:
    """The position in one partition."""

    __slots__ = (
        "busy",
        "idle",
        "number",
        "partition",
        "polled_ms",
        "position",
        "ready_ms",
        "seeks",
        "session",
        "topic_id",
        "wanted",
    )

    def __init__(self, partition: TopicPartition, session: int) -> None:
        self.partition = partition
        self.session = session
        self.number = 0
        self.position: int | None = None
        self.seeks = False
        """Whether the position that is being looked up is a change of mind, which is recorded."""
        self.busy = False
        self.ready_ms = 0
        self.topic_id: TopicId | None = None
        """Id of the topic that the position is of."""
        self.polled_ms = -1
        """When the last poll that was answered was asked."""
        self.wanted: int | None = None
        """Where its user wants to go on."""
        self.idle: Poll | None = None
        """The last poll, if it brought nothing: recorded only when the next record is not one of the same kind."""


class Consumer:
    """One consumer process's client. Everything it does is a callback of its process."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        process: Process,
        history: History,
        name: str,
        partitions: Sequence[TopicPartition],
        brokers: Sequence[BrokerId],
        config: ConsumerConfig = DEFAULT,
        keyed: Collection[str] = (),
    ) -> None:
        """`keyed`: topics whose records have keys."""
        self.name = name
        self.records_read = 0
        self._scheduler = scheduler
        self._process = process
        self._history = history
        self._config = config
        self._keyed = keyed
        self._closed = False
        self._settled = False
        self._fetching: set[str] = set()
        session = history.next_session(name)
        self._readers = {partition: _Reader(partition, session) for partition in partitions}
        self._connections = Connections(network, process)
        self._view = ClusterView(scheduler, network, process, brokers, partitions, self._pump)
        process.on_death(self.finish)

    # What its user does

    def start(self) -> None:
        self._view.refresh()
        if self._config.list_every_ms:
            self._after(self._list_pause_ms(), self._list_some_end)

    def position(self, partition: TopicPartition) -> int | None:
        """The offset wanted next; None while it is being looked up."""
        return self._readers[partition].position

    def polled_ms(self, partition: TopicPartition) -> int:
        """When the last poll that was answered was asked, in milliseconds; -1 where none was."""
        return self._readers[partition].polled_ms

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on reading at an offset, once what is under way has come."""
        self._readers[partition].wanted = offset

    def settle(self) -> None:
        """Read on to the end from now on: seek no more, restart no more."""
        self._settled = True

    def finish(self) -> None:
        if self._closed:
            return
        self._closed = True
        for reader in self._readers.values():
            self._record_idle(reader)
        self._connections.close()

    # The loop

    def _pump(self) -> None:
        """Ask for what may be asked for: positions where they are missing, one fetch for each leader that has none."""
        if self._closed:
            return
        now = self._process.clock.monotonic_ms()
        wanted: dict[str, list[tuple[_Reader, Leader]]] = {}
        for reader in self._readers.values():
            if reader.busy or reader.ready_ms > now:
                continue
            leader = self._view.leader(reader.partition)
            if leader is None:
                self._view.refresh()
                continue
            if reader.position is not None and reader.topic_id != leader.topic_id:
                self._reset(reader)
            if reader.position is not None and reader.wanted is not None:
                self._seek(reader, reader.wanted)
                reader.wanted = None
            if reader.position is None:
                self._look_up(reader, leader)
            elif leader.address not in self._fetching:
                wanted.setdefault(leader.address, []).append((reader, leader))
        for address, readers in wanted.items():
            self._fetch(address, readers)

    def _fetch(self, address: str, readers: list[tuple[_Reader, Leader]]) -> None:
        chance = self._scheduler.random
        config = self._config
        most = 1 if chance.random() < config.small_fetch_chance else 1_000_000
        asked: dict[TopicPartition, tuple[_Reader, Leader, int]] = {}
        rows = []
        for reader, leader in readers:
            position = reader.position
            assert position is not None
            reader.busy = True
            asked[reader.partition] = (reader, leader, position)
            rows.append(FetchPartition(reader.partition, leader.topic_id, Offset(position), most, leader.epoch))
        chance.shuffle(rows)
        params = FetchParams(CONSUMER, NO_BROKER_EPOCH, config.wait_ms, 1, most)
        invoked_ms = began_ms(self._scheduler.now_us)
        self._fetching.add(address)

        def answered(answer: Any) -> None:
            self._fetching.discard(address)
            self._fetched(asked, invoked_ms, answer)

        self._connections.ask(address, PollAsked(params, tuple(rows)), answered, config.request_timeout_ms)

    def _fetched(self, asked: dict[TopicPartition, tuple[_Reader, Leader, int]], invoked_ms: int, answer: Any) -> None:
        if self._closed:
            return
        rest = 0
        for partition, (reader, leader, position) in asked.items():
            reader.busy = False
            row = answer.get(partition) if not isinstance(answer, NetFailed) else None
            if row is None:
                self._back_off(reader)
            elif row.error is ErrorCode.NONE:
                if self._take(reader, leader, position, invoked_ms, row) and not rest:
                    rest = 1 + int(self._scheduler.random.random() * (0 if self._settled else self._config.rest_ms))
            else:
                if row.error is ErrorCode.OFFSET_OUT_OF_RANGE:
                    self._reset(reader)
                self._back_off(reader)
        if rest:
            self._after(rest, self._pump)
        else:
            self._pump()

    def _take(self, reader: _Reader, leader: Leader, position: int, invoked_ms: int, row: FetchedPartition) -> bool:
        """Write down what a poll brought, and go on behind it; whether it brought anything."""
        reader.polled_ms = invoked_ms
        records = row.records
        if reader.partition.topic in self._keyed:
            found, end = keyed_values_in(bytes(records))
        else:
            found, end = values_in(bytes(records)) if records else [], -1
        runs = runs_of(each for each in found if each[0] >= position)
        behind = max(runs[-1].end if runs else position, end)
        topic, partition = reader.partition
        poll = Poll(
            self.name,
            reader.session,
            reader.number,
            topic,
            partition,
            position,
            behind,
            runs,
            invoked_ms,
            ended_ms(self._scheduler.now_us),
            leader.epoch,
            str(leader.topic_id),
        )
        if behind == position:
            reader.idle = poll
            return False
        self._number(reader, poll)
        reader.position = behind
        self.records_read += behind - position
        if not self._settled:
            self._change_mind(reader)
        return True

    def _number(self, reader: _Reader, operation: Poll | Seek) -> None:
        """Record it; nothing that came before it in vain is of interest any more."""
        reader.idle = None
        reader.number += 1
        self._history.record(operation)

    def _record_idle(self, reader: _Reader) -> None:
        if reader.idle is not None:
            self._number(reader, reader.idle)

    # Positions

    def _change_mind(self, reader: _Reader) -> None:
        chance = self._scheduler.random
        config = self._config
        choice = chance.random()
        position = reader.position
        assert position is not None
        if choice < config.seek_chance:
            self._seek(reader, int(chance.random() * (position + 1)))
        elif choice < config.seek_chance + config.restart_chance:
            reader.session = self._history.next_session(self.name)
            reader.number = 0
            if chance.random() < 0.7:
                reader.position = None

    def _seek(self, reader: _Reader, position: int) -> None:
        topic, partition = reader.partition
        at_ms = began_ms(self._scheduler.now_us)
        topic_id = str(reader.topic_id)
        self._number(
            reader, Seek(self.name, reader.session, reader.number, topic, partition, at_ms, position, topic_id)
        )
        reader.position = position

    def _reset(self, reader: _Reader) -> None:
        self._scheduler.trace.note("client", self.name, "has no position in %s any more", reader.partition)
        self._record_idle(reader)
        reader.position = None
        reader.seeks = True

    def _look_up(self, reader: _Reader, leader: Leader) -> None:
        """auto.offset.reset; a consumer that has read nothing yet begins at the earliest offset."""
        reader.busy = True
        timestamp = self._config.reset if reader.seeks else EARLIEST

        def answered(answer: Any) -> None:
            reader.busy = False
            if self._closed:
                return
            if isinstance(answer, NetFailed) or answer.error is not ErrorCode.NONE:
                self._back_off(reader)
                return
            reader.topic_id = leader.topic_id
            if reader.seeks:
                self._seek(reader, answer.offset)
                reader.seeks = False
            reader.position = answer.offset
            self._pump()

        request = ListAsked(reader.partition, timestamp, leader.epoch)
        self._connections.ask(leader.address, request, answered, self._config.request_timeout_ms)

    def _back_off(self, reader: _Reader) -> None:
        self._view.refresh()
        backoff = self._config.backoff_ms
        reader.ready_ms = self._process.clock.monotonic_ms() + backoff
        self._after(backoff + 1, self._pump)

    # Ends

    def _list_pause_ms(self) -> float:
        return self._config.list_every_ms * (0.5 + self._scheduler.random.random())

    def _list_some_end(self) -> None:
        if self._closed:
            return
        self._after(self._list_pause_ms(), self._list_some_end)
        partition = self._scheduler.random.choice(list(self._readers))
        leader = self._view.leader(partition)
        if leader is None:
            return
        invoked_ms = began_ms(self._scheduler.now_us)
        broker = leader.broker

        def answered(answer: ListedOffset | NetFailed) -> None:
            if self._closed or isinstance(answer, NetFailed):
                return
            if answer.error is not ErrorCode.NONE:
                self._view.refresh()
                return
            completed_ms = ended_ms(self._scheduler.now_us)
            name, number = partition
            self._history.record(
                ListedEnd(self.name, name, number, answer.offset, invoked_ms, completed_ms, answer.leader_epoch, broker)
            )

        request = ListAsked(partition, LATEST, leader.epoch)
        self._connections.ask(leader.address, request, answered, self._config.request_timeout_ms)

    def _after(self, delay_ms: float, work: Callable[[], object]) -> None:
        self._scheduler.at(self._process.clock.delay_us(delay_ms), work, self._process)
