from __future__ import annotations

from regency.broker_agent.listener.apis.services import AnswerCache


def test_an_answer_is_kept_until_the_snapshot_changes() -> None:
    cache = AnswerCache(100)
    cache.put(1, "key", b"answer")

    assert cache.get(1, "key") == b"answer"
    assert cache.get(2, "key") is None


def test_a_newer_snapshot_drops_the_answers_of_the_older() -> None:
    cache = AnswerCache(100)
    cache.put(1, "old", b"old")
    cache.put(2, "new", b"new")

    assert (cache.get(2, "old"), cache.get(2, "new")) == (None, b"new")


def test_the_least_recently_used_answer_goes_when_the_bytes_are_too_many() -> None:
    cache = AnswerCache(10)
    cache.put(1, "a", bytes(4))
    cache.put(1, "b", bytes(4))
    cache.get(1, "a")
    cache.put(1, "c", bytes(4))

    assert [cache.get(1, key) is not None for key in "abc"] == [True, False, True]


def test_an_answer_larger_than_the_cache_is_not_kept() -> None:
    cache = AnswerCache(10)
    cache.put(1, "a", bytes(4))
    cache.put(1, "b", bytes(11))

    assert [cache.get(1, key) is not None for key in "ab"] == [True, False]


def test_an_answer_put_twice_counts_once() -> None:
    cache = AnswerCache(10)
    cache.put(1, "a", bytes(6))
    cache.put(1, "a", bytes(6))
    cache.put(1, "b", bytes(4))

    assert [cache.get(1, key) is not None for key in "ab"] == [True, True]
