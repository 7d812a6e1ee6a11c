"""What a cleaning knows of transactions while it passes their batches and markers (KIP-98; Kafka's
CleanedTransactionMetadata). And `.txnindex`: the aborted transactions of a segment.
"""

from __future__ import annotations

import heapq
import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

from regency.kafka.record_batch import BatchHeader, Buffer
from regency.model.ids import Offset

_ENTRY = struct.Struct(">hqqqq")
_VERSION: Final = 0
_MARKER_KEY = struct.Struct(">hh")


class AbortedTransaction(NamedTuple):
    """An entry of `.txnindex`, in order of the first offset."""

    first_offset: Offset
    producer_id: int
    last_offset: Offset
    last_stable_offset: Offset


class MarkerType(IntEnum):
    """What ends a transaction; OTHER for control records of later Kafkas."""

    ABORT = 0
    COMMIT = 1
    OTHER = -1


def marker_type(key: Buffer) -> MarkerType:
    """The type that the key of a control record says."""
    number = _MARKER_KEY.unpack_from(key)[1] if len(key) >= _MARKER_KEY.size else -1
    return MarkerType(number) if number in (0, 1) else MarkerType.OTHER


def read_aborted(content: bytes) -> list[AbortedTransaction]:
    """The entries of a `.txnindex`. Raises ValueError where it is none."""
    if len(content) % _ENTRY.size:
        raise ValueError(f"{len(content)} bytes are no whole entries")
    found = []
    for version, producer_id, first, last, stable in _ENTRY.iter_unpack(content):
        if version != _VERSION:
            raise ValueError(f"an entry has the version {version}, not {_VERSION}")
        found.append(AbortedTransaction(Offset(first), producer_id, Offset(last), Offset(stable)))
    return found


def format_aborted(transactions: Iterable[AbortedTransaction]) -> bytes:
    """Content of a `.txnindex`."""
    return b"".join(
        _ENTRY.pack(_VERSION, each.producer_id, each.first_offset, each.last_offset, each.last_stable_offset)
        for each in transactions
    )


class Transactions:
    """Which transactions are under way at the batch that is looked at, and whether any of their batches was seen."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = list(aborted)
        heapq.heapify(self._coming)
        self._committed: set[int] = set()
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self.retained: list[AbortedTransaction] = []
        """Aborted transactions some of whose batches are still there: for the new `.txnindex`."""

    def pass_data(self, header: BatchHeader) -> bool:
        """Whether a batch of data is of an aborted transaction, and must go."""
        self._reach(header.last_offset)
        if not header.is_transactional:
            return False
        under_way = self._aborted.get(header.producer_id)
        if under_way is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (under_way[0], True)
        return True

    def pass_marker(self, header: BatchHeader, kind: MarkerType | None) -> bool:
        """Whether a marker may go, as nothing is left of its transaction. `kind` is None where it has no record."""
        self._reach(header.last_offset)
        if kind is None:
            return True
        if kind is MarkerType.ABORT:
            transaction, was_seen = self._aborted.pop(header.producer_id, (None, False))
            if transaction is not None and was_seen:
                self.retained.append(transaction)
                return False
            return True
        if kind is MarkerType.COMMIT:
            was_seen = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not was_seen
        return False

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[0].first_offset <= offset:
            transaction = heapq.heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, (transaction, False))
