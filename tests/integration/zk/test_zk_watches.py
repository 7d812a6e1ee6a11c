"""Persistent watches: what fires, what does not, and that a reconnect arms them again and says so."""

from __future__ import annotations

import pytest

from regency.runtime.zookeeper.session import (
    Create,
    Delete,
    SessionEvent,
    SetData,
    WatchEvent,
    WatchEventType,
    WatchMode,
    ZkConnectionLost,
)

pytestmark = pytest.mark.integration

CREATED, DELETED = WatchEventType.CREATED, WatchEventType.DELETED
DATA, CHILDREN, LOOK_AGAIN = WatchEventType.DATA_CHANGED, WatchEventType.CHILDREN_CHANGED, WatchEventType.LOOK_AGAIN
PLAIN, RECURSIVE = WatchMode.PERSISTENT, WatchMode.PERSISTENT_RECURSIVE


@pytest.fixture
def fence(session, eventually):
    """Waits until every event of the writes before has been delivered, by a watch of its own."""
    marks: list[str] = []
    session.watch("/fence", PLAIN, lambda event: marks.append(event.path))

    def wait() -> None:
        marks.clear()
        session.multi([Create("/fence"), Delete("/fence", None)])
        eventually(lambda: len(marks) >= 2, what="the events of /fence")

    return wait


def test_a_plain_watch_stays_and_sees_its_own_znode_only(session, fence):
    seen: list[WatchEvent] = []
    session.watch("/a", PLAIN, seen.append)
    session.multi([Create("/a")])
    session.multi([SetData("/a", b"1", 0)])
    session.multi([Create("/a/b")])
    session.multi([SetData("/a/b", b"1", 0), Create("/a/b/c"), Create("/ab")])
    session.multi([Delete("/a/b/c", None), Delete("/a/b", None)])
    session.multi([Delete("/a", None)])
    fence()
    assert [(event.type, event.path, event.watched) for event in seen] == [
        (kind, "/a", "/a") for kind in (CREATED, DATA, CHILDREN, CHILDREN, DELETED)
    ]


def test_a_recursive_watch_sees_all_below_with_whole_paths_and_no_child_events(session, fence):
    seen: list[WatchEvent] = []
    session.watch("/a", RECURSIVE, seen.append)
    session.multi([Create("/a"), Create("/a/b"), Create("/a/b/c"), Create("/ab")])
    session.multi([SetData("/a/b/c", b"1", 0)])
    session.multi([Delete("/a/b/c", None)])
    fence()
    assert [(event.type, event.path) for event in seen] == [
        (CREATED, "/a"),
        (CREATED, "/a/b"),
        (CREATED, "/a/b/c"),
        (DATA, "/a/b/c"),
        (DELETED, "/a/b/c"),
    ]
    assert {event.watched for event in seen} == {"/a"}


def test_a_plain_watch_below_a_recursive_one_each_gets_its_own(session, fence):
    plain: list[WatchEvent] = []
    recursive: list[WatchEvent] = []
    session.watch("/a", RECURSIVE, recursive.append)
    session.watch("/a/b", PLAIN, plain.append)
    session.multi([Create("/a"), Create("/a/b"), Create("/a/b/c")])
    fence()
    assert [(event.type, event.path) for event in plain] == [(CREATED, "/a/b"), (CHILDREN, "/a/b")]
    assert [(event.type, event.path) for event in recursive] == [
        (CREATED, "/a"),
        (CREATED, "/a/b"),
        (CREATED, "/a/b/c"),
    ]


def test_the_same_path_again_replaces_the_watch_and_its_mode(session, fence):
    first: list[WatchEvent] = []
    second: list[WatchEvent] = []
    session.watch("/a", RECURSIVE, first.append)
    session.watch("/a", PLAIN, second.append)
    session.multi([Create("/a"), Create("/a/b"), Create("/a/b/c")])
    fence()
    assert first == []
    assert [event.type for event in second] == [CREATED, CHILDREN]


def test_an_unwatched_path_is_silent_also_on_the_server(session, fence):
    seen: list[WatchEvent] = []
    session.watch("/a", PLAIN, seen.append)
    session.unwatch("/a")
    session.unwatch("/a")
    session.unwatch("/never")
    session.multi([Create("/a")])
    fence()
    assert seen == []


def test_after_a_reconnect_every_watch_is_armed_and_told_before_connected(proxy, session, eventually):
    seen: list[object] = []
    session.watch("/a", PLAIN, seen.append)
    session.watch("/deep", RECURSIVE, seen.append)
    session.listen(lambda event, _: seen.append(event))
    proxy.reset_all()
    eventually(lambda: SessionEvent.CONNECTED in seen, what="the same session on a new connection")
    assert seen == [
        SessionEvent.SUSPENDED,
        WatchEvent(LOOK_AGAIN, "/a", "/a"),
        WatchEvent(LOOK_AGAIN, "/deep", "/deep"),
        SessionEvent.CONNECTED,
    ]
    seen.clear()
    session.multi([Create("/a"), Create("/deep"), Create("/deep/er")])
    eventually(lambda: len(seen) >= 3, what="three creations")
    assert [event.path for event in seen] == ["/a", "/deep", "/deep/er"]


def test_watches_survive_an_expired_session(session, expire, eventually):
    seen: list[object] = []
    session.watch("/deep", RECURSIVE, seen.append)
    session.listen(lambda event, _: seen.append(event))
    expire(session)
    eventually(lambda: SessionEvent.CONNECTED in seen, what="a new session")
    assert seen[-2:] == [WatchEvent(LOOK_AGAIN, "/deep", "/deep"), SessionEvent.CONNECTED]
    session.multi([Create("/deep"), Create("/deep/er")])
    eventually(lambda: [e.path for e in seen if isinstance(e, WatchEvent)][-1] == "/deep/er", what="/deep/er created")


def test_a_watch_set_while_suspended_is_armed_by_the_reconnect(proxy, session, eventually):
    events: list[SessionEvent] = []
    seen: list[WatchEvent] = []
    session.listen(lambda event, _: events.append(event))
    proxy.refuse()
    eventually(lambda: SessionEvent.SUSPENDED in events, what="SUSPENDED")
    with pytest.raises(ZkConnectionLost):
        session.watch("/late", PLAIN, seen.append)
    proxy.heal()
    session.sync("/")
    session.multi([Create("/late")])
    eventually(lambda: len(seen) == 2, what="LOOK_AGAIN and the creation of /late")
    assert [event.type for event in seen] == [LOOK_AGAIN, CREATED]


def test_thousands_of_watches_are_armed_again_in_chunks(proxy, session, eventually):
    seen: list[WatchEvent] = []
    events: list[SessionEvent] = []
    session.listen(lambda event, _: events.append(event))
    for index in range(3000):
        session._core.add_watches(
            [f"/topic-with-a-rather-long-name-so-that-chunks-fill-{index:05d}"], PLAIN, seen.append
        )
    session.sync("/")
    proxy.reset_all()
    eventually(lambda: SessionEvent.CONNECTED in events, what="the same session on a new connection")
    assert len(seen) == 3000
    session.multi([Create(f"/topic-with-a-rather-long-name-so-that-chunks-fill-{i:05d}") for i in (0, 2999)])
    eventually(lambda: [event.type for event in seen[3000:]] == [CREATED, CREATED], what="first and last watch fire")
