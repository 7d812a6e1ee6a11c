"""`regency produce`: lines of a file or of stdin become records of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import BinaryIO

import click
import confluent_kafka
import msgspec

from regency.cli.asking.deletions import why_going
from regency.cli.asking.refusals import check_partition
from regency.cli.asking.wire import ANSWER_TIMEOUT_S
from regency.cli.context import ID, TOPIC_NAME, Seconds, cluster_options, current, print_json, say, stderr_is_terminal
from regency.cli.data.librdkafka import Deliveries, check_reachable, client_config
from regency.cli.exits import CommandFailed, Exit
from regency.model.topic_names import validate_topic_name

_PROGRESS_EVERY_S = 0.2
PARTITION_UA = -1
"""Librdkafka's "choose one by the key"."""


class Produced(msgspec.Struct, frozen=True):
    """What `regency produce -o json` prints. `errors` counts failed records by reason."""

    topic: str
    delivered: int
    failed: int
    errors: dict[str, int]


@click.command()
@click.argument("topic", type=TOPIC_NAME)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--key-separator", metavar="TEXT", help="Each line is KEY, TEXT, VALUE.  [default: lines are values]")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), default="all", show_default=True)
@click.option("--partition", type=ID, help="Send all to this one.  [default: by key]")
@click.option("--timeout", type=Seconds(0.1), default=30.0, show_default=True, help="Seconds to deliver a record in.")
@cluster_options
def produce(
    topic: str, file: BinaryIO, key_separator: str | None, acks: str, partition: int | None, timeout: float
) -> int:
    """Send the lines of FILE, or of stdin, to a topic, and wait until each is delivered. Exit status 1 if any failed.

    \b
    Examples:
      seq 1000 | regency produce flights
      regency produce flights flights.csv --key-separator , --acks 1
    """
    validate_topic_name(topic)
    servers = current().bootstrap_servers()
    producer = confluent_kafka.Producer(
        {
            **client_config(servers),
            "acks": acks,
            "enable.idempotence": acks == "all",
            "message.timeout.ms": int(timeout * 1000),
            "linger.ms": 5,
        }
    )
    check_reachable(producer, servers)
    if partition is not None:
        found = producer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic]
        if found.partitions:  # else it is perhaps created by this produce
            check_partition(topic, found.partitions, partition)
    deliveries = Deliveries()
    started = time.monotonic()
    _send(producer, topic, deliveries, _records(file, key_separator), partition)
    _flush(producer, deliveries)
    errors = deliveries.errors
    result = Produced(topic, deliveries.delivered, errors.total(), dict(sorted(errors.items())))
    if current().json:
        print_json(result)
    seconds = time.monotonic() - started
    say(f"Produced {result.delivered} records to {topic} in {seconds:.1f} s, {result.failed} failed.")
    for reason, count in result.errors.items():
        say(f"Error: {count} failed: {reason}.")
    if result.failed and not result.delivered:
        _explain(producer, topic)
    return Exit.FAILED if result.failed else Exit.DONE


def _explain(producer: confluent_kafka.Producer, topic: str) -> None:
    """Say that the topic is not there, if that is why: librdkafka only says that the records' time was over."""
    try:
        found = producer.list_topics(topic, timeout=ANSWER_TIMEOUT_S).topics[topic]
    except confluent_kafka.KafkaException:
        return  # no broker answers any more; what failed was said
    if found.error is not None and not found.partitions:
        going = why_going(current().bootstrap_servers(), topic)
        say(going or f"Topic {topic}: {found.error.str()}. `regency topics create {topic}` makes it.")


def _records(file: BinaryIO, separator: str | None) -> Iterator[tuple[bytes | None, bytes]]:
    split = separator.encode() if separator else b""
    for number, line in enumerate(file, 1):
        content = line.rstrip(b"\r\n")
        if not split:
            yield None, content
            continue
        key, found, value = content.partition(split)
        if not found:
            raise CommandFailed(
                f"Line {number} has no {separator!r}, so it has no key.", hint="The lines before it were sent."
            )
        yield key, value


def _send(
    producer: confluent_kafka.Producer,
    topic: str,
    deliveries: Deliveries,
    records: Iterator[tuple[bytes | None, bytes]],
    partition: int | None,
) -> None:
    place = PARTITION_UA if partition is None else partition
    progress = _Progress()
    try:
        for key, value in records:
            while True:
                try:
                    producer.produce(topic, value, key, place, on_delivery=deliveries)
                    break
                except BufferError:
                    producer.poll(0.1)
                except confluent_kafka.KafkaException as error:
                    deliveries.errors[error.args[0].str()] += 1  # this record alone, for example too large
                    break
            producer.poll(0)
            progress.show(deliveries.delivered)
    except CommandFailed:
        producer.flush()
        raise
    finally:
        progress.clear()


def _flush(producer: confluent_kafka.Producer, deliveries: Deliveries) -> None:
    progress = _Progress()
    while producer.flush(_PROGRESS_EVERY_S):
        progress.show(deliveries.delivered)
    progress.clear()


class _Progress:
    """A count on stderr that overwrites itself; nothing where stderr is no terminal."""

    def __init__(self) -> None:
        self._wanted = stderr_is_terminal()
        self._next = 0.0

    def show(self, count: int) -> None:
        """Print the count, a few times a second at most."""
        if self._wanted and time.monotonic() >= self._next:
            self._next = time.monotonic() + _PROGRESS_EVERY_S
            click.echo(f"\r{count} delivered", err=True, nl=False)

    def clear(self) -> None:
        """Give the line back."""
        if self._wanted:
            click.echo("\r\033[K", err=True, nl=False)
