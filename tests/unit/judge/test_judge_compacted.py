"""Histories of compacted partitions: what may be missing there is judged by keys, and nothing else is excused."""

from __future__ import annotations

import pytest

from regency.judge.operations import Compacted, Drained, FinalRead, LossyCrash, Run, UncleanElection
from regency.judge.parts import allowed_by_partition
from regency.judge.table import Anomaly, Configuration
from regency.model.ids import TopicPartition


def finally_(history, *runs: tuple[int, list[int]], end: int) -> None:
    history.add(FinalRead("t", 0, 0, end, tuple(Run(at, tuple(values)) for at, values in runs), history.now_ms + 10))


@pytest.fixture
def compacted(history):
    """Keys a, b, a, b at offsets 0 to 3, then an a at 4."""
    history.add(Compacted("t", 0))
    for value, key in enumerate("ababa"):
        history.send(value, value, key=key)
    return history


def kinds(history) -> set[Anomaly]:
    return set(history.judge().counts)


def test_a_record_may_go_that_has_a_later_one_of_its_key(compacted):
    finally_(compacted, (1, [1]), (3, [3, 4]), end=5)
    assert kinds(compacted) == set()


def test_the_last_record_of_a_key_may_not_go(compacted):
    finally_(compacted, (4, [4]), end=5)
    assert kinds(compacted) == {Anomaly.LOST_WRITE}
    (finding,) = [each for each in compacted.judge().findings if 3 in each.offsets]
    assert finding.anomaly is Anomaly.LOST_WRITE


def test_nor_one_without_a_key(compacted):
    compacted.send(5, 5)
    compacted.send(6, 6, key="a")
    finally_(compacted, (3, [3]), (6, [6]), end=7)
    assert kinds(compacted) == {Anomaly.LOST_WRITE}


def test_a_tombstone_may_go_and_all_of_its_key_before_it(compacted):
    compacted.send(5, 5, key="b", tombstone=True)
    finally_(compacted, (4, [4]), end=6)
    assert kinds(compacted) == set()


def test_what_was_sent_after_a_tombstone_may_not_go(compacted):
    compacted.send(5, 5, key="b", tombstone=True)
    compacted.send(6, 6, key="b")
    finally_(compacted, (4, [4]), end=7)
    assert kinds(compacted) == {Anomaly.LOST_WRITE}


def test_another_record_at_its_offset_is_never_excused(compacted):
    compacted.send(9, 9, key="z")
    finally_(compacted, (0, [9]), (1, [1]), (3, [3, 4]), end=5)
    assert Anomaly.LOST_WRITE in kinds(compacted)


def test_nothing_may_be_missing_of_a_partition_that_is_not_compacted(history):
    for value, key in enumerate("aa"):
        history.send(value, value, key=key)
    finally_(history, (1, [1]), end=2)
    assert kinds(history) == {Anomaly.LOST_WRITE}


def test_a_hole_that_nobody_knows_of_is_one_only_where_nothing_is_compacted(history):
    history.send(1, 0)
    history.send(2, 5)
    finally_(history, (0, [1]), (5, [2]), end=6)
    assert kinds(history) == {Anomaly.HOLE_IN_LOG}
    history.add(Compacted("t", 0))
    assert kinds(history) == set()


def test_a_poll_passes_over_what_went_and_over_nothing_else(compacted):
    compacted.poll((1, [1]), (3, [3, 4]), position=0)
    finally_(compacted, (1, [1]), (3, [3, 4]), end=5)
    assert kinds(compacted) == set()
    compacted.poll((1, [1]), (4, [4]), position=0, client="d")
    assert kinds(compacted) == {Anomaly.SKIPPED_POLL}


def test_a_poll_passes_over_what_another_leader_which_is_not_compacted_so_far_still_has(compacted):
    compacted.poll((3, [3, 4]), position=0)
    compacted.poll((0, [0, 1, 2, 3, 4]), position=0, client="d")
    finally_(compacted, (0, [0, 1, 2, 3, 4]), end=5)
    assert kinds(compacted) == set()
    compacted.send(5, 5)
    compacted.send(6, 6)
    compacted.poll((6, [6]), position=5)
    compacted.poll((5, [5, 6]), position=5, client="d")
    assert Anomaly.SKIPPED_POLL in kinds(compacted)


@pytest.mark.parametrize("befell", [UncleanElection("t", 0, 0), LossyCrash("t", 0, 0, 3, 3)])
def test_a_poll_of_a_log_that_was_lost_may_pass_over_what_the_next_log_has(compacted, befell):
    compacted.send(5, 5)
    compacted.send(7, 7)
    compacted.poll((7, [7]), position=5)
    finally_(compacted, (0, [0, 1, 2, 3, 4, 5]), end=6)

    def allowed() -> bool:
        by_partition = allowed_by_partition(compacted.operations, Configuration())
        return by_partition[TopicPartition("t", 0)].allows(Anomaly.SKIPPED_POLL, None)

    assert Anomaly.SKIPPED_POLL in kinds(compacted)
    assert not allowed()
    compacted.add(befell)
    assert allowed()


def test_who_has_read_the_last_record_need_not_go_on_to_an_end_that_is_empty(compacted):
    compacted.poll((1, [1]), (3, [3, 4]), position=0)
    compacted.add(Drained(compacted.now_ms))
    compacted.poll(position=5)
    finally_(compacted, (1, [1]), (3, [3, 4]), end=8)
    assert kinds(compacted) == set()


def test_a_skipped_send_is_excused_by_a_later_one_of_its_key(history):
    history.add(Compacted("t", 0))
    history.send(0, 0, key="a")
    history.send(1, key="b")  # no answer
    history.send(2, 2, key="b")
    finally_(history, (0, [0]), (2, [2]), end=3)
    assert kinds(history) == set()


def test_without_a_final_read_a_poll_passes_over_what_nobody_read(compacted):
    compacted.poll((1, [1]), (3, [3, 4]), position=0)
    assert kinds(compacted) == set()
    compacted.poll((4, [4]), position=3, client="d")
    assert kinds(compacted) == {Anomaly.SKIPPED_POLL}


def test_below_the_final_log_start_too(compacted):
    compacted.poll((1, [1]), (3, [3, 4]), position=0)
    compacted.add(FinalRead("t", 0, 4, 5, (Run(4, (4,)),), compacted.now_ms + 10))
    assert kinds(compacted) == set()


def test_a_record_that_was_written_twice_excuses_what_is_before_the_second_time(history):
    history.add(Compacted("t", 0))
    history.send(0, 0, key="a", idempotent=False)
    history.send(1, 1, key="a")
    history.poll((0, [0, 1]), position=0)
    finally_(history, (2, [0]), end=3)
    assert Anomaly.LOST_WRITE not in kinds(history)


def test_a_second_attempt_that_went_before_anybody_read_it_is_not_misplaced(history):
    history.add(Compacted("t", 0))
    history.send(0, 1, key="a", idempotent=False)
    history.send(1, 2, key="a")
    history.poll((0, [0]), position=0)
    finally_(history, (2, [1]), end=3)
    assert Anomaly.MISPLACED_WRITE not in kinds(history)
