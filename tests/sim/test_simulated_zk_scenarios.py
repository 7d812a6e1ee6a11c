"""The simulated ZkSession does what the real one does: the scenarios of tests/integration/zk, in virtual time."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
from simulation.zookeeper.ensemble import Ensemble
from simulation.zookeeper.harness import Caller, ZkWorld
from simulation.zookeeper.link import ZkLink

from regency.runtime.zookeeper.session import SessionEvent

REAL = Path(__file__).resolve().parents[1] / "integration" / "zk"
ONLY_REAL = {
    "test_zk_operations": {
        "test_the_chroot_is_created_and_never_seen",
        "test_a_chroot_that_is_there_need_not_be_ours_to_create",
        "test_only_the_credentials_that_created_it_may_change_a_restricted_znode",
        "test_credentials_hold_after_a_reconnect_too",
        "test_what_may_not_be_read_is_an_error_that_names_the_znode",
        "test_twenty_thousand_states_are_read_by_a_few_dozen_requests",
    },
    "test_zk_sessions": {
        "test_no_server_there_is_an_error_that_names_the_hosts",
        "test_a_dead_server_among_several_is_passed_over",
        "test_many_threads_share_one_session",
        "test_a_starting_server_that_never_answers_a_connection_does_not_cost_the_session",
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


@pytest.fixture
def world() -> ZkWorld:
    return ZkWorld()


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
