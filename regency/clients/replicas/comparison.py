"""Compares the replicas of one partition while their batches come in, in whatever pieces. Pure.

Two replicas agree on a batch when place, leader epoch, size and checksum are the same: the checksum covers the rest.
Of a compacted partition batches may differ, and their records are judged (`compacted`).
Only offsets that a replica has are compared: from its log start to where it could be read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from itertools import islice
from typing import Final

from regency.clients.replicas.compacted import Batch, CompactedLogs
from regency.model.ids import BrokerId

_BORDERS: Final = 500
"""How many batches are looked at for where another may begin: enough to get over some damage, and soon done."""


class Divergence:
    """Offsets on which replicas differ; `first` is what each has where it begins, None for nothing there."""

    __slots__ = ("first", "from_offset", "to_offset")

    def __init__(self, from_offset: int, to_offset: int, first: dict[BrokerId, Batch | None]) -> None:
        self.from_offset = from_offset
        self.to_offset = to_offset
        self.first = first

    def overlaps(self, other: Divergence) -> bool:
        """Whether the two have offsets in common."""
        return self.from_offset <= other.to_offset and other.from_offset <= self.to_offset


class _Replica:
    __slots__ = ("ended", "next_offset", "pending", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.next_offset = start
        self.pending: deque[Batch] = deque()
        self.ended = False

    def covers(self, batch: Batch) -> bool:
        """Whether it should have a batch at these offsets."""
        first = max(self.start, batch.base_offset)
        return first <= batch.last_offset and (not self.ended or first < self.next_offset)


class Comparison:
    """`starts` are the replicas' log starts."""

    def __init__(
        self, starts: dict[BrokerId, int], *, is_compacted: bool = False, suspected: Collection[int] | None = None
    ) -> None:
        """`suspected`: offsets of a compacted partition that differed at a first look; only these count now."""
        self._compacted = CompactedLogs(suspected) if is_compacted else None
        self._replicas = {broker: _Replica(start) for broker, start in starts.items()}
        self.divergences: list[Divergence] = []
        self.differs: set[BrokerId] = set()
        """Replicas that have something else than most, or than the first of as many."""
        self.agreed = 0
        """Batches that two replicas or more have alike."""

    def next_offset(self, broker: BrokerId) -> int:
        """Where the replica is to be read on."""
        return self._replicas[broker].next_offset

    def wants(self, broker: BrokerId) -> bool:
        """Whether the replica's next batches are needed."""
        replica = self._replicas[broker]
        return not replica.ended and not replica.pending

    def borders(self, offset: int) -> list[int]:
        """Where batches above `offset` begin, in the replica of which most came that is not compared yet; the next."""
        most = max((replica.pending for replica in self._replicas.values()), key=len)
        return [batch.last_offset + 1 for batch in islice(most, _BORDERS) if batch.last_offset >= offset]

    def take(self, broker: BrokerId, batches: Iterable[Batch]) -> None:
        """The replica's next batches."""
        replica = self._replicas[broker]
        for batch in batches:
            replica.pending.append(batch)
            replica.next_offset = batch.last_offset + 1

    def pass_to(self, broker: BrokerId, offset: int) -> None:
        """The replica has nothing more below `offset`."""
        replica = self._replicas[broker]
        replica.next_offset = max(replica.next_offset, offset)

    def skip_to(self, broker: BrokerId, start: int) -> None:
        """The replica cannot be read below, or begins there by now; only where all that came of it was compared."""
        replica = self._replicas[broker]
        assert not replica.pending
        replica.start = max(replica.start, start)
        replica.next_offset = max(replica.next_offset, start)

    def end(self, broker: BrokerId) -> None:
        """No more will come of this replica."""
        self._replicas[broker].ended = True

    def advance(self) -> None:
        """Compare as far as all that are still read have batches."""
        while True:
            heads = [replica.pending[0] for replica in self._replicas.values() if replica.pending]
            if not heads:
                return
            lowest = min(heads)
            group = {broker: replica for broker, replica in self._replicas.items() if replica.covers(lowest)}
            if any(not replica.pending and not replica.ended for replica in group.values()):
                return
            self._compare(lowest, group)

    def finish(self) -> None:
        """Nothing more comes: of a compacted partition it is known now what a replica lacks."""
        if self._compacted is not None:
            spans = {broker: range(each.start, each.next_offset) for broker, each in self._replicas.items()}
            for offset, there, differs in self._compacted.differences(spans):
                self.differs |= differs
                self._add(offset, offset, there)

    def _compare(self, lowest: Batch, group: dict[BrokerId, _Replica]) -> None:
        there = {broker: replica.pending[0] if replica.pending else None for broker, replica in group.items()}
        if all(batch == lowest for batch in there.values()):
            self.agreed += len(group) > 1
            if self._compacted is not None:
                self._compacted.alike(group, lowest)
            for replica in group.values():
                replica.pending.popleft()
            return
        end = min(batch.last_offset for batch in there.values() if batch is not None)
        over = {broker: batch for broker, batch in there.items() if batch is not None and batch.last_offset <= end}
        for broker in over:
            group[broker].pending.popleft()
        if self._compacted is None or not self._compacted.differing(over):
            self._differ(lowest.base_offset, end, there)

    def _differ(self, start: int, end: int, there: dict[BrokerId, Batch | None]) -> None:
        held = list(there.values())
        usual = max(held, key=held.count)
        self.differs.update(broker for broker, batch in there.items() if batch != usual)
        self._add(start, end, there)

    def _add(self, start: int, end: int, there: dict[BrokerId, Batch | None]) -> None:
        last = self.divergences[-1] if self.divergences else None
        if last is not None and start <= last.to_offset + 1 and last.first.keys() == there.keys():
            last.to_offset = max(last.to_offset, end)
        else:
            shown = {
                broker: None if batch is None or batch.base_offset > end else batch._replace(data=None)
                for broker, batch in there.items()
            }
            self.divergences.append(Divergence(start, end, shown))
