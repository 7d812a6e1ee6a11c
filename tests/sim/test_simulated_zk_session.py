"""What only a simulation can arrange of ZooKeeper: servers that lag, requests executed late, processes that sleep."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from simulation.zookeeper.harness import ZkWorld
from simulation.zookeeper.session_port import check_size

from regency.runtime.zookeeper.ops import encode_ops
from regency.runtime.zookeeper.session import (
    Check,
    Create,
    Delete,
    SessionEvent,
    SetData,
    ZkConnectionLost,
    ZkRequestTooLarge,
    ZkSessionLost,
)

CONNECTED, SUSPENDED, LOST = SessionEvent.CONNECTED, SessionEvent.SUSPENDED, SessionEvent.LOST


@pytest.fixture
def world() -> ZkWorld:
    return ZkWorld()


def test_a_multi_is_as_large_as_the_real_one():
    big, path = bytes(1000), "/a/\u00fc\u20ac"
    for op in (
        Create(path, big),
        Create(path, ephemeral=True),
        SetData(path, big, 3),
        Delete(path, None),
        Check(path, 7),
    ):
        one = len(encode_ops([op], "", restrict=False)) - 9
        filler = 512 * 1024 - one - 48 - 9
        check_size([op, SetData("/f", bytes(filler - 11), 0)])
        for size in range(filler - 20, filler + 60):
            ops = [op, SetData("/f", bytes(size), 0)]
            assert _refused(lambda: check_size(ops)) == _refused(lambda: encode_ops(ops, "", restrict=False))  # noqa: B023


def _refused(work: Callable[[], object]) -> bool:
    try:
        work()
    except ZkRequestTooLarge:
        return True
    return False


def test_a_request_lost_on_its_way_is_not_executed(world):
    caller = world.open()
    caller.link.lose_next_request()
    with pytest.raises(ZkConnectionLost, match="sync, then read"):
        caller.multi([Create("/a")], generation=1)
    caller.sync("/")
    assert caller.read("/a") is None
    assert caller.generation == 1


def test_a_reset_leaves_requests_under_way_executed_or_not(world):
    caller = world.open()
    for executed in (False, True):
        path = f"/{executed}"
        outcome = caller.begin(lambda: caller.real.multi([Create(path)]))  # noqa: B023
        world.scheduler.run_until(world.scheduler.now_us + 10)
        caller.link.reset(executed=executed)
        world.until(lambda: outcome)  # noqa: B023
        assert isinstance(outcome[0], ZkConnectionLost)
        caller.sync("/")
        assert (caller.read(path) is not None) is executed


def test_a_write_that_was_given_up_may_be_executed_when_the_network_heals():
    executed = set()
    for seed in range(8):
        world = ZkWorld(seed)
        caller, other = world.open(timeout_ms=3000), world.open()
        caller.link.cut()
        with pytest.raises(ZkConnectionLost):
            caller.multi([Create("/late")])
        assert other.read("/late") is None
        caller.link.heal()
        world.run(400)
        world.until(lambda: caller.real.connected)  # noqa: B023
        other.sync("/")
        executed.add(other.read("/late") is not None)
    assert executed == {False, True}


def test_a_lagging_server_shows_the_past_until_sync_and_own_writes_at_once():
    world = ZkWorld(usual_lag_us=0)
    callers = [world.open() for _ in range(12)]
    servers = [caller.real._state._wire.server.server for caller in callers]
    model = world.ensemble.model
    assert {server.number for server in servers} == {0, 1, 2}
    behind = callers[[server is model.leader for server in servers].index(False)]
    ahead = callers[[server is model.leader for server in servers].index(True)]
    slow = behind.real._state._wire.server.server
    world.ensemble.lag(slow.number, 3_000_000)
    ahead.multi([Create("/a", b"1")])
    assert behind.read("/a") is None
    behind.sync("/a")
    assert behind.read("/a").data == b"1"
    behind.multi([SetData("/a", b"2", 0)])
    assert behind.read("/a").data == b"2"
    ahead.multi([SetData("/a", b"3", 1)])
    assert behind.read("/a").data == b"2"


def test_a_paused_process_loses_its_session_and_writes_nothing_when_it_wakes_up(world):
    sleeper, other = world.open(timeout_ms=3000), world.open()
    sleeper.multi([Create("/ruler", ephemeral=True)])
    sleeper.process.pause()
    world.until(lambda: other.read("/ruler") is None, within=6)
    outcome = sleeper.begin(lambda: sleeper.real.multi([Create("/stale")], generation=1))
    sleeper.process.resume()
    world.until(lambda: outcome)
    assert isinstance(outcome[0], ZkSessionLost | ZkConnectionLost)
    world.until(lambda: (CONNECTED, 2) in sleeper.events)
    assert other.read("/stale") is None


def test_a_session_outlives_its_process_by_its_timeout(world):
    caller, other = world.open(timeout_ms=3000), world.open()
    caller.multi([Create("/me", ephemeral=True)])
    died_us = world.scheduler.now_us
    caller.process.kill()
    world.run(2000)
    assert other.read("/me") is not None
    world.until(lambda: other.read("/me") is None, within=5)
    assert world.scheduler.now_us - died_us >= 2_500_000


def test_a_clock_that_runs_fast_gives_the_session_up_early(world):
    caller = world.open(timeout_ms=3000)
    caller.process.clock.drift(2_000_000)
    caller.link.cut()
    cut_us = world.scheduler.now_us
    world.until(lambda: (LOST, 1) in caller.events, within=3)
    assert world.scheduler.now_us - cut_us <= 1_600_000


def test_the_end_of_the_leader_suspends_everybody_and_loses_nothing(world):
    callers = [world.open() for _ in range(4)]
    callers[0].multi([Create("/a", b"1"), Create("/mine", ephemeral=True)])
    world.ensemble.stop_server(0)
    world.until(lambda: all((SUSPENDED, 1) in caller.events for caller in callers))
    world.until(lambda: all(caller.real.connected for caller in callers))
    callers[1].sync("/")
    assert callers[1].read("/a").data == b"1"
    assert [caller.generation for caller in callers] == [1] * 4
    world.ensemble.heal()
    assert callers[0].multi([SetData("/a", b"2", 0)], generation=1).ok


def test_two_followers_down_end_all_service_until_one_is_back(world):
    caller = world.open(timeout_ms=6000)
    world.ensemble.stop_server(1)
    world.ensemble.stop_server(2)
    world.until(lambda: (LOST, 1) in caller.events)
    world.ensemble.start_server(2)
    world.until(lambda: (CONNECTED, 2) in caller.events)


def test_every_commit_is_told_in_order_with_what_it_wrote_and_checked(world):
    told: list[object] = []
    world.ensemble.on_commit(
        lambda txn: told.extend((txn.zxid, write.kind, write.path, write.data, txn.checks) for write in txn.writes)
    )
    caller = world.open()
    zxid = world.ensemble.model.zxid
    caller.multi([Check("/", None), Create("/a", b"1")])
    caller.multi([Create("/b"), Check("/none", 3)])
    caller.multi([SetData("/a", b"2", 0), Delete("/a", 1)])
    assert told == [
        (zxid + 1, "create", "/a", b"1", [("/", None)]),
        (zxid + 3, "set", "/a", b"2", []),
        (zxid + 3, "delete", "/a", b"", []),
    ]


def test_an_administrator_writes_and_deletes_past_everybody(world):
    caller = world.open()
    assert world.ensemble.write_as_admin("/a", b"1")
    assert world.ensemble.write_as_admin("/a", b"2")
    caller.sync("/")
    assert caller.read("/a").stat.version == 1
    assert world.ensemble.delete_as_admin("/a")
    assert not world.ensemble.delete_as_admin("/a")
    assert world.ensemble.read("/a") is None
