"""Defects of what the controller sends, and of how it takes answers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import msgspec

from regency.controller.channel.channel_manager import ControllerChannelManager
from regency.controller.channel.messages import Row, Rows, TopicRows
from regency.controller.channel.metadata import MetadataLog, Snapshot, WholeMetadata
from regency.controller.channel.request_batch import RequestBatch, RowPool
from regency.controller.channel.sender import Outgoing, Sender
from regency.controller.channel.slots import DesiredState, Slot, SlotState
from regency.controller.state.context import ControllerContext
from regency.controller.state.topic_entry import TopicEntry
from regency.controller.term import Term
from regency.model.facts import Broker, LeaderIsrAndControllerEpoch
from regency.model.ids import BrokerId, TopicPartition
from regency.runtime.grpc import channels as grpc_channels
from regency.runtime.grpc.channels import RenewedChannel
from simulation.defects.patching import Defects, Patch

DEFECTS = Defects()


@DEFECTS.of("Kafka 2.4")
def errors_forgotten(patch: Patch) -> None:
    """What an agent answered with an error is not sent again."""
    settle = DesiredState.settle

    def forgetful(
        self: DesiredState, failed: Iterable[TopicPartition], dropped: Iterable[TopicPartition], now_ms: int
    ) -> None:
        settle(self, (), (*failed, *dropped), now_ms)

    patch.set(DesiredState, "settle", forgetful)


@DEFECTS.of("own rule")
def forgotten_connections_kept(patch: Patch) -> None:
    """A call without an answer leaves its connection in use, and no pings find out that nothing passes on it."""
    patch.edit(RenewedChannel, "_leave", ("if silent and", "if False and"))
    patch.set(grpc_channels, "CHANNEL_OPTIONS", ())


@DEFECTS.of("Kafka 2.4")
def silence_is_done(patch: Patch) -> None:
    """A request without an answer is not sent again."""
    hold = Sender.on_no_answer

    def forgetful(self: Sender, why: str, now_ms: int) -> None:
        hold(self, why, now_ms)
        sent = self._in_flight
        if sent is not None and sent.metadata is None and not sent.full:
            self._in_flight = None
            self.desired.settle((), (), now_ms)

    patch.set(Sender, "on_no_answer", forgetful)


@DEFECTS.of("own rule")
def older_content_wins(patch: Patch) -> None:
    """What failed is sent again in place of newer content."""
    retry = DesiredState._retry

    def over(self: DesiredState, partition: TopicPartition, slot: Slot, row: Row, now_ms: int) -> None:
        self._move(partition, slot, SlotState.IDLE, None)
        retry(self, partition, slot, row, now_ms)

    def one_by_one(self: DesiredState, topics: Sequence[TopicRows]) -> None:
        for topic in topics:
            for partition, row in topic.each():
                self.want(partition, row, is_new=partition.partition in topic.new)

    patch.set(DesiredState, "_retry", over)
    patch.set(DesiredState, "want_topics", one_by_one)


@DEFECTS.of("KAFKA-10314")
def new_only_once(patch: Patch) -> None:
    """A repeated request does not say that the partition is new."""
    take, following = DesiredState.take_hosts, Sender.next

    def once(self: DesiredState, max_bytes: int) -> list[TopicRows]:
        taken = take(self, max_bytes)
        for slot in self._in_flight.values():
            slot.is_new = False
        return taken

    def following_without(self: Sender, now_ms: int) -> Outgoing | None:
        sent = self._in_flight
        if sent is not None:
            told = [msgspec.structs.replace(topic, new=frozenset()) for topic in sent.topics]
            self._in_flight = msgspec.structs.replace(sent, topics=told)
        return following(self, now_ms)

    patch.set(DesiredState, "take_hosts", once)
    patch.set(Sender, "next", following_without)


@DEFECTS.of("KAFKA-9212")
def old_epoch_in_metadata(patch: Patch) -> None:
    """After a bump of the leader epoch the metadata tells the one before."""
    told: WeakKeyDictionary[ControllerContext, dict[TopicPartition, LeaderIsrAndControllerEpoch]] = WeakKeyDictionary()
    of_some = RowPool.of_some

    def old(self: RowPool, entry: TopicEntry, numbers: Sequence[int], *, offline: bool = False) -> Rows:
        rows = of_some(self, entry, numbers, offline=offline)
        if not offline:
            return rows
        known, names = told.setdefault(self._context, {}), [entry.names[number] for number in rows.numbers]
        mixed = [_with_known_epoch(known.get(name), now) for name, now in zip(names, rows.leaderships, strict=True)]
        known.update(zip(names, mixed, strict=True))
        return Rows(rows.numbers, mixed, rows.assignments, rows.offline)

    patch.set(RowPool, "of_some", old)


def _with_known_epoch(
    known: LeaderIsrAndControllerEpoch | None, told: LeaderIsrAndControllerEpoch
) -> LeaderIsrAndControllerEpoch:
    """The new state under the leader epoch that was told before, where the leader is the same."""
    if known is None:
        return told
    before, now = known.leader_and_isr, told.leader_and_isr
    if before.leader != now.leader:
        return told
    mixed = msgspec.structs.replace(now, leader_epoch=before.leader_epoch)
    return msgspec.structs.replace(told, leader_and_isr=mixed)


@DEFECTS.of("KAFKA-13225")
def brokers_instead_of_partitions(patch: Patch) -> None:
    """A delta that names brokers leaves the partitions out."""
    append = RequestBatch._append_deltas

    def either(self: RequestBatch, channels: ControllerChannelManager, pool: RowPool) -> None:
        if self._brokers_changed:
            self._metadata.clear()
        append(self, channels, pool)

    patch.set(RequestBatch, "_append_deltas", either)


@DEFECTS.of("own rule")
def snapshot_is_newest(patch: Patch) -> None:
    """After a snapshot the cursor stands at the newest delta, also where the snapshot is older."""

    def begin(log: MetadataLog) -> WholeMetadata | None:
        snapshot = log.snapshot()
        return None if snapshot is None else WholeMetadata(Snapshot(log.last, snapshot.pieces), log.last)

    patch.set(WholeMetadata, "begin", staticmethod(begin))


@DEFECTS.of("own rule")
def forgotten_deltas_skipped(patch: Patch) -> None:
    """A broker far behind gets the oldest delta that is kept in place of a snapshot."""
    read = MetadataLog.read

    def newest(self: MetadataLog, first: int, max_bytes: int = 2 << 20) -> list[bytes] | None:
        return read(self, max(first, self._first), max_bytes)

    patch.set(MetadataLog, "read", newest)


@DEFECTS.of("own rule")
def numbers_restart(patch: Patch) -> None:
    """A new channel to the same incarnation counts from 1."""
    remove = ControllerChannelManager.remove

    def forgetful(self: ControllerChannelManager, broker: BrokerId) -> None:
        remove(self, broker)
        self._reached.pop(broker, None)

    patch.set(ControllerChannelManager, "remove", forgetful)


@DEFECTS.of("own rule")
def same_number_twice(patch: Patch) -> None:
    """Two requests have the same number."""
    following = Sender._next_seq

    def every_other(self: Sender) -> int:
        number = following(self)
        if number % 2 == 0:
            self._seq -= 1
        return self._seq

    patch.set(Sender, "_next_seq", every_other)


@DEFECTS.of("KAFKA-7235")
def begun_too_soon(patch: Patch) -> None:
    """A conversation begins before the controller knows all that the broker hosts."""
    add = ControllerChannelManager.add

    def begin(self: ControllerChannelManager, broker: Broker) -> None:
        add(self, broker)
        self.start(broker.id)

    patch.set(ControllerChannelManager, "add", begin)


@DEFECTS.of("KAFKA-12315")
def senders_survive_the_term(patch: Patch) -> None:
    """The senders of a resigned controller go on."""
    patch.set(Term, "close", lambda self: self.watches.disarm_all())
