"""What one incarnation of a broker still has to do: one slot per partition, newest content only. Pure rules.

A request is desired state, not a message (docs/internals/architecture.md): newer content replaces what was
not sent; what was sent and failed comes back unless something newer took its place; `is_new` and deletions survive
until acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum

import msgspec

from regency.controller.channel.messages import LeaderAndIsrRow, Row, StopReplicaRow, TopicRows, rows_by_topic
from regency.model.ids import TopicId, TopicPartition

FIRST_RETRY_MS = 100
LAST_RETRY_MS = 10_000


class SlotState(IntEnum):
    """What becomes of a slot's `wanted`. Beside it the slot may be in flight, with what it wanted before.

    `want` moves from any state to TO_HOST or TO_STOP; a request takes a slot from there to IDLE, in flight; `settle`
    leaves it there, or moves it to DELAYED where it failed; after the delay it is back where it was taken.
    """

    IDLE = 0
    """Nothing is wanted but what is in flight, if anything is."""
    TO_HOST = 1
    """Waits for a LeaderAndIsr."""
    TO_STOP = 2
    """Waits for a StopReplica."""
    DELAYED = 3
    """Failed, and waits for its retry."""


class Slot(msgspec.Struct, gc=False):
    """One partition at one broker."""

    state: SlotState = SlotState.IDLE
    wanted: Row | None = None
    """The newest content that is not in flight; None when IDLE."""
    in_flight: Row | None = None
    behind_delete: LeaderAndIsrRow | None = None
    """Wanted once a deletion, which is wanted or in flight, has been acknowledged."""
    is_new: bool = False
    """The broker has not acknowledged yet that the partition is new."""
    attempts: int = 0
    """How often in a row the content was answered with an error."""
    failing_since_ms: int = 0
    """When it was answered so first, where `attempts`."""
    retry_at_ms: int = 0
    """When DELAYED."""

    @property
    def is_deleting(self) -> bool:
        """Whether a deletion is not acknowledged yet."""
        return _is_deletion(self.wanted) or _is_deletion(self.in_flight)

    def forget(self, topic_id: TopicId) -> None:
        """Nothing of this topic is to be hosted any more."""
        if _is_hosted(self.wanted, topic_id):
            self.wanted = None
        if _is_hosted(self.in_flight, topic_id):
            self.in_flight = None
        if _is_hosted(self.behind_delete, topic_id):
            self.behind_delete = None
        rows = (self.wanted, self.in_flight, self.behind_delete)
        self.is_new = self.is_new and any(isinstance(row, LeaderAndIsrRow) for row in rows)


class DesiredState:
    """The slots of one broker epoch. Not thread-safe: the sender's owner guards it.

    What is hosted of many partitions of a topic stands here as one value, as long as nothing else is wanted of that
    topic; then its partitions get slots.
    """

    def __init__(self) -> None:
        self._topics: dict[str, TopicRows] = {}
        self._topics_in_flight: dict[str, TopicRows] = {}
        self._slots: dict[TopicPartition, Slot] = {}
        self._in_flight: dict[TopicPartition, Slot] = {}
        self._by_state: tuple[dict[TopicPartition, Slot], ...] = tuple({} for _ in SlotState)
        """The slots in each state but IDLE, in order of arrival."""

    @property
    def unacknowledged(self) -> int:
        """Partitions of which the broker has not acknowledged everything."""
        whole = sum(map(len, self._topics.values()))
        for name, topic in self._topics_in_flight.items():
            newer = self._topics.get(name)
            whole += len(topic if newer is None else set(topic.rows.numbers).difference(newer.rows.numbers))
        idle = sum(slot.state is SlotState.IDLE for slot in self._in_flight.values())
        return whole + sum(map(len, self._by_state[SlotState.TO_HOST :])) + idle

    @property
    def waiting(self) -> int:
        """Partitions of which something is not in flight."""
        behind = sum(
            slot.behind_delete is not None for slot in self._in_flight.values() if slot.state is SlotState.IDLE
        )
        return sum(map(len, self._by_state[SlotState.TO_HOST :])) + behind + sum(map(len, self._topics.values()))

    def owed(self) -> set[TopicPartition]:
        """The partitions that are `unacknowledged`."""
        whole = (*self._topics.values(), *self._topics_in_flight.values())
        slots = set(self._in_flight).union(*self._by_state[SlotState.TO_HOST :])
        return slots.union(*(topic.partitions() for topic in whole))

    def failing_since_ms(self) -> int | None:
        """When the oldest of what was answered with an error was answered so first; None where there is none."""
        return min((slot.failing_since_ms for slot in self._slots.values() if slot.attempts), default=None)

    @property
    def has_hosts(self) -> bool:
        """Whether a LeaderAndIsr can be sent now."""
        return bool(self._by_state[SlotState.TO_HOST] or self._topics)

    @property
    def has_stops(self) -> bool:
        """Whether a StopReplica can be sent now."""
        return bool(self._by_state[SlotState.TO_STOP])

    def want(self, partition: TopicPartition, wanted: Row, *, is_new: bool = False) -> None:
        """Set what the broker shall do about the partition. Only what deletes takes the place of a deletion."""
        if self._topics:
            self._split(partition.topic)
        slot = self._slots.get(partition)
        if slot is None:
            state = SlotState.TO_HOST if isinstance(wanted, LeaderAndIsrRow) else SlotState.TO_STOP
            self._slots[partition] = self._by_state[state][partition] = Slot(state, wanted, is_new=is_new)
            return
        slot.attempts = 0
        if isinstance(wanted, LeaderAndIsrRow):
            slot.is_new = slot.is_new or is_new
            if slot.is_deleting:
                slot.behind_delete = wanted
            else:
                self._move(partition, slot, SlotState.TO_HOST, wanted)
            return
        slot.behind_delete = None
        if wanted.delete:
            slot.is_new = False
        elif slot.is_deleting:
            if slot.wanted is None:
                return  # the deletion is in flight
            wanted = slot.wanted
        self._move(partition, slot, SlotState.TO_STOP, wanted)

    def want_topics(self, topics: Sequence[TopicRows]) -> None:
        """Set what the broker shall host of many topics."""
        few = sum(map(len, topics)) < len(self._slots)  # then it costs less not to look which topics have slots
        known = set() if few else {partition.topic for partition in self._slots}
        for topic in topics:
            if few or topic.new or topic.topic in known or topic.topic in self._topics:
                for partition, row in topic.each():
                    self.want(partition, row, is_new=partition.partition in topic.new)
            else:
                self._topics[topic.topic] = topic

    def forget(self, gone: Mapping[str, TopicId]) -> None:
        """Nothing is to be hosted of these topics any more: they are gone. What is to be deleted of them still is."""
        for topics in (self._topics, self._topics_in_flight):
            for name in [name for name, topic in topics.items() if gone.get(name) == topic.topic_id]:
                del topics[name]
        for partition in [each for each in self._slots if each.topic in gone]:
            slot = self._slots[partition]
            slot.forget(gone[partition.topic])
            if slot.in_flight is None:
                self._in_flight.pop(partition, None)
            if slot.wanted is None:
                self._rest(partition, slot)

    def take_hosts(self, max_bytes: int) -> list[TopicRows]:
        """Take the next LeaderAndIsr's content in order of arrival, about `max_bytes` at most, at least one entry.

        What stands as whole topics goes first.
        """
        if not self._topics:
            taken = self._take(SlotState.TO_HOST, max_bytes)
            return rows_by_topic(taken, [each for each in taken if self._slots[each].is_new])
        size = 0
        for name, topic in self._topics.items():
            size += 64 + len(name) + 32 * len(topic) + 3 * topic.rows.named
            if self._topics_in_flight and size > max_bytes:
                break
            self._topics_in_flight[name] = topic
        for name in self._topics_in_flight:
            del self._topics[name]
        return list(self._topics_in_flight.values())

    def take_stops(self, max_bytes: int) -> dict[TopicPartition, StopReplicaRow]:
        """Take the next StopReplica's content, about `max_bytes` at most, at least one entry."""
        taken = self._take(SlotState.TO_STOP, max_bytes)
        return {partition: row for partition, row in taken.items() if isinstance(row, StopReplicaRow)}

    def settle(self, failed: Iterable[TopicPartition], dropped: Iterable[TopicPartition], now_ms: int) -> None:
        """The request in flight was answered: `failed` is tried again later, `dropped` not at all, the rest is done."""
        again, forgotten = frozenset(failed), frozenset(dropped)
        slots, self._in_flight = self._in_flight, {}
        topics, self._topics_in_flight = self._topics_in_flight, {}
        for name in sorted({partition.topic for partition in again if partition.topic in topics}):
            newer = frozenset(self._topics[name].rows.numbers if name in self._topics else ())
            for partition, row in topics[name].each():
                if partition in again and partition.partition not in newer:
                    self._retry(partition, self._slot(partition), row, now_ms)
        for partition, slot in slots.items():
            sent, slot.in_flight = slot.in_flight, None
            assert sent is not None, "a slot in flight with nothing"
            if partition in again:
                self._retry(partition, slot, sent, now_ms)
            else:
                self._finish(partition, slot, sent, acknowledged=partition not in forgotten)

    def release_due(self, now_ms: int) -> None:
        """Let what failed be sent again once its delay is over."""
        delayed = self._by_state[SlotState.DELAYED]
        for partition, slot in [each for each in delayed.items() if each[1].retry_at_ms <= now_ms]:
            hosted = isinstance(slot.wanted, LeaderAndIsrRow)
            self._move(partition, slot, SlotState.TO_HOST if hosted else SlotState.TO_STOP, slot.wanted)

    def next_retry_ms(self) -> int | None:
        """When the next delay is over; None where nothing is delayed."""
        return min((slot.retry_at_ms for slot in self._by_state[SlotState.DELAYED].values()), default=None)

    def _slot(self, partition: TopicPartition) -> Slot:
        slot = self._slots.get(partition)
        if slot is None:
            slot = self._slots[partition] = Slot()
        return slot

    def _move(self, partition: TopicPartition, slot: Slot, state: SlotState, wanted: Row | None) -> None:
        slot.wanted = wanted
        if slot.state is not state:
            self._by_state[slot.state].pop(partition, None)
            if state is not SlotState.IDLE:
                self._by_state[state][partition] = slot
            slot.state = state

    def _rest(self, partition: TopicPartition, slot: Slot) -> None:
        """Nothing is wanted but what is in flight; without that, and if the partition is not new, the slot ends."""
        self._move(partition, slot, SlotState.IDLE, None)
        if slot.in_flight is None and slot.behind_delete is None and not slot.is_new:
            del self._slots[partition]

    def _take(self, state: SlotState, max_bytes: int) -> dict[TopicPartition, Row]:
        taken: dict[TopicPartition, Row] = {}
        size, topic = 0, ""
        for partition, slot in self._by_state[state].items():
            assert slot.wanted is not None, "a slot that waits for nothing"
            size += _estimate(slot.wanted) + (0 if partition.topic == topic else 64 + len(partition.topic))
            topic = partition.topic
            if taken and size > max_bytes:
                break
            taken[partition] = slot.wanted
        for partition, row in taken.items():
            slot = self._in_flight[partition] = self._slots[partition]
            slot.in_flight = row
            self._rest(partition, slot)
        return taken

    def _split(self, topic: str) -> None:
        """Give the partitions of a topic slots."""
        whole = self._topics.pop(topic, None)
        for partition, row in () if whole is None else whole.each():
            self._move(partition, self._slot(partition), SlotState.TO_HOST, row)

    def _retry(self, partition: TopicPartition, slot: Slot, row: Row, now_ms: int) -> None:
        if slot.state is not SlotState.IDLE:
            return  # something newer is wanted
        if not slot.attempts:
            slot.failing_since_ms = now_ms
        slot.attempts += 1
        slot.retry_at_ms = now_ms + retry_delay_ms(slot.attempts)
        self._move(partition, slot, SlotState.DELAYED, row)

    def _finish(self, partition: TopicPartition, slot: Slot, row: Row, *, acknowledged: bool) -> None:
        slot.attempts = 0
        newer = slot.wanted
        if isinstance(row, LeaderAndIsrRow):
            of_namesake = isinstance(newer, LeaderAndIsrRow) and newer.topic_id != row.topic_id
            if acknowledged and slot.behind_delete is None and not of_namesake:
                slot.is_new = False
        elif newer is None and slot.behind_delete is not None:
            self._move(partition, slot, SlotState.TO_HOST, slot.behind_delete)
            slot.behind_delete = None
        if slot.wanted is None:
            self._rest(partition, slot)


def retry_delay_ms(attempts: int) -> int:
    """Delay before the next attempt after `attempts` (1 or more) failed ones: 100 ms, doubling to 10 s."""
    return min(FIRST_RETRY_MS << min(attempts - 1, 16), LAST_RETRY_MS)


def _is_hosted(row: Row | None, topic_id: TopicId) -> bool:
    return isinstance(row, LeaderAndIsrRow) and row.topic_id == topic_id


def _is_deletion(row: Row | None) -> bool:
    return isinstance(row, StopReplicaRow) and row.delete


def _estimate(row: Row) -> int:
    if isinstance(row, StopReplicaRow):
        return 16
    replicas = row.assignment
    others = len(replicas.replicas) + len(replicas.adding) + len(replicas.removing)
    return 32 + 3 * (len(row.leadership.leader_and_isr.isr) + others)


class BrokerRequests(msgspec.Struct, frozen=True):
    """What one broker is newly wanted to do: first to stop, then to host."""

    topics: Sequence[TopicRows] = ()
    stops: Mapping[TopicPartition, StopReplicaRow] = {}

    def apply_to(self, desired: DesiredState) -> None:
        """Put it into the broker's slots."""
        for partition, stop in self.stops.items():
            desired.want(partition, stop)
        desired.want_topics(self.topics)
