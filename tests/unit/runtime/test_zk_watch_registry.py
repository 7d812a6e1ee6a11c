"""Whom a watch event concerns."""

from __future__ import annotations

from regency.runtime.zookeeper.records import WatchNotice
from regency.runtime.zookeeper.session import WatchMode
from regency.runtime.zookeeper.watches import WatchRegistry

PLAIN, RECURSIVE = WatchMode.PERSISTENT, WatchMode.PERSISTENT_RECURSIVE
CREATED, CHILDREN = 1, 4


def registry(**watches: WatchMode) -> WatchRegistry:
    made = WatchRegistry()
    for path, mode in watches.items():
        made.add(path, mode, print)
    return made


def concerned(made: WatchRegistry, event_type: int, path: str) -> list[str]:
    return [watch.path for watch, event in made.concerned(WatchNotice(event_type, path)) if event.path == path]


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
