"""The session's deadline, generations and order of events, on a clock that is moved by hand."""

from __future__ import annotations

import pytest

from regency.runtime.zookeeper.core import Phase, WatchRegistry
from regency.runtime.zookeeper.session import WatchMode, ZkAuthFailed, ZkConnectionLost, ZkSessionLost
from regency.runtime.zookeeper.wire import ConnectReply, FrameReader, OpCode, frame

PING_REPLY = frame(b"\xff\xff\xff\xfe" + bytes(12))


def reply(xid: int, zxid: int = 1) -> bytes:
    return frame(xid.to_bytes(4, "big") + zxid.to_bytes(8, "big") + bytes(4))


def test_before_the_first_session_there_is_none(bench):
    assert (bench.core.generation, bench.core.session_id, bench.core.phase) == (0, 0, Phase.ABSENT)
    with pytest.raises(ZkSessionLost, match="zk:2181"):
        bench.core.submit([(OpCode.SYNC, b"")])


def test_silence_for_the_session_timeout_is_a_loss_though_the_connection_stands(bench):
    link = bench.connect()
    bench.clock.advance(2999)
    bench.core.expire_if_due()
    assert bench.core.phase is Phase.CONNECTED
    bench.clock.advance(1)
    bench.core.expire_if_due()
    assert bench.events() == [("connected", 1), ("lost", 1)]
    assert bench.core.outgoing(link) is None
    assert (bench.core.session_id, bench.core.attempt().session_id) == (0, 0)


def test_the_deadline_runs_on_while_suspended_and_loss_is_told_once(bench):
    link = bench.connect()
    bench.clock.advance(2000)
    bench.core.disconnected(link, "reset")
    assert bench.core.attempt().session_id == 11
    bench.clock.advance(1000)
    bench.core.expire_if_due()
    bench.core.expire_if_due()
    assert bench.events() == [("connected", 1), ("suspended", 1), ("lost", 1)]


def test_contact_counts_from_when_the_answered_request_was_sent(bench):
    link = bench.connect()
    bench.clock.advance(1000)
    assert bench.core.outgoing(link).endswith(b"\xff\xff\xff\xfe\0\0\0\x0b")
    bench.clock.advance(500)
    bench.core.incoming(link, PING_REPLY)
    assert bench.core.deadline_ms() == 1000 + 3000


def test_a_process_that_slept_through_the_deadline_sends_nothing_queued_before(bench):
    link = bench.connect()
    (future,) = bench.core.submit([(OpCode.MULTI, b"x")], generation=1)
    bench.clock.advance(3000)
    assert bench.core.outgoing(link) is None
    assert isinstance(future.exception(0), ZkConnectionLost)
    with pytest.raises(ZkSessionLost):
        bench.core.submit([(OpCode.MULTI, b"x")], generation=1)


def test_a_session_given_up_does_not_come_back_to_life(bench):
    link = bench.connect()
    bench.core.disconnected(link, "reset")
    attempt = bench.core.attempt()
    bench.clock.advance(3000)
    bench.core.expire_if_due()
    granted = ConnectReply(3000, attempt.session_id, b"")
    assert not bench.core.wants(attempt)
    assert bench.core.connected(attempt, granted, 0, FrameReader()) is None
    bench.connect(session_id=12)
    assert (bench.core.generation, bench.core.session_id) == (2, 12)


def test_the_same_session_again_keeps_its_generation(bench):
    link = bench.connect()
    bench.core.disconnected(link, "reset")
    bench.connect()
    assert bench.events() == [("connected", 1), ("suspended", 1), ("connected", 1)]
    assert (bench.core.generation, bench.core.session_id) == (1, 11)


def test_a_server_that_knows_the_session_no_more_ends_it(bench):
    link = bench.connect()
    bench.core.disconnected(link, "reset")
    bench.core.refused(bench.core.attempt(), "expired")
    assert bench.events()[-1] == ("lost", 1)


def test_a_request_dies_with_its_connection_and_is_not_sent_on_the_next(bench):
    link = bench.connect()
    futures = bench.core.submit([(OpCode.MULTI, b"1"), (OpCode.MULTI, b"2")], generation=1)
    assert bench.core.outgoing(link)
    bench.core.disconnected(link, "reset")
    assert [type(future.exception(0)) for future in futures] == [ZkConnectionLost] * 2
    assert bench.core.outgoing(bench.connect()) == b""


def test_while_suspended_calls_fail_at_once(bench):
    bench.core.disconnected(bench.connect(), "reset")
    with pytest.raises(ZkConnectionLost, match="Nothing was sent"):
        bench.core.submit([(OpCode.SYNC, b"")])
    with pytest.raises(ZkConnectionLost):
        bench.core.submit([(OpCode.SYNC, b"")], generation=1)
    with pytest.raises(ZkSessionLost):
        bench.core.submit([(OpCode.SYNC, b"")], generation=2)


def test_an_event_of_an_abandoned_connection_changes_nothing(bench):
    old = bench.connect()
    bench.core.disconnected(old, "reset")
    bench.connect()
    bench.core.disconnected(old, "again")
    bench.core.incoming(old, b"garbage")
    assert bench.core.phase is Phase.CONNECTED
    assert bench.core.idle_ms(old) is None


def test_watches_are_told_to_look_again_before_connected(bench):
    bench.connect()
    bench.core.add_watches(["/a"], WatchMode.PERSISTENT, print)
    link = bench.core._link
    bench.core.disconnected(link, "reset")
    bench.delivered.clear()
    bench.connect()
    told = [one.watch_event.type.value if one.watch_event else one.session_event.value for one in bench.delivered]
    assert told == ["look_again", "connected"]


def test_many_watches_leave_together(bench):
    link = bench.connect()
    futures = bench.core.add_watches(["/a", "/b"], WatchMode.PERSISTENT, print)
    sent = bench.core.outgoing(link)
    assert (sent.count(b"/a"), sent.count(b"/b"), bench.core.outgoing(link)) == (1, 1, b"")
    bench.core.incoming(link, reply(1) + reply(2))
    assert [future.result(0).xid for future in futures] == [1, 2]


def test_a_watch_added_while_connecting_is_armed_on_the_new_connection(bench):
    bench.core.disconnected(bench.connect(), "reset")
    attempt = bench.core.attempt()
    with pytest.raises(ZkConnectionLost):
        bench.core.add_watches(["/late"], WatchMode.PERSISTENT, print)
    link = bench.core.connected(attempt, ConnectReply(3000, 11, b""), 0, FrameReader())
    assert b"/late" in bench.core.outgoing(link)


def test_refused_credentials_are_told_to_callers_until_a_server_takes_them(bench):
    bench.core.not_connected("ZooKeeper at zk refused our credentials.", auth=True)
    with pytest.raises(ZkAuthFailed):
        bench.core.submit([(OpCode.SYNC, b"")])
    bench.connect()
    bench.core.submit([(OpCode.SYNC, b"")])


def test_the_newest_zxid_seen_is_asked_for_on_reconnect_but_not_by_a_new_session(bench):
    link = bench.connect()
    (future,) = bench.core.submit([(OpCode.SYNC, b"")])
    bench.core.outgoing(link)
    bench.core.incoming(link, reply(1, zxid=42))
    assert future.result(0).zxid == 42
    bench.core.disconnected(link, "reset")
    assert bench.core.attempt().last_zxid == 42
    bench.clock.advance(3000)
    assert bench.core.attempt().last_zxid == 0


def test_after_close_nothing_is_accepted_and_nothing_expires(bench):
    bench.connect()
    assert bench.core.begin_close() is not None
    assert bench.core.begin_close() is None
    bench.clock.advance(9000)
    bench.core.expire_if_due()
    assert bench.events() == [("connected", 1)]
    with pytest.raises(ZkSessionLost, match="closed"):
        bench.core.submit([(OpCode.SYNC, b"")])


PLAIN, RECURSIVE = WatchMode.PERSISTENT, WatchMode.PERSISTENT_RECURSIVE
CREATED, CHILDREN = 1, 4


def registry(**watches: WatchMode) -> WatchRegistry:
    made = WatchRegistry()
    for path, mode in watches.items():
        made.add(path, mode, print)
    return made


def concerned(made: WatchRegistry, event_type: int, path: str) -> list[str]:
    return [watch.path for watch, event in made.concerned(event_type, path) if event.path == path]


def test_a_plain_watch_covers_its_path_and_nothing_below_or_beside():
    made = registry(**{"/a": PLAIN, "/": PLAIN})
    assert [concerned(made, CREATED, path) for path in ("/a", "/a/b", "/ab", "/")] == [["/a"], [], [], ["/"]]


def test_a_recursive_watch_covers_all_below_by_whole_names():
    made = registry(**{"/a": RECURSIVE})
    assert [concerned(made, CREATED, path) for path in ("/a", "/a/b/c", "/ab", "/")] == [["/a"], ["/a"], [], []]


def test_a_recursive_watch_on_the_root_covers_everything():
    made = registry(**{"/": RECURSIVE})
    assert [concerned(made, CREATED, path) for path in ("/", "/a", "/a/b")] == [["/"], ["/"], ["/"]]


def test_a_change_of_children_is_for_plain_watches_only():
    made = registry(**{"/": RECURSIVE, "/a": PLAIN, "/b": RECURSIVE})
    assert concerned(made, CHILDREN, "/a") == ["/a"]
    assert concerned(made, CHILDREN, "/b") == []


def test_each_of_several_watches_is_told_once():
    made = registry(**{"/": RECURSIVE, "/a": RECURSIVE, "/a/b": PLAIN})
    assert concerned(made, CREATED, "/a/b") == ["/a/b", "/a", "/"]


def test_an_unknown_event_concerns_nobody():
    assert concerned(registry(**{"/": RECURSIVE}), 9, "/a") == []


def test_a_replaced_or_removed_watch_is_not_current():
    made = WatchRegistry()
    made.add("/a", PLAIN, print)
    (first,) = made.all()
    assert made.is_current(first)
    assert made.add("/a", PLAIN, print) is first
    assert not made.is_current(first)
    (second,) = made.all()
    assert made.remove("/a")
    assert not made.remove("/a")
    assert not made.is_current(second)
