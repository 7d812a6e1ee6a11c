"""The watches of a session: which path is watched how, whom an event concerns. Passive; the owner's lock guards it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import msgspec

from regency.runtime.zookeeper.records import WatchNotice
from regency.runtime.zookeeper.session import WatchCallback, WatchEvent, WatchEventType, WatchMode

_EVENT_TYPES: Final = {
    1: WatchEventType.CREATED,
    2: WatchEventType.DELETED,
    3: WatchEventType.DATA_CHANGED,
    4: WatchEventType.CHILDREN_CHANGED,
}


class Watch(msgspec.Struct, frozen=True):
    """One registration. `number` tells apart a watch from the one that replaced it."""

    path: str
    mode: WatchMode
    callback: WatchCallback
    number: int


class WatchRegistry:
    """At most one watch per path; they stay until removed, whatever happens to connection and session."""

    def __init__(self) -> None:
        self._watches: dict[str, Watch] = {}
        self._count = 0

    def add(self, path: str, mode: WatchMode, callback: WatchCallback) -> Watch | None:
        """Register; returns the watch on the same path that this one replaces."""
        replaced = self._watches.get(path)
        self._count += 1
        self._watches[path] = Watch(path, mode, callback, self._count)
        return replaced

    def remove(self, path: str) -> bool:
        """Forget the watch on `path`; whether there was one."""
        return self._watches.pop(path, None) is not None

    def is_current(self, watch: Watch) -> bool:
        """Whether `watch` has neither been removed nor replaced."""
        return self._watches.get(watch.path) is watch

    def all(self) -> tuple[Watch, ...]:
        """Every watch, oldest path first."""
        return tuple(self._watches.values())

    def concerned(self, notice: WatchNotice) -> Iterator[tuple[Watch, WatchEvent]]:
        """The watches that cover what `notice` tells (its path is below the chroot), with what each shall be told.

        A plain watch covers its own path only, a recursive one all below too, but never a change of children.
        """
        event_type = _EVENT_TYPES.get(notice.type)
        if event_type is None:
            return
        path = notice.path
        watch = self._watches.get(path)
        if watch and (watch.mode is WatchMode.PERSISTENT or event_type is not WatchEventType.CHILDREN_CHANGED):
            yield watch, WatchEvent(event_type, path, path)
        if event_type is WatchEventType.CHILDREN_CHANGED:
            return
        while path != "/":
            path = path.rpartition("/")[0] or "/"
            watch = self._watches.get(path)
            if watch and watch.mode is WatchMode.PERSISTENT_RECURSIVE:
                yield watch, WatchEvent(event_type, notice.path, path)
