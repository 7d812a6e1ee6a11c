"""What is sent next to one incarnation of a broker, and what its answers mean. Passive: no thread, network or clock.

One request is in flight at a time. LeaderAndIsr goes first, then metadata, then StopReplica, and metadata follows at
least every other request; a StopReplica lets at most so many others pass. The first LeaderAndIsr is `full`, in chunks;
stops wait for its last chunk.
See docs/internals/architecture.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from itertools import zip_longest

import msgspec

from regency.controller.channel import messages
from regency.controller.channel.messages import StopReplicaRow, TopicRows
from regency.controller.channel.metadata import CHUNK_BYTES, MetadataLog, MetadataPart, WholeMetadata
from regency.controller.channel.slots import DesiredState, retry_delay_ms
from regency.model.facts import Broker
from regency.model.ids import BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, TopicId, TopicPartition
from regency.model.kafka_errors import ErrorCode
from regency.protos import control_pb2 as pb


class Rpc(Enum):
    """The methods of AgentControl that change something."""

    LEADER_AND_ISR = "LeaderAndIsr"
    UPDATE_METADATA = "UpdateMetadata"
    STOP_REPLICA = "StopReplica"


STOPS_WAIT = 8
"""Requests that may pass a StopReplica: a busy cluster has news at any time."""

Message = pb.LeaderAndIsrRequest | pb.UpdateMetadataRequest | pb.StopReplicaRequest


class Outgoing(msgspec.Struct, frozen=True):
    """Content of one request, not yet encoded."""

    rpc: Rpc
    seq: int
    topics: Sequence[TopicRows] = ()
    full: bool = False
    last_chunk: bool = False
    stops: Mapping[TopicPartition, StopReplicaRow] = {}
    metadata: MetadataPart | None = None


class Trouble(msgspec.Struct, frozen=True):
    """What an answer obliges the controller to look at. The affected slots stay, and are retried meanwhile."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    stale_controller: bool = False
    """It has seen a newer controller: read /controller_epoch."""
    controller_epoch: ControllerEpoch = ControllerEpoch(0)
    """The newest one it has seen, where `stale_controller`."""
    stale_broker: bool = False
    """It is another incarnation: read /brokers/ids."""
    fenced: Mapping[TopicPartition, LeaderEpoch] = {}
    """It holds these higher leader epochs: read the states."""
    failed_storage: tuple[TopicPartition, ...] = ()
    """Their directory failed; these slots are dropped."""
    unknown: tuple[TopicPartition, ...] = ()
    """It knows the topic under another id, or is not assigned: read the assignment."""


class Deleted(msgspec.Struct, frozen=True):
    """Partitions of which a broker holds nothing any more, because it was told to delete them; with the topics' ids."""

    broker: BrokerId
    broker_epoch: BrokerEpoch
    partitions: Mapping[TopicPartition, TopicId]


class Sender:
    """The conversation with one broker epoch. Not thread-safe: its owner guards it.

    `last_seq` is the number of the last request of an earlier conversation with the same incarnation, 0 for none.
    """

    def __init__(
        self,
        origin: messages.Origin,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        metadata: MetadataLog,
        *,
        last_seq: int = 0,
    ) -> None:
        self.desired = DesiredState()
        self.snapshot_wanted = False
        """No usable snapshot exists: one must be made."""
        self.failures = 0
        """Requests that got no answer, or an answer that refused all of it, since the last good one."""
        self.last_failure = ""
        self._origin = origin
        self._broker = broker
        self._broker_epoch = broker_epoch
        self._metadata = metadata
        self._started = False
        self._full = True
        self._seq = last_seq
        self._in_flight: Outgoing | None = None
        self._awaiting = False
        self._hold_until_ms = 0
        self._cursor: int | None = None
        self._whole: WholeMetadata | None = None
        self._last_rpc = Rpc.UPDATE_METADATA
        self._deleted: dict[TopicPartition, TopicId] = {}
        self._chosen_ms = 0
        """When the request in flight was chosen."""
        self._passed = 0
        """Requests chosen while a StopReplica waited."""

    @property
    def broker(self) -> BrokerId:
        """To whom."""
        return self._broker

    @property
    def label(self) -> str:
        """The broker and its epoch, for people."""
        return f"broker {self._broker} (epoch {self._broker_epoch})"

    @property
    def settled(self) -> bool:
        """Whether the broker has acknowledged everything."""
        return self._started and not self._full and self._in_flight is None and not self.desired.unacknowledged

    @property
    def reached(self) -> tuple[BrokerEpoch, int]:
        """The incarnation, and the number of the last request to it."""
        return self._broker_epoch, self._seq

    def oldest_attempt_ms(self, now_ms: int) -> int:
        """For how long something has been sent, again and again, and is not acknowledged; 0 where nothing is."""
        since = [] if self._in_flight is None else [self._chosen_ms]
        failing = self.desired.failing_since_ms()
        return now_ms - min((*since, *([] if failing is None else [failing])), default=now_ms)

    def start(self) -> None:
        """What is wanted by now is the whole of what the broker hosts: begin with the full LeaderAndIsr."""
        self._started = True

    def next(self, now_ms: int) -> Outgoing | None:
        """The next request to send; None: wait until `wake_at`, or until something changes."""
        self.snapshot_wanted = False  # while nothing may be sent, nothing is asked for either
        if not self._started or self._awaiting or now_ms < self._hold_until_ms:
            return None
        if self._in_flight is None:
            self.desired.release_due(now_ms)
            self._in_flight = self._choose()
            self._chosen_ms = now_ms
        self._awaiting = self._in_flight is not None
        return self._in_flight

    def wake_at(self, now_ms: int) -> int | None:
        """When `next` may have something without anything else changing; None: not before."""
        if not self._started or self._awaiting:
            return None
        if now_ms < self._hold_until_ms:
            return self._hold_until_ms
        return self.desired.next_retry_ms()

    def encode(self, outgoing: Outgoing, brokers: Mapping[BrokerId, Broker], listener: str) -> Message:
        """The request as a message. Reads nothing that changes, so it needs no guard."""
        header = messages.header(self._origin, self._broker_epoch, outgoing.seq)
        if outgoing.rpc is Rpc.LEADER_AND_ISR:
            return _leader_and_isr_request(header, outgoing, brokers, listener)
        if outgoing.rpc is Rpc.STOP_REPLICA:
            return pb.StopReplicaRequest(header=header, topics=messages.stop_partitions(outgoing.stops))
        assert outgoing.metadata is not None
        return pb.UpdateMetadataRequest(
            header=header,
            snapshot=outgoing.metadata.snapshot,
            first_chunk=outgoing.metadata.first_chunk,
            last_chunk=outgoing.metadata.last_chunk,
            first_delta=outgoing.metadata.first_delta,
            deltas=outgoing.metadata.deltas,
        )

    def on_no_answer(self, why: str, now_ms: int) -> None:
        """The request in flight got no answer: the same is sent again, under the same number, after a growing delay."""
        self._awaiting = False
        self._hold(why, now_ms)

    def on_answer(self, answer: pb.ControlResponse, now_ms: int) -> Trouble | None:
        """Take in the answer to the request in flight."""
        sent = self._in_flight
        assert sent is not None, "an answer without a request"
        self._awaiting = False
        if answer.error_code == ErrorCode.NONE:
            self._in_flight = None
            self.failures = 0
            return self._accepted(sent, answer, now_ms)
        self._hold(f"{_name(answer.error_code)} {answer.message}".strip(), now_ms)
        if sent.rpc is Rpc.UPDATE_METADATA and answer.error_code == ErrorCode.INVALID_REQUEST:
            self._in_flight = None
            self._cursor = self._whole = None
            return None
        if sent.full or sent.metadata is not None:
            self._in_flight = msgspec.structs.replace(sent, seq=self._next_seq())
        else:
            self._in_flight = None
            hosted = (partition for topic in sent.topics for partition in topic.partitions())
            self.desired.settle((*sent.stops, *hosted), (), now_ms)
        if answer.error_code == ErrorCode.STALE_CONTROLLER_EPOCH:
            newest = ControllerEpoch(answer.controller_epoch)
            return Trouble(self._broker, self._broker_epoch, stale_controller=True, controller_epoch=newest)
        if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
            return Trouble(self._broker, self._broker_epoch, stale_broker=True)
        return None

    def take_deleted(self) -> Deleted | None:
        """What was confirmed deleted since the last call; None: nothing."""
        if not self._deleted:
            return None
        deleted, self._deleted = self._deleted, {}
        return Deleted(self._broker, self._broker_epoch, deleted)

    def _choose(self) -> Outgoing | None:
        if self._full:
            return self._leader_and_isr()
        outgoing = None
        if not self.desired.has_stops or self._passed < STOPS_WAIT:
            outgoing = self._choose_news()
        if not self.desired.has_stops:
            self._passed = 0
        elif outgoing is not None:
            self._passed += 1
        else:
            stops = self.desired.take_stops(CHUNK_BYTES)
            self._last_rpc, self._passed = Rpc.STOP_REPLICA, 0
            outgoing = Outgoing(Rpc.STOP_REPLICA, self._next_seq(), stops=stops)
        return outgoing

    def _choose_news(self) -> Outgoing | None:
        metadata_first = self._last_rpc is Rpc.LEADER_AND_ISR
        if self.desired.has_hosts and not metadata_first:
            return self._leader_and_isr()
        outgoing = self._update_metadata()
        if outgoing is None and self.desired.has_hosts:
            return self._leader_and_isr()
        if outgoing is not None:
            self._last_rpc = outgoing.rpc
        return outgoing

    def _leader_and_isr(self) -> Outgoing:
        self._last_rpc = Rpc.LEADER_AND_ISR
        return Outgoing(
            Rpc.LEADER_AND_ISR,
            self._next_seq(),
            topics=self.desired.take_hosts(CHUNK_BYTES),
            full=self._full,
            last_chunk=self._full and not self.desired.has_hosts,
        )

    def _update_metadata(self) -> Outgoing | None:
        if self._cursor is not None:
            deltas = self._metadata.read(self._cursor)
            if deltas is not None:
                return self._metadata_request(MetadataPart(self._cursor, tuple(deltas))) if deltas else None
            self._cursor = None
        part = None if self._whole is None else self._whole.next_part(self._metadata)
        if part is None:
            self._whole = WholeMetadata.begin(self._metadata)
            part = None if self._whole is None else self._whole.next_part(self._metadata)
        self.snapshot_wanted = part is None
        return None if part is None else self._metadata_request(part)

    def _metadata_request(self, metadata: MetadataPart) -> Outgoing:
        return Outgoing(Rpc.UPDATE_METADATA, self._next_seq(), metadata=metadata)

    def _accepted(self, sent: Outgoing, answer: pb.ControlResponse, now_ms: int) -> Trouble | None:
        if sent.metadata is not None:
            self._advance(sent.metadata)
            return None
        retried, trouble = self._judge(sent, answer)
        self.desired.settle(retried, trouble.failed_storage, now_ms)
        if sent.rpc is Rpc.STOP_REPLICA:
            refused = {*retried, *trouble.failed_storage}
            deleted = (each for each, stop in sent.stops.items() if stop.delete and each not in refused)
            self._deleted.update((each, sent.stops[each].topic_id) for each in deleted)
        if sent.full and sent.last_chunk:
            self._full = False
        return trouble if trouble.fenced or trouble.failed_storage or trouble.unknown else None

    def _judge(self, sent: Outgoing, answer: pb.ControlResponse) -> tuple[Sequence[TopicPartition], Trouble]:
        """What is to be tried again, and what is to be looked at."""
        by_code: dict[int, list[TopicPartition]] = {}
        fenced: dict[TopicPartition, LeaderEpoch] = {}
        for topic in answer.topics:
            for number, code, epoch in zip_longest(topic.partition, topic.error_code, topic.leader_epoch, fillvalue=-1):
                partition = TopicPartition(topic.topic, number)
                by_code.setdefault(code, []).append(partition)
                if code == ErrorCode.FENCED_LEADER_EPOCH:
                    fenced[partition] = LeaderEpoch(epoch)
        by_code.pop(ErrorCode.NONE, None)
        failed_storage = tuple(by_code.pop(ErrorCode.KAFKA_STORAGE_ERROR, ()))
        unassigned = tuple(by_code.get(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ()))
        strangers = by_code.get(ErrorCode.INCONSISTENT_TOPIC_ID, [])
        unknown = (*strangers, *unassigned)
        if sent.rpc is Rpc.STOP_REPLICA:
            by_code.pop(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)  # nothing there is what was wanted
            unknown = tuple(strangers)
            # What it holds is of another topic of that name: of the one to delete it holds nothing.
            deletes = {each for each, stop in sent.stops.items() if stop.delete}
            by_code[ErrorCode.INCONSISTENT_TOPIC_ID] = [each for each in strangers if each not in deletes]
        retried = tuple(partition for code in sorted(by_code) for partition in by_code[code])
        own = self._broker_epoch
        return retried, Trouble(self._broker, own, fenced=fenced, failed_storage=failed_storage, unknown=unknown)

    def _advance(self, sent: MetadataPart) -> None:
        if not sent.snapshot:
            self._cursor = sent.first_delta + len(sent.deltas)
        elif sent.last_chunk:
            self._cursor, self._whole = sent.first_delta, None
        else:
            assert self._whole is not None, "an answer to a part of nothing"
            self._whole.taken(sent)

    def _hold(self, why: str, now_ms: int) -> None:
        self.failures += 1
        self.last_failure = why
        self._hold_until_ms = now_ms + retry_delay_ms(self.failures)

    def _next_seq(self) -> int:
        self._seq += 1
        return self._seq


def _leader_and_isr_request(
    header: pb.Header, outgoing: Outgoing, brokers: Mapping[BrokerId, Broker], listener: str
) -> pb.LeaderAndIsrRequest:
    leaders = frozenset[BrokerId]().union(*(topic.rows.leaders for topic in outgoing.topics))
    request = pb.LeaderAndIsrRequest(
        header=header,
        full=outgoing.full,
        last_chunk=outgoing.last_chunk,
        leaders=messages.leader_endpoints(leaders, brokers, listener),
    )
    for topic in outgoing.topics:
        messages.add_rows(request, topic)
    return request


def _name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"
