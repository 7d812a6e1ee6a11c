from __future__ import annotations

import asyncio
from uuid import UUID

from regency.broker_agent.control.metadata_cache import (
    BrokerNode,
    MetadataCache,
    MetadataChange,
    MetadataUpdate,
    PartitionMetadata,
    Refused,
    RulingController,
    TopicDelta,
)
from regency.model.ids import (
    LEADER_DURING_DELETE,
    BrokerEpoch,
    BrokerId,
    ControllerEpoch,
    LeaderEpoch,
    TopicId,
    TopicPartition,
    ZkVersion,
)

T1, T2 = TopicId(UUID(int=1)), TopicId(UUID(int=2))


def partition(number: int, leader: int = 1) -> PartitionMetadata:
    return PartitionMetadata(
        number, BrokerId(leader), LeaderEpoch(0), ZkVersion(0), (BrokerId(1), BrokerId(2)), (BrokerId(1), BrokerId(2))
    )


def flights(*partitions: PartitionMetadata, topic_id: TopicId = T1) -> MetadataChange:
    return MetadataChange(topics=[TopicDelta("flights", topic_id, partitions)])


def brokers(*ids: int, leaving: tuple[int, ...] = ()) -> MetadataChange:
    return MetadataChange(
        [BrokerNode(BrokerId(each), BrokerEpoch(100 + each), (), None, each in leaving) for each in ids]
    )


def snapshot(*changes: MetadataChange, epoch: int = 1, next_delta: int = 1) -> MetadataUpdate:
    return MetadataUpdate(ControllerEpoch(epoch), BrokerId(9), changes, next_delta, True, True, True)


def deltas(first: int, *changes: MetadataChange, epoch: int = 1) -> MetadataUpdate:
    return MetadataUpdate(ControllerEpoch(epoch), BrokerId(9), changes, first)


def cache_with(*changes: MetadataChange) -> MetadataCache:
    cache = MetadataCache()
    assert cache.apply(snapshot(*changes)) is None
    return cache


def test_a_snapshot_replaces_everything_and_numbers_what_follows() -> None:
    cache = cache_with(brokers(1, 2), flights(partition(0), partition(1)))
    cache.apply(snapshot(brokers(1), flights(partition(0), topic_id=T2), epoch=2, next_delta=8))
    view = cache.current
    assert (view.controller_id, view.controller_epoch, view.version) == (9, 2, 2)
    assert list(view.brokers) == [1]
    assert list(view.topics["flights"].partitions) == [0]
    assert view.names == {T2: "flights"}
    assert cache.apply(deltas(8, brokers(1, 2), epoch=2)) is None


def test_deltas_change_only_what_they_name() -> None:
    cache = cache_with(brokers(1, 2), flights(partition(0), partition(1)))
    before = cache.current
    cache.apply(deltas(1, flights(partition(1, leader=2))))
    assert cache.current.partition(TopicPartition("flights", 0)) is before.partition(TopicPartition("flights", 0))
    moved = cache.current.partition(TopicPartition("flights", 1))
    assert moved is not None and moved.leader == 2
    assert before.topics["flights"].partitions[1].leader == 1, "a view that was handed out never changes"


def test_a_gap_in_the_numbers_is_refused_and_changes_nothing() -> None:
    cache = cache_with(brokers(1))
    cache.apply(deltas(1, brokers(1, 2), brokers(1, 2, 3)))
    before = cache.current
    assert cache.apply(deltas(4, brokers())) == Refused("expected delta 3, got 4")
    assert cache.apply(deltas(2, brokers())) == Refused("expected delta 3, got 2")
    assert cache.current is before


def test_a_new_controller_begins_with_a_snapshot() -> None:
    cache = cache_with(brokers(1))
    assert isinstance(cache.apply(deltas(1, brokers(), epoch=2)), Refused)
    assert isinstance(MetadataCache().apply(deltas(1, brokers())), Refused)


def test_a_snapshot_in_pieces_is_published_with_the_last_one() -> None:
    cache = cache_with(brokers(1))
    first = MetadataUpdate(ControllerEpoch(2), BrokerId(9), [brokers(1, 2)], 5, True, True, False)
    last = MetadataUpdate(ControllerEpoch(2), BrokerId(9), [flights(partition(0))], 5, True, False, True)
    cache.apply(first)
    assert list(cache.current.brokers) == [1]
    cache.apply(last)
    assert list(cache.current.brokers) == [1, 2]
    assert "flights" in cache.current.topics


def test_a_later_piece_without_the_first_is_refused() -> None:
    last = MetadataUpdate(ControllerEpoch(2), BrokerId(9), [], 5, True, False, True)
    assert isinstance(MetadataCache().apply(last), Refused)


def test_a_topic_being_deleted_leaves_partition_by_partition() -> None:
    cache = cache_with(flights(partition(0), partition(1)))
    cache.apply(deltas(1, flights(partition(0, leader=LEADER_DURING_DELETE))))
    assert list(cache.current.topics["flights"].partitions) == [1]
    cache.apply(deltas(2, flights(partition(1, leader=LEADER_DURING_DELETE))))
    assert cache.current.topics == {} and cache.current.names == {}


def test_a_removed_topic_goes_but_not_its_successor() -> None:
    cache = cache_with(flights(partition(0)))
    cache.apply(deltas(1, flights(partition(0), topic_id=T2), MetadataChange(removed=[("flights", T1)])))
    assert cache.current.topics["flights"].topic_id == T2
    cache.apply(deltas(3, MetadataChange(removed=[("flights", T2)])))
    assert cache.current.topics == {} and cache.current.names == {}


def test_a_partition_exists_where_metadata_has_it() -> None:
    cache = cache_with(flights(partition(0)))
    names = [TopicPartition("flights", 0), TopicPartition("flights", 1), TopicPartition("no", 0)]
    assert [cache.has_partition(name) for name in names] == [True, False, False]


def test_peers_are_the_live_brokers() -> None:
    cache = cache_with(brokers(1, 2, leaving=(2,)))
    assert (cache.broker_epoch(BrokerId(1)), cache.broker_epoch(BrokerId(3))) == (101, None)
    assert (cache.is_shutting_down(BrokerId(1)), cache.is_shutting_down(BrokerId(2))) == (False, True)


def test_who_rules_is_known_from_any_request_and_never_goes_back() -> None:
    cache = cache_with(brokers(1))
    newer = RulingController(BrokerId(2), ControllerEpoch(5), "b:1")
    cache.saw_controller(newer)
    cache.saw_controller(RulingController(BrokerId(1), ControllerEpoch(4), "a:1"))
    assert cache.ruling == newer


def test_clients_see_a_new_controller_with_its_first_metadata() -> None:
    cache = cache_with(brokers(1))
    cache.saw_controller(RulingController(BrokerId(2), ControllerEpoch(5), "b:1"))
    assert cache.current.controller_id == 9
    cache.apply(snapshot(brokers(1, 2), epoch=5))
    assert (cache.current.controller_epoch, list(cache.current.brokers)) == (5, [1, 2])


def test_waiting_ends_with_the_view_that_fits_or_with_the_time() -> None:
    async def scenario() -> tuple[bool, bool, bool]:
        cache = cache_with(brokers(1))
        at_once = await cache.wait_for(lambda view: 1 in view.brokers, 0)
        waiting = asyncio.ensure_future(cache.wait_for(lambda view: 2 in view.brokers, 60_000))
        await asyncio.sleep(0)
        cache.apply(deltas(1, brokers(1, 2)))
        return at_once, await waiting, await cache.wait_for(lambda view: 3 in view.brokers, 1)

    assert asyncio.run(scenario()) == (True, True, False)


def test_subscribers_see_every_published_view() -> None:
    cache = MetadataCache()
    seen: list[int] = []
    cache.subscribe(lambda view: seen.append(view.version))
    cache.apply(snapshot(brokers(1)))
    cache.apply(deltas(1, brokers(1, 2)))
    cache.apply(deltas(9, brokers()))
    assert seen == [1, 2]
