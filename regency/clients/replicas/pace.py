"""How fast replicas are read. Nothing is dropped: what came too fast is waited for afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from regency.model.clock import Clock, SystemClock
from regency.model.ids import BrokerId


class Pace:
    """At most `bytes_per_s` of all replicas together, from the first byte on: what was not used is not saved up."""

    def __init__(
        self,
        bytes_per_s: int,
        *,
        clock: Clock = SystemClock(),  # noqa: B008 - has no state
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.bytes_per_s = bytes_per_s
        self._clock = clock
        self._sleep = sleep
        self._due_ms = 0

    def answer_bytes(self, brokers: int) -> int:
        """How much to ask each of so many brokers for at once, so that it is no more than is allowed in a second."""
        return max(1, self.bytes_per_s // max(1, brokers))

    def pay(self, sizes: Mapping[BrokerId, int]) -> None:
        """So many bytes came, by broker."""
        size = sum(sizes.values())
        self._due_ms = max(self._due_ms, self._clock.monotonic_ms()) - (-size * 1000 // self.bytes_per_s)

    @property
    def pause_s(self) -> float:
        """How long nothing may be asked for yet."""
        return max(0, self._due_ms - self._clock.monotonic_ms()) / 1000

    def wait(self) -> None:
        """Wait until more may be asked for."""
        while (pause_s := self.pause_s) > 0:
            self._sleep(pause_s)


class BrokerPace:
    """At most `bytes_per_s` of each broker, which its own entry says; one entry at least. All wait for the slowest."""

    def __init__(
        self,
        bytes_per_s: Mapping[BrokerId, int],
        *,
        clock: Clock = SystemClock(),  # noqa: B008 - has no state
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._least = min(bytes_per_s.values())
        self._paces = {broker: Pace(rate, clock=clock, sleep=sleep) for broker, rate in bytes_per_s.items()}

    @property
    def pause_s(self) -> float:
        """How long nothing may be asked for yet."""
        return max(pace.pause_s for pace in self._paces.values())

    def wait(self) -> None:
        """Wait until more may be asked for."""
        for pace in self._paces.values():
            pace.wait()

    def answer_bytes(self, brokers: int) -> int:  # noqa: ARG002  (of each, whatever the others give)
        """How much to ask each broker for at once, so that it is no more than is allowed in a second."""
        return max(1, self._least)

    def pay(self, sizes: Mapping[BrokerId, int]) -> None:
        """So many bytes came, by broker."""
        for broker, size in sizes.items():
            self._paces[broker].pay({broker: size})


Pacing = Pace | BrokerPace
"""When, and how much, brokers may be asked for."""
