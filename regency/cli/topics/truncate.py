"""`regency topics truncate`: deletes the oldest records of partitions, and waits until no replica offers them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import click
import msgspec

from regency.cli.asking.missing import explained
from regency.cli.asking.naming import named
from regency.cli.asking.refusals import TopicMissing
from regency.cli.asking.wire import REQUEST_TIMEOUT_MS, ClusterWire, cluster_wire
from regency.cli.context import (
    INT64_MAX,
    TOPIC_NAME,
    Count,
    Seconds,
    cluster_options,
    conclude,
    current,
    print_json,
    say,
)
from regency.cli.exits import CommandFailed, Exit
from regency.kafka.apis import Message
from regency.model.ids import BrokerId
from regency.model.kafka_errors import ErrorCode
from regency.model.words import counted

_DELETE_VERSION = 2
_OFFSETS_VERSION = 5
_CONSUMER = -1
LATEST, EARLIEST = -1, -2
LOOK_EVERY_S = 0.3
_PASSING: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""What a leader answers that may be another in a moment, and a partition of which a replica does not follow."""
_WORDS: Final[Mapping[int, str]] = {
    ErrorCode.POLICY_VIOLATION: "its topic's cleanup.policy has no delete, so its records are kept",
    ErrorCode.OFFSET_OUT_OF_RANGE: "that is beyond its last committed record",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "records of internal topics are not deleted",
    ErrorCode.REQUEST_TIMED_OUT: "its leader offers them no more, and a replica still has them",
    ErrorCode.LEADER_NOT_AVAILABLE: "it has no leader",
}
_Left = Callable[[], list[int]]
_Take = Callable[[BrokerId, Sequence[int]], None]
_ANSWERED_IN_VAIN: Final = "its leader does not answer"


class TruncatedRow(msgspec.Struct, frozen=True):
    """A partition in what `regency topics truncate -o json` prints."""

    topic: str
    partition: int
    below_offset: int | None
    """Records below this offset were to be deleted; null where its leader could not say where the partition ends."""
    log_start: int | None = None
    """Where its oldest replica begins now; null where that is not known."""
    offsets_deleted: int | None = None
    """Offsets that were there before and are deleted now."""
    error: str | None = None
    """Why it is not done."""


@click.command("truncate", short_help="Delete the oldest records of a topic or a partition.")
@click.argument("name", metavar="TOPIC[-PARTITION]", type=TOPIC_NAME)
@click.option("--before", type=Count(0, INT64_MAX), metavar="OFFSET", help="Delete the records below it.")
@click.option("--to-end", is_flag=True, help="Delete all records that are committed now.")
@click.option("--yes", is_flag=True, help="Do not ask whether that is meant.")
@click.option(
    "--timeout", type=Seconds(0), default=60.0, show_default=True, help="Seconds to wait until no replica has them."
)
@cluster_options
def truncate_topic(name: str, before: int | None, to_end: bool, yes: bool, timeout: float) -> int:
    """Delete the oldest records of a partition, or all that a topic has, and wait until no live replica offers them.

    Consumers that were below go on where their auto.offset.reset says. Their files go with the next retention run.
    Exit status 5 when the time is over: then the leaders offer the records no more, but a replica may that leads later.
    To say the same again is harmless. Exit status 6 without a yes.

    \b
    Examples:
      regency topics truncate flights-3 --before 120000
      regency topics truncate flights --to-end --yes -o json
    """
    if (before is None) == (not to_end):
        raise click.UsageError("Say how far: --before OFFSET or --to-end.")
    deadline = time.monotonic() + timeout
    with cluster_wire(current().bootstrap_servers()) as wire:
        topic, partitions = _which(wire, name)
        if before is not None and len(partitions) > 1:
            raise click.UsageError(
                f"Topic {topic} has {len(partitions)} partitions, each with offsets of its own: "
                f"say {topic}-0 or another."
            )
        work = _Truncation(wire, topic, partitions, before, deadline)
        work.look()
        _confirm(work, yes)
        work.delete()
    rows = work.rows()
    for row in rows:
        _tell(row)
    if current().json:
        print_json(rows)
    if all(row.error is None for row in rows):
        return Exit.DONE
    return Exit.TIMED_OUT if not work.refused else Exit.FAILED


def _which(wire: ClusterWire, name: str) -> tuple[str, list[int]]:
    try:
        found, number = named(wire, name)
    except TopicMissing as error:
        raise explained(current().bootstrap_servers(), error) from error
    return found.name, [each.partition_index for each in found.partitions] if number is None else [number]


class _Truncation:
    """Partitions of a topic, asked at their leaders until all is done or time is up. Each question may be repeated."""

    def __init__(
        self, wire: ClusterWire, topic: str, partitions: Sequence[int], before: int | None, deadline: float
    ) -> None:
        """`before` is None for all that is committed now."""
        self.topic = topic
        self.targets: dict[int, int] = {}
        """Below which offset records are to be deleted."""
        self.begins: dict[int, int] = {}
        """Where partitions began before."""
        self.refused: dict[int, int] = {}
        """Errors that do not pass."""
        self._wire = wire
        self._partitions = partitions
        self._before = before
        self._deadline = deadline
        self._starts: dict[int, int] = {}
        self._late: dict[int, int | None] = dict.fromkeys(partitions, ErrorCode.LEADER_NOT_AVAILABLE)
        """The last error of what is not done; None where nobody answered."""

    def look(self) -> None:
        """Find where the partitions begin and end. An end is asked for once: what comes later stays."""
        self._ask_until(lambda: [each for each in self._partitions if each not in self.begins], self._take_begins)
        if self._before is not None:
            self.targets = dict.fromkeys(self._partitions, self._before)
            return
        self._ask_until(lambda: [each for each in self._partitions if each not in self.targets], self._take_ends)

    def delete(self) -> None:
        """Delete, again and again where a leader moves or a replica is late: the offsets stay the same."""
        self._late.update(dict.fromkeys(self.targets, ErrorCode.LEADER_NOT_AVAILABLE))
        self._ask_until(
            lambda: [each for each in self.targets if each not in self._starts and each not in self.refused],
            self._take_deleted,
        )

    def rows(self) -> list[TruncatedRow]:
        """What became of each partition."""
        return [self._row(each) for each in self._partitions]

    def _row(self, partition: int) -> TruncatedRow:
        before, begin, start = self.targets.get(partition), self.begins.get(partition), self._starts.get(partition)
        if start is not None:
            deleted = None if begin is None else max(0, start - begin)
            return TruncatedRow(self.topic, partition, before, start, deleted)
        error = self.refused.get(partition, self._late.get(partition))
        words = _ANSWERED_IN_VAIN if error is None else _WORDS.get(error) or _name_of(error)
        return TruncatedRow(self.topic, partition, before, error=words)

    def _ask_until(self, left: _Left, take: _Take) -> None:
        """Ask the leaders of what is left; the first time whatever the time is."""
        while wanted := left():
            for leader, partitions in self._by_leader(wanted).items():
                try:
                    take(leader, partitions)
                except CommandFailed:  # it died, or hangs; another may lead in a moment
                    self._late.update(dict.fromkeys(partitions))
            if not left() or time.monotonic() >= self._deadline:
                return
            time.sleep(LOOK_EVERY_S)

    def _by_leader(self, partitions: Collection[int]) -> dict[BrokerId, list[int]]:
        found: dict[BrokerId, list[int]] = {}
        [topic] = self._wire.topics([self.topic])
        for each in topic.partitions:
            if each.partition_index in partitions and each.leader is not None:
                found.setdefault(BrokerId(each.leader), []).append(each.partition_index)
        return found

    def _take_begins(self, leader: BrokerId, partitions: Sequence[int]) -> None:
        self.begins.update(self._offsets(leader, partitions, EARLIEST))

    def _take_ends(self, leader: BrokerId, partitions: Sequence[int]) -> None:
        self.targets.update(self._offsets(leader, partitions, LATEST))

    def _offsets(self, leader: BrokerId, partitions: Sequence[int], timestamp: int) -> dict[int, int]:
        from regency.kafka.codec import ListOffsetsRequest

        topic_class = ListOffsetsRequest.ListOffsetsTopic
        asked = [
            topic_class.ListOffsetsPartition(partition_index=each, timestamp=timestamp, current_leader_epoch=-1)
            for each in partitions
        ]
        request = ListOffsetsRequest(
            replica_id=_CONSUMER, isolation_level=0, topics=[topic_class(name=self.topic, partitions=asked)]
        )
        found = {}
        for each in _answers(self._wire.ask(request, _OFFSETS_VERSION, broker=leader)):
            if each.error_code == ErrorCode.NONE:
                found[each.partition_index] = each.offset
            else:
                self._late[each.partition_index] = each.error_code
        return found

    def _take_deleted(self, leader: BrokerId, partitions: Sequence[int]) -> None:
        from regency.kafka.codec import DeleteRecordsRequest

        left_ms = int(max(0.0, self._deadline - time.monotonic()) * 1000)
        topic_class = DeleteRecordsRequest.DeleteRecordsTopic
        asked = [
            topic_class.DeleteRecordsPartition(partition_index=each, offset=self.targets[each]) for each in partitions
        ]
        request = DeleteRecordsRequest(
            topics=[topic_class(name=self.topic, partitions=asked)], timeout_ms=min(left_ms, REQUEST_TIMEOUT_MS)
        )
        for each in _answers(self._wire.ask(request, _DELETE_VERSION, broker=leader)):
            if each.error_code == ErrorCode.NONE:
                self._starts[each.partition_index] = each.low_watermark
            elif each.error_code in _PASSING or self._is_behind(each.error_code):
                self._late[each.partition_index] = each.error_code
            else:
                self.refused[each.partition_index] = each.error_code

    def _is_behind(self, error: int) -> bool:
        """Whether a new leader does not know yet that all was committed which another had told of (KIP-207)."""
        return self._before is None and error == ErrorCode.OFFSET_OUT_OF_RANGE


def _answers(message: Message) -> Sequence[Message]:
    return [partition for topic in message.topics for partition in topic.partitions]


def _name_of(error: int) -> str:
    try:
        return ErrorCode(error).name
    except ValueError:
        return f"error {error}"


def _confirm(work: _Truncation, yes: bool) -> None:
    if yes:
        return
    count = sum(max(0, before - work.begins.get(partition, before)) for partition, before in work.targets.items())
    where = f"{work.topic}-{next(iter(work.targets))}" if len(work.targets) == 1 else f"topic {work.topic}"
    what = f"{counted(count, 'offset')} of {where}"
    if not sys.stdin.isatty():
        raise CommandFailed(f"Deleting {what} cannot be undone.", hint="Say --yes if it is meant.", status=Exit.REFUSED)
    if not click.confirm(f"Delete {what}, with their records?", err=True):
        raise CommandFailed("Nothing was deleted.", status=Exit.REFUSED)


def _tell(row: TruncatedRow) -> None:
    name = f"{row.topic}-{row.partition}"
    if row.error is not None:
        what = "its records" if row.below_offset is None else f"the records below offset {row.below_offset}"
        say(f"Error: {name}: {what} are not all deleted: {row.error}.")
    else:
        deleted = "" if row.offsets_deleted is None else f" {counted(row.offsets_deleted, 'offset')} deleted."
        conclude(f"{name} begins at offset {row.log_start}.{deleted}")
