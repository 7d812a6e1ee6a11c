"""Placement of replicas: Kafka's AdminUtils, its published examples first."""

from __future__ import annotations

from collections import Counter

import pytest

from regency.planning.placement import PlacementImpossible, alternate_racks, place_replicas

RACKS = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}


def test_ten_partitions_on_five_brokers_are_placed_as_kafka_documents():
    placed = place_replicas(dict.fromkeys(range(5)), 10, 3, start=0)

    assert placed == {
        0: (0, 1, 2),
        1: (1, 2, 3),
        2: (2, 3, 4),
        3: (3, 4, 0),
        4: (4, 0, 1),
        5: (0, 2, 3),
        6: (1, 3, 4),
        7: (2, 4, 0),
        8: (3, 0, 1),
        9: (4, 1, 2),
    }


def test_racks_alternate():
    assert alternate_racks(RACKS) == [0, 3, 1, 5, 4, 2]
    assert alternate_racks({0: "a", 1: "a", 2: "b"}) == [0, 2, 1]


def test_replicas_of_a_partition_are_on_different_racks_while_there_are_enough():
    placed = place_replicas(RACKS, 12, 3, start=2, shift=1)

    assert all(len({RACKS[replica] for replica in replicas}) == 3 for replicas in placed.values())
    assert set(Counter(replica for replicas in placed.values() for replica in replicas).values()) == {6}
    assert set(Counter(replicas[0] for replicas in placed.values()).values()) == {2}


def test_more_replicas_than_racks_use_every_rack_and_no_broker_twice():
    placed = place_replicas({1: "a", 2: "a", 3: "a", 4: "b"}, 8, 3)

    for replicas in placed.values():
        assert len(set(replicas)) == 3
        assert 4 in replicas


def test_racks_on_some_brokers_only_are_ignored():
    assert place_replicas({1: "a", 2: None}, 2, 2) == place_replicas({1: None, 2: None}, 2, 2)


def test_added_partitions_continue_where_the_first_ones_ended():
    whole = place_replicas(dict.fromkeys(range(5)), 10, 3, start=2, shift=1)
    head = place_replicas(dict.fromkeys(range(5)), 5, 3, start=2, shift=1)
    tail = place_replicas(dict.fromkeys(range(5)), 5, 3, start=2, shift=1, first_partition=5)

    assert {**head, **tail} == whole


def test_one_broker_takes_everything():
    assert place_replicas({7: None}, 3, 1, start=4) == {0: (7,), 1: (7,), 2: (7,)}


@pytest.mark.parametrize(
    ("brokers", "partitions", "factor", "message"),
    [
        ({1: None, 2: None}, 1, 3, "Replication factor 3 needs 3 live brokers, 2 are live (1, 2)."),
        ({1: None}, 1, 3, "Replication factor 3 needs 3 live brokers, 1 is live (1)."),
        ({}, 1, 1, "Replication factor 1 needs 1 live broker, 0 are live (none)."),
        ({1: None}, 0, 1, "The number of partitions must be 1 or more, not 0."),
        ({1: None}, 1, 0, "The replication factor must be 1 or more, not 0."),
    ],
)
def test_impossible_placement_says_what_is_missing(brokers, partitions, factor, message):
    with pytest.raises(PlacementImpossible) as refused:
        place_replicas(brokers, partitions, factor)

    assert str(refused.value) == message
