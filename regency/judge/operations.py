"""What clients did and saw, and what befell the cluster meanwhile: the records of a history, and their JSON lines.

One record is one line of JSON with an `op` field. A history is a bag of records: their order in a file means nothing,
order is in `session` and `number`. Times are milliseconds of one clock that all clients share, for example the
simulation's; where clients' clocks differ, leave `leader_epoch` and `leader` out of what they report.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from regency.model.errors import RegencyError

ALL: Final = -1
"""`acks` of a send that waits for every replica in sync."""

UNKNOWN: Final = -1
"""An epoch, a broker or an offset the client does not know."""


Partition = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Of what Spark looks at, to know where a line belongs."""


class HistoryMalformed(RegencyError):
    """A history contradicts itself as a record of what clients did, so that nothing can be judged by it."""

    code = "history_malformed"


class Outcome(StrEnum):
    """What a producer knows of a send in the end."""

    ACKNOWLEDGED = "acknowledged"
    FAILED = "failed"
    """Certainly not written, now or later: it never left the client, or every attempt was refused before the append
    (too large, corrupt, not enough replicas). NOT_LEADER_OR_FOLLOWER is none of these: a deposed leader answers it for
    what it has appended already; neither is NOT_ENOUGH_REPLICAS_AFTER_APPEND."""
    INDETERMINATE = "indeterminate"
    """Timed out, connection lost, or still under way at the end: written once, more than once, later, or never."""


class Send(msgspec.Struct, frozen=True, tag_field="op", tag="send", omit_defaults=True, gc=False):
    """One record handed to a producer. All attempts of the client itself are one send."""

    client: str
    session: int
    """Producer session of the client: one producer id and epoch. A client that gives up a record of an idempotent
    producer and goes on does so in a new session, as Kafka's clients bump the epoch."""
    number: int
    """Place among the session's sends to this partition, from 0."""
    topic: str
    partition: Partition
    value: int
    """Identity of the record's content; no two sends to a partition share one."""
    acks: int
    """0, 1 or ALL."""
    idempotent: bool
    invoked_ms: int
    completed_ms: int
    """When the outcome was known; for an indeterminate one, when the client stopped waiting."""
    outcome: Outcome
    offset: int = UNKNOWN
    """Offset of the acknowledgement; UNKNOWN otherwise, for acks 0, and where a broker knew a repeated write by its
    number only."""
    leader: int = UNKNOWN
    """Broker that acknowledged."""
    attempts: int = UNKNOWN
    """Requests that carried it; UNKNOWN where the client does not tell."""
    key: str = ""
    """The record's key where its topic is compacted; empty = none, and then compaction never takes it away."""
    tombstone: bool = False
    """Whether it deletes its key: compaction may take it away, and everything of the key before it."""


class Run(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Records at consecutive offsets, the first at `offset`."""

    offset: int
    values: tuple[int, ...]

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.offset + len(self.values)


class Poll(msgspec.Struct, frozen=True, tag_field="op", tag="poll", omit_defaults=True):
    """What one poll of a consumer gave of one partition."""

    client: str
    session: Int64
    """Consumer session: within one, every poll goes on where the one before it ended. A new assignment is a new one:
    who polls one partition in a session is taken to poll all that it polled or sought in it."""
    number: int
    """Place among the session's polls and seeks of this partition, from 0."""
    topic: str
    partition: Partition
    position: int
    """Position before the poll: the offset that is wanted next."""
    next_position: int
    """Position after the poll."""
    runs: tuple[Run, ...]
    invoked_ms: Int64
    completed_ms: int
    leader_epoch: int = UNKNOWN
    """Epoch of the leader that answered: the one that the request named, since a broker refuses any other. UNKNOWN
    where it named none; an epoch from metadata or from a batch's header is not it."""
    topic_id: str = ""
    """Id of the topic that was read; empty = placed by its times, where the topic was re-created."""


class Seek(msgspec.Struct, frozen=True, tag_field="op", tag="seek", omit_defaults=True):
    """A consumer changed its position itself, or a reset after OFFSET_OUT_OF_RANGE did. Ends expectations of order."""

    client: str
    session: Int64
    number: int
    """Counts together with the session's polls."""
    topic: str
    partition: Partition
    at_ms: int
    position: int = UNKNOWN
    """The new position; UNKNOWN where only the next poll tells it."""
    topic_id: str = ""


class ListedEnd(msgspec.Struct, frozen=True, tag_field="op", tag="listed_end", omit_defaults=True):
    """A client asked for a partition's end (ListOffsets, latest) and was told its high watermark."""

    client: str
    topic: str
    partition: Partition
    end: int
    invoked_ms: int
    completed_ms: int
    leader_epoch: int = UNKNOWN
    """As in Poll."""
    leader: int = UNKNOWN
    """Broker that answered."""
    topic_id: str = ""


class FinalRead(msgspec.Struct, frozen=True, tag_field="op", tag="final_read", omit_defaults=True):
    """The whole log after everything healed. Decides about loss; at most one for each partition and topic id."""

    topic: str
    partition: Partition
    log_start: int
    high_watermark: int
    runs: tuple[Run, ...]
    """All of [log_start, high_watermark)."""
    completed_ms: int
    topic_id: str = ""


class UncleanElection(msgspec.Struct, frozen=True, tag_field="op", tag="unclean_election"):
    """A replica outside the ISR became leader."""

    topic: str
    partition: Partition
    at_ms: int


class LossyCrash(msgspec.Struct, frozen=True, tag_field="op", tag="lossy_crash"):
    """A replica lost what it had appended but not synced."""

    topic: str
    partition: Partition
    at_ms: int
    replicas: int
    """Replicas of the partition that lost their tails and have not come back into the ISR since, this one included."""
    in_sync: int
    """Members of the ISR when it happened, crashed ones included, and others with logs as long that can be asked."""


class LeaderChanged(msgspec.Struct, frozen=True, tag_field="op", tag="leader_changed"):
    """A partition got a new leader or leader epoch."""

    topic: str
    partition: Partition
    at_ms: int


class EpochBumped(msgspec.Struct, frozen=True, tag_field="op", tag="epoch_bumped"):
    """An idempotent producer took a new epoch or id while sends to the partition had no answer, and sent them again."""

    topic: str
    partition: Partition
    at_ms: int
    client: str


class LogStartMoved(msgspec.Struct, frozen=True, tag_field="op", tag="log_start_moved"):
    """Retention or DeleteRecords took away what is below `log_start`. Say it no later than it can be seen."""

    topic: str
    partition: Partition
    at_ms: int
    log_start: int
    topic_id: str = ""


class Compacted(msgspec.Struct, frozen=True, tag_field="op", tag="compacted"):
    """The partition is compacted: a record may go once a later one of its key is there, and its offset stays empty."""

    topic: str
    partition: Partition


class Recreated(msgspec.Struct, frozen=True, tag_field="op", tag="recreated"):
    """A topic was deleted and made again: offsets begin again. What overlaps it without an id is not judged."""

    topic: str
    began_ms: int
    """When the deletion was asked for."""
    ended_ms: int
    """When every broker had the new topic and none answered for the old one any more."""
    old_topic_id: str
    topic_id: str


class Drained(msgspec.Struct, frozen=True, tag_field="op", tag="drained"):
    """From here on every consumer had the time to read to the end. A session that polls any partition after it has a
    finding for each that it stopped short of, and every partition with records needs such a session."""

    at_ms: Int64


Operation = (
    Send
    | Poll
    | Seek
    | ListedEnd
    | FinalRead
    | UncleanElection
    | LossyCrash
    | LeaderChanged
    | EpochBumped
    | LogStartMoved
    | Compacted
    | Recreated
    | Drained
)

_encoder = msgspec.json.Encoder()
_decoder: msgspec.json.Decoder[Operation] = msgspec.json.Decoder(Operation)


def encode_operations(operations: Sequence[Operation]) -> bytes:
    """One line of JSON per record, each ending in a newline."""
    return _encoder.encode_lines(operations)


def decode_operations(lines: Iterable[bytes | str]) -> list[Operation]:
    """The records on the lines; empty ones are skipped. Raises HistoryMalformed naming the line that is no record."""
    operations: list[Operation] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            operations.append(_decoder.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise HistoryMalformed(f"line {number} of the history is no operation: {printable(str(error))}.") from error
    return operations


def printable(text: str) -> str:
    """A text for a terminal: what steers one, and bytes that are no UTF-8, as escapes. Pure."""
    return "".join(
        each if each.isprintable() else each.encode("unicode_escape").decode()
        for each in text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    )
