"""The leader's side of incremental fetch sessions (KIP-227): what a client fetches is remembered, so that requests and
answers carry only what changed.

Passive, data loop only; `now` is monotonic milliseconds. Partition order is kept, and one that brought records goes to
the end, so that no partition starves behind busy ones.
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence

from regency.broker_agent.steps import Steps
from regency.kafka.fetching.session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION
from regency.kafka.fetching.values import FetchedPartition, FetchPartition
from regency.model.ids import UNKNOWN_OFFSET, Offset, TopicPartition
from regency.model.kafka_errors import ErrorCode

PARTITIONS_PER_STEP = 5_000
"""Remembered, or compared with what was told, before others have their turn."""

EVICTION_MS = 120_000
"""A session this long idle gives way to any other; one this old to a larger one."""

_MAX_EPOCH = 2**31 - 1

Results = Mapping[TopicPartition, FetchedPartition]


class _Entry:
    """A partition in a session, and what its client was last told."""

    __slots__ = ("high_watermark", "log_start_offset", "told", "wanted")

    def __init__(self, wanted: FetchPartition) -> None:
        self.wanted = wanted
        self.high_watermark: Offset = UNKNOWN_OFFSET
        self.log_start_offset: Offset = wanted.log_start_offset
        self.told: FetchedPartition | None = None
        """The last answer, where it was only an offset or two; the same object again is no news."""

    def ask_again(self, wanted: FetchPartition) -> None:
        """The client names it again, perhaps because it could not use the last answer: nothing counts as told."""
        self.wanted = wanted
        self._told_nothing()

    def must_tell(self, fetched: FetchedPartition) -> bool:
        """Whether this is news to the client, who is then told.

        An error is repeated as long as it lasts, and so is its end. A follower that must truncate takes in nothing
        else of that answer.
        """
        if fetched is self.told:
            return False
        if fetched.error is not ErrorCode.NONE or fetched.diverging is not None:
            self._told_nothing()
            return True
        news = (
            bool(fetched.records)
            or fetched.high_watermark != self.high_watermark
            or fetched.log_start_offset != self.log_start_offset
        )
        self.high_watermark = fetched.high_watermark
        self.log_start_offset = fetched.log_start_offset
        self.told = None if fetched.records else fetched
        return news

    def _told_nothing(self) -> None:
        self.high_watermark = UNKNOWN_OFFSET
        self.told = None


class _Session:
    __slots__ = ("created_ms", "entries", "epoch", "id", "privileged", "used_ms")

    def __init__(self, number: int, entries: OrderedDict[TopicPartition, _Entry], privileged: bool, now: int) -> None:
        self.id = number
        self.entries = entries
        self.privileged = privileged
        self.epoch = 1
        """Epoch that the next request must carry."""
        self.created_ms = now
        self.used_ms = now

    @property
    def rank(self) -> tuple[bool, int, int]:
        return (self.privileged, len(self.entries), self.id)

    def tell(self, results: Results) -> Steps[dict[TopicPartition, FetchedPartition]]:
        told: dict[TopicPartition, FetchedPartition] = {}
        for looked_at, (name, fetched) in enumerate(results.items(), 1):
            if looked_at % PARTITIONS_PER_STEP == 0:
                yield
            entry = self.entries.get(name)
            if entry is not None and entry.must_tell(fetched):
                told[name] = fetched
                if fetched.records:
                    self.entries.move_to_end(name)
        return told


Told = tuple[int, dict[TopicPartition, FetchedPartition]]


class FetchContext:
    """One fetch on its way: what to read, and afterwards what of it to send."""

    def __init__(self, partitions: Sequence[FetchPartition], finish: Callable[[Results], Steps[Told]]) -> None:
        self.partitions = partitions
        """What to read, in order."""
        self.finish = finish
        """Session id of the answer, and the results to send. To be called once, with a result for every partition."""


class FetchSessionCache:
    """All sessions of a broker, at most `slots` of them (max.incremental.fetch.session.cache.slots)."""

    def __init__(self, slots: int, *, new_id: Callable[[], int] = lambda: 1 + secrets.randbelow(_MAX_EPOCH)) -> None:
        self._slots = slots
        self._new_id = new_id
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        """Least recently used first."""
        self.evictions = 0
        """Sessions that gave way to others, since the start."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Partitions in all sessions together."""
        return sum(len(session.entries) for session in self._sessions.values())

    def resolve(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Sequence[FetchPartition],
        forgotten: Sequence[TopicPartition],
        privileged: bool,
        now: int,
    ) -> FetchContext | ErrorCode:
        """What a fetch is about, or the error that answers it as a whole: FETCH_SESSION_ID_NOT_FOUND or
        INVALID_FETCH_SESSION_EPOCH. `privileged` fetches come from followers. Below Fetch v7: id 0, epoch -1.
        """
        if session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._sessions.pop(session_id, None)
            if session_epoch == FINAL_EPOCH:
                return FetchContext(partitions, lambda results: _all_of(NO_SESSION, results))
            return FetchContext(
                partitions, lambda results: self._open(partitions, results, privileged=privileged, now=now)
            )
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session_epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        self._update(session, partitions, forgotten, now)
        if not session.entries:
            del self._sessions[session.id]
            return FetchContext((), lambda _: _all_of(NO_SESSION, {}))
        wanted = [entry.wanted for entry in session.entries.values()]
        return FetchContext(wanted, lambda results: _news(session, results))

    def _update(
        self, session: _Session, partitions: Sequence[FetchPartition], forgotten: Sequence[TopicPartition], now: int
    ) -> None:
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        session.used_ms = now
        self._sessions.move_to_end(session.id)
        for wanted in partitions:
            entry = session.entries.get(wanted.topic_partition)
            if entry is None or entry.wanted.topic_id != wanted.topic_id:
                session.entries[wanted.topic_partition] = _Entry(wanted)
            else:
                entry.ask_again(wanted)
        for name in forgotten:
            session.entries.pop(name, None)

    def _open(
        self, partitions: Sequence[FetchPartition], results: Results, *, privileged: bool, now: int
    ) -> Steps[Told]:
        """A full answer, and a session from now on if there is room; without one requests are longer, that is all."""
        if not partitions or not self._make_room(len(partitions), privileged=privileged, now=now):
            return NO_SESSION, dict(results)
        number = self._new_id()
        while number in self._sessions:
            number = self._new_id()
        session = self._sessions[number] = _Session(number, OrderedDict(), privileged, now)
        for start in range(0, len(partitions), PARTITIONS_PER_STEP):
            if start:
                yield
            session.entries.update(
                (wanted.topic_partition, _Entry(wanted)) for wanted in partitions[start : start + PARTITIONS_PER_STEP]
            )
        yield from session.tell(results)
        return number, dict(results)

    def _make_room(self, size: int, *, privileged: bool, now: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if not self._sessions:
            return False
        oldest = next(iter(self._sessions.values()))
        if now - oldest.used_ms > EVICTION_MS:
            return self._evict(oldest)
        yielding = [
            session
            for session in self._sessions.values()
            if now - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
        ]
        smallest = min(yielding, key=lambda session: session.rank, default=None)
        if smallest is None or (privileged, size) < (smallest.privileged, len(smallest.entries)):
            return False
        return self._evict(smallest)

    def _evict(self, session: _Session) -> bool:
        del self._sessions[session.id]
        self.evictions += 1
        return True


def _all_of(number: int, results: Results) -> Steps[Told]:
    yield from ()
    return number, dict(results)


def _news(session: _Session, results: Results) -> Steps[Told]:
    news = yield from session.tell(results)
    return session.id, news
