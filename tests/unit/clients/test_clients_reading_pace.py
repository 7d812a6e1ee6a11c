"""Reading replicas no faster than is allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from fake_replicas import T0, TOPIC_ID, a_batch, states, three

from regency.clients.replicas.pace import BrokerPace, Pace
from regency.clients.replicas.reading import Partition, PartitionResult, read_and_compare
from regency.kafka.fetching.values import FetchPartition
from regency.model.clock import ManualClock
from regency.model.ids import BrokerId, TopicPartition

pytestmark = pytest.mark.usefixtures("no_pause")


class Paced:
    """A wire whose brokers heed `max_bytes`, and time that passes only where it is waited for."""

    def __init__(self, rate: int, *, batches: int = 20, value: bytes = b"v" * 100) -> None:
        self.clock = ManualClock()
        self.rate = rate
        self.wire = three(most=1)
        for log in self.wire.logs.values():
            log.batches = {offset: a_batch(offset, value=value) for offset in range(batches)}
            log.end = log.mark = batches
        self.size = sum(len(batch) for log in self.wire.logs.values() for batch in log.batches.values())
        self.hung_up = 0
        self.most: list[int] = []
        self.came: list[tuple[int, int]] = []
        """When, and how many bytes."""

    def fetch(self, wanted: Mapping[BrokerId, Sequence[FetchPartition]], *, max_bytes: int) -> dict[Any, Any]:
        self.most.append(max_bytes * len(wanted))
        found = self.wire.fetch(wanted, max_bytes=max_bytes)
        self.came.append((self.clock.monotonic_ms(), sum(len(fetched.records) for fetched in found.values())))
        return found

    def starts(self, wanted: Mapping[BrokerId, Sequence[TopicPartition]]) -> dict[Any, Any]:
        return self.wire.starts(wanted)

    def hang_up(self) -> None:
        self.hung_up += 1

    def verify(self) -> list[PartitionResult]:
        places = {BrokerId(broker): log.place() for (broker, _), log in self.wire.logs.items()}
        pace = Pace(self.rate, clock=self.clock, sleep=lambda seconds: self.clock.advance(round(seconds * 1000)))
        return list(
            read_and_compare(
                self,  # type: ignore[arg-type]
                [Partition(T0, TOPIC_ID, 1, places)],
                patience_s=0,
                on_progress=lambda _: None,
                pace=pace,
            )
        )


@pytest.mark.parametrize("rate", [700, 5_000])
def test_no_more_is_read_than_is_allowed_and_not_much_less(rate: int) -> None:
    paced = Paced(rate)
    began = paced.clock.monotonic_ms()
    assert states(paced.verify()) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    round_size = paced.came[0][1]
    read = 0
    for at, size in paced.came:
        assert read * 1000 <= rate * (at - began)
        read += size
    assert read == paced.size
    took_ms = paced.came[-1][0] - began
    assert took_ms <= (paced.size - round_size) * 1000 / rate + len(paced.came)
    assert set(paced.most) == {rate // 3 * 3}, "no answer is larger than what is allowed in a second"
    assert paced.hung_up == 0


def test_time_in_which_nothing_was_read_is_not_saved_up() -> None:
    clock = ManualClock()
    pace = Pace(100, clock=clock)
    pace.pay({BrokerId(1): 50})
    assert pace.pause_s == 0.5
    clock.advance(60_000)
    assert pace.pause_s == 0
    pace.pay({BrokerId(1): 200})
    assert pace.pause_s == 2
    pace.pay({BrokerId(1): 1})
    assert pace.pause_s == 2.01


def test_connections_do_not_rest_longer_than_brokers_let_them() -> None:
    paced = Paced(10, batches=3)
    assert states(paced.verify()) == [{1: "agrees", 2: "agrees", 3: "agrees"}]
    assert paced.hung_up == 2, "before each but the first"


def test_a_throttle_below_one_byte_for_each_broker_still_asks_for_something() -> None:
    assert [Pace(rate).answer_bytes(3) for rate in (1, 3, 9)] == [1, 1, 3]


def test_each_broker_has_a_pace_of_its_own_and_all_wait_for_the_slowest() -> None:
    clock = ManualClock()
    slow, fast = BrokerId(1), BrokerId(2)
    pace = BrokerPace({slow: 100, fast: 1_000}, clock=clock, sleep=lambda seconds: clock.advance(round(seconds * 1000)))
    assert pace.answer_bytes(2) == 100
    pace.pay({fast: 500})
    assert pace.pause_s == 0.5
    pace.pay({slow: 200, fast: 100})
    assert pace.pause_s == 2
    pace.wait()
    assert (clock.monotonic_ms(), pace.pause_s) == (2_000, 0)
