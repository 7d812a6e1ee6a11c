"""What `regency load --history` writes down: each send with its outcome, each poll, and at the end the whole topic.

Times are milliseconds since the load began, of this process's monotonic clock.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import IO, Final

import confluent_kafka
from confluent_kafka import TopicPartition

from regency.cli.exits import CommandFailed, Exit
from regency.clients.topic_ends import ends_of
from regency.judge.operations import ALL, Drained, FinalRead, Operation, Outcome, Poll, Run, Send, encode_operations

VALUE_BYTES: Final = 8
"""A record begins with its number, big-endian: its value in the history."""
PATIENCE_S: Final = 60.0
"""How long the end of the topic may take to be read, once nothing comes any more."""
_READ_AT_ONCE: Final = 5_000
_ENDS_S: Final = 30.0
_NAME: Final = "load"


class LoadHistory:
    """Writes operations to `file` as they come. `partitions` are those of the topic, which is empty."""

    def __init__(self, file: IO[bytes], topic: str, partitions: Iterable[int]) -> None:
        self._file = file
        self._topic = topic
        self._partitions = sorted(partitions)
        self._began_s = time.monotonic()
        self._numbers: defaultdict[int, int] = defaultdict(int)
        self._polls: defaultdict[int, int] = defaultdict(int)
        self._positions: defaultdict[int, int] = defaultdict(int)
        self._open: dict[int, tuple[int, int, int]] = {}
        """Value to partition, number and time of the sends without an outcome."""

    def refuse_if_used(self, consumer: confluent_kafka.Consumer) -> None:
        """Raises CommandFailed where the topic has, or had, records that this history does not know."""
        used = sorted(partition for partition, ends in self._ends(consumer).items() if ends != (0, 0))
        if used:
            raise CommandFailed(
                f"Topic {self._topic} has, or had, records already, in partitions {used}.",
                hint="Name a topic that is not there yet.",
                status=Exit.REFUSED,
            )

    def partition_of(self, value: int) -> int:
        """Where to send it: chosen here, since an unanswered send would never tell."""
        return self._partitions[value % len(self._partitions)]

    def sent(self, value: int, invoked_ms: int) -> None:
        """It was handed to the producer at that time, and the producer took it."""
        partition = self.partition_of(value)
        self._open[value] = (partition, self._numbers[partition], invoked_ms)
        self._numbers[partition] += 1

    def completed(self, value: int, offset: int | None) -> None:
        """It was acknowledged at the offset; None: the producer gave it up, and its outcome is not known."""
        partition, number, invoked_ms = self._open.pop(value)
        outcome = Outcome.INDETERMINATE if offset is None else Outcome.ACKNOWLEDGED
        place = -1 if offset is None else offset
        now = self.now_ms()
        self._write(Send(_NAME, 0, number, self._topic, partition, value, ALL, True, invoked_ms, now, outcome, place))

    def polled(self, messages: Iterable[confluent_kafka.Message], invoked_ms: int) -> None:
        """The consumer got these, the errors among them left out."""
        for partition, records in _by_partition(messages).items():
            position, runs = self._positions[partition], _runs(records)
            after = runs[-1].end
            self._write(
                Poll(
                    _NAME,
                    0,
                    self._polls[partition],
                    self._topic,
                    partition,
                    position,
                    after,
                    runs,
                    invoked_ms,
                    self.now_ms(),
                )
            )
            self._polls[partition] += 1
            self._positions[partition] = after

    def close(self, consumer: confluent_kafka.Consumer, settings: Mapping[str, object]) -> None:
        """Read to the end with the consumer of the load, then everything with another one. Raises CommandFailed."""
        for value in sorted(self._open):
            self.completed(value, None)
        self._write(Drained(self.now_ms()))
        ends = {partition: high for partition, (_, high) in self._ends(consumer).items()}
        self._read(consumer, ends, self._positions, self.polled)
        self._poll_at_the_end(consumer)
        reader = confluent_kafka.Consumer({**settings, "group.id": "regency-load", "enable.auto.commit": False})
        try:
            bounds = self._ends(reader)
            low = {partition: begin for partition, (begin, _) in bounds.items()}
            found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
            reader.assign([TopicPartition(self._topic, partition, begin) for partition, begin in low.items()])
            at = dict(low)

            def enter(messages: list[confluent_kafka.Message], _: int) -> None:
                for partition, records in _by_partition(messages).items():
                    found[partition] += records
                    at[partition] = records[-1][0] + 1

            self._read(reader, {partition: high for partition, (_, high) in bounds.items()}, at, enter)
            for partition, (begin, high) in sorted(bounds.items()):
                records = [(offset, value) for offset, value in found[partition] if offset < high]
                self._write(FinalRead(self._topic, partition, begin, high, _runs(records), self.now_ms()))
        finally:
            reader.close()

    def _read(
        self,
        consumer: confluent_kafka.Consumer,
        ends: Mapping[int, int],
        at: Mapping[int, int],
        enter: Callable[[list[confluent_kafka.Message], int], None],
    ) -> None:
        patient_until = time.monotonic() + PATIENCE_S
        while any(at[partition] < end for partition, end in ends.items()):
            begun = self.now_ms()
            messages = [each for each in consumer.consume(_READ_AT_ONCE, 0.5) if each.error() is None]
            if messages:
                enter(messages, begun)
                patient_until = time.monotonic() + PATIENCE_S
            elif time.monotonic() > patient_until:
                left = sorted(partition for partition, end in ends.items() if at[partition] < end)
                raise CommandFailed(
                    f"Nothing came from {self._topic} for {PATIENCE_S:.0f} s; not read to the end: partitions {left}.",
                    hint="The history in the file is not complete. `regency topics describe` shows who leads.",
                    status=Exit.TIMED_OUT,
                )

    def _ends(self, consumer: confluent_kafka.Consumer) -> dict[int, tuple[int, int]]:
        try:
            return {each: ends_of(consumer, TopicPartition(self._topic, each), _ENDS_S) for each in self._partitions}
        except confluent_kafka.KafkaException as error:
            raise CommandFailed(
                f"No broker answers where topic {self._topic} ends: {error.args[0].str()}.",
                hint="`regency topics describe` shows who leads.",
            ) from error

    def _poll_at_the_end(self, consumer: confluent_kafka.Consumer) -> None:
        """One poll of every partition that gives nothing: it tells that the consumer went on, and saw no more."""
        begun = self.now_ms()
        self.polled(consumer.consume(_READ_AT_ONCE, 0.5), begun)
        for each in self._partitions:
            at = self._positions[each]
            number = self._polls[each]
            self._write(Poll(_NAME, 0, number, self._topic, each, at, at, (), begun, self.now_ms()))
            self._polls[each] += 1

    def now_ms(self) -> int:
        """The history's clock."""
        return int((time.monotonic() - self._began_s) * 1000)

    def _write(self, operation: Operation) -> None:
        self._file.write(encode_operations([operation]))


def value_of(content: bytes | None) -> int:
    """The number a record begins with; -1 for a record that no load wrote, which the judge calls a phantom."""
    if content is None or len(content) < VALUE_BYTES:
        return -1
    return int.from_bytes(content[:VALUE_BYTES], "big", signed=True)


def content_of(value: int, filling: bytes) -> bytes:
    """The content of a record: its number, and filling behind it."""
    return value.to_bytes(VALUE_BYTES, "big", signed=True) + filling[VALUE_BYTES:]


def _by_partition(messages: Iterable[confluent_kafka.Message]) -> dict[int, list[tuple[int, int]]]:
    """Offsets and values in the order they came."""
    found: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)
    for message in messages:
        partition, offset = message.partition(), message.offset()
        if message.error() is None and partition is not None and offset is not None:
            found[partition].append((offset, value_of(message.value())))
    return found


def _runs(records: Iterable[tuple[int, int]]) -> tuple[Run, ...]:
    runs: list[tuple[int, list[int]]] = []
    for offset, value in records:
        if runs and runs[-1][0] + len(runs[-1][1]) == offset:
            runs[-1][1].append(value)
        else:
            runs.append((offset, [value]))
    return tuple(Run(offset, tuple(values)) for offset, values in runs)
