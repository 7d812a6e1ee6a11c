"""A history written by hand, one line per operation, with clocks and numbers filled in."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from regency.judge.findings import Verdict
from regency.judge.operations import (
    ALL,
    UNKNOWN,
    Drained,
    FinalRead,
    ListedEnd,
    Operation,
    Outcome,
    Poll,
    Recreated,
    Run,
    Seek,
    Send,
    encode_operations,
)
from regency.judge.verdict import Allowed, judge
from regency.pipeline.jobs.judge import Row, Whole, judge_rows


class WrittenHistory:
    """Operations in the order of the calls, each beginning after the one before it has ended, 10 ms apiece."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self.now_ms = 0
        self._numbers: dict[tuple[object, ...], int] = {}

    def add(self, *operations: Operation) -> None:
        self.operations += operations

    def send(
        self,
        value: int,
        at: int | None = None,
        *,
        outcome: Outcome | None = None,
        client: str = "p",
        session: int = 0,
        acks: int = ALL,
        idempotent: bool = True,
        partition: int = 0,
        leader: int = UNKNOWN,
        attempts: int = 1,
        key: str = "",
        tombstone: bool = False,
        takes_ms: int = 5,
    ) -> None:
        """A send acknowledged at offset `at`; without it one that timed out, or what `outcome` says."""
        known = Outcome.INDETERMINATE if at is None else Outcome.ACKNOWLEDGED
        self.add(
            Send(
                client=client,
                session=session,
                number=self._number(client, session, partition),
                topic="t",
                partition=partition,
                value=value,
                acks=acks,
                idempotent=idempotent,
                invoked_ms=self._next(takes_ms),
                completed_ms=self.now_ms + takes_ms,
                outcome=outcome or known,
                offset=UNKNOWN if at is None else at,
                leader=leader,
                attempts=attempts,
                key=key,
                tombstone=tombstone,
            )
        )

    def poll(
        self,
        *runs: tuple[int, Sequence[int]],
        client: str = "c",
        session: int = 0,
        partition: int = 0,
        position: int | None = None,
        next_position: int | None = None,
        leader_epoch: int = UNKNOWN,
        topic_id: str = "",
    ) -> None:
        """A poll that gave runs of (offset, values); positions follow from them where not given."""
        first = runs[0][0] if runs else 0
        last = runs[-1][0] + len(runs[-1][1]) if runs else position or 0
        self.add(
            Poll(
                client=client,
                session=session,
                number=self._number(client, session, partition),
                topic="t",
                partition=partition,
                position=first if position is None else position,
                next_position=last if next_position is None else next_position,
                runs=tuple(Run(offset, tuple(values)) for offset, values in runs),
                invoked_ms=self._next(),
                completed_ms=self.now_ms + 5,
                leader_epoch=leader_epoch,
                topic_id=topic_id,
            )
        )

    def seek(self, position: int = UNKNOWN, *, client: str = "c", session: int = 0, partition: int = 0) -> None:
        number = self._number(client, session, partition)
        self.add(Seek(client, session, number, "t", partition, self._next(), position))

    def listed(self, end: int, *, leader_epoch: int = UNKNOWN, leader: int = UNKNOWN) -> None:
        self.add(ListedEnd("l", "t", 0, end, self._next(), self.now_ms + 5, leader_epoch, leader))

    def final(
        self,
        values: Sequence[int],
        *,
        start: int = 0,
        high_watermark: int | None = None,
        partition: int = 0,
        topic_id: str = "",
    ) -> None:
        end = start + len(values) if high_watermark is None else high_watermark
        runs = (Run(start, tuple(values)),) if values else ()
        self.add(FinalRead("t", partition, start, end, runs, self._next(), topic_id))

    def judge(self, allowed: Allowed = frozenset()) -> Verdict:
        """The verdict; it must not depend on the order of the records, nor on whether they are judged in pieces."""
        verdict = judge(self.operations, allowed)
        shuffled = random.Random(len(self.operations)).sample(self.operations, len(self.operations))
        assert judge(shuffled, allowed) == verdict
        if isinstance(allowed, frozenset):
            assert judge_rows(rows_of(shuffled), whole_of(shuffled), allow=allowed) == verdict
        return verdict

    def _next(self, takes_ms: int = 5) -> int:
        self.now_ms += max(10, takes_ms * 2)
        return self.now_ms

    def _number(self, *key: object) -> int:
        number = self._numbers.get(key, 0)
        self._numbers[key] = number + 1
        return number


def whole_of(operations: Sequence[Operation]) -> Whole:
    """What the job on Spark finds out about a history as a whole."""
    drained = [each.at_ms for each in operations if isinstance(each, Drained)]
    recreated: dict[str, list[Recreated]] = {}
    for each in operations:
        if isinstance(each, Recreated):
            recreated.setdefault(each.topic, []).append(each)
    final = any(isinstance(each, FinalRead) for each in operations)
    return Whole(final or bool(drained), min(drained, default=None), recreated)


def rows_of(operations: Sequence[Operation]) -> list[Row]:
    """What the job on Spark hands to a task that has all partitions: sorted by partition."""
    polls = [each for each in operations if isinstance(each, Poll)]
    since = whole_of(operations).drained_ms
    went_on = {(each.client, each.session) for each in polls if since is not None and each.invoked_ms >= since}
    rows = [
        Row(each.topic, each.partition, encode_operations([each]), None, None)
        for each in operations
        if not isinstance(each, Recreated | Drained)
    ]
    rows += [
        Row(each.topic, each.partition, None, each.client, each.session)
        for each in operations
        if isinstance(each, Poll | Seek) and (each.client, each.session) in went_on
    ]
    return sorted(rows, key=lambda row: (row.topic, row.partition))


@pytest.fixture
def history() -> WrittenHistory:
    return WrittenHistory()
