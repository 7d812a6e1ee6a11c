"""`regency produce`: lines of a file or of stdin become records of a topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import click
import confluent_kafka
import msgspec

from regency.cli.asking.missing import explained
from regency.cli.asking.naming import named
from regency.cli.asking.refusals import TopicMissing, check_partition
from regency.cli.asking.trouble import never_writable, why_unwritten
from regency.cli.asking.wire import cluster_wire
from regency.cli.context import (
    ID,
    TOPIC_NAME,
    Seconds,
    cluster_options,
    conclude,
    current,
    print_json,
    say,
    stderr_is_terminal,
)
from regency.cli.data.librdkafka import Deliveries, check_reachable, client_config
from regency.cli.exits import CommandFailed, Exit
from regency.cli.topics.making import ensure_topic
from regency.model.topic_names import validate_topic_name
from regency.model.words import counted

_PROGRESS_EVERY_S = 0.2
STANDSTILL_S = 3.0
"""When nothing was delivered for so long, what stands in the way is looked for and said."""
LAST_WORDS_S = 0.5
"""How long answers are awaited after Ctrl-C."""
PARTITION_UA = -1
"""Librdkafka's "choose one by the key"."""
PARTITIONERS = ("consistent_random", "murmur2_random", "fnv1a_random", "random")


class Produced(msgspec.Struct, frozen=True):
    """What `regency produce -o json` prints. `errors` counts failed records by reason, `problems` say why.

    `unanswered` were sent when Ctrl-C came, and may have been written or not.
    """

    topic: str
    delivered: int
    failed: int
    unanswered: int
    errors: dict[str, int]
    problems: list[str]


class Line(NamedTuple):
    """What becomes a record; a value of None is a tombstone."""

    key: bytes | None
    value: bytes | None


@click.command()
@click.argument("topic", type=TOPIC_NAME)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key-separator", metavar="TEXT", help="Each line is KEY, TEXT, VALUE.  [default: lines are values]")
@click.option("--key", metavar="TEXT", help="Key of all records.")
@click.option("--header", "headers", multiple=True, metavar="NAME=VALUE", help="Header of all records; repeatable.")
@click.option("--tombstones", is_flag=True, help="An empty value is null: the key's tombstone.")
@click.option("--partition", type=ID, help="Send all to this one.  [default: by key, without a key at random]")
@click.option(
    "--partitioner",
    type=click.Choice(PARTITIONERS),
    default=PARTITIONERS[0],
    show_default=True,
    help="How a key chooses the partition; Java's clients use murmur2_random.",
)
@click.option("--sticky", is_flag=True, help="Whole batches without keys go to one partition: faster, less even.")
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--create", is_flag=True, help="Create the topic if it is not there, with the cluster's defaults.")
@click.option("--timeout", type=Seconds(0.1), default=30.0, show_default=True, help="Seconds to deliver a record in.")
@cluster_options
def produce(
    topic: str,
    file: BinaryIO,
    key_separator: str | None,
    key: str | None,
    headers: tuple[str, ...],
    tombstones: bool,
    partition: int | None,
    partitioner: str,
    sticky: bool,
    compression: str,
    acks: str,
    create: bool,
    timeout: float,
) -> int:
    """Send the lines of FILE, or of stdin, to a topic, and wait until each is delivered. Exit status 1 if any failed.

    A topic that is not there is an error, unless --create is said. `flights-3` is partition 3 of flights.

    \b
    Examples:
      seq 1000 | regency produce flights
      regency produce flights flights.csv --key-separator , --acks 1
      echo 'UA1545:' | regency produce flights --key-separator : --tombstones
      regency produce flights day.csv --header source=nyc --compression zstd
    """
    if key is not None and key_separator is not None:
        raise click.UsageError("--key and --key-separator exclude each other.")
    if tombstones and key is None and key_separator is None:
        raise click.UsageError("--tombstones needs keys: --key or --key-separator.")
    validate_topic_name(topic)
    given = [_header(each) for each in headers]
    servers = current().bootstrap_servers()
    topic, partition = _check(servers, topic, acks, partition, create=create)
    producer = confluent_kafka.Producer(
        {
            **client_config(servers),
            "acks": acks,
            "enable.idempotence": acks == "all",
            "message.timeout.ms": int(timeout * 1000),
            "linger.ms": 5,
            "compression.type": compression,
            "partitioner": partitioner,
            **({} if sticky else {"sticky.partitioning.linger.ms": 0}),
        }
    )
    check_reachable(producer, servers)
    why = _Why(lambda: why_unwritten(servers, topic, acks, partition))
    typed = file.isatty()
    if typed:
        say("A record is a line; Ctrl-D ends, and tells what was delivered.")
    sender = _Sender(producer, topic, PARTITION_UA if partition is None else partition, given, why, typed=typed)
    common = None if key is None else key.encode()
    unanswered = 0
    try:
        sender.send(_lines(file, key_separator, common, tombstones=tombstones))
    except CommandFailed:
        sender.flush()
        raise
    except (KeyboardInterrupt, SystemExit):
        unanswered = producer.flush(LAST_WORDS_S)
        raise
    else:
        sender.flush()
    finally:
        result = _tell(topic, sender, why, unanswered)
    return Exit.FAILED if result.failed else Exit.DONE


def _header(pair: str) -> tuple[str, str | bytes | None]:
    """A header; a record may have several of a name. Raises a usage error."""
    name, equals, value = pair.partition("=")
    if not equals or not name:
        raise click.BadParameter(f"{pair!r} is not NAME=VALUE.", param_hint="--header")
    return name, value.encode()


def _check(servers: str, topic: str, acks: str, partition: int | None, *, create: bool) -> tuple[str, int | None]:
    """Topic and partition to write to. Raises CommandFailed for what can never succeed, before a record is read."""
    try:
        with cluster_wire(servers) as wire:
            found, number = named(wire, topic)
            never = never_writable(wire, found.name, found.replication_factor) if acks == "all" else None
    except TopicMissing as missing:
        if not create:
            words = f"`regency topics create {topic}` makes it, and so does --create."
            raise explained(servers, missing, creates=words) from missing
        ensure_topic(servers, topic)
        return topic, partition
    if never is not None and found.partitions:
        raise CommandFailed(never)
    if partition is not None and found.partitions:
        check_partition(topic, [each.partition_index for each in found.partitions], partition)
    return found.name, number if partition is None else partition


def _tell(topic: str, sender: _Sender, why: _Why, unanswered: int) -> Produced:
    """Print what became of the records."""
    errors = sender.deliveries.errors
    if errors or unanswered:
        why.look()
    delivered = sender.deliveries.delivered
    result = Produced(topic, delivered, errors.total(), unanswered, dict(sorted(errors.items())), list(why.told))
    if current().json:
        print_json(result)
    left = f", {unanswered} without an answer: they may have been written" if unanswered else ""
    conclude(
        f"Produced {counted(delivered, 'record')} to {topic} in {time.monotonic() - sender.started:.1f} s, "
        f"{result.failed} failed{left}."
    )
    for reason, count in result.errors.items():
        say(f"Error: {count} failed: {reason}.")
    if errors or unanswered:
        why.say()
    return result


class _Why:
    """What stands in the way, asked of the cluster when something does, and said once."""

    def __init__(self, find: Callable[[], Sequence[str]]) -> None:
        self._find = find
        self.told: Sequence[str] = ()
        self._said: Sequence[str] = ()

    def look(self) -> None:
        """Ask the cluster; what was found before stays where nothing is found now."""
        self.told = self._find() or self.told

    def say(self) -> None:
        """Say what is new."""
        if self.told and self.told != self._said:
            self._said = self.told
            say(f"Why: {'; '.join(self.told)}.")


class _Sender:
    """Hands records to librdkafka, and waits for what becomes of them."""

    def __init__(
        self,
        producer: confluent_kafka.Producer,
        topic: str,
        place: int,
        headers: list[tuple[str, str | bytes | None]],
        why: _Why,
        *,
        typed: bool,
    ) -> None:
        self.deliveries = Deliveries()
        self.started = time.monotonic()
        self._producer, self._topic, self._place, self._headers = producer, topic, place, headers
        self._progress = _Progress(why, typed=typed)

    def send(self, lines: Iterator[Line]) -> None:
        """Send them all. Raises CommandFailed for a line that is none."""
        try:
            for line in lines:
                self._send(line)
                self._producer.poll(0)
                self._progress.show(self.deliveries.delivered)
        finally:
            self._progress.clear()

    def flush(self) -> None:
        """Wait until each is delivered or has failed."""
        try:
            while self._producer.flush(_PROGRESS_EVERY_S):
                self._progress.show(self.deliveries.delivered)
        finally:
            self._progress.clear()

    def _send(self, line: Line) -> None:
        while True:
            try:
                self._producer.produce(
                    self._topic, line.value, line.key, self._place, on_delivery=self.deliveries, headers=self._headers
                )
            except BufferError:
                self._producer.poll(0.1)
                self._progress.show(self.deliveries.delivered)
            except confluent_kafka.KafkaException as error:
                self.deliveries.errors[error.args[0].str()] += 1  # this record alone, for example too large
                return
            else:
                return


def _lines(file: BinaryIO, separator: str | None, key: bytes | None, *, tombstones: bool) -> Iterator[Line]:
    split = separator.encode() if separator else b""
    for number, line in enumerate(file, 1):
        content = line.rstrip(b"\r\n")
        own = key
        if split:
            own, found, content = content.partition(split)
            if not found:
                raise CommandFailed(
                    f"Line {number} has no {separator!r}, so it has no key.",
                    hint="The lines before it were sent." if number > 1 else "Nothing was sent.",
                )
        yield Line(own, None if tombstones and not content else content)


class _Progress:
    """A count on stderr that overwrites itself, where stderr is a terminal; and why nothing moves."""

    def __init__(self, why: _Why, *, typed: bool) -> None:
        self._wanted = stderr_is_terminal() and not typed  # it would run into what is typed
        self._why = why
        self._next = 0.0
        self._before = -1
        self._moved = time.monotonic()

    def show(self, count: int) -> None:
        """Print the count, a few times a second at most."""
        now = time.monotonic()
        if count != self._before:
            self._before, self._moved = count, now
        elif now - self._moved >= STANDSTILL_S:
            self._moved = now
            self.clear()
            self._why.look()
            self._why.say()
        if self._wanted and now >= self._next:
            self._next = now + _PROGRESS_EVERY_S
            click.echo(f"\r{count} delivered", err=True, nl=False)

    def clear(self) -> None:
        """Give the line back."""
        if self._wanted:
            click.echo("\r\033[K", err=True, nl=False)
