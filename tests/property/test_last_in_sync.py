"""Who is kept as the last in sync, and who is elected from outside the ISR: rules, whatever dies in which order."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from regency.controller.state.election import LogEnd, elect_offline, elect_restarted, elect_unclean, remove_from_isr
from regency.model.ids import NO_LEADER

brokers = st.integers(1, 6)
ends = st.builds(LogEnd, st.integers(-1, 3), st.integers(0, 4))


@st.composite
def partitions(draw):
    """An assignment, an ISR within it, and its leader."""
    assignment = draw(st.lists(brokers, min_size=1, max_size=5, unique=True))
    isr = draw(st.permutations(assignment))[: draw(st.integers(1, len(assignment)))]
    return tuple(assignment), tuple(isr), draw(st.sampled_from(isr))


def die(assignment, leader, isr, live, gone):
    """What the controller makes of brokers that die in one event: an election, then the ISR shrinks."""
    left = live - set(gone)
    if leader not in left:
        elected = elect_offline(assignment, isr, left)
        if elected.leader is not None:
            leader, isr = elected.leader, elected.isr
    removal = remove_from_isr(assignment, leader, isr, gone)
    return (leader, isr) if removal is None else (removal.leader, removal.isr)


@given(partitions())
def test_order_in_which_brokers_of_one_event_are_handled_does_not_matter(partition):
    assignment, isr, leader = partition
    live = set(assignment)
    outcomes = {die(assignment, leader, isr, live, order) for order in permutations(isr)}

    assert outcomes == {(NO_LEADER, (leader,))}, "the last known leader is kept: it has every committed record"


@given(partitions(), st.data())
def test_kept_one_is_of_those_that_went_last_over_any_events(partition, data):
    assignment, isr, leader = partition
    live = set(assignment)
    before = (leader, isr)
    while live:
        gone = data.draw(st.lists(st.sampled_from(sorted(live)), min_size=1, unique=True))
        had_leader = leader
        leader, isr = die(assignment, leader, isr, live, gone)
        live -= set(gone)
        members = set(before[1])
        assert isr
        assert set(isr) <= members
        if live & members:
            assert set(isr) <= live, "as long as one in sync lives, only such stay in it"
            assert leader in live
        elif had_leader != NO_LEADER:
            assert (leader, isr) == (NO_LEADER, (had_leader,))
            assert had_leader in gone
        before = (leader, isr) if live & members else before
    assert leader == NO_LEADER
    assert len(isr) == 1


@given(partitions(), st.data())
def test_whole_isr_that_dies_at_once_without_a_leader_leaves_the_first_assigned(partition, data):
    assignment, isr, _ = partition
    gone = data.draw(st.permutations(isr))
    removal = remove_from_isr(assignment, NO_LEADER, isr, gone)

    first = next(replica for replica in assignment if replica in isr)
    assert (isr if removal is None else removal.isr) == (first,)


@given(partitions(), st.frozensets(brokers), st.dictionaries(brokers, st.one_of(st.none(), ends)))
def test_longest_known_log_leads_and_silent_ones_come_last(partition, online, told):
    assignment, isr, _ = partition
    elected = elect_unclean(assignment, isr, online, told)
    live = [replica for replica in assignment if replica in online]

    if not live:
        assert elected.leader is None
        assert elected.isr == isr
        return
    assert elected.unclean
    assert elected.why.startswith("unclean: ")
    assert elected.isr == (elected.leader,)
    assert elected.leader in live
    known = {replica: end[:2] for replica in live if (end := told.get(replica)) is not None}
    if len(live) == 1 or not known:
        assert elected.leader == live[0]
        return
    best = max(known.values())
    assert known[elected.leader] == best
    earlier = live[: live.index(elected.leader)]
    assert not any(known.get(replica) == best for replica in earlier)


@st.composite
def logs(draw):
    """The logs of three replicas after some leader epochs, as the epoch of every offset, and where epochs were begun.

    Each leader goes on where its own log ends, with some batches or none; a follower cuts off what is not the leader's,
    and copies a part.
    """
    held = {replica: [] for replica in (1, 2, 3)}
    begun = {replica: [] for replica in held}
    for epoch in range(draw(st.integers(1, 6))):
        leader = draw(st.sampled_from(sorted(held)))
        begun[leader].append((epoch, len(held[leader])))
        held[leader] += [epoch] * draw(st.integers(0, 3))
        for follower in draw(st.frozensets(st.sampled_from(sorted(held)))) - {leader}:
            mine, its = held[follower], held[leader]
            same = next((at for at, pair in enumerate(zip(mine, its, strict=False)) if len(set(pair)) > 1), len(mine))
            end = min(same, len(its)) + draw(st.integers(0, 4))
            held[follower] = its[:end]
            begun[follower] = [each for each in begun[leader] if each[1] < end]
    return {
        replica: (
            log,
            LogEnd(
                log[-1] if log else -1,
                len(log),
                epochs=tuple(begun[replica]),
                high_watermark=draw(st.integers(0, len(log))),
            ),
        )
        for replica, log in held.items()
    }


@given(logs(), st.integers(0, 3))
def test_in_place_of_the_last_in_sync_leads_only_a_log_that_has_all_of_its_own(held, lost):
    """Whatever tail the last one has lost: nobody leads who lacks something that it still has."""
    log = held[1][0][: max(len(held[1][0]) - lost, 0)]
    epochs = tuple(each for each in held[1][1].epochs if each[1] < len(log))
    ends = {each: end for each, (_, end) in held.items()} | {1: LogEnd(log[-1] if log else -1, len(log), epochs=epochs)}

    leader = elect_restarted((2, 1, 3), (1,), {1, 2, 3}, ends).leader

    assert leader == 1 or held[leader][0][: len(log)] == log
    longer = [other for other in (2, 3) if len(held[other][0]) > len(log) and held[other][0][: len(log)] == log]
    assert (leader != 1) == bool(longer)
