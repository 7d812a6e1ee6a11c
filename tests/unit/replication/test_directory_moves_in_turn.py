"""Moves between directories: in turn, at their rate, over new leader epochs, cancelled at any time (KIP-113)."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from regency.broker_agent.log.errors import IndexInDoubt
from regency.broker_agent.replication.api import Role
from regency.model.ids import BrokerId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.model.settings.dynamic import ThrottleRates

TP, NEXT = TopicPartition("flights", 0), TopicPartition("flights", 1)


def limit(cluster, bytes_per_second: int) -> None:
    """Change the rate of broker 1 while it runs."""
    cluster.rates[BrokerId(1)] = ThrottleRates(moves=bytes_per_second)
    cluster[1].manager.on_throttles_changed()


def fill(cluster, records: int, partition: TopicPartition = TP, *, size: int = 500) -> None:
    """Records of broker 1, each a batch."""
    for _ in range(records):
        cluster[1].produce("x" * size, partition=partition)
    cluster.run()


def also_lead(cluster, partition: TopicPartition = NEXT) -> None:
    cluster.lead(1, (1, 2), replicas=(1, 2), partition=partition)
    fill(cluster, 3, partition)


def test_without_a_future_log_there_is_nothing_to_do_and_nobody_is_woken(moving) -> None:
    broker = moving[1]
    assert broker.move(broker.log().home.path) is ErrorCode.NONE
    moving.run()
    assert dict(broker.logs.futures.all()) == {}
    assert broker.timer.due is None or broker.timer.due > moving.clock.monotonic_ms()
    moving.advance(1_000, step=1)
    assert broker.values() == ["a", "b", "c"]


@pytest.mark.parametrize("rate", [700, 3_000, 1_000_000])
def test_no_more_is_copied_than_the_rate_allows_and_not_much_less(moving, rate: int) -> None:
    broker = moving[1]
    fill(moving, 60, size=10_000 if rate > 100_000 else 50)
    limit(moving, rate)
    target, size = broker.other_dir(), broker.log().size_bytes
    slice_size = max(min(rate, 256 * 1024), 12_000 if rate > 100_000 else 200)
    broker.move(target)
    began = moving.clock.monotonic_ms()
    while (future := broker.logs.futures.get(TP)) is not None:
        passed_ms = moving.clock.monotonic_ms() - began
        assert future.size_bytes * 1000 <= rate * passed_ms + 1000 * slice_size
        moving.advance(1, step=1)
    assert broker.log().home.path == target
    took_ms = moving.clock.monotonic_ms() - began
    assert (size - slice_size) * 1000 <= rate * took_ms <= (size + 2 * slice_size) * 1000 * 1.1


def test_a_slice_is_paid_for_to_the_last_millisecond(moving) -> None:
    fill(moving, 2, size=1_400)
    limit(moving, 1_000_000)
    broker = moving[1]
    broker.move(broker.other_dir())
    moving.run()
    copied, began = broker.logs.futures.get(TP).size_bytes, moving.clock.monotonic_ms()
    assert copied % 1000, "or nothing would be rounded"
    assert broker.timer.due - began == copied // 1000 + 1


def test_a_raised_rate_releases_a_move_at_once_and_a_lowered_one_holds_it_back(moving) -> None:
    broker = moving[1]
    fill(moving, 20)
    limit(moving, 1)
    target = broker.other_dir()
    broker.move(target)
    moving.advance(5_000, step=100)
    future = broker.logs.futures.get(TP)
    held = future.size_bytes
    assert 0 < held < 200, "a batch, which is paid for in minutes"
    limit(moving, 2_000)
    moving.advance(3_000, step=10)
    copied = future.size_bytes
    assert held + 3_000 < copied < held + 9_000
    limit(moving, 1)
    moving.advance(5_000, step=100)
    assert future.size_bytes <= copied + 600
    limit(moving, 1 << 40)
    moving.advance(100, step=1)
    assert broker.log().home.path == target


def test_a_rate_that_changes_where_nothing_moves_wakes_nobody(moving) -> None:
    moving.run()
    due = moving[1].timer.due
    limit(moving, 5)
    assert moving[1].timer.due == due


def test_one_partition_is_copied_at_a_time_in_the_order_of_their_names(moving) -> None:
    also_lead(moving)
    limit(moving, 2_000)
    fill(moving, 5)
    broker = moving[1]
    targets = {name: broker.other_dir(name) for name in (NEXT, TP)}
    for name, target in targets.items():
        broker.move(target, name)
    copied: list[tuple[TopicPartition, ...]] = []
    for _ in range(20_000):
        moving.advance(1, step=1)
        futures = broker.logs.futures.all()
        begun = tuple(sorted(name for name, log in futures.items() if log.log_end_offset > 0))
        if begun and (not copied or copied[-1] != begun):
            copied.append(begun)
        if not futures:
            break
    assert copied == [(TP,), (NEXT,)]
    assert {name: broker.log(name).home.path for name in targets} == targets


def test_one_whose_log_is_busy_is_asked_again_a_while_later_and_others_are_copied_meanwhile(
    moving, monkeypatch: pytest.MonkeyPatch
) -> None:
    also_lead(moving)
    broker = moving[1]
    targets = {name: broker.other_dir(name) for name in (NEXT, TP)}
    log, asked = broker.log(TP), list[int]()
    read = log.read

    def busy(*arguments, **others):
        asked.append(moving.clock.monotonic_ms())
        if len(asked) <= 5:
            raise IndexInDoubt(log.directory, "an index is built again")
        return read(*arguments, **others)

    monkeypatch.setattr(log, "read", busy)
    for name, target in targets.items():
        broker.move(target, name)
    for _ in range(300):
        moving.advance(1, step=1)
    assert broker.log(NEXT).home.path == targets[NEXT], "it is not held up"
    assert broker.log(TP).home.path != targets[TP]
    moving.advance(1_000, step=1)
    assert broker.log(TP).home.path == targets[TP]
    assert all(later - earlier >= 100 for earlier, later in pairwise(asked[:6]))


@pytest.mark.parametrize("trouble", ["a damaged batch", "a failed directory"])
def test_one_that_cannot_be_copied_does_not_stop_the_others(make_cluster, trouble: str) -> None:
    moving = make_cluster(brokers=2, directories=3)
    for name in (TP, NEXT):
        also_lead(moving, name)
    limit(moving, 700)
    broker = moving[1]
    homes = [broker.log(name).home.path for name in (TP, NEXT)]
    (target,) = set(broker.dirs) - set(homes)
    for name in (TP, NEXT):
        assert broker.move(target, name) is ErrorCode.NONE
    moving.advance(10, step=1)
    assert [broker.logs.futures.get(name).log_end_offset for name in (TP, NEXT)] == [1, 0]
    if trouble == "a failed directory":
        broker.log(TP).home.fail(OSError(errno.EIO, "Input/output error"))
    else:
        segment = broker.log(TP).directory / f"{0:020d}.log"
        content = bytearray(segment.read_bytes())
        content[-1] ^= 0xFF
        segment.write_bytes(content)
    moving.advance(20_000, step=10)
    assert broker.log(NEXT).home.path == target
    assert broker.log(TP).home.path == homes[0]
    assert broker.partition(TP).role is (Role.OFFLINE if trouble == "a failed directory" else Role.LEADER)
    assert broker.logs.futures.get(TP) is not None, "what was copied is kept"


@pytest.mark.parametrize("bumps", [0, 1, 10])
def test_a_move_goes_on_over_new_leader_epochs_and_so_does_the_next_one(moving, bumps: int) -> None:
    broker = moving[1]
    for _ in range(2):
        fill(moving, 12)
        limit(moving, 4_000)
        target, before = broker.other_dir(), moving.states[TP].leader_epoch
        broker.move(target)
        for _ in range(bumps):
            moving.advance(50, step=10)
            assert broker.logs.futures.get(TP) is not None
            moving.lead(1, (1, 2), replicas=(1, 2))
            fill(moving, 1)
        assert moving.states[TP].leader_epoch == before + bumps
        limit(moving, 1 << 40)
        moving.advance(100, step=5)
        assert broker.log().home.path == target
        assert broker.values() == moving[2].values()
        assert broker.log().epoch_entries == moving[2].log().epoch_entries
        assert moving.states[TP].isr == (1, 2)


@pytest.mark.parametrize("passed_ms", range(8))
def test_whenever_a_move_is_cancelled_there_is_one_log_and_no_future_one(moving, passed_ms: int) -> None:
    broker, source = moving[1], moving[1].log().home.path
    broker.move(broker.other_dir())
    for _ in range(passed_ms):
        moving.clock.advance(1)
        broker.run_due()
    broker.move(source)
    moving.advance(100, step=10)
    assert dict(broker.logs.futures.all()) == {}
    assert broker.log().home.path == source
    assert [path for path in broker.dirs if (path / str(TP)).exists()] == [source]
    assert broker.values() == ["a", "b", "c"]
    broker.produce("d")
    moving.advance(1_000)
    assert moving[2].values()[-1] == "d"
