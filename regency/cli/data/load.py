"""`regency load`: writes to a topic at a steady rate and reads along, until it is ended."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from datetime import datetime
from typing import IO

import click
import confluent_kafka
import msgspec
from confluent_kafka import OFFSET_END, KafkaException, TopicPartition

from regency.cli.asking.naming import partition_meant
from regency.cli.asking.trouble import never_writable, why_unwritten
from regency.cli.asking.wire import ANSWER_TIMEOUT_S, cluster_wire, unreachable
from regency.cli.context import TOPIC_NAME, Count, Seconds, cluster_options, conclude, current, print_json, say
from regency.cli.data.librdkafka import Deliveries, check_reachable, client_config
from regency.cli.data.load_history import VALUE_BYTES, LoadHistory, content_of, value_of
from regency.cli.exits import CommandFailed, Exit
from regency.cli.topics.making import WantedTopic, ensure_topic
from regency.model.topic_names import validate_topic_name
from regency.model.words import counted

TICK_S = 0.02
"""How long is read before the next records are sent."""
MOST_BEHIND_S = 1.0
"""Of the records that could not be sent in time, those of more than this are given up: a load, not a backlog."""
READ_AT_ONCE = 5_000
FLUSH_S = 10.0
WATCHFUL = {"topic.metadata.refresh.interval.ms": 2_000}
"""Asks who leads, since a frozen broker does not tell: librdkafka's defaults would wait a minute for it."""
KEYS = 1_000
OWN_TOPIC = {"retention.bytes": str(100 << 20), "segment.bytes": str(10 << 20)}
"""What a topic made for a load is created with: it runs for days, and shall not fill a disk."""


class Pace:
    """Says how many records are due. `rate`: per second. Passive: times are handed in, in seconds."""

    def __init__(self, rate: float, now_s: float) -> None:
        self._rate = rate
        self._behind_s = max(MOST_BEHIND_S, 1 / rate)
        self._next_s = now_s

    def due(self, now_s: float) -> int:
        """How many to send now, which then count as sent."""
        self._next_s = max(self._next_s, now_s - self._behind_s)
        count = max(0, int((now_s - self._next_s) * self._rate + 1e-6))
        self._next_s += count / self._rate
        return count


class Latency(msgspec.Struct, frozen=True):
    """From handing a record to the client until its acknowledgement, milliseconds: median, 99th percentile, most.

    To three significant digits.
    """

    p50_ms: float
    p99_ms: float
    max_ms: float


class Pause(msgspec.Struct, frozen=True):
    """For so long records waited for a partition and none was acknowledged. `since`: ISO 8601, local time."""

    partition: int
    seconds: float
    since: str


class Loaded(msgspec.Struct, frozen=True):
    """What `regency load -o json` prints. `read` may count others' records too.

    `errors` counts failed records by reason, `problems` say what stood in the way, and `unanswered` are not known to
    have been written or not when it ended. `latency`: None where none was acknowledged. `pauses`: the longest of each
    partition, the longest of all first; the wait of failed and of unanswered records counts.
    """

    topic: str
    seconds: float
    delivered: int
    failed: int
    unanswered: int
    read: int
    errors: dict[str, int]
    problems: list[str]
    latency: Latency | None
    pauses: list[Pause]


class Acknowledgements:
    """Latencies, and for how long partitions acknowledged nothing. Passive: times are handed in, in seconds.

    A pause is no idleness: it begins with the last acknowledgement, or later with the first record that waits.
    """

    def __init__(self) -> None:
        self._many: Counter[int] = Counter()
        """Acknowledgements by latency in microseconds, cut to three digits: few keys, however long a load runs."""
        self._last_s: dict[int, float] = {}
        self._longest: dict[int, tuple[float, float]] = {}
        """By partition: seconds, and when they began."""

    def answered(self, partition: int, waited_s: float, now_s: float, *, acknowledged: bool) -> None:
        """A record of the partition, handed over `waited_s` ago, was acknowledged or has failed."""
        paused_s = min(waited_s, now_s - self._last_s.get(partition, -math.inf))
        if paused_s > self._longest.get(partition, (-1.0, 0.0))[0]:
            self._longest[partition] = paused_s, now_s - paused_s
        if acknowledged:
            self._last_s[partition] = now_s
            micros = round(waited_s * 1e6)
            unit = 10 ** max(0, len(str(micros)) - 3)
            self._many[micros // unit * unit] += 1

    @property
    def latency(self) -> Latency | None:
        """Of all acknowledgements."""
        if not self._many:
            return None
        return Latency(self._below(0.5), self._below(0.99), max(self._many) / 1000)

    def _below(self, share: float) -> float:
        left = share * self._many.total()
        for micros in sorted(self._many):
            left -= self._many[micros]
            if left <= 0:
                return micros / 1000
        raise AssertionError("the share is 1 at most")

    def pauses(self, wall_s: float) -> list[Pause]:
        """The longest of each partition, longest first. `wall_s`: wall clock when this object's clock was at 0."""
        order = sorted(self._longest.items(), key=lambda each: (-each[1][0], each[0]))
        return [
            Pause(
                partition,
                round(seconds, 3),
                datetime.fromtimestamp(wall_s + begun_s).astimezone().isoformat(timespec="milliseconds"),
            )
            for partition, (seconds, begun_s) in order
        ]


class _Counts(Deliveries):
    def __init__(self, history: LoadHistory | None = None) -> None:
        super().__init__()
        self.read = 0
        self.problems: list[str] = []
        self.acknowledgements = Acknowledgements()
        self.given_up = False
        """What is answered now was unanswered at the end: only for how long it waited is noted."""
        self._history = history

    def __call__(self, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if not self.given_up:
            super().__call__(error, message)
        waited_s, partition = message.latency(), message.partition()
        if waited_s is not None and partition is not None and partition >= 0:
            now_s = time.monotonic()
            self.acknowledgements.answered(partition, waited_s, now_s, acknowledged=error is None)
        if self._history is not None:
            self._history.completed(value_of(message.value()), None if error is not None else message.offset())


@click.command()
@click.argument("topic", type=TOPIC_NAME)
@click.option(
    "--rate", type=click.FloatRange(0.1, 1_000_000), default=500.0, show_default=True, help="Records a second."
)
@click.option("--size", type=Count(1, 1_000_000), default=500, show_default=True, help="Bytes of each.")
@click.option("--seconds", type=Seconds(0.1), help="End after so many.  [default: at Ctrl-C or SIGTERM]")
@click.option("--every", type=Seconds(0.1), default=10.0, show_default=True, help="Seconds between lines about it.")
@click.option("--no-read", is_flag=True, help="Do not read along.")
@click.option(
    "--history",
    type=click.File("wb"),
    metavar="FILE",
    help="Write down all that was sent and read, for `regency judge`. The topic must be empty.",
)
@cluster_options
def load(
    topic: str, rate: float, size: int, seconds: float | None, every: float, no_read: bool, history: IO[bytes] | None
) -> int:
    """Write records to a topic at a steady rate, with acks=all, and read them along. Exit status 1 if any failed.

    A topic that is not there, and is no partition such as flights-3, is created with default.replication.factor
    replicas (three, where nobody has set that), and keeps 100 MiB of each partition. What a cluster that stands still
    does not take is made up for: the client keeps it (up to 100,000 records, librdkafka's limit) and sends it later, so
    the rate is above --rate then. Only what does not fit there is left out, but for one second of it. The end says the
    longest pause of each partition, in which records waited and none was acknowledged, and how long acknowledgements
    took.

    With --history everything is read once more at the end, and the file tells what became of each record
    (docs/use/judge.md).

    \b
    Examples:
      regency load load --rate 1000 --size 200
      regency load load --seconds 60 -o json
      regency load trial --seconds 60 --history trial.jsonl; regency judge trial.jsonl
    """
    if math.isnan(rate):  # it is within every range
        raise click.BadParameter("nan is not a number of records.", param_hint="--rate")
    if history is not None and no_read:
        raise click.UsageError("--history needs what --no-read leaves out.")
    if history is not None and size < VALUE_BYTES:
        raise click.BadParameter(f"records of a history have {VALUE_BYTES} bytes or more.", param_hint="--size")
    validate_topic_name(topic)
    servers = current().bootstrap_servers()
    with cluster_wire(servers) as wire:
        meant = partition_meant(wire, topic)
    if meant is not None:  # a topic of this name would hide the partition from every command
        raise CommandFailed(
            f"{topic} is partition {meant.partition} of topic {meant.topic}, and a load writes to whole topics.",
            hint=f"Say `regency load {meant.topic}`, or `regency topics create {topic}` if a topic is meant.",
        )
    found = ensure_topic(servers, topic, WantedTopic(configs=OWN_TOPIC))
    with cluster_wire(servers) as wire:
        never = never_writable(wire, topic, found.replication_factor)
    if never is not None:
        raise CommandFailed(never)
    producer = confluent_kafka.Producer(
        {**client_config(servers), **WATCHFUL, "acks": "all", "enable.idempotence": True}
    )
    check_reachable(producer, servers)
    consumer = None if no_read else _reader(servers, topic, OFFSET_END if history is None else 0)
    kept = None
    if history is not None and consumer is not None:
        kept = LoadHistory(history, topic, [each.partition for each in consumer.assignment()])
        kept.refuse_if_used(consumer)
    counts = _Counts(kept)
    started = time.monotonic()
    try:
        _run(producer, consumer, topic, _values(size), Pace(rate, started), counts, seconds, every, kept)
    finally:
        unanswered = producer.flush(FLUSH_S)
        failed = counts.errors.total()
        if unanswered:
            counts.given_up = True
            producer.purge()
            producer.poll(0)
        if failed or unanswered:
            counts.problems = why_unwritten(servers, topic, "all") or counts.problems
        result = Loaded(
            topic,
            round(time.monotonic() - started, 3),
            counts.delivered,
            failed,
            unanswered,
            counts.read,
            dict(sorted(counts.errors.items())),
            counts.problems,
            counts.acknowledgements.latency,
            counts.acknowledgements.pauses(time.time() - time.monotonic()),
        )
        _tell(result)
        if consumer is not None:
            if kept is not None:
                producer.purge()
                producer.poll(0)
                kept.close(consumer, client_config(servers))
            consumer.close()
    return Exit.FAILED if result.failed or result.unanswered else Exit.DONE


def _tell(result: Loaded) -> None:
    if current().json:
        print_json(result)
    left = f", {result.unanswered} without an answer" if result.unanswered else ""
    conclude(
        f"Wrote {counted(result.delivered, 'record')} to {result.topic} in {result.seconds:.1f} s, "
        f"{result.failed} failed{left}."
    )
    if result.pauses:
        longest, *others = result.pauses
        clock = longest.since[11:19]
        conclude(f"Longest pause: {longest.seconds:.1f} s, {result.topic}-{longest.partition}, from {clock}.")
        if others:
            each = ", ".join(f"{result.topic}-{pause.partition} {pause.seconds:.1f} s" for pause in others)
            conclude(f"Longest of the other partitions: {each}.")
    if (latency := result.latency) is not None:
        conclude(
            f"Acknowledgements took {latency.p50_ms:g} ms (p50), {latency.p99_ms:g} ms (p99), "
            f"{latency.max_ms:g} ms at most."
        )
    for reason, count in result.errors.items():
        say(f"Error: {count} failed: {reason}.")
    if result.problems and (result.failed or result.unanswered):
        say(f"Why: {'; '.join(result.problems)}.")


def _run(
    producer: confluent_kafka.Producer,
    consumer: confluent_kafka.Consumer | None,
    topic: str,
    values: list[bytes],
    pace: Pace,
    counts: _Counts,
    seconds: float | None,
    every: float,
    history: LoadHistory | None,
) -> None:
    started = told = now = time.monotonic()
    number = 0
    before = (0, 0, 0)
    while seconds is None or now - started < seconds:
        for _ in range(pace.due(now)):
            number += 1
            try:
                key = b"%d" % (number % KEYS)
                content = values[number % len(values)]
                if history is None:
                    producer.produce(topic, content, key, on_delivery=counts)
                else:
                    invoked_ms = history.now_ms()
                    content, partition = content_of(number, content), history.partition_of(number)
                    producer.produce(topic, content, key, partition, on_delivery=counts)
                    history.sent(number, invoked_ms)
            except BufferError:
                break  # the cluster takes nothing now
            except KafkaException as error:
                raise CommandFailed(f"Topic {topic} takes no records: {error.args[0].str()}.") from error
        if consumer is None:
            producer.poll(TICK_S)
        else:
            producer.poll(0)
            begun = 0 if history is None else history.now_ms()
            messages = consumer.consume(READ_AT_ONCE, TICK_S)
            counts.read += sum(message.error() is None for message in messages)
            if history is not None:
                history.polled(messages, begun)
        now = time.monotonic()
        if now - told >= every:
            after = (counts.delivered, counts.read, counts.errors.total())
            wrote, read, failed = (new - old for new, old in zip(after, before, strict=True))
            say(f"{wrote / (now - told):.0f} records/s written, {read / (now - told):.0f} read, {failed} failed")
            if not wrote and number:  # it stands still, so there is time to ask
                counts.problems = why_unwritten(current().bootstrap_servers(), topic, "all") or counts.problems
                if counts.problems:
                    say(f"Why: {'; '.join(counts.problems)}.")
            told, before = now, after


def _values(size: int) -> list[bytes]:
    """A few values that do not compress to nothing; always the same."""
    source = random.Random(1)  # noqa: S311  (no secrets)
    return [source.randbytes(size) for _ in range(16)]


def _reader(servers: str, topic: str, begin: int) -> confluent_kafka.Consumer:
    consumer = confluent_kafka.Consumer(
        {
            **client_config(servers),
            **WATCHFUL,
            "group.id": "regency-load",
            "enable.auto.commit": False,
            "auto.offset.reset": "latest",
        }
    )
    consumer.assign([TopicPartition(topic, number, begin) for number in _partitions(consumer, servers, topic)])
    return consumer


def _partitions(consumer: confluent_kafka.Consumer, servers: str, topic: str) -> list[int]:
    """Numbers of all partitions. A broker may not have heard yet of a topic that was just made: it is asked again."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        try:
            told = consumer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic]
        except KafkaException as error:
            raise unreachable(servers) from error
        if told.partitions:
            return sorted(told.partitions)
        if time.monotonic() >= deadline:
            raise CommandFailed(
                f"The brokers tell no partitions of topic {topic} for {ANSWER_TIMEOUT_S:.0f} s: {told.error}.",
                hint="`regency topics describe` shows what the controller has.",
                status=Exit.TIMED_OUT,
            )
        time.sleep(TICK_S)
