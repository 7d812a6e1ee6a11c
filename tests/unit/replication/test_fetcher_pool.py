"""Fetchers by leader and slot: made, redirected and ended with what there is to follow."""

from __future__ import annotations

import pytest

from regency.broker_agent.replication.api import LeaderAddress
from regency.broker_agent.replication.fetcher.fetcher_pool import FetcherPool, FollowTask, java_hash, slot
from regency.broker_agent.replication.fetcher.fetcher_thread import Failed, Rested
from regency.kafka.fetching.values import FetchPlan, FetchReply, Pause
from regency.model.clock import ManualClock
from regency.model.ids import BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings import BrokerSettings

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Replica:
    def __init__(self, name: TopicPartition) -> None:
        self.topic_partition = name
        self.topic_id = TopicId(__import__("uuid").UUID(int=1))
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.latest_epoch = -1
        self.is_settled = True
        self.log = self


class Transport:
    def __init__(self, spec, deliver) -> None:
        self.spec = spec
        self.deliver = deliver
        self.sent = []
        self.addresses = [spec.address]
        self.closed = False
        self.alive = True

    def send(self, command) -> None:
        self.sent.append(command)

    def redirect(self, address) -> None:
        self.addresses.append(address)

    def close(self) -> None:
        self.closed = True


class Pool:
    """A pool with two slots, its clock, and the transports it made."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.made: list[Transport] = []
        settings = BrokerSettings(broker_id=BrokerId(4), num_replica_fetchers=2)
        self.pool = FetcherPool(settings, self.clock, lambda: BrokerEpoch(1), self.make, lambda _, then: then())

    def make(self, spec, deliver) -> Transport:
        self.made.append(Transport(spec, deliver))
        return self.made[-1]

    def follow(self, *names, leader=1, epoch=10, port=9092, leader_epoch=0) -> None:
        address = LeaderAddress(BrokerId(leader), BrokerEpoch(epoch), "host", port)
        self.pool.follow(address, [FollowTask(Replica(name), LeaderEpoch(leader_epoch)) for name in names])


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0), ("a", 97), ("hello", 99162322), ("polygenelubricants", -(2**31)), ("é𝄞", 1996307)],
)
def test_strings_hash_as_in_java(text, expected) -> None:
    assert java_hash(text) == expected


@pytest.mark.parametrize(
    ("topic", "partition", "slots", "expected"),
    [
        ("a", 0, 7, 31 * 97 % 7),
        ("a", 5, 7, (31 * 97 + 5) % 7),
        ("hello", 3, 5, (2**32 - (31 * 99162322 + 3)) % 5),
        ("polygenelubricants", 0, 7, 0),
        ("polygenelubricants", 1, 7, (2**31 - 1) % 7),
    ],
)
def test_a_partition_has_the_slot_it_has_in_kafka(topic, partition, slots, expected) -> None:
    """|31 * hash + partition| in 32 bits, worked out by hand; the smallest integer has no positive and counts as 0."""
    assert slot(TopicPartition(topic, partition), slots) == expected


def test_slots_are_never_negative() -> None:
    names = [TopicPartition(topic, number) for topic in ("flights", "a", "zzz") for number in range(20)]
    assert {slot(name, 4) for name in names} == {0, 1, 2, 3}
    smallest = next(
        name
        for name in (TopicPartition("polygenelubricants", number) for number in range(2))
        if (31 * -(2**31) + name.partition) % 2**32 == 2**31
    )
    assert slot(smallest, 7) == 0


def test_each_leader_and_slot_has_a_fetcher_named_as_in_kafka(pool) -> None:
    pool.follow(A, B)
    pool.follow(TopicPartition("t", 2), leader=2)
    specs = [transport.spec for transport in pool.made]
    assert len(specs) == 3
    number = slot(A, 2)
    assert (specs[0].name, specs[0].client_id, specs[0].replica) == (
        f"ReplicaFetcherThread-{number}-1",
        f"broker-4-fetcher-{number}",
        4,
    )
    assert all(isinstance(transport.sent[0], FetchPlan) for transport in pool.made)


def test_a_fetcher_sends_one_request_at_a_time(pool) -> None:
    pool.follow(A)
    (transport,) = pool.made
    pool.follow(TopicPartition("t", 2))
    assert len(transport.sent) == 1
    transport.deliver(FetchReply(ErrorCode.NONE, 1, []))
    assert [len(plan.partitions) for plan in transport.sent] == [1, 1]


def test_a_slot_whose_request_hangs_keeps_no_other_slot_of_the_leader_waiting(pool) -> None:
    pool.follow(A, B)
    hanging, other = pool.made
    assert hanging.spec.address == other.spec.address
    for _ in range(3):
        other.deliver(FetchReply(ErrorCode.NONE, 1, []))
    assert (len(hanging.sent), len(other.sent)) == (1, 4)


def test_a_pause_is_ended_by_something_new_to_follow(pool) -> None:
    pool.follow(A)
    (transport,) = pool.made
    transport.deliver(Failed("refused."))
    assert transport.sent[-1] == Pause(1_000)
    pool.pool.remove([A])
    pool.clock.advance(1_000)
    transport.deliver(Rested())
    assert transport.sent[-1] == Pause(None)
    pool.follow(A)
    assert isinstance(transport.sent[-1], FetchPlan)


def test_an_end_of_pause_that_comes_too_late_is_ignored(pool) -> None:
    pool.follow(A)
    (transport,) = pool.made
    transport.deliver(Rested())
    assert len(transport.sent) == 1


def test_a_newer_address_redirects_the_fetcher_and_an_older_one_does_not(pool) -> None:
    pool.follow(A)
    (transport,) = pool.made
    pool.follow(A, epoch=9, port=1, leader_epoch=1)
    assert len(transport.addresses) == 1
    pool.follow(A, epoch=11, port=9999, leader_epoch=2)
    assert transport.addresses[-1].port == 9999
    transport.deliver(Failed("the connection was closed."))
    assert isinstance(transport.sent[-1], FetchPlan)
    assert (transport.sent[-1].session_id, transport.sent[-1].session_epoch) == (0, 0)


def test_an_answer_of_the_old_address_is_not_taken(pool) -> None:
    pool.follow(A)
    (transport,) = pool.made
    pool.follow(A, epoch=11, leader_epoch=1)
    transport.deliver(FetchReply(ErrorCode.NONE, 44, []))
    assert transport.sent[-1].session_id == 0


def test_idle_fetchers_end_and_what_they_still_deliver_is_ignored(pool) -> None:
    pool.follow(A)
    (transport,) = pool.made
    pool.pool.remove([A])
    pool.pool.stop_idle()
    assert transport.closed
    assert len(pool.pool) == 0
    transport.deliver(FetchReply(ErrorCode.NONE, 1, []))
    assert len(transport.sent) == 1


def test_a_failed_partition_is_not_followed_and_stays_on_the_list_until_it_is_removed(pool) -> None:
    pool.follow(A)
    (transport,) = pool.made
    from regency.kafka.fetching.values import FetchedPartition

    fenced = FetchedPartition(ErrorCode.FENCED_LEADER_EPOCH)
    transport.deliver(FetchReply(ErrorCode.NONE, 1, [(A, fenced)]))
    pool.pool.stop_idle()
    assert (pool.pool.is_following(A), list(pool.pool.failed)) == (False, [A])
    pool.pool.remove([A])
    assert pool.pool.failed == {}


def test_a_fetcher_whose_thread_has_died_is_told_from_one_that_was_closed(pool) -> None:
    pool.follow(A)
    (fetcher,) = pool.pool.fetchers
    assert not fetcher.is_dead
    pool.made[0].alive = False
    assert fetcher.is_dead
    fetcher.close()
    assert not fetcher.is_dead


def test_a_closed_pool_follows_nothing_more(pool) -> None:
    pool.follow(A)
    pool.pool.close()
    assert pool.made[0].closed
    pool.follow(B)
    assert len(pool.made) == 1


def test_a_broker_that_leaves_follows_nothing_new(pool: Pool) -> None:
    kept = TopicPartition("flights", 0)
    pool.follow(kept)
    pool.pool.leave()
    pool.follow(TopicPartition("flights", 1), leader=2)
    assert pool.pool.is_following(kept)
    assert not pool.pool.is_following(TopicPartition("flights", 1))
    assert len(pool.made) == 1
