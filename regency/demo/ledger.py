"""What a workload sent, what was acknowledged and what came back: the books that prove nothing was lost.

Records are numbered by the workload from 0. Passive: times are handed in, nothing is sent or received here.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from itertools import islice
from zlib import crc32

import msgspec


class Verdict(msgspec.Struct, frozen=True):
    """The comparison of what was acknowledged with what was read back. Counts of records."""

    acked: int
    consumed: int
    """Different records read back."""
    lost: int
    """Acknowledged and not read back."""
    duplicated: int
    """Copies read back beyond the first."""
    reordered: int
    """Read back after a later record of the same key."""
    corrupted: int
    """Read back with other content than was sent, or never sent."""
    unavailable_ms: int
    """Longest time in which a produce to some partition could not be acknowledged."""

    @property
    def clean(self) -> bool:
        """Whether every acknowledged record came back once, unchanged and in order."""
        return not (self.lost or self.duplicated or self.reordered or self.corrupted)


class Outage(msgspec.Struct, frozen=True):
    """A time in which records for a partition waited and none was acknowledged. Seconds of the workload's clock."""

    partition: int
    began_s: float
    ended_s: float

    @property
    def milliseconds(self) -> int:
        """How long it lasted."""
        return round((self.ended_s - self.began_s) * 1000)


class Ledger:
    """Books about one run: `sent`, `acked` or `failed` while producing, `read` while consuming, then `verdict`."""

    def __init__(self) -> None:
        self._digests = array("L")
        self._acked = bytearray()
        self._seen = bytearray()
        self._last_of_key: dict[bytes, int] = {}
        self._last_ack_s: dict[int, float] = {}
        self._worst: dict[int, Outage] = {}
        self._failed: dict[str, int] = {}
        self._duplicated = self._reordered = self._corrupted = 0

    @property
    def sent_count(self) -> int:
        """Records handed to the producer so far."""
        return len(self._digests)

    @property
    def acked_count(self) -> int:
        """Records acknowledged so far."""
        return sum(self._acked)

    @property
    def failures(self) -> dict[str, int]:
        """Records the producer gave up on, by reason."""
        return dict(self._failed)

    def sent(self, key: bytes, value: bytes) -> int:
        """A record is about to be produced; returns its number."""
        self._digests.append(crc32(value, crc32(key)))
        self._acked.append(0)
        return len(self._digests) - 1

    def acked(self, number: int, partition: int, sent_s: float, now_s: float) -> None:
        """Record `number`, sent at `sent_s`, was acknowledged by `partition` at `now_s`."""
        self._acked[number] = 1
        began_s = max(self._last_ack_s.get(partition, sent_s), sent_s)
        self._last_ack_s[partition] = now_s
        worst = self._worst.get(partition)
        if worst is None or now_s - began_s > worst.ended_s - worst.began_s:
            self._worst[partition] = Outage(partition, began_s, now_s)

    def failed(self, reason: str) -> None:
        """The producer gave up on a record: it may or may not be in the log."""
        self._failed[reason] = self._failed.get(reason, 0) + 1

    def outages(self) -> list[Outage]:
        """The longest outage of each partition, by partition."""
        return [self._worst[partition] for partition in sorted(self._worst)]

    def read(self, number: int, key: bytes, value: bytes) -> None:
        """A record that carries `number` was read back."""
        if not 0 <= number < len(self._digests) or self._digests[number] != crc32(value, crc32(key)):
            self._corrupted += 1
            return
        if len(self._seen) < len(self._digests):
            self._seen.extend(bytes(len(self._digests) - len(self._seen)))
        if self._seen[number]:
            self._duplicated += 1
            return
        self._seen[number] = 1
        if number < self._last_of_key.get(key, -1):
            self._reordered += 1
        else:
            self._last_of_key[key] = number

    def unreadable(self) -> None:
        """A record came back without a number of ours."""
        self._corrupted += 1

    def missing(self, most: int = 5) -> list[int]:
        """Numbers of acknowledged records not read back, at most `most`."""
        return list(islice(self._lost_numbers(), most))

    def verdict(self) -> Verdict:
        """The comparison, once everything was read back."""
        return Verdict(
            acked=self.acked_count,
            consumed=sum(self._seen),
            lost=sum(1 for _ in self._lost_numbers()),
            duplicated=self._duplicated,
            reordered=self._reordered,
            corrupted=self._corrupted,
            unavailable_ms=max((outage.milliseconds for outage in self._worst.values()), default=0),
        )

    def _lost_numbers(self) -> Iterable[int]:
        seen = self._seen.ljust(len(self._acked), b"\0")
        return (number for number, acked in enumerate(self._acked) if acked and not seen[number])
