"""Histories of a log that keeps all of Kafka's promises, and ways to break one of them. For tests of the judge."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import msgspec

from regency.judge.operations import (
    ALL,
    UNKNOWN,
    Drained,
    FinalRead,
    LeaderChanged,
    ListedEnd,
    LogStartMoved,
    Operation,
    Outcome,
    Poll,
    Recreated,
    Run,
    Seek,
    Send,
)
from regency.judge.table import Configuration

PRODUCERS, CONSUMERS = 3, 2


@dataclass
class Producer:
    """One send at a time; `value` is the one under way."""

    name: str
    session: int = 0
    numbers: int = 0
    value: int | None = None
    began_ms: int = 0
    tries: int = 0


@dataclass
class Consumer:
    name: str
    session: int = 0
    number: int = 0
    position: int = 0


@dataclass
class CorrectLog:
    """A partition whose acknowledged records survive every change of leader; each step is one action and one choice."""

    configuration: Configuration
    operations: list[Operation] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    """From `log_start` on."""
    offsets: dict[int, int] = field(default_factory=dict)
    """Where each value was written last; the leader knows it also after the record has expired."""
    log_start: int = 0
    high_watermark: int = 0
    served: int = 0
    """High watermark that the leader knows: below the true one for a while after an election."""
    epoch_start: int = 0
    epoch: int = 0
    deposed_end: int | None = None
    now_ms: int = 0
    life: int = 0
    values: int = 0
    late: list[int] = field(default_factory=list)
    """Writes of plain producers that are still in some socket."""

    def __post_init__(self) -> None:
        self.producers = [Producer(f"p{index}") for index in range(PRODUCERS)]
        self.consumers = [Consumer(f"c{index}") for index in range(CONSUMERS)]

    @property
    def end(self) -> int:
        return self.log_start + len(self.records)

    def step(self, action: str, choice: int) -> None:
        self.now_ms += 1 + choice % 3
        getattr(self, action)(choice)

    def begin(self, choice: int) -> None:
        producer = self.producers[choice % PRODUCERS]
        if producer.value is None:
            self.values += 1
            producer.value, producer.began_ms, producer.tries = self.values, self.now_ms, 0

    def write(self, choice: int) -> None:
        """An attempt reaches the leader; its reply may never be seen."""
        producer = self.producers[choice % PRODUCERS]
        if producer.value is None:
            return
        producer.tries += 1
        if not (self.configuration.idempotent and producer.value in self.offsets):
            self._append(producer.value)

    def acknowledge(self, choice: int) -> None:
        producer = self.producers[choice % PRODUCERS]
        if producer.value is None:
            return
        if self.configuration.acks == 0:
            self._complete(producer, Outcome.ACKNOWLEDGED, UNKNOWN)
        elif producer.value in self.offsets:
            offset = self.offsets[producer.value]
            if self.configuration.acks == ALL:
                self._commit(offset + 1)
            if not self.configuration.idempotent and producer.tries > 1 and choice % 2:
                self.late.append(producer.value)  # an attempt that was given up
            self._complete(producer, Outcome.ACKNOWLEDGED, offset)

    def give_up(self, choice: int) -> None:
        producer = self.producers[choice % PRODUCERS]
        if producer.value is None:
            return
        if not producer.tries and choice % 2:
            self._complete(producer, Outcome.FAILED, UNKNOWN)
            return
        if not self.configuration.idempotent and choice % 3:
            self.late.append(producer.value)
        self._complete(producer, Outcome.INDETERMINATE, UNKNOWN)
        if self.configuration.idempotent:
            producer.session, producer.numbers = producer.session + 1, 0

    def arrive_late(self, choice: int) -> None:
        if self.late:
            self._append(self.late.pop(choice % len(self.late)))

    def replicate(self, choice: int) -> None:
        self._commit(min(self.end, self.high_watermark + choice % 4))

    def change_leader(self, choice: int) -> None:
        """The new leader has what was committed, perhaps more; it does not know yet how much of it is committed."""
        self.deposed_end = self.served if self.served >= self.epoch_start else None
        keep = self.high_watermark + choice % (self.end - self.high_watermark + 1)
        del self.records[keep - self.log_start :]
        self.offsets = {value: offset for value, offset in self.offsets.items() if offset < keep}
        self.epoch, self.epoch_start = self.epoch + 1, self.end
        self.served = max(self.log_start, self.high_watermark - choice % 3)
        self.operations.append(LeaderChanged("t", 0, self.now_ms))

    def poll(self, choice: int) -> None:
        consumer = self.consumers[choice % CONSUMERS]
        if consumer.position < self.log_start:
            self._seek(consumer, self.log_start)
        begin = consumer.position
        end = max(begin, min(self.served, begin + choice % 7))
        values = tuple(self.records[begin - self.log_start : end - self.log_start])
        cut = choice % (len(values) + 1)
        runs = (Run(begin, values[:cut]), Run(begin + cut, values[cut:]))
        self._add_poll(consumer, tuple(run for run in runs if run.values), end)

    def seek(self, choice: int) -> None:
        consumer = self.consumers[choice % CONSUMERS]
        self._seek(consumer, self.log_start + choice % (self.served - self.log_start + 1))

    def assign(self, choice: int) -> None:
        consumer = self.consumers[choice % CONSUMERS]
        consumer.session, consumer.number = consumer.session + 1, 0
        consumer.position = self.log_start + choice % (self.served - self.log_start + 1)

    def list_end(self, choice: int) -> None:
        if choice % 4 == 0 and self.deposed_end is not None:
            self._add_end(self.deposed_end, self.epoch - 1)
        elif self.served >= self.epoch_start:
            self._add_end(self.served, self.epoch)

    def expire(self, choice: int) -> None:
        start = self.log_start + choice % (self.served - self.log_start + 1)
        if start > self.log_start:
            del self.records[: start - self.log_start]
            self.log_start = start
            self.operations.append(LogStartMoved("t", 0, self.now_ms, start, self._topic_id))

    def recreate(self, choice: int) -> None:
        if choice % 8:
            return
        began_ms, old_id = self.now_ms, self._topic_id
        self.life += 1
        self.now_ms += 10
        self.operations.append(Recreated("t", began_ms, self.now_ms, old_id, self._topic_id))
        self.records, self.offsets, self.log_start, self.high_watermark, self.served = [], {}, 0, 0, 0
        self.epoch_start, self.epoch, self.deposed_end = 0, 0, None
        for consumer in self.consumers:
            self._seek(consumer, 0)
        self.now_ms += 1

    def heal(self) -> list[Operation]:
        """Everything is committed, every consumer reads to the end, the whole log is read."""
        for producer in self.producers:
            if producer.value is not None:
                self._complete(producer, Outcome.INDETERMINATE, UNKNOWN)
        self._commit(self.end)
        self.now_ms += 1
        self.operations.append(Drained(self.now_ms))
        for consumer in self.consumers:
            self._seek(consumer, max(consumer.position, self.log_start))
            runs = (Run(consumer.position, tuple(self.records[consumer.position - self.log_start :])),)
            self._add_poll(consumer, runs, self.end)
        runs = (Run(self.log_start, tuple(self.records)),) if self.records else ()
        final = FinalRead("t", 0, self.log_start, self.end, runs, self.now_ms + 1, self._topic_id)
        return [*self.operations, final]

    @property
    def _topic_id(self) -> str:
        return f"life-{self.life}"

    def _append(self, value: int) -> None:
        self.offsets[value] = self.end
        self.records.append(value)

    def _commit(self, offset: int) -> None:
        self.high_watermark = max(self.high_watermark, offset)
        self.served = self.high_watermark

    def _complete(self, producer: Producer, outcome: Outcome, offset: int) -> None:
        assert producer.value is not None
        self.operations.append(
            Send(
                producer.name,
                producer.session,
                producer.numbers,
                "t",
                0,
                producer.value,
                self.configuration.acks,
                self.configuration.idempotent,
                producer.began_ms,
                self.now_ms,
                outcome,
                offset,
                leader=self.epoch,
                attempts=producer.tries,
            )
        )
        producer.numbers += 1
        producer.value = None

    def _seek(self, consumer: Consumer, position: int) -> None:
        self.operations.append(
            Seek(consumer.name, consumer.session, consumer.number, "t", 0, self.now_ms, position, self._topic_id)
        )
        consumer.number += 1
        consumer.position = position

    def _add_poll(self, consumer: Consumer, runs: tuple[Run, ...], end: int) -> None:
        self.operations.append(
            Poll(
                consumer.name,
                consumer.session,
                consumer.number,
                "t",
                0,
                consumer.position,
                end,
                runs,
                self.now_ms,
                self.now_ms,
                self.epoch,
                self._topic_id,
            )
        )
        consumer.number += 1
        consumer.position = end

    def _add_end(self, end: int, epoch: int) -> None:
        self.operations.append(
            ListedEnd("l", "t", 0, end, self.now_ms, self.now_ms, epoch, epoch, topic_id=self._topic_id)
        )


ACTIONS = (
    *("begin", "write", "acknowledge", "poll") * 3,
    *("give_up", "arrive_late", "replicate", "change_leader", "seek", "assign", "list_end", "expire", "recreate"),
)


def history_of(configuration: Configuration, steps: list[tuple[str, int]]) -> list[Operation]:
    log = CorrectLog(configuration)
    for action, choice in steps:
        log.step(action, choice)
    return log.heal()


def long_run(seed: int) -> list[Operation]:
    """A history in one life with some hundred writes, all by idempotent producers."""
    choose = random.Random(seed)
    actions = [action for action in ACTIONS if action not in ("recreate", "expire")]
    return history_of(Configuration(), [(choose.choice(actions), choose.randrange(256)) for _ in range(900)])


def final_of(history: list[Operation]) -> tuple[FinalRead, list[int]]:
    final = next(each for each in history if isinstance(each, FinalRead))
    return final, list(final.runs[0].values)


def with_final(history: list[Operation], values: list[int]) -> list[Operation]:
    final, _ = final_of(history)
    changed = msgspec.structs.replace(final, runs=(Run(0, tuple(values)),), high_watermark=len(values))
    return [changed if each is final else each for each in history]


def lose_the_last(history: list[Operation], choose: random.Random) -> list[Operation]:
    acked = max(each.offset for each in history if isinstance(each, Send))
    return with_final(history, final_of(history)[1][:acked])


def write_twice(history: list[Operation], choose: random.Random) -> list[Operation]:
    _, values = final_of(history)
    return with_final(history, [*values, choose.choice(values)])


def exchange_two(history: list[Operation], choose: random.Random) -> list[Operation]:
    _, values = final_of(history)
    one, other = choose.sample(range(len(values)), 2)
    values[one], values[other] = values[other], values[one]
    return with_final(history, values)


def forge_one(history: list[Operation], choose: random.Random) -> list[Operation]:
    _, values = final_of(history)
    return with_final(history, [*values, -1])


def forget_a_poll(history: list[Operation], choose: random.Random) -> list[Operation]:
    last = {each.client: each for each in history if isinstance(each, Poll)}
    polls = [each for each in history if isinstance(each, Poll) and len(each.runs) == 2]
    poll = choose.choice([each for each in polls if each is not last[each.client]])
    return [msgspec.structs.replace(each, runs=poll.runs[1:]) if each is poll else each for each in history]


def deny_one(history: list[Operation], choose: random.Random) -> list[Operation]:
    send = choose.choice([each for each in history if isinstance(each, Send) and each.offset >= 0])
    failed = msgspec.structs.replace(send, outcome=Outcome.FAILED, offset=UNKNOWN)
    return [failed if each is send else each for each in history]
