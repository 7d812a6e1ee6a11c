"""Numbers among a producer's settings: what Kafka's Java producer takes, and what the client here can do of it. Pure.

What Kafka takes is taken. Where the client's range is narrower the nearest value counts, and a warning says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

INT: Final = (1 << 31) - 1
LONG: Final = (1 << 63) - 1
_MEBIBYTE: Final = 1 << 20


class Range(msgspec.Struct, frozen=True):
    """Kafka's from `lowest` to `highest`, the client's from `least` to `most`.

    `instead` has values that mean the same to the client as others to Kafka; nothing has to be said about them.
    """

    lowest: int
    highest: int
    least: int
    most: int
    instead: Mapping[int, int] = {}

    def parse(self, text: str) -> tuple[int, bool]:
        """The number for the client, and whether it is another one than was asked for. Raises ValueError."""
        digits = text.removeprefix("-")
        number = int(text) if digits.isascii() and digits.isdecimal() and len(digits) < 20 else None
        if number is None or not self.lowest <= number <= self.highest:
            raise ValueError(f"a whole number from {self.lowest} to {self.highest} is expected")
        if number in self.instead:
            return self.instead[number], False
        counts = min(max(number, self.least), self.most)
        return counts, counts != number


_BUFFER: Final = Range(-1, INT, 0, 100_000_000, {-1: 0})
"""-1: as the operating system has it."""
_PAUSE: Final = Range(0, LONG, 1, 300_000)

RANGES: Final = {
    "batch.size": Range(0, INT, 1, INT, {0: 1}),
    "buffer.memory": Range(0, LONG, _MEBIBYTE, 1024 * _MEBIBYTE),
    "compression.gzip.level": Range(-1, 9, -1, 9),
    "compression.lz4.level": Range(1, 17, 1, 12),
    "compression.zstd.level": Range(-131_072, 22, 1, 12, {0: -1}),
    "connections.max.idle.ms": Range(-1, LONG, 0, INT, {-1: 0}),
    "delivery.timeout.ms": Range(1, INT, 1, INT),
    "linger.ms": Range(0, LONG, 0, 900_000),
    "max.block.ms": Range(0, LONG, 1, 3_600_000),
    "max.in.flight.requests.per.connection": Range(1, INT, 1, 1_000_000),
    "max.request.size": Range(0, INT, 1_000, 1_000_000_000),
    "metadata.max.age.ms": Range(0, LONG, 1, 86_400_000),
    "receive.buffer.bytes": _BUFFER,
    "reconnect.backoff.max.ms": Range(0, LONG, 0, 3_600_000),
    "reconnect.backoff.ms": Range(0, LONG, 0, 3_600_000),
    "request.timeout.ms": Range(0, INT, 10, 300_000),
    "retries": Range(0, INT, 0, INT),
    "retry.backoff.max.ms": _PAUSE,
    "retry.backoff.ms": _PAUSE,
    "send.buffer.bytes": _BUFFER,
    "socket.connection.setup.timeout.ms": Range(0, LONG, 1_000, INT),
}
"""By Kafka's name."""
