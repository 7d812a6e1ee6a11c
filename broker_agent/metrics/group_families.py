"""Families of the group coordinator. They are read while they are counted."""

from __future__ import annotations

from collections.abc import Iterable

from regency.broker_agent.groups.coordinator import GroupCoordinator
from regency.runtime.metrics import table_agent as names
from regency.runtime.metrics.families import Family, value


def groups(coordinator: GroupCoordinator) -> Iterable[Family]:
    """Groups by state and offsets, of loaded partitions; what was done with them; loads."""
    by_state = {state.value: count for state, count in coordinator.groups_by_state.items()}
    yield value(names.GROUPS, sum(by_state.values()))
    yield value(names.GROUP_OFFSETS, coordinator.offset_count)
    for state, name in names.GROUPS_BY_STATE:
        yield value(name, by_state.get(state, 0))
    loads, counters = coordinator.loads, coordinator.counters
    yield value(names.GROUP_LOAD_MAX, loads.longest_ms)
    yield value(names.GROUP_LOAD_AVG, loads.total_ms / loads.count if loads.count else 0)
    yield value(names.GROUP_COMMITS, counters.commits)
    yield value(names.GROUP_EXPIRATIONS, counters.expirations)
    yield value(names.GROUP_DELETIONS, counters.deletions)
    yield value(names.GROUP_REBALANCES, counters.completed_rebalances)
    yield value(names.GROUPS_LOADING, coordinator.loading)
    yield value(names.GROUP_LOAD_FAILURES, loads.failures)
    yield value(names.GROUP_RECORDS_LEFT_OUT, loads.unusable_records)
