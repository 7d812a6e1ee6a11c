"""Plans against every possible plan, on clusters small enough to try them all."""

from __future__ import annotations

import itertools
from collections import Counter

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from regency.model.ids import BrokerId, TopicPartition
from regency.planning.plans import change_replication_factor, drain, rebalance


@st.composite
def clusters(draw, most_brokers=6, most_partitions=12, most_replicas=4):
    """Brokers with or without racks, and an assignment that may name brokers that are gone."""
    ids = draw(st.lists(st.integers(0, 9), min_size=1, max_size=most_brokers, unique=True))
    racks = draw(st.sampled_from([("",), ("a", "b"), ("a", "b", "c"), ("", "a")]))
    brokers = {BrokerId(each): draw(st.sampled_from(racks)) or None for each in ids}
    replicas = st.lists(st.integers(0, 9).map(BrokerId), min_size=1, max_size=most_replicas, unique=True).map(tuple)
    names = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 9)).map(lambda each: TopicPartition(*each))
    assignment = draw(st.dictionaries(names, replicas, min_size=1, max_size=most_partitions))
    return brokers, assignment


def after(assignment, moves):
    return {**assignment, **{move.partition: move.after for move in moves}}


def racks_of(brokers):
    known = {broker: rack for broker, rack in brokers.items() if rack}
    return known if len(known) == len(brokers) else {}


def apart(replicas, racks):
    """On as many racks as there can be."""
    return not racks or len({racks[each] for each in replicas}) == min(len(replicas), len(set(racks.values())))


def spread_of(brokers, assignment):
    counts = Counter(replica for replicas in assignment.values() for replica in replicas)
    loads = [counts[broker] for broker in brokers]
    return max(loads) - min(loads)


def copied(moves):
    return sum(len(move.adding) for move in moves)


def all_placements(brokers, assignment):
    """Every assignment of the same replication factors over the brokers, racks as far apart as possible."""
    racks = racks_of(brokers)
    options = [
        [each for each in itertools.combinations(sorted(brokers), len(replicas)) if apart(each, racks)]
        for replicas in assignment.values()
    ]
    for chosen in itertools.product(*options):
        yield dict(zip(assignment, chosen, strict=True))


@given(clusters())
def test_a_rebalanced_cluster_is_valid_and_everything_is_on_the_brokers_named(cluster):
    brokers, assignment = cluster
    assume(all(len(replicas) <= len(brokers) for replicas in assignment.values()))
    moves = rebalance(assignment, brokers)
    racks = racks_of(brokers)
    for partition, replicas in after(assignment, moves).items():
        assert len(set(replicas)) == len(replicas) == len(assignment[partition])
        assert set(replicas) <= set(brokers)
        assert apart(replicas, racks)
    if not racks:
        firsts = Counter(replicas[0] for replicas in after(assignment, moves).values())
        assert spread_of(brokers, after(assignment, moves)) <= 1 or not _can_be_even(brokers, assignment)
        assert firsts.total() == len(assignment)


def _can_be_even(brokers, assignment):
    """Without racks a broker can hold one replica of each partition: its share may not be more than that."""
    total = sum(map(len, assignment.values()))
    return -(-total // len(brokers)) <= len(assignment)


@settings(max_examples=150)
@given(clusters(most_brokers=4, most_partitions=4, most_replicas=3))
def test_no_plan_that_is_as_even_moves_less(cluster):
    brokers, assignment = cluster
    assume(all(len(replicas) <= len(brokers) for replicas in assignment.values()))
    moves = rebalance(assignment, brokers)
    found = after(assignment, moves)
    evenness = spread_of(brokers, found)
    least = None
    for placed in all_placements(brokers, assignment):
        if spread_of(brokers, placed) <= max(1, 0):
            moved = sum(len(set(new) - set(assignment[partition])) for partition, new in placed.items())
            least = moved if least is None else min(least, moved)
    if least is not None:
        assert evenness <= 1
        assert copied(moves) == least


@given(clusters(), st.sets(st.integers(0, 9), min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_draining_moves_what_must_and_nothing_else_in_any_order_of_input(cluster, leaving, random):
    brokers, assignment = cluster
    staying = [broker for broker in brokers if broker not in leaving]
    assume(staying)
    assume(all(len(r) <= len({*staying, *(set(r) - leaving)}) for r in assignment.values()))
    moves = drain(assignment, brokers, leaving)
    assert {move.partition for move in moves} == {p for p, replicas in assignment.items() if set(replicas) & leaving}
    racks = racks_of({broker: brokers[broker] for broker in staying})
    for move in moves:
        stays = set(move.before) - leaving
        assert stays <= set(move.after) and not set(move.after) & leaving
        assert len(set(move.after)) == len(move.after) == len(move.before)
        if racks and stays <= set(racks) and apart(tuple(stays), racks):
            assert apart(move.after, racks)
    shuffled_brokers, shuffled = list(brokers.items()), list(assignment.items())
    random.shuffle(shuffled_brokers)
    random.shuffle(shuffled)
    assert drain(dict(shuffled), dict(shuffled_brokers), leaving) == moves
    if all(len(replicas) <= len(brokers) for replicas in assignment.values()):
        assert rebalance(dict(shuffled), dict(shuffled_brokers)) == rebalance(assignment, brokers)


@settings(max_examples=150)
@given(clusters(most_brokers=5, most_partitions=4, most_replicas=3), st.sets(st.integers(0, 9), min_size=1, max_size=2))
def test_what_has_to_move_goes_where_it_makes_the_brokers_most_even(cluster, leaving):
    brokers, assignment = cluster
    brokers = dict.fromkeys(brokers)
    staying = sorted(broker for broker in brokers if broker not in leaving)
    assume(staying)
    assume(all(len(r) <= len({*staying, *(set(r) - leaving)}) for r in assignment.values()))
    found = after(assignment, drain(assignment, brokers, leaving))
    options = []
    for replicas in assignment.values():
        stays = tuple(each for each in replicas if each not in leaving)
        free = [broker for broker in staying if broker not in stays]
        options.append([(*stays, *new) for new in itertools.combinations(free, len(replicas) - len(stays))])
    placements = (dict(zip(assignment, chosen, strict=True)) for chosen in itertools.product(*options))
    assert spread_of(staying, found) == min(spread_of(staying, placed) for placed in placements)


@given(clusters(), st.integers(1, 5))
def test_another_replication_factor_keeps_who_may_stay(cluster, factor):
    brokers, assignment = cluster
    assume(all(factor <= len({*brokers, *replicas}) for replicas in assignment.values()))
    for move in change_replication_factor(assignment, brokers, factor):
        assert len(set(move.after)) == len(move.after) == factor
        if factor >= len(move.before):
            assert set(move.before) <= set(move.after)
            assert set(move.adding) <= set(brokers)
        else:
            assert set(move.after) <= set(move.before)
            live = [each for each in move.before if each in brokers]
            if live and move.before[0] in brokers and not racks_of(brokers):
                assert move.before[0] in move.after
