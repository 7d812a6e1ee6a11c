"""A fetcher that cuts off thousands of logs: a slice in each step, and no fetch before the disk knows of the cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from regency.broker_agent.log.errors import CutNotPrepared
from regency.broker_agent.replication.fetcher import fetcher_logic
from regency.broker_agent.replication.fetcher.fetcher_logic import FetcherLogic
from regency.kafka.fetching.values import (
    EpochEndOffset,
    FetchedPartition,
    FetcherLimits,
    FetchPlan,
    FetchReply,
    ListedOffset,
    OffsetsReply,
    Pause,
)
from regency.model.clock import ManualClock
from regency.model.ids import BrokerEpoch, LeaderEpoch, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

NAMES = [TopicPartition("t", number) for number in range(75)]
OUT_OF_RANGE = FetchedPartition(ErrorCode.OFFSET_OUT_OF_RANGE)


class Slowly:
    """A fetcher of many partitions, whose logs are settled when the test says so."""

    def __init__(self, make_replica) -> None:
        self.clock = ManualClock()
        self.waiting: list[tuple[list[TopicPartition], Callable[[], None]]] = []
        limits = FetcherLimits(10_000, 1_000, 1, 500, 1_000)
        self.logic = FetcherLogic("fetcher", limits, lambda: BrokerEpoch(77), self.clock, self.settle)
        self.replicas = {name: make_replica(name, 0) for name in NAMES}
        for replica in self.replicas.values():
            self.logic.add(replica, LeaderEpoch(1))
            replica.truncate_fully_and_start_at = lambda offset, _, replica=replica: self.start_over(replica, offset)

    def start_over(self, replica, offset: int) -> None:
        replica.epochs, replica.log_start_offset, replica.is_settled = [], offset, False
        self.clock.advance(self.costs_ms)

    costs_ms = 0

    def settle(self, names: Iterable[TopicPartition], then: Callable[[], None]) -> None:
        self.waiting.append((list(names), then))

    def settled(self) -> None:
        names, then = self.waiting.pop(0)
        for name in names:
            self.replicas[name].is_settled = True
        then()

    def fetched(self, answers: dict[TopicPartition, FetchedPartition]) -> None:
        self.logic.on_reply(self.logic.next(0), FetchReply(ErrorCode.NONE, 5, list(answers.items())), 0)

    def listed(self, offset: int) -> None:
        answers = [(name, ListedOffset(ErrorCode.NONE, -1, Offset(offset))) for name in NAMES]
        self.logic.on_reply(self.logic.next(0), OffsetsReply(answers), 0)

    def begin_to_start_over(self) -> None:
        """All are out of range of a leader that begins at 6, and its answer has come."""
        self.fetched(dict.fromkeys(NAMES, OUT_OF_RANGE))
        self.listed(9)
        self.listed(6)

    def asked(self) -> list[TopicPartition]:
        plan = self.logic.next(0)
        assert isinstance(plan, FetchPlan), plan
        return [entry.topic_partition for entry in plan.partitions]

    @property
    def begun_anew(self) -> int:
        return sum(replica.log_start_offset == 6 for replica in self.replicas.values())


@pytest.fixture
def slowly(make_replica) -> Slowly:
    return Slowly(make_replica)


def test_a_step_cuts_off_some_logs_and_has_them_settled_together(slowly: Slowly) -> None:
    slowly.begin_to_start_over()
    begun = [slowly.begun_anew]
    while slowly.logic.next(0) == Pause(0):
        slowly.logic.go_on(0)
        begun.append(slowly.begun_anew)
    assert begun == [32, 64, 75]
    assert [len(names) for names, _ in slowly.waiting] == [32, 32, 11]
    assert slowly.logic.next(0) == Pause(None), "nobody is asked for what is not settled"
    slowly.settled()
    assert slowly.asked() == NAMES[:32]


def test_a_step_ends_when_it_has_taken_its_time(slowly: Slowly) -> None:
    slowly.costs_ms = 4
    slowly.begin_to_start_over()
    assert slowly.begun_anew == 3
    slowly.logic.go_on(0)
    assert slowly.begun_anew == 6


def test_also_appends_let_others_in(slowly: Slowly, monkeypatch: pytest.MonkeyPatch) -> None:
    append = type(slowly.replicas[NAMES[0]]).append_fetched
    monkeypatch.setattr(
        type(slowly.replicas[NAMES[0]]), "append_fetched", lambda *args: (slowly.clock.advance(1), append(*args))
    )
    slowly.fetched(dict.fromkeys(NAMES, FetchedPartition(ErrorCode.NONE, Offset(0), Offset(0), b"\x01")))
    assert sum(replica.log_end_offset == 2 for replica in slowly.replicas.values()) == 10
    assert slowly.logic.next(0) == Pause(0)


def test_who_is_settled_late_and_followed_no_more_or_in_another_epoch_is_left_alone(slowly: Slowly) -> None:
    slowly.begin_to_start_over()
    removed, again = NAMES[:2]
    slowly.logic.remove(removed)
    slowly.logic.remove(again)
    slowly.logic.add(slowly.replicas[again], LeaderEpoch(2))
    slowly.logic.go_on(0)
    slowly.logic.go_on(0)
    slowly.settled()
    assert slowly.asked() == NAMES[2:32], "the one waits for its own turn, the other is not followed"
    late = next(number for number, (names, _) in enumerate(slowly.waiting) if again in names)
    slowly.waiting = [slowly.waiting[late]]
    slowly.settled()
    assert again in slowly.asked()


def test_the_rest_of_a_reply_of_another_incarnation_is_not_taken_in(slowly: Slowly) -> None:
    slowly.begin_to_start_over()
    slowly.logic.restart()
    slowly.logic.go_on(0)
    assert slowly.begun_anew == 32
    plan = slowly.logic.next(0)
    assert (plan.timestamp, [name for name, _ in plan.partitions]) == (-2, NAMES[32:]), "they are asked for again"


def test_a_cut_that_the_disk_must_hear_of_first_is_made_then_without_asking_again(slowly: Slowly) -> None:
    diverging = FetchedPartition(ErrorCode.NONE, diverging=EpochEndOffset(LeaderEpoch(0), Offset(0)))
    heard: set[TopicPartition] = set()

    def truncate_to(replica, offset: int) -> None:
        if replica.topic_partition not in heard:
            heard.add(replica.topic_partition)
            raise CutNotPrepared("not yet")
        del replica.epochs[offset:]

    for replica in slowly.replicas.values():
        replica.truncate_to = lambda offset, replica=replica: truncate_to(replica, offset)
    slowly.fetched(dict.fromkeys(NAMES, diverging))
    while slowly.logic.next(0) == Pause(0):
        slowly.logic.go_on(0)
    assert (len(heard), [len(names) for names, _ in slowly.waiting]) == (75, [32, 32, 11])
    slowly.settled()
    assert [replica.log_end_offset for replica in slowly.replicas.values()] == [0] * 32 + [1] * 43
    assert slowly.asked() == NAMES[:32]


def test_after_its_end_no_cut_is_tried_again(slowly: Slowly) -> None:
    """A log that was closed meanwhile is never prepared, and who wants that is answered at once."""

    def truncate_to(offset: int) -> None:
        raise CutNotPrepared(f"not yet: {offset}")

    for replica in slowly.replicas.values():
        replica.truncate_to = truncate_to
    slowly.fetched({NAMES[0]: FetchedPartition(ErrorCode.NONE, diverging=EpochEndOffset(LeaderEpoch(0), Offset(0)))})
    slowly.logic.close()
    slowly.settled()
    assert slowly.waiting == []


def test_a_fetcher_goes_on_by_itself(slowly: Slowly, monkeypatch: pytest.MonkeyPatch) -> None:
    woken: list[str] = []
    slowly.logic.on_settled = lambda: woken.append("settled")
    monkeypatch.setattr(fetcher_logic, "_CUTS_AT_ONCE", 1_000)
    slowly.begin_to_start_over()
    assert woken == []
    slowly.settled()
    assert woken == ["settled"]
