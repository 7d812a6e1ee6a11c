"""When a follower counts as caught up, and what follows for the ISR."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication.followers import RemoteReplica
from regency.kafka.fetching.values import FetchPartition
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, Offset, TopicPartition

TP = TopicPartition("flights", 0)
LAG_MS = 10_000


def wanted(offset):
    return FetchPartition(TP, None, Offset(offset), 1_000, LeaderEpoch(0), LeaderEpoch(0), Offset(0))


def fetched(*fetches):
    """(time, offset asked for, leader's end) of every fetch; when the follower was caught up, after each."""
    replica = RemoteReplica(BrokerId(2))
    times = []
    for now_ms, offset, end in fetches:
        replica.count_fetch(wanted(offset), Offset(end), BrokerEpoch(1), now_ms)
        times.append(replica.last_caught_up_ms)
    return times


@pytest.mark.parametrize(
    ("fetches", "caught_up"),
    [
        pytest.param([(500, 3, 6)], [None], id="behind"),
        pytest.param([(500, 6, 6)], [500], id="at the end: now"),
        pytest.param([(500, 3, 6), (1_000, 6, 6)], [None, 1_000], id="behind, then at the end"),
        pytest.param([(500, 3, 6), (1_000, 6, 9)], [None, 500], id="has what was the end at the fetch before: then"),
        pytest.param([(500, 3, 6), (1_000, 5, 9)], [None, None], id="not even that"),
        pytest.param([(500, 6, 6), (600, 6, 9), (700, 7, 9)], [500, 500, 500], id="stays when nothing newer is proven"),
        pytest.param([(500, 6, 6), (600, 6, 9), (700, 9, 12)], [500, 500, 600], id="moves with each fetch reached"),
        pytest.param([(500, 6, 6), (600, 2, 9), (700, 6, 9)], [500, 500, 500], id="a step back proves nothing"),
    ],
)
def test_a_follower_is_caught_up_at_the_end_or_when_it_reaches_the_end_of_its_fetch_before(fetches, caught_up) -> None:
    assert fetched(*fetches) == caught_up


def test_a_fetch_tells_whether_the_end_it_proves_is_another_one() -> None:
    replica = RemoteReplica(BrokerId(2))

    def count(offset):
        return replica.count_fetch(wanted(offset), Offset(9), BrokerEpoch(1), 0)

    assert (replica.log_end_offset, replica.last_caught_up_ms) == (-1, None)
    assert [count(offset) for offset in (0, 0, 9, 9, 4)] == [True, False, True, False, True]


def followed_by_hand(cluster):
    """Broker 1 leads, 2 is in sync and fetches only when told to; the log has 20 records."""
    cluster.decide(1, (1, 2), replicas=(1, 2))
    cluster.tell(1)
    cluster[1].produce(*"abcdefghijklmnopqrst", acks=1)
    return cluster[1]


@pytest.mark.parametrize(
    ("fetches", "isr"),
    [
        pytest.param([], (1,), id="never fetched"),
        pytest.param([(0, 19)], (1,), id="stuck one short of the end"),
        pytest.param([(0, 18), (LAG_MS * 3 // 4, 19)], (1,), id="slow"),
        pytest.param([(0, 20)], (1, 2), id="caught up and silent since"),
    ],
)
def test_who_has_not_been_caught_up_for_the_lag_time_leaves(cluster, fetches, isr) -> None:
    leader, passed = followed_by_hand(cluster), 0
    for at, offset in fetches:
        cluster.advance(at - passed)
        passed = at
        leader.consume(offset, replica=2, epoch=0)
    cluster.advance(LAG_MS * 3 // 2 + 1 - passed)
    assert cluster.states[TP].isr == isr


def test_who_left_for_being_slow_returns_with_the_fetch_that_reaches_the_end(cluster) -> None:
    leader = followed_by_hand(cluster)
    leader.consume(18, replica=2, epoch=0)
    cluster.advance(LAG_MS * 2)
    assert cluster.states[TP].isr == (1,)
    leader.consume(19, replica=2, epoch=0)
    cluster.run()
    assert cluster.states[TP].isr == (1,)
    leader.consume(20, replica=2, epoch=0)
    cluster.run()
    assert cluster.states[TP].isr == (1, 2)
