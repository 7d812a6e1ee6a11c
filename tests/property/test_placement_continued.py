"""Partitions that are added go where they would have gone at once, whatever the brokers and racks are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from regency.model.ids import BrokerId
from regency.planning.placement import continue_placement, place_replicas

BROKERS = st.dictionaries(
    st.integers(0, 12).map(BrokerId), st.sampled_from(["a", "b", "c"]), min_size=1, max_size=8
) | st.dictionaries(st.integers(0, 12).map(BrokerId), st.none(), min_size=1, max_size=8)


@given(BROKERS, st.data())
def test_growing_in_steps_is_placing_at_once(brokers: dict[BrokerId, str | None], data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(brokers)))
    start = data.draw(st.integers(0, 2 * len(brokers)))
    count = data.draw(st.integers(2, 3 * len(brokers) + 1))
    have = data.draw(st.integers(1, count - 1))
    at_once = place_replicas(brokers, count, factor, start=start % len(brokers))

    added = continue_placement(brokers, at_once[0], have, count)

    assert {**{number: at_once[number] for number in range(have)}, **added} == at_once


@given(BROKERS, st.lists(st.integers(0, 12).map(BrokerId), min_size=1, max_size=8, unique=True), st.integers(1, 20))
def test_whatever_partition_0_has_the_added_ones_are_on_live_brokers(
    brokers: dict[BrokerId, str | None], first: list[BrokerId], have: int
) -> None:
    first = first[: len(brokers)]
    for replicas in continue_placement(brokers, tuple(first), have, have + 5).values():
        assert len(set(replicas)) == len(first)
        assert set(replicas) <= set(brokers)
