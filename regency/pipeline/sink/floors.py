"""Where reading back must begin so that nothing of a batch is missed: the ends of the topics before its first attempt.

The driver keeps them beside the checkpoint (state.py) before any task of the batch begins. A floor may be too low,
which costs reading, and never too high: so a batch that finds floors of an earlier attempt keeps them, and one that
cannot tell whether there were any takes those of the batch before. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec

from regency.pipeline.errors import BatchBehindSink
from regency.pipeline.sink.identity import WriteId


class TopicFloors(msgspec.Struct, frozen=True):
    """Offset to read back from by partition; 0 for partitions that are not named, which were added since."""

    topic_id: UUID
    ends: dict[int, int]

    def of(self, topic_id: UUID, partition: int) -> int:
        """The floor of a partition; 0 when the topic was made again since: an attempt may have written all of it."""
        return self.ends.get(partition, 0) if topic_id == self.topic_id else 0


Floors = Mapping[str, TopicFloors]
"""By topic."""


class DoneBatch(msgspec.Struct, frozen=True):
    """The last batch whose tasks all finished: Spark may still repeat it, until it has noted the same."""

    query: UUID
    batch: int
    floors: dict[str, TopicFloors]


class SinkState(msgspec.Struct, frozen=True):
    """What the driver keeps. `pending` are floors of the batch that began last and is not known to be done."""

    number: int = 0
    """Grows with every change."""
    pending: dict[str, TopicFloors] | None = None
    done: DoneBatch | None = None


class WritePlan(msgspec.Struct, frozen=True):
    """What the tasks of a batch hear of attempts before theirs. Travels with them."""

    floors: dict[str, TopicFloors]
    begun: bool
    """Whether tasks of an earlier attempt may have begun under these floors."""
    planned_ms: int
    """Wall clock of the driver: tells this plan from others, and is compared with no other clock."""
    done: DoneBatch | None = None

    def for_write(self, write: WriteId) -> tuple[Floors, bool]:
        """Floors of a batch, and whether an earlier attempt of it may have written.

        A done batch that is repeated has the floors it was done with, and for topics that were chosen since those of
        this repetition. Batches come one after another: where the one before this is not the one that is done, the
        state is older than the checkpoint, and this one may have been attempted since. Raises BatchBehindSink for a
        batch older than one that is done.
        """
        done = self.done
        if done is None or done.query != write.query or write.batch == done.batch + 1:
            return self.floors, self.begun
        if write.batch > done.batch:
            return (self.floors if self.begun else _not_above(done, self.floors)), True
        if write.batch == done.batch:
            return {**self.floors, **done.floors}, True
        raise BatchBehindSink(
            f"Batch {write.batch} of query {write.query} was written before, and so were later ones up to {done.batch}:"
            " the checkpoint was set back.",
            hint="What earlier attempts wrote can only be found for the last batch. To write it all again, remove"
            " sinks/regency from the checkpoint; readers will see those rows twice.",
        )


def begin(state: SinkState, ends: Floors, *, doubtful: bool = False) -> tuple[SinkState, bool]:
    """The state when a batch begins now and topics end at `ends`, and whether an attempt of it may have begun before.

    Floors that are there stay: `ends` may leave out their topics. `doubtful`: a state after this one may be lost, which
    may have been that of a batch that had begun.
    """
    if state.pending is None:
        floors = _not_above(state.done, ends) if doubtful else dict(ends)
        return msgspec.structs.replace(state, number=state.number + 1, pending=floors), doubtful
    pending = {**ends, **state.pending}
    if pending == state.pending:
        return state, True
    return msgspec.structs.replace(state, number=state.number + 1, pending=pending), True


def _not_above(done: DoneBatch | None, ends: Floors) -> dict[str, TopicFloors]:
    """Floors of the topics of `ends` for a batch after `done`: where that began, else the beginning of the topic."""
    before = {} if done is None else done.floors
    return {topic: before.get(topic, TopicFloors(now.topic_id, {})) for topic, now in ends.items()}


def finish(state: SinkState, write: WriteId) -> SinkState:
    """The state when every task of `write` has finished.

    Of a batch that is done again the older floors stay, and those of topics that were chosen since come to them: it may
    be repeated once more. What is pending stays, too: the next batch may have begun before this one was repeated.
    """
    done, floors = state.done, state.pending or {}
    if done is not None and done.query == write.query and done.batch == write.batch:
        again = DoneBatch(write.query, write.batch, {**floors, **done.floors})
        return msgspec.structs.replace(state, number=state.number + 1, done=again)
    done = DoneBatch(write.query, write.batch, floors)
    return msgspec.structs.replace(state, number=state.number + 1, pending=None, done=done)
