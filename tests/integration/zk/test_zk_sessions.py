"""Sessions that end, pause and return: what callers see of it, and that nothing is written that should not be."""

from __future__ import annotations

import socket
import threading

import pytest

from regency.runtime.zookeeper.session import (
    Create,
    SessionEvent,
    SetData,
    WatchMode,
    ZkCode,
    ZkConnectionLost,
    ZkError,
    ZkSessionLost,
)

pytestmark = pytest.mark.integration

CONNECTED, SUSPENDED, LOST = SessionEvent.CONNECTED, SessionEvent.SUSPENDED, SessionEvent.LOST


def is_multi(data: bytes) -> bool:
    return data[8:12] == b"\0\0\0\x0e"


def test_an_expired_session_is_lost_once_and_followed_by_a_new_generation(session, observe, expire, eventually):
    seen = observe(session)
    old_id = session.session_id
    expire(session)
    eventually(lambda: seen.has(CONNECTED, 2), what="a session of generation 2")
    assert seen.events == [(SUSPENDED, 1), (LOST, 1), (CONNECTED, 2)]
    assert session.generation == 2
    assert session.connected
    assert session.session_id not in (0, old_id)


def test_ephemerals_of_an_expired_session_are_gone_and_the_new_one_can_create_them_again(
    session, observe, expire, eventually
):
    seen = observe(session)
    assert session.multi([Create("/me", ephemeral=True)], generation=1).ok
    expire(session)
    eventually(lambda: seen.has(CONNECTED, 2), what="a session of generation 2")
    assert session.read("/me") is None
    assert session.multi([Create("/me", ephemeral=True)], generation=2).ok
    owner = session.read("/me").stat.ephemeral_owner
    assert owner == session.session_id


def test_a_write_of_an_older_generation_is_refused_and_not_sent(session, observe, expire, eventually):
    seen = observe(session)
    expire(session)
    eventually(lambda: seen.has(CONNECTED, 2), what="a session of generation 2")
    with pytest.raises(ZkSessionLost):
        session.multi([Create("/stale")], generation=1)
    with pytest.raises(ZkSessionLost):
        session.multi_pipelined([[Create("/stale")]], generation=1)
    assert session.read("/stale") is None


def test_three_expiries_in_a_row_give_three_new_sessions(session, observe, expire, eventually):
    seen = observe(session)
    for generation in (2, 3, 4):
        expire(session)
        eventually(lambda: seen.has(CONNECTED, generation), what=f"a session of generation {generation}")  # noqa: B023
        assert session.multi([Create(f"/after-{generation}")], generation=generation).ok
    assert [event for event, _ in seen.events] == [SUSPENDED, LOST, CONNECTED] * 3
    assert session.children("/").names == ("after-2", "after-3", "after-4")


def test_lost_comes_while_zookeeper_is_still_paused(breakable, new_session, observe, eventually):
    session = new_session(port=breakable.port, session_timeout_ms=1500)
    seen = observe(session)
    breakable.pause()
    eventually(lambda: seen.has(LOST, 1), what="LOST while ZooKeeper is paused")
    assert seen.events == [(SUSPENDED, 1), (LOST, 1)]
    with pytest.raises(ZkSessionLost):
        session.multi([Create("/stale")], generation=1)
    with pytest.raises(ZkSessionLost):
        session.read("/stale")
    breakable.resume()
    eventually(lambda: seen.has(CONNECTED, 2), what="a session of generation 2")
    assert seen.events[2:] == [(CONNECTED, 2)]
    assert session.read("/stale") is None


def test_a_write_under_way_when_zookeeper_is_paused_ends_with_an_unknown_outcome(breakable, new_session, observe):
    session = new_session(port=breakable.port, session_timeout_ms=1500)
    breakable.pause()
    with pytest.raises(ZkConnectionLost):
        session.multi([Create("/maybe")], generation=1)
    breakable.resume()


def test_a_pause_shorter_than_the_session_keeps_it(breakable, new_session, observe, eventually):
    session = new_session(port=breakable.port, session_timeout_ms=6000)
    seen = observe(session)
    old_id = session.session_id
    breakable.pause()
    eventually(lambda: seen.has(SUSPENDED, 1), what="SUSPENDED while ZooKeeper is paused")
    with pytest.raises(ZkConnectionLost):
        session.read("/")
    breakable.resume()
    session.sync("/")
    eventually(lambda: seen.has(CONNECTED, 1), what="the same session again")
    assert (session.session_id, session.generation) == (old_id, 1)
    assert seen.events == [(SUSPENDED, 1), (CONNECTED, 1)]


def test_the_session_outlives_a_restart_of_zookeeper(breakable, new_session, observe, eventually):
    session = new_session(port=breakable.port, session_timeout_ms=20_000)
    seen = observe(session)
    session.multi([Create("/kept", b"1"), Create("/mine", ephemeral=True)])
    breakable.stop()
    eventually(lambda: seen.has(SUSPENDED, 1), what="SUSPENDED while ZooKeeper is down")
    breakable.start()
    eventually(lambda: seen.has(CONNECTED, 1), what="the same session again")
    assert session.generation == 1
    assert session.read("/kept").data == b"1"
    assert session.read("/mine").stat.ephemeral_owner == session.session_id


def test_a_starting_server_that_never_answers_a_connection_does_not_cost_the_session(
    breakable, new_session, observe, eventually
):
    """As a real one does where a connection comes before it is ready."""
    session = new_session(port=breakable.port, session_timeout_ms=20_000)
    seen = observe(session)
    breakable.stop()
    with socket.create_server(("127.0.0.1", breakable.port)) as starting:
        swallowed, _ = starting.accept()
    with swallowed:
        breakable.start()
        eventually(lambda: seen.has(CONNECTED, 1), what="the same session again")


def test_a_reset_connection_is_replaced_under_the_same_session(proxy, new_session, observe, eventually):
    session = new_session(port=proxy.port)
    seen = observe(session)
    proxy.reset_all()
    eventually(lambda: seen.has(CONNECTED, 1), what="the same session on a new connection")
    assert seen.events == [(SUSPENDED, 1), (CONNECTED, 1)]
    assert session.multi([Create("/works")], generation=1).ok


def test_a_partition_longer_than_the_session_ends_it_on_our_own_clock(proxy, new_session, observe, eventually):
    session = new_session(port=proxy.port, session_timeout_ms=1500)
    seen = observe(session)
    proxy.black_hole()
    eventually(lambda: seen.has(LOST, 1), what="LOST behind a partition")
    proxy.heal()
    eventually(lambda: seen.has(CONNECTED, 2), what="a session of generation 2")
    assert [event for event, _ in seen.events] == [SUSPENDED, LOST, CONNECTED]


def test_replies_held_back_suspend_the_session(proxy, new_session, observe, eventually):
    session = new_session(port=proxy.port, session_timeout_ms=3000)
    seen = observe(session)
    proxy.half_open()
    with pytest.raises(ZkConnectionLost):
        session.read("/")
    eventually(lambda: seen.has(SUSPENDED, 1), what="SUSPENDED while replies are held back")


def test_a_lost_reply_of_a_multi_has_an_unknown_outcome_and_reading_tells_it(proxy, new_session):
    session = new_session(port=proxy.port)
    proxy.lose_next_reply(is_multi)
    with pytest.raises(ZkConnectionLost, match="sync, then read"):
        session.multi([Create("/written", b"by me")], generation=1)
    session.sync("/")
    assert session.read("/written").data == b"by me"
    assert proxy.lost_replies == 1
    assert session.generation == 1


def test_a_lost_reply_in_a_pipeline_is_an_item_of_the_result(proxy, new_session):
    session = new_session(port=proxy.port)
    proxy.lose_next_reply(is_multi)
    (outcome,) = session.multi_pipelined([[Create("/a")]], generation=1)
    assert isinstance(outcome, ZkConnectionLost)


def test_close_makes_ephemerals_vanish_at_once(session, new_session):
    session.multi([Create("/mine", ephemeral=True), Create("/stays")])
    other = new_session()
    session.close()
    other.sync("/")
    assert other.children("/").names == ("stays",)


def test_after_close_every_call_is_refused_and_close_is_harmless_again(session, observe):
    seen = observe(session)
    session.close()
    session.close()
    with pytest.raises(ZkSessionLost, match="closed"):
        session.read("/")
    assert not session.connected
    assert seen.events == []


def test_close_is_bounded_while_zookeeper_is_paused(breakable, new_session):
    session = new_session(port=breakable.port, session_timeout_ms=30_000)
    breakable.pause()
    session.close()
    assert [thread.name for thread in threading.enumerate() if str(breakable.port) in thread.name] == []
    breakable.resume()


def test_calls_from_callbacks_are_refused(session, eventually):
    refusals: list[str] = []

    def call_back(_: object) -> None:
        calls = {
            "read": lambda: session.read("/"),
            "children": lambda: session.children("/"),
            "multi": lambda: session.multi([Create("/no")]),
            "pipelined": lambda: session.multi_pipelined([[Create("/no")]]),
            "sync": lambda: session.sync("/"),
            "watch": lambda: session.watch("/", WatchMode.PERSISTENT, print),
            "unwatch": lambda: session.unwatch("/"),
        }
        for name, call in calls.items():
            try:
                call()
            except RuntimeError:
                refusals.append(name)

    session.watch("/x", WatchMode.PERSISTENT, call_back)
    session.multi([Create("/x")])
    eventually(lambda: len(refusals) == 7, what="seven refused calls")
    assert session.read("/no") is None


def test_a_callback_that_raises_costs_nobody_else_their_event(session, eventually, caplog):
    seen: list[str] = []

    def fail(_: object) -> None:
        raise LookupError("on purpose")

    session.watch("/bad", WatchMode.PERSISTENT, fail)
    session.watch("/good", WatchMode.PERSISTENT, lambda event: seen.append(event.path))
    session.multi([Create("/bad"), Create("/good")])
    eventually(lambda: seen == ["/good"], what="the event of /good")
    assert "on purpose" in caplog.text


def test_no_server_there_is_an_error_that_names_the_hosts(new_session):
    with pytest.raises(ZkError, match=r"127\.0\.0\.1:1 gave no session within 300 ms .*refused") as caught:
        from regency.runtime.zookeeper.client import connect

        connect("127.0.0.1:1", session_timeout_ms=2000, connect_timeout_ms=300)
    assert "zookeeper.connect" in str(caught.value)


def test_a_dead_server_among_several_is_passed_over(zookeeper, new_session):
    from regency.runtime.zookeeper.client import connect

    session = connect(f"127.0.0.1:1,127.0.0.1:{zookeeper.port}", session_timeout_ms=6000, connect_timeout_ms=20_000)
    assert session.read("/") is not None
    session.close()


def test_many_threads_share_one_session(session):
    def write(number: int) -> None:
        for index in range(20):
            outcome = session.multi([Create(f"/t{number}-{index}", b"0")])
            assert outcome.ok
            assert session.multi([SetData(f"/t{number}-{index}", b"1", 0)]).results[0].code is ZkCode.OK

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(session.children("/").names) == 160
