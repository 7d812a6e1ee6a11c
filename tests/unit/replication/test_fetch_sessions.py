"""Incremental fetch sessions on the leader's side (KIP-227)."""

from __future__ import annotations

from itertools import count

import pytest

from regency.broker_agent.replication.fetch_sessions import FetchSessionCache
from regency.broker_agent.steps import at_once
from regency.kafka.fetching.values import EpochEndOffset, FetchedPartition, FetchPartition
from regency.model.ids import LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

EVICTION_MS = 120_000


def name(number: int) -> TopicPartition:
    return TopicPartition("foo", number)


def wanted(number: int, offset: int = 0, epoch: int = 0) -> FetchPartition:
    return FetchPartition(name(number), None, Offset(offset), 100, LeaderEpoch(epoch))


def read(records: bytes = b"", high_watermark: int = 0, log_start: int = 0, **more: object) -> FetchedPartition:
    return FetchedPartition(
        ErrorCode.NONE,
        Offset(high_watermark),
        Offset(log_start),
        records,
        **more,  # type: ignore[arg-type]
    )


@pytest.fixture
def cache() -> FetchSessionCache:
    ids = count(1)
    return FetchSessionCache(3, new_id=lambda: next(ids))


def begin(cache, numbers, *, privileged=False, now=0) -> int:
    """A full fetch; the id of the session it got."""
    partitions = [wanted(number) for number in numbers]
    context = cache.resolve(0, 0, partitions, [], privileged, now)
    session, _ = at_once(context.finish({name(number): read() for number in numbers}))
    return session


def test_a_full_fetch_gets_everything_and_a_session(cache) -> None:
    context = cache.resolve(0, 0, [wanted(0), wanted(1)], [], False, 0)
    assert [entry.topic_partition.partition for entry in context.partitions] == [0, 1]
    session, told = at_once(context.finish({name(0): read(), name(1): read()}))
    assert session == 1
    assert list(told) == [name(0), name(1)]
    assert (len(cache), cache.partitions) == (1, 2)


def test_a_fetch_without_session_leaves_nothing(cache) -> None:
    context = cache.resolve(0, -1, [wanted(0)], [], False, 0)
    assert at_once(context.finish({name(0): read()})) == (0, {name(0): read()})
    assert len(cache) == 0


def test_an_incremental_answer_names_only_what_changed(cache) -> None:
    session = begin(cache, range(6))

    def answer(epoch, **changed):
        context = cache.resolve(session, epoch, [], [], False, 0)
        results = {entry.topic_partition: read() for entry in context.partitions}
        results.update({name(int(key[1:])): value for key, value in changed.items()})
        number, told = at_once(context.finish(results))
        assert number == session
        return [key.partition for key in told]

    news = {"p1": read(high_watermark=3), "p2": read(log_start=2)}
    assert answer(1) == []
    assert answer(2, p0=read(b"data"), **news) == [0, 1, 2]
    assert answer(3, **news) == []
    assert answer(4, p1=read(high_watermark=4), p2=read(log_start=2)) == [1]


def test_who_was_told_to_truncate_is_told_the_high_watermark_again(cache) -> None:
    session = begin(cache, [0])
    context = cache.resolve(session, 1, [], [], False, 0)
    diverging = EpochEndOffset(LeaderEpoch(0), Offset(0))
    at_once(context.finish({name(0): read(high_watermark=5, diverging=diverging)}))
    _, told = at_once(cache.resolve(session, 2, [], [], False, 0).finish({name(0): read(high_watermark=5)}))
    assert list(told) == [name(0)]


def test_a_partition_in_error_is_answered_until_it_recovers(cache) -> None:
    session = begin(cache, [0])
    refused = FetchedPartition(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    for epoch, result in ((1, refused), (2, refused), (3, read())):
        _, told = at_once(cache.resolve(session, epoch, [], [], False, 0).finish({name(0): result}))
        assert list(told.values()) == [result]
    _, told = at_once(cache.resolve(session, 4, [], [], False, 0).finish({name(0): read()}))
    assert told == {}


def test_a_wrong_epoch_or_an_unknown_id_is_an_error_of_the_whole(cache) -> None:
    session = begin(cache, [0])
    assert cache.resolve(session, 5, [], [], False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert cache.resolve(session + 1, 1, [], [], False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not isinstance(cache.resolve(session, 1, [], [], False, 0), ErrorCode)
    assert cache.resolve(session, 1, [], [], False, 0) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_requests_add_change_and_forget_partitions(cache) -> None:
    session = begin(cache, [0, 1])
    context = cache.resolve(session, 1, [wanted(1, offset=7, epoch=4), wanted(2)], [name(0)], False, 0)
    assert list(context.partitions) == [wanted(1, offset=7, epoch=4), wanted(2)]
    _, told = at_once(context.finish({name(1): read(), name(2): read()}))
    assert list(told) == [name(1), name(2)]


def test_a_partition_that_is_named_again_is_answered_again(cache) -> None:
    """Its client may have thrown the last answer away, for want of a leader epoch that fits."""
    session = begin(cache, [0, 1])
    _, told = at_once(
        cache.resolve(session, 1, [wanted(0, epoch=1)], [], False, 0).finish({name(0): read(), name(1): read()})
    )
    assert list(told) == [name(0)]


def test_the_leader_epoch_of_a_remembered_partition_is_remembered(cache) -> None:
    """KAFKA-9338: otherwise an unchanged entry escapes fencing."""
    session = begin(cache, [0])
    named = FetchPartition(name(0), None, Offset(7), 100, LeaderEpoch(5), LeaderEpoch(4))
    cache.resolve(session, 1, [named], [], False, 0)
    (entry,) = cache.resolve(session, 2, [], [], False, 0).partitions
    assert (entry.current_leader_epoch, entry.last_fetched_epoch, entry.fetch_offset) == (5, 4, 7)


def test_a_session_that_ends_up_empty_is_closed(cache) -> None:
    session = begin(cache, [0])
    context = cache.resolve(session, 1, [], [name(0)], False, 0)
    assert (list(context.partitions), at_once(context.finish({}))) == ([], (0, {}))
    assert len(cache) == 0


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_fetch_closes_the_session_it_names(cache, epoch) -> None:
    session = begin(cache, [0])
    cache.resolve(session, epoch, [wanted(0)], [], False, 0)
    assert cache.resolve(session, 1, [], [], False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_brought_records_goes_behind_the_others(cache) -> None:
    session = begin(cache, [0, 1, 2])
    context = cache.resolve(session, 1, [], [], False, 0)
    at_once(context.finish({name(0): read(b"data"), name(1): read(high_watermark=9), name(2): read()}))
    order = [entry.topic_partition.partition for entry in cache.resolve(session, 2, [], [], False, 0).partitions]
    assert order == [1, 2, 0]


def test_a_full_cache_of_fresh_sessions_takes_no_newcomer_of_the_same_size(cache) -> None:
    assert [begin(cache, [0]) for _ in range(4)] == [1, 2, 3, 0]


def test_the_longest_idle_session_gives_way_after_two_minutes(cache) -> None:
    for _ in range(3):
        begin(cache, [0])
    cache.resolve(1, 1, [], [], False, 1_000)
    assert begin(cache, [0], now=EVICTION_MS + 1) == 4
    assert cache.resolve(2, 1, [], [], False, 0) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert cache.evictions == 1


def test_an_old_session_gives_way_to_a_larger_one(cache) -> None:
    for size in (1, 2, 3):
        begin(cache, range(size))
    now = EVICTION_MS + 1
    for session in (1, 2, 3):
        cache.resolve(session, 1, [], [], False, now)
    assert begin(cache, [], now=now) == 0
    assert begin(cache, range(2), now=now) == 4
    assert cache.resolve(1, 2, [], [], False, now) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_followers_displace_consumers_and_consumers_never_followers(cache) -> None:
    begin(cache, [0])
    begin(cache, [0, 1])
    begin(cache, [0], privileged=True)
    assert begin(cache, [0], privileged=True) == 4
    assert begin(cache, [0], privileged=True) == 5
    assert begin(cache, [0], privileged=True) == 0
    assert begin(cache, range(9)) == 0


def test_no_slots_mean_no_sessions() -> None:
    assert begin(FetchSessionCache(0), [0]) == 0


def test_ids_are_positive_and_not_in_use() -> None:
    ids = iter([7, 7, 8])
    cache = FetchSessionCache(3, new_id=lambda: next(ids))
    assert [begin(cache, [0]), begin(cache, [0])] == [7, 8]
    assert all(begin(FetchSessionCache(1), [0]) > 0 for _ in range(20))
