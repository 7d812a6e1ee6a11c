"""The simulated ZkSession does what the real one does: the scenarios of tests/integration/zk, played in virtual time.

Then what only a simulation can arrange: servers that lag, requests executed late, processes that pause and die.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from simulation.kernel.scheduler import SECOND_US, Process, Scheduler
from simulation.zookeeper.ensemble import Ensemble
from simulation.zookeeper.link import ZkLink
from simulation.zookeeper.session_port import SimZkSession, check_size

from regency.runtime.zk_ops import encode_ops
from regency.runtime.zk_session import (
    Check,
    Create,
    Delete,
    SessionEvent,
    SetData,
    WatchEvent,
    WatchEventType,
    WatchMode,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkRequestTooLarge,
    ZkSessionLost,
)

CONNECTED, SUSPENDED, LOST = SessionEvent.CONNECTED, SessionEvent.SUSPENDED, SessionEvent.LOST
REAL = Path(__file__).resolve().parents[1] / "integration" / "zk"
ONLY_REAL = {
    "test_zk_operations": {
        "test_the_chroot_is_created_and_never_seen",
        "test_only_the_credentials_that_created_it_may_change_a_restricted_znode",
        "test_credentials_hold_after_a_reconnect_too",
        "test_what_may_not_be_read_is_an_error_that_names_the_znode",
        "test_twenty_thousand_states_are_read_by_a_few_dozen_requests",
    },
    "test_zk_sessions": {
        "test_no_server_there_is_an_error_that_names_the_hosts",
        "test_a_dead_server_among_several_is_passed_over",
        "test_many_threads_share_one_session",
    },
    "test_zk_watches": {"test_thousands_of_watches_are_armed_again_in_chunks"},
    "test_fenced_writes": {"test_a_write_that_never_arrived_is_sent_again"},
}
"""Scenarios that look into the real adapter, or at what the simulation leaves out (chroot, ACLs, addresses)."""


def _take_over(module_name: str) -> None:
    spec = importlib.util.spec_from_file_location(f"real_{module_name}", REAL / f"{module_name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in vars(module).items():
        fixture = type(value).__name__ == "FixtureFunctionDefinition"
        if fixture or (name.startswith("test_") and name not in ONLY_REAL[module_name]):
            globals()[name] = value


for each in ONLY_REAL:
    _take_over(each)


class World:
    """An ensemble, and sessions of one process each. Calls run as actors, and virtual time runs while they wait."""

    def __init__(self, seed: int = 1, **options: Any) -> None:
        self.scheduler = Scheduler(seed)
        self.ensemble = Ensemble(self.scheduler, **options)
        self.processes = 0

    def run(self, milliseconds: int) -> None:
        self.scheduler.run_until(self.scheduler.now_us + milliseconds * 1000)

    def until(self, condition: Callable[[], Any], *, within: float = 60.0, what: str = "") -> Any:
        end = self.scheduler.now_us + int(within * SECOND_US)
        while not (value := condition()):
            assert self.scheduler.now_us < end, f"not within {within:g} s: {what}\n" + "\n".join(
                self.scheduler.trace.last()
            )
            self.run(1)
        return value

    def call(self, process: Process, work: Callable[[], Any]) -> Any:
        """What `work` returns or raises as an actor of `process`."""
        ended: list[tuple[Any, BaseException | None]] = []

        def run() -> None:
            try:
                ended.append((work(), None))
            except (ZkError, ValueError, RuntimeError) as error:
                ended.append((None, error))

        self.scheduler.spawn(process, "call", run)
        self.until(lambda: ended, what="the end of a call")
        value, error = ended[0]
        if error is not None:
            raise error
        return value

    def open(self, link: ZkLink | None = None, *, timeout_ms: int = 6000, **options: Any) -> Caller:
        self.processes += 1
        process = Process(self.scheduler, f"process-{self.processes}")
        link = link or ZkLink(self.scheduler)
        session = self.call(
            process,
            lambda: SimZkSession.connect(
                self.scheduler, process, self.ensemble, link, session_timeout_ms=timeout_ms, **options
            ),
        )
        return Caller(self, process, session, link)


class Caller:
    """A session whose calls a test can make, although a test is no actor."""

    def __init__(self, world: World, process: Process, session: SimZkSession, link: ZkLink) -> None:
        self.world = world
        self.process = process
        self.real = session
        self.link = link
        self.events: list[tuple[SessionEvent, int]] = []
        session.listen(lambda event, generation: self.events.append((event, generation)))

    def __getattr__(self, name: str) -> Any:
        value = getattr(self.real, name)
        if not callable(value) or self.real._state.in_callback:
            return value
        return lambda *args, **options: self.world.call(self.process, lambda: value(*args, **options))

    def begin(self, work: Callable[[], Any]) -> list[Any]:
        """Let an actor do `work`; what it returned or raised is in the list once it has."""
        outcome: list[Any] = []

        def run() -> None:
            try:
                outcome.append(work())
            except ZkError as error:
                outcome.append(error)

        self.world.scheduler.spawn(self.process, "call", run)
        return outcome


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def eventually(world):
    return world.until


class Proxy:
    """What the integration tests do to a TCP proxy, done to a ZkLink."""

    port = "through the proxy"

    def __init__(self, link: ZkLink) -> None:
        self._link = link

    def reset_all(self) -> None:
        self._link.reset()

    def refuse(self) -> None:
        self._link.reset()
        self._link.cut()

    def black_hole(self) -> None:
        self._link.cut()

    def half_open(self) -> None:
        self._link.cut(there=False)

    def lose_next_reply(self, _: object) -> None:
        self._link.lose_next_reply()

    def heal(self) -> None:
        self._link.heal()

    @property
    def lost_replies(self) -> int:
        return self._link.lost_replies


class Breakable:
    """A ZooKeeper that pauses, stops and starts."""

    port = "breakable"

    def __init__(self, ensemble: Ensemble, link: ZkLink) -> None:
        self._ensemble = ensemble
        self._link = link

    def pause(self) -> None:
        self._link.cut()

    def resume(self) -> None:
        self._link.heal()

    def stop(self) -> None:
        for number in range(3):
            self._ensemble.stop_server(number)

    def start(self) -> None:
        for number in range(3):
            self._ensemble.start_server(number)


@pytest.fixture
def links(world) -> dict[str, ZkLink]:
    return {Proxy.port: ZkLink(world.scheduler), Breakable.port: ZkLink(world.scheduler)}


@pytest.fixture
def proxy(links) -> Proxy:
    return Proxy(links[Proxy.port])


@pytest.fixture
def breakable(world, links) -> Breakable:
    return Breakable(world.ensemble, links[Breakable.port])


@pytest.fixture
def new_session(world, links):
    def start(*, port: str = "", session_timeout_ms: int = 6000) -> Caller:
        return world.open(links.get(port), timeout_ms=session_timeout_ms)

    for tree in (world.ensemble.model.tree, *(server.tree for server in world.ensemble.model.servers)):
        for path in ("/zookeeper/config", "/zookeeper/quota", "/zookeeper"):  # the real ones have a chroot
            tree.put(path, None)
    return start


@pytest.fixture
def session(new_session, proxy) -> Caller:
    return new_session(port=proxy.port)


class _Observed:
    def __init__(self, caller: Caller) -> None:
        self.events: list[tuple[SessionEvent, int]] = []
        caller.real.listen(lambda event, generation: self.events.append((event, generation)))

    def has(self, event: SessionEvent, generation: int) -> bool:
        return (event, generation) in self.events


@pytest.fixture
def observe():
    return _Observed


@pytest.fixture
def expire():
    return lambda caller: caller.link.expire()


# What only a simulation can arrange


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
        world = World(seed)
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
    world = World(usual_lag_us=0)
    callers = [world.open() for _ in range(12)]
    servers = [caller.real._state._wire.server.server for caller in callers]
    model = world.ensemble.model
    assert {server.number for server in servers} == {0, 1, 2}
    behind = callers[[server is model.leader for server in servers].index(False)]
    ahead = callers[[server is model.leader for server in servers].index(True)]
    slow = behind.real._state._wire.server.server
    slow.lags = True
    world.ensemble.lag(slow.number, 3_000_000)
    ahead.multi([Create("/a", b"1")])
    assert behind.read("/a") is None
    behind.sync("/a")
    assert behind.read("/a").data == b"1"
    behind.multi([SetData("/a", b"2", 0)])
    assert behind.read("/a").data == b"2"
    ahead.multi([SetData("/a", b"3", 1)])
    assert behind.read("/a").data == b"2"


def test_an_event_comes_when_its_server_applies_the_commit_and_before_a_read_that_shows_it():
    world = World(usual_lag_us=0)
    callers = [world.open() for _ in range(12)]
    leader = world.ensemble.model.leader
    behind = next(each for each in callers if each.real._state._wire.server.server is not leader)
    ahead = next(each for each in callers if each.real._state._wire.server.server is leader)
    seen: list[WatchEvent] = []
    behind.watch("/a", WatchMode.PERSISTENT_RECURSIVE, seen.append)
    slow = behind.real._state._wire.server.server
    slow.lags = True
    world.ensemble.lag(slow.number, 500_000)
    ahead.multi([Create("/a"), Create("/a/b")])
    read = behind.read("/a")
    assert (read is None) == (not seen)
    world.until(lambda: behind.read("/a/b") is not None)
    assert [(event.type, event.path) for event in seen] == [
        (WatchEventType.CREATED, "/a"),
        (WatchEventType.CREATED, "/a/b"),
    ]


def test_a_server_behind_what_the_session_has_seen_refuses_it(world):
    model = world.ensemble.model
    caller = world.open()
    caller.multi([Create("/a")])
    seen = caller.real._state.seen_zxid
    for server in model.servers[1:]:
        server.lags = True
    world.ensemble.lag(1, 10**9)
    world.ensemble.lag(2, 10**9)
    model.multi(caller.real._state._wire.server.session, [Create("/b")])
    assert seen >= 2
    assert model.connect(model.servers[1], caller.session_id, model.zxid, 6000, 0) is None
    assert model.connect(model.servers[0], caller.session_id, model.zxid, 6000, 0) is not None


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


def test_a_call_of_a_process_that_dies_ends_with_it(world):
    caller = world.open()
    outcome = caller.begin(lambda: caller.real.read("/"))
    caller.process.kill()
    world.run(1000)
    assert outcome == []


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


def test_a_path_that_no_znode_can_have_is_an_error(world):
    caller = world.open()
    with pytest.raises(ZkError, match="-8"):
        caller.multi([Create("/a\x01")])
    with pytest.raises(ValueError, match="not an absolute path"):
        caller.multi([Create("a")])


def test_many_actors_share_one_session(world):
    caller = world.open()

    def write(number: int) -> bool:
        for index in range(20):
            assert caller.real.multi([Create(f"/t{number}-{index}", b"0")]).ok
            assert caller.real.multi([SetData(f"/t{number}-{index}", b"1", 0)]).results[0].code is ZkCode.OK
        return True

    outcomes = [caller.begin(lambda number=number: write(number)) for number in range(8)]
    world.until(lambda: all(outcomes))
    assert len(caller.children("/").names) == 161


def test_a_seed_determines_a_run_with_faults():
    def run() -> tuple[int, int]:
        world = World(7)
        world.scheduler.trace.on = True
        callers = [world.open(timeout_ms=3000) for _ in range(4)]
        for number in range(30):
            caller = callers[number % 4]
            chance = world.scheduler.random.random()
            if chance < 0.2:
                caller.link.reset()
            elif chance < 0.4:
                caller.link.expire()
            outcome = caller.begin(lambda: caller.real.multi([Create(f"/{number}", ephemeral=True)]))  # noqa: B023
            world.until(lambda: outcome)  # noqa: B023
            world.run(300)
        return world.scheduler.trace.digest, world.scheduler.trace.count

    assert run() == run()
