"""What one incarnation of a broker still has to be told, one slot per partition, newest content only. Pure rules.

A request is desired state, not a message (docs/internals/architecture.md): newer content replaces what was
not sent; what was sent and failed comes back unless something newer took its place; `is_new` and deletions survive
until acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence, Sized
from collections.abc import Set as AbstractSet
from itertools import chain
from typing import TypeVar

import msgspec

from regency.controller.channel.wanted import Host, Stop, TopicRows, Wanted
from regency.model.ids import TopicId, TopicPartition

FIRST_RETRY_MS = 100
LAST_RETRY_MS = 10_000


WantedT = TypeVar("WantedT", Host, Stop)


class _Delayed(msgspec.Struct):
    wanted: Wanted
    retry_at_ms: int


def merge(current: Wanted | None, newer: Wanted) -> Wanted:
    """Content of a slot whose unsent content is `current`, once `newer` is wanted. A Stop never undoes a deletion."""
    if isinstance(current, Stop) and current.delete and isinstance(newer, Stop):
        return current if not newer.delete else newer
    return newer


def retry_delay_ms(attempts: int) -> int:
    """Delay before the next attempt after `attempts` (1 or more) failed ones: 100 ms, doubling to 10 s."""
    return min(FIRST_RETRY_MS << min(attempts - 1, 16), LAST_RETRY_MS)


class DesiredState:
    """The slots of one broker epoch. Not thread-safe: the sender's owner guards it.

    What is hosted of many partitions of a topic may stand here as one value, as long as nothing newer is wanted of that
    topic; then its partitions stand one by one.
    """

    def __init__(self) -> None:
        self._topics: dict[str, TopicRows] = {}
        self._hosts: dict[TopicPartition, Host] = {}
        self._stops: dict[TopicPartition, Stop] = {}
        self._delayed: dict[TopicPartition, _Delayed] = {}
        self._behind_delete: dict[TopicPartition, Host] = {}
        self._deleting: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        self._attempts: dict[TopicPartition, int] = {}
        self._failing_since: dict[TopicPartition, int] = {}
        self._in_flight: Mapping[TopicPartition, Wanted] = {}
        self._topics_in_flight: dict[str, TopicRows] = {}
        self._gone: set[TopicId] = set()
        """Topics that are gone of which something is in flight."""

    @property
    def unacknowledged(self) -> int:
        """Slots the broker has not acknowledged."""
        whole = sum(map(len, self._topics.values())) + sum(map(len, self._topics_in_flight.values()))
        return whole + len(self._owed_singly())

    @property
    def waiting(self) -> int:
        """Slots that are not in flight; a host that waits behind a deletion is one of its own."""
        slots: tuple[Sized, ...] = (self._hosts, self._stops, self._delayed, self._behind_delete)
        return sum(map(len, slots)) + sum(map(len, self._topics.values()))

    def owed(self) -> AbstractSet[TopicPartition]:
        """The partitions of these slots."""
        whole = chain(self._topics.values(), self._topics_in_flight.values())
        return self._owed_singly() | {partition for topic in whole for partition in topic.partitions()}

    def _owed_singly(self) -> AbstractSet[TopicPartition]:
        waiting: AbstractSet[TopicPartition] = self._hosts.keys()
        for others in (self._stops, self._delayed, self._behind_delete, self._in_flight):
            if others:
                waiting = waiting | others.keys() if waiting else others.keys()
        return waiting

    def failing_since_ms(self) -> int | None:
        """When the oldest of what was answered with an error was answered so first; None where there is none."""
        return min(self._failing_since.values(), default=None)

    @property
    def has_hosts(self) -> bool:
        """Whether a LeaderAndIsr can be sent now."""
        return bool(self._hosts or self._topics)

    @property
    def has_stops(self) -> bool:
        """Whether a StopReplica can be sent now."""
        return bool(self._stops)

    def want(self, partition: TopicPartition, wanted: Wanted, *, is_new: bool = False) -> None:
        """Set what the broker shall do about the partition."""
        if self._topics:
            self._split(partition.topic)
        delayed = self._delayed.pop(partition, None)
        self._attempts.pop(partition, None)
        self._failing_since.pop(partition, None)
        if isinstance(wanted, Host):
            if is_new:
                self._new.add(partition)
            if partition in self._deleting:
                self._behind_delete[partition] = wanted
                if delayed is not None:
                    self._delayed[partition] = delayed
                return
            self._stops.pop(partition, None)
            self._hosts[partition] = wanted
            return
        self._hosts.pop(partition, None)
        self._behind_delete.pop(partition, None)
        current = self._stops.get(partition) or (delayed.wanted if delayed is not None else None)
        merged = merge(current, wanted)
        if isinstance(merged, Stop):
            self._put_stop(partition, merged)

    def want_hosts(self, hosts: Mapping[TopicPartition, Host], new: frozenset[TopicPartition]) -> None:
        """Set many partitions at once that the broker shall lead or follow; those in `new` are new to it."""
        if self._delayed or self._deleting or self._stops or self._attempts or self._topics:
            for partition, host in hosts.items():
                self.want(partition, host, is_new=partition in new)
        else:
            self._hosts.update(hosts)
            self._new.update(new)

    def want_topics(self, topics: Sequence[TopicRows]) -> None:
        """Set what the broker shall host of many topics, nothing of it new."""
        slots = (self._hosts, self._stops, self._delayed, self._behind_delete, self._in_flight)
        others: tuple[Collection[TopicPartition], ...] = (*slots, self._deleting, self._new, self._attempts)
        few = sum(map(len, topics)) < sum(map(len, others))  # then it costs less not to look which topics stand alone
        known = set() if few else {partition.topic for partition in chain(*others)}
        for topic in topics:
            if not few and topic.topic not in known and topic.topic not in self._topics:
                self._topics[topic.topic] = topic
                continue
            for partition, host in topic.hosts().items():
                self.want(partition, host)

    def forget(self, gone: Mapping[str, TopicId]) -> None:
        """Nothing is to be hosted of these topics any more: they are gone. What is to be deleted of them still is."""
        in_flight = {host.topic_id for host in self._in_flight.values() if isinstance(host, Host)}
        in_flight.update(topic.topic_id for topic in self._topics_in_flight.values())
        self._gone |= in_flight.intersection(gone.values())
        for name in [name for name, topic in self._topics.items() if gone.get(name) == topic.topic_id]:
            del self._topics[name]
        for slots in (self._hosts, self._behind_delete):
            for partition in [each for each, host in slots.items() if gone.get(each.topic) == host.topic_id]:
                del slots[partition]
                self._new.discard(partition)
        for partition, delayed in list(self._delayed.items()):
            if isinstance(delayed.wanted, Host) and gone.get(partition.topic) == delayed.wanted.topic_id:
                del self._delayed[partition]
                self._attempts.pop(partition, None)
                self._new.discard(partition)

    def is_new(self, partition: TopicPartition) -> bool:
        """Whether the broker has yet to acknowledge that it was told the partition is new."""
        return partition in self._new

    def take_hosts(self, max_bytes: int) -> dict[TopicPartition, Host]:
        """Take the next LeaderAndIsr's content in order of arrival, about `max_bytes` at most, at least one entry."""
        return self._take(self._hosts, max_bytes)

    def take_topics(self, max_bytes: int) -> list[TopicRows]:
        """Take whole topics for the next LeaderAndIsr, about `max_bytes` at most; before what is taken one by one."""
        taken: dict[str, TopicRows] = {}
        size = 0
        for name, topic in self._topics.items():
            size += _estimate_topic(topic)
            if taken and size > max_bytes:
                break
            taken[name] = topic
        for name in taken:
            del self._topics[name]
        self._topics_in_flight = taken
        return list(taken.values())

    def take_stops(self, max_bytes: int) -> dict[TopicPartition, Stop]:
        """Take the next StopReplica's content, about `max_bytes` at most, at least one entry."""
        return self._take(self._stops, max_bytes)

    def settle(self, failed: Iterable[TopicPartition], dropped: Iterable[TopicPartition], now_ms: int) -> None:
        """The request in flight was answered: `failed` is tried again later, `dropped` not at all, the rest is done."""
        again, forgotten = frozenset(failed), frozenset(dropped)
        in_flight, self._in_flight = self._in_flight, {}
        topics, self._topics_in_flight = self._topics_in_flight, {}
        for name in sorted({partition.topic for partition in again if partition.topic in topics}):
            newer = frozenset(self._topics[name].rows.numbers if name in self._topics else ())
            for partition, host in topics[name].hosts().items():
                if partition in again and partition.partition not in newer:
                    self._retry(partition, host, now_ms)
        for partition, wanted in in_flight.items():
            if partition in again:
                self._retry(partition, wanted, now_ms)
            else:
                self._finish(partition, wanted, acknowledged=partition not in forgotten)
        self._gone.clear()

    def release_due(self, now_ms: int) -> None:
        """Let what failed be sent again once its delay is over."""
        due = [partition for partition, delayed in self._delayed.items() if delayed.retry_at_ms <= now_ms]
        for partition in due:
            wanted = self._delayed.pop(partition).wanted
            if isinstance(wanted, Host):
                self._hosts.setdefault(partition, wanted)
            else:
                self._stops.setdefault(partition, wanted)

    def next_retry_ms(self) -> int | None:
        """When the next delay is over; None where nothing is delayed."""
        return min((delayed.retry_at_ms for delayed in self._delayed.values()), default=None)

    def _take(self, slots: dict[TopicPartition, WantedT], max_bytes: int) -> dict[TopicPartition, WantedT]:
        taken: dict[TopicPartition, WantedT] = {}
        size, topic = 0, ""
        for partition, wanted in slots.items():
            size += _estimate(wanted) + (0 if partition.topic == topic else 64 + len(partition.topic))
            topic = partition.topic
            if taken and size > max_bytes:
                break
            taken[partition] = wanted
        if len(taken) == len(slots):
            slots.clear()
        else:
            for partition in taken:
                del slots[partition]
        self._in_flight = taken
        return taken

    def _split(self, topic: str) -> None:
        """Let the partitions of a topic stand one by one."""
        whole = self._topics.pop(topic, None)
        if whole is not None:
            self._hosts.update(whole.hosts())

    def _put_stop(self, partition: TopicPartition, stop: Stop) -> None:
        if partition in self._deleting and not stop.delete:
            return
        if stop.delete:
            self._new.discard(partition)
            self._deleting.add(partition)
        self._stops[partition] = stop

    def _retry(self, partition: TopicPartition, wanted: Wanted, now_ms: int) -> None:
        newer: Wanted | None = self._hosts.get(partition) or self._stops.get(partition)
        if newer is not None or partition in self._delayed:
            return
        if isinstance(wanted, Host) and wanted.topic_id in self._gone:
            self._new.discard(partition)
            self._finish(partition, wanted, acknowledged=False)
            return
        self._failing_since.setdefault(partition, now_ms)
        attempts = self._attempts[partition] = self._attempts.get(partition, 0) + 1
        self._delayed[partition] = _Delayed(wanted, now_ms + retry_delay_ms(attempts))

    def _finish(self, partition: TopicPartition, wanted: Wanted, *, acknowledged: bool) -> None:
        self._attempts.pop(partition, None)
        self._failing_since.pop(partition, None)
        if isinstance(wanted, Host):
            newer = self._hosts.get(partition)
            if acknowledged and (newer is None or newer.topic_id == wanted.topic_id):
                self._new.discard(partition)
            return
        if wanted.delete and partition not in self._stops:
            self._deleting.discard(partition)
            behind = self._behind_delete.pop(partition, None)
            if behind is not None:
                self._hosts[partition] = behind


def _estimate(wanted: Wanted) -> int:
    if isinstance(wanted, Stop):
        return 16
    replicas = wanted.assignment
    others = len(replicas.replicas) + len(replicas.adding) + len(replicas.removing)
    return 32 + 3 * (len(wanted.leadership.leader_and_isr.isr) + others)


def _estimate_topic(topic: TopicRows) -> int:
    return 64 + len(topic.topic) + 32 * len(topic) + 3 * topic.rows.named
