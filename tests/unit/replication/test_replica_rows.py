"""What a scrape reads of a broker's replicas, from a broker's own parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from regency.broker_agent.metrics import replica_rows
from regency.broker_agent.metrics.replica_rows import HostedRow, Look, look
from regency.broker_agent.process.data_loop import LoopClosed
from regency.model.ids import TopicPartition

LAG_MS = 10_000


class InlineLoop:
    """Runs what is posted at once, one after the other, as a loop does."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.turns = 0

    def post(self, work: Callable[[], None]) -> None:
        self.waiting.append(work)
        if len(self.waiting) == 1:
            while self.waiting:
                self.turns += 1
                self.waiting[0]()
                del self.waiting[0]


class DeafLoop:
    def __init__(self) -> None:
        self.posted: list[Callable[[], None]] = []

    def post(self, work: Callable[[], None]) -> None:
        self.posted.append(work)


def seen(broker, loop: InlineLoop | None = None) -> Look:
    return look(loop or InlineLoop(), broker.manager, broker.logs, broker.cluster.clock.monotonic_ms())


def only(found: Look) -> HostedRow:
    (row,) = found.hosted
    return row


def test_a_leader_tells_its_isr_and_a_follower_its_lag(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a", "b")
    cluster.run()
    led, followed = only(seen(cluster[1])), only(seen(cluster[2]))
    assert (led.leads, led.replicas, led.in_sync, led.under_replicated) == (True, 3, 3, False)
    assert (followed.leads, followed.replicas, followed.in_sync) == (False, 0, 0)
    assert (followed.fetcher, followed.lag) == ("ReplicaFetcherThread-0-1", 0)
    (log,) = seen(cluster[2]).logs
    assert (log.start, log.end, log.segments, log.size > 0) == (0, 2, 1, True)
    assert cluster[2].fetchers.received.total == log.size


def test_an_isr_that_shrinks_is_pending_then_under_replicated(cluster) -> None:
    cluster.lead(1)
    cluster[1].isr_store.held = True
    cluster.sever(1, 3)
    cluster[1].produce("a")
    cluster.advance(2 * LAG_MS)
    assert (only(seen(cluster[1])).isr_pending, seen(cluster[1]).waiting_produces) == (True, 1)
    cluster[1].isr_store.held = False
    cluster.run()
    row = only(seen(cluster[1]))
    assert (row.in_sync, row.under_replicated, row.isr_pending) == (2, True, False)
    assert (seen(cluster[1]).isr_shrinks, seen(cluster[1]).waiting_produces) == (1, 0)


def test_a_leader_tells_how_far_followers_are_behind_also_one_that_is_away(cluster) -> None:
    cluster.lead(1)
    cluster[1].produce("a")
    cluster.run()
    cluster.sever(1, 3)
    for value in "bcd":
        cluster[1].produce(value)
    cluster.advance(1)
    assert seen(cluster[1]).behind == {2: [0, 0], 3: [3, 0]}
    assert seen(cluster[2]).behind == {}


def test_the_loop_turns_between_two_pieces(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_rows, "PIECE", 2)
    cluster.lead_alone(*(TopicPartition("flights", number) for number in range(5)))
    loop = InlineLoop()
    assert [row.partition for row in seen(cluster[1], loop).hosted] == [0, 1, 2, 3, 4]
    assert loop.turns == 3


def test_a_look_that_fails_fails_the_scrape_and_nothing_else(cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.lead(1)

    def broken(topic: str) -> int:
        raise ValueError(topic)

    monkeypatch.setattr(cluster[1].manager.hosting, "min_insync", broken)
    with pytest.raises(ValueError, match="flights"):
        seen(cluster[1])


def test_a_loop_that_does_not_answer_is_given_up_and_may_come_later(cluster) -> None:
    cluster.lead(1)
    loop = DeafLoop()
    with pytest.raises(LoopClosed, match="did not answer within 1 ms"):
        look(loop, cluster[1].manager, cluster[1].logs, 0, timeout_ms=1)
    for work in loop.posted:
        work()
