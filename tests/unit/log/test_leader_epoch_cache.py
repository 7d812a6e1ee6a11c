"""The rules of the leader epoch cache, one by one; entries are (epoch, start offset)."""

from __future__ import annotations

import pytest

from regency.broker_agent.log.leader_epoch_cache import LeaderEpochCache
from regency.kafka.logfiles.checkpoints import read_epochs
from regency.runtime.disk import OsDisk


@pytest.fixture
def cache(tmp_path):
    return LeaderEpochCache(OsDisk(), tmp_path / "leader-epoch-checkpoint")


def filled(cache, *entries):
    for epoch, start in entries:
        cache.assign(epoch, start)
    return cache


def end_of(cache, epoch, log_end):
    answer = cache.end_offset_for(epoch, log_end)
    return answer.leader_epoch, answer.end_offset


@pytest.mark.parametrize(
    ("assigned", "kept"),
    [
        ([(2, 10)], [(2, 10)]),
        ([(2, 9), (2, 10)], [(2, 9)]),
        ([(2, 6), (2, 7)], [(2, 6)]),
        ([(2, 9), (3, 9)], [(3, 9)]),
        ([(1, 5), (2, 6), (1, 7)], [(1, 7)]),
        ([(2, 6), (3, 5)], [(3, 5)]),
        ([(5, 11), (6, 12), (7, 13), (7, 12)], [(5, 11), (7, 12)]),
        ([(0, 0), (1, 0)], [(1, 0)]),
        ([(1, 11), (1, 12), (2, 13), (2, 14), (3, 15), (3, 16)], [(1, 11), (2, 13), (3, 15)]),
    ],
)
def test_epochs_and_start_offsets_rise_together(cache, assigned, kept):
    assert list(filled(cache, *assigned).entries) == kept
    assert read_epochs(OsDisk(), cache.path) == kept


@pytest.mark.parametrize(
    ("entries", "log_end", "asked", "answer"),
    [
        ([(2, 10)], 11, 2, (2, 11)),
        ([(2, 11), (3, 12)], 14, 3, (3, 14)),
        ([(2, 11), (3, 12)], 14, -1, (-1, -1)),
        ([], 7, 0, (-1, -1)),
        ([], 7, -1, (-1, -1)),
        ([(5, 11), (6, 12), (7, 13)], 20, 4, (4, 11)),
        ([(5, 11), (7, 12)], 20, 5, (5, 12)),
        ([(5, 11), (7, 12)], 20, 6, (5, 12)),
        ([(1, 11), (2, 13), (3, 15)], 17, 2, (2, 15)),
        ([(0, 10), (2, 13), (4, 17)], 20, 1, (0, 13)),
        ([(0, 10), (2, 13), (4, 17)], 20, 2, (2, 17)),
        ([(0, 10), (2, 13), (4, 17)], 20, 3, (2, 17)),
        ([(2, 100)], 100, 3, (-1, -1)),
        ([(2, 6)], 7, 2, (2, 7)),
        ([(1, 0)], 0, 1, (1, 0)),
        ([(1, 0)], 0, 0, (0, 0)),
    ],
)
def test_an_epoch_ends_where_the_next_known_one_begins(cache, entries, log_end, asked, answer):
    assert end_of(filled(cache, *entries), asked, log_end) == answer


@pytest.mark.parametrize(
    ("offset", "kept"),
    [
        (8, [(2, 6)]),
        (9, [(2, 6), (3, 8)]),
        (11, [(2, 6), (3, 8)]),
        (12, [(2, 6), (3, 8), (4, 11)]),
        (-1, [(2, 6), (3, 8), (4, 11)]),
        (0, []),
    ],
)
def test_cutting_the_end_drops_epochs_that_begin_there_or_later(cache, offset, kept):
    filled(cache, (2, 6), (3, 8), (4, 11)).truncate_from_end(offset)
    assert list(cache.entries) == kept == read_epochs(OsDisk(), cache.path)


@pytest.mark.parametrize(
    ("entries", "offset", "kept"),
    [
        ([(2, 6), (3, 8), (4, 11)], 8, [(3, 8), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 9, [(3, 9), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 1, [(2, 6), (3, 8), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 6, [(2, 6), (3, 8), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 7, [(2, 7), (3, 8), (4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 11, [(4, 11)]),
        ([(2, 6), (3, 8), (4, 11)], 15, [(4, 15)]),
        ([(2, 6), (3, 8), (4, 11)], -1, [(2, 6), (3, 8), (4, 11)]),
        ([(0, 0), (1, 7), (2, 10)], 5, [(0, 5), (1, 7), (2, 10)]),
        ([], 5, []),
    ],
)
def test_cutting_the_start_moves_the_epoch_it_falls_into(cache, entries, offset, kept):
    filled(cache, *entries).truncate_from_start(offset)
    assert list(cache.entries) == kept


def test_a_follower_that_sees_every_batch_knows_every_boundary(cache):
    log_end = 0
    for epoch in (0, 1, 2):
        for _ in range(3):
            cache.assign(epoch, log_end)
            log_end += 1
            assert end_of(cache, epoch, log_end) == (epoch, log_end)
    assert [end_of(cache, epoch, 9) for epoch in (0, 1, 2)] == [(0, 3), (1, 6), (2, 9)]
    assert [cache.epoch_at(offset) for offset in (0, 2, 3, 8, 100)] == [0, 0, 1, 2, 2]


def test_a_leader_that_is_elected_again_and_again_knows_every_end(cache):
    filled(cache, (0, 0), (1, 0))
    assert (cache.latest, end_of(cache, 1, 0), end_of(cache, 0, 0)) == (1, (1, 0), (0, 0))
    assert end_of(cache, 1, 5) == (1, 5)
    cache.assign(2, 5)
    assert [end_of(cache, epoch, 10) for epoch in (2, 1, 0)] == [(2, 10), (1, 5), (0, 0)]


def test_another_cache_over_the_same_file_has_the_same_epochs(cache):
    filled(cache, (2, 6), (4, 9))
    again = LeaderEpochCache(OsDisk(), cache.path, read_epochs(OsDisk(), cache.path))
    assert again.entries == cache.entries == ((2, 6), (4, 9))


def test_an_empty_cache_knows_nothing(cache):
    assert (cache.latest, cache.entries, cache.epoch_at(3)) == (None, (), None)
    cache.truncate_from_end(3)
    cache.truncate_from_start(3)
    assert not cache.forget()
    assert not cache.path.exists()


def test_what_is_forgotten_stands_in_the_file_until_it_is_saved(cache):
    assert filled(cache, (1, 1), (2, 2)).forget()
    assert (cache.entries, read_epochs(OsDisk(), cache.path)) == ((), [(1, 1), (2, 2)])
    cache.save()
    assert read_epochs(OsDisk(), cache.path) == []


def test_negative_epochs_are_a_mistake(cache):
    with pytest.raises(ValueError, match="cannot begin"):
        cache.assign(-1, 0)


def test_every_change_is_told_and_nothing_else(cache):
    written = []
    cache.on_written = lambda: written.append(cache.entries)
    filled(cache, (1, 5), (1, 6), (2, 9))
    cache.truncate_from_end(20)
    assert written == [((1, 5),), ((1, 5), (2, 9))]
