"""Answers that clients do not read: the memory they take has a bound, and nobody else goes without for long."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from regency.broker_agent.listener.apis import fetch as fetch_handler
from regency.broker_agent.listener.buffers import STALLED_MS, UnsentAnswers
from regency.broker_agent.listener.stats import Closing, ListenerStats
from regency.kafka.codec import FetchRequest, MetadataRequest
from regency.model.clock import ManualClock
from regency.model.ids import TopicPartition

Serve = Callable[..., None]
T0 = TopicPartition("t", 0)
MIB = 1 << 20


class Reader:
    """A connection that has so much to read."""

    def __init__(self, unsent_bytes: int) -> None:
        self.unsent_bytes = unsent_bytes
        self.is_cut_off = False

    def cut_off(self, reason: Closing, detail: str) -> None:
        self.is_cut_off = True


@pytest.fixture
def clock() -> Any:
    return ManualClock()


@pytest.fixture
def stats() -> ListenerStats:
    return ListenerStats()


@pytest.fixture
def unsent(stats: ListenerStats, clock: Any) -> UnsentAnswers:
    return UnsentAnswers(1000, stats, clock)


def test_room_is_what_is_left_and_comes_back(unsent, stats, clock) -> None:
    one, other = Reader(600), Reader(300)
    unsent.owes(one)
    unsent.owes(other)
    assert (unsent.room(100), stats.unsent_bytes) == (100, 900)
    one.unsent_bytes = 500
    clock.advance(10)
    assert unsent.room(101) == 200, "where there is too little, it is looked at what has been read meanwhile"
    unsent.has_paid(one)
    unsent.has_paid(one)
    unsent.has_paid(other)
    assert (unsent.room(1000), stats.unsent_bytes) == (1000, 0)


def test_who_takes_nothing_is_cut_off_when_others_need_the_room(unsent, clock) -> None:
    stalled, slow = Reader(600), Reader(600)
    unsent.owes(stalled)
    unsent.owes(slow)
    for _ in range(3):
        clock.advance(STALLED_MS // 3)
        slow.unsent_bytes -= 1
        room = unsent.room(1)
    assert (stalled.is_cut_off, slow.is_cut_off) == (True, False)
    assert room == 1000 - slow.unsent_bytes


def test_who_takes_nothing_keeps_it_while_there_is_room(unsent, clock) -> None:
    stalled = Reader(999)
    unsent.owes(stalled)
    clock.advance(10 * STALLED_MS)
    assert unsent.room(1000) == 1
    assert not stalled.is_cut_off


def test_the_only_answer_there_is_may_be_of_any_size(unsent, clock) -> None:
    alone = Reader(5000)
    unsent.owes(alone)
    assert unsent.room(1) < 0
    assert not alone.is_cut_off


def test_twice_the_budget_is_never_exceeded_for_long(unsent, stats, clock) -> None:
    """By answers that nobody holds back, such as those to followers and of metadata."""
    readers = []
    for _ in range(10):
        readers.append(Reader(500))
        unsent.owes(readers[-1])
        clock.advance(1)
        assert stats.unsent_bytes <= 2000
    assert [reader.is_cut_off for reader in readers] == [True] * 6 + [False] * 4


def fetch(replica: int = -1, **options: Any) -> Any:
    partition = FetchRequest.FetchTopic.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64 * MIB)
    topic = FetchRequest.FetchTopic(topic="t", partitions=[partition])
    values = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 64 * MIB, "session_epoch": -1, **options}
    return FetchRequest(topics=[topic], replica_id=replica, **values)


async def fill(h: Any, batch: Callable[..., bytes], size: int) -> None:
    """One batch, of which the operating system's buffers take some 6 MiB."""
    h.with_topic("t")
    h.replicas.logs[T0] = [(1, batch(payload=bytes(size)))]


def test_consumers_that_do_not_read_keep_the_budget_and_no_more(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        await fill(h, batch, 32 * MIB)
        deaf = []
        for number in range(5):
            deaf.append(await h.connect())
            deaf[-1].send(fetch(), 12)
            await h.eventually(lambda n=number: len(h.replicas.fetches) == n + 1, "it was begun")
        assert h.replicas.fetches[0][0].max_bytes == fetch_handler.LARGEST_ANSWER_BYTES
        assert {params.max_bytes for params, _ in h.replicas.fetches[2:]} == {fetch_handler.NO_RECORDS}
        assert h.listener.stats.unsent_bytes <= 66 * MIB

        follower = await h.connect()
        [topic] = (await follower.ask(fetch(replica=2), 12)).responses
        assert len(topic.partitions[0].records) > 32 * MIB
        assert (await (await h.connect()).ask(MetadataRequest(topics=[]), 9)).controller_id == 1

        for client in deaf[:2]:
            client.writer.transport.abort()
        await h.eventually(lambda: h.listener.stats.unsent_bytes == 0, "what they kept is free")
        [topic] = (await (await h.connect()).ask(fetch(), 12)).responses
        assert len(topic.partitions[0].records) > 32 * MIB
        assert h.listener.stats.fetches_held_back >= 3

    serve(scenario, regency_queued_max_response_bytes=40 * MIB)


def test_an_answer_lies_in_memory_once_and_goes_with_its_connection(serve: Serve, batch: Callable[..., bytes]) -> None:
    """Not when cycles are looked for: an agent does that after a thousand connections."""

    async def scenario(h: Any) -> None:
        await fill(h, batch, 32 * MIB)
        await (await h.connect()).ask(fetch(), 12)  # the encoder keeps its buffer
        gc.collect()
        gc.disable()
        tracemalloc.start()
        try:
            deaf = await h.connect()
            deaf.send(fetch(), 12)
            await h.eventually(lambda: h.listener.stats.unsent_bytes > MIB, "the answer lies there")
            while_unsent = tracemalloc.get_traced_memory()[0]
            transports = [weakref.ref(each._transport) for each in h.listener._places]
            deaf.writer.transport.abort()
            await h.eventually(lambda: h.listener.stats.open == 1, "the connection is gone")
            assert while_unsent < 40 * MIB
            assert tracemalloc.get_traced_memory()[0] < MIB
            await h.eventually(lambda: [each() is None for each in transports] == [False, True], "its transport, too")
        finally:
            tracemalloc.stop()
            gc.enable()

    serve(scenario)


def test_a_fetch_that_has_waited_gets_what_there_is_room_for_then(serve: Serve, batch: Callable[..., bytes]) -> None:
    async def scenario(h: Any) -> None:
        await fill(h, batch, 0)
        h.replicas.logs[T0] = []
        waiting = await h.connect()
        waiting.send(fetch(max_wait_ms=10_000), 12)
        await h.eventually(lambda: len(h.replicas.waiting) == 1, "it waits")
        hungry = Reader(2 * MIB)
        h.listener.unsent.owes(hungry)
        h.replicas.logs[T0] = [(1, batch())]
        for look in h.replicas.waiting:
            look()
        [topic] = (await waiting.receive()).responses
        assert (bytes(topic.partitions[0].records), topic.partitions[0].high_watermark) == (b"", 1)

    serve(scenario, regency_queued_max_response_bytes=MIB)


@pytest.mark.parametrize(("budget", "closed"), [(20 * MIB, 1), (1 << 40, 0)])
def test_the_connection_of_who_takes_nothing_is_closed(
    serve: Serve, batch: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, budget: int, closed: int
) -> None:
    async def scenario(h: Any) -> None:
        await fill(h, batch, 32 * MIB)
        (await h.connect()).send(fetch(), 12)
        await h.eventually(lambda: h.listener.stats.unsent_bytes > MIB, "the answer lies there")
        other = await h.connect()
        await other.ask(fetch(), 12)
        await h.eventually(lambda: h.listener.stats.closed_for[Closing.UNREAD] == closed, "it is closed")

    monkeypatch.setattr("regency.broker_agent.listener.buffers.STALLED_MS", 0)
    serve(scenario, regency_queued_max_response_bytes=budget)
